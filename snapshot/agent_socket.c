/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets of the agent. The directory is locked while it is decided who listens, so that two agents
 * that start at once do not remove each other's socket.
 */
#include "snapshot/agent_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "formats/base/fail.h"

enum { BACKLOG = 16 };

gpusnap_status gsn_socket_address(
	const char *path, struct sockaddr_un *ret_address, gpusnap_error *err)
{
	size_t length = strlen(path);

	memset(ret_address, 0, sizeof *ret_address);
	ret_address->sun_family = AF_UNIX;
	if (length == 0 || length >= sizeof ret_address->sun_path)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"socket '%s' has a path of %zu bytes; 1 to %zu are possible", path, length,
			sizeof ret_address->sun_path - 1);
	memcpy(ret_address->sun_path, path, length);
	return GPUSNAP_OK;
}

static gpusnap_status fail_socket(const char *what, const char *path, gpusnap_error *err)
{
	int code = errno;

	return gsn_fail_os(
		err, gsn_status_from_errno(code), code, "%s '%s': %s", what, path, strerror(code));
}

/* ---- directory ---- */

static gpusnap_status check_directory(int fd, const char *directory, gpusnap_error *err)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return fail_socket("socket directory", directory, err);
	if (status.st_uid != geteuid())
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"socket directory '%s' belongs to user %u, this is user %u", directory,
			(unsigned)status.st_uid, (unsigned)geteuid());
	if (status.st_mode & 077)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"socket directory '%s' has mode %04o; it must be 0700, so that nobody else "
			"can put a socket there",
			directory, (unsigned)(status.st_mode & 07777));
	return GPUSNAP_OK;
}

/* Open, check and lock the directory of `path`; closing the descriptor unlocks it. */
static gpusnap_status lock_directory(const char *path, int *ret_fd, gpusnap_error *err)
{
	char copy[sizeof((struct sockaddr_un *)0)->sun_path];
	const char *directory;
	gpusnap_status s;
	int fd;

	(void)snprintf(copy, sizeof copy, "%s", path);
	directory = dirname(copy);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return fail_socket("socket directory", directory, err);
	s = check_directory(fd, directory, err);
	if (!s && flock(fd, LOCK_EX) < 0)
		s = fail_socket("lock socket directory", directory, err);
	if (s) {
		(void)close(fd);
		return s;
	}
	*ret_fd = fd;
	return GPUSNAP_OK;
}

/* ---- the old socket ---- */

static gpusnap_status new_socket(int *ret_fd, gpusnap_error *err)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return fail_socket("socket", "AF_UNIX", err);
	*ret_fd = fd;
	return GPUSNAP_OK;
}

/* A full backlog (EAGAIN) is a live listener too. */
static gpusnap_status check_dead(
	const char *path, const struct sockaddr_un *address, gpusnap_error *err)
{
	gpusnap_status s;
	int fd = -1;
	int code;

	s = new_socket(&fd, err);
	if (s)
		return s;
	code = connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? errno : 0;
	(void)close(fd);
	if (code == ECONNREFUSED)
		return GPUSNAP_OK;
	if (code == 0 || code == EAGAIN)
		return gsn_fail(err, GPUSNAP_E_BUSY, "an agent listens at '%s' already", path);
	return gsn_fail_os(
		err, gsn_status_from_errno(code), code, "socket '%s': %s", path, strerror(code));
}

static gpusnap_status clear_path(
	const char *path, const struct sockaddr_un *address, gpusnap_error *err)
{
	struct stat status;
	gpusnap_status s;

	if (lstat(path, &status) < 0)
		return errno == ENOENT ? GPUSNAP_OK : fail_socket("socket", path, err);
	if (!S_ISSOCK(status.st_mode))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"'%s' exists and is no socket; remove it or choose another path", path);
	s = check_dead(path, address, err);
	if (!s && unlink(path) < 0)
		s = fail_socket("remove stale socket", path, err);
	return s;
}

/* ---- listen ---- */

static gpusnap_status bind_socket(int fd, const char *path, const struct sockaddr_un *address,
	struct stat *ret_identity, gpusnap_error *err)
{
	/* Linux gives a socket's file the mode of the descriptor: no moment with a wider one. */
	if (fchmod(fd, 0600) < 0)
		return fail_socket("mode of socket", path, err);
	if (bind(fd, (const struct sockaddr *)address, sizeof *address) < 0)
		return fail_socket("bind socket", path, err);
	if (lstat(path, ret_identity) < 0 || listen(fd, BACKLOG) < 0) {
		gpusnap_status s = fail_socket("listen at socket", path, err);

		(void)unlink(path);
		return s;
	}
	return GPUSNAP_OK;
}

gpusnap_status gsn_socket_listen(
	const char *path, int *ret_fd, struct stat *ret_identity, gpusnap_error *err)
{
	struct sockaddr_un address;
	gpusnap_status s;
	int directory = -1;
	int fd = -1;

	s = gsn_socket_address(path, &address, err);
	if (!s)
		s = lock_directory(path, &directory, err);
	if (s)
		return s;
	s = clear_path(path, &address, err);
	if (!s)
		s = new_socket(&fd, err);
	if (!s)
		s = bind_socket(fd, path, &address, ret_identity, err);
	(void)close(directory);
	if (s) {
		if (fd >= 0)
			(void)close(fd);
		return s;
	}
	*ret_fd = fd;
	return GPUSNAP_OK;
}

void gsn_socket_remove(const char *path, const struct stat *identity)
{
	struct stat now;

	if (lstat(path, &now) == 0 && now.st_dev == identity->st_dev &&
		now.st_ino == identity->st_ino)
		(void)unlink(path);
}

gpusnap_status gsn_socket_check_peer(int fd, gpusnap_error *err)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return fail_socket("credentials of", "peer", err);
	if (peer.uid != 0 && peer.uid != geteuid())
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"user %u may not command this agent, only user %u and root",
			(unsigned)peer.uid, (unsigned)geteuid());
	return GPUSNAP_OK;
}
