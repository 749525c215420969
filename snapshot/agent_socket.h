/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_AGENT_SOCKET_H
#define GSN_AGENT_SOCKET_H
/* The agent's place in the file system: who may connect, and who listens there. */
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <gpusnap/status.h>

/* E_INVALID when the path does not fit a socket address. */
gpusnap_status gsn_socket_address(
	const char *path, struct sockaddr_un *ret_address, gpusnap_error *err);

/*
 * Listen at `path`: its directory must be ours alone (E_INVALID), a live listener is E_BUSY, the
 * socket of a dead one is replaced. The socket has mode 0600 from its first moment.
 * @param ret_identity  of the socket's file, for gsn_socket_remove().
 */
gpusnap_status gsn_socket_listen(
	const char *path, int *ret_fd, struct stat *ret_identity, gpusnap_error *err);
/* Remove the socket's file unless another has taken its place. */
void gsn_socket_remove(const char *path, const struct stat *identity);
/* The peer of a connection is the same user, or root. */
gpusnap_status gsn_socket_check_peer(int fd, gpusnap_error *err);

#endif
