/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of one connection. */
#include "snapshot/agent_peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/clock.h"

enum { READ_BYTES = 64 << 10 };

void gsn_peer_open(struct gsn_peer *peer, int fd)
{
	*peer = (struct gsn_peer){.fd = fd, .moved_at = gsn_clock_seconds()};
}

void gsn_peer_close(struct gsn_peer *peer)
{
	if (peer->fd < 0)
		return;
	(void)close(peer->fd);
	gsn_free(peer->in);
	gsn_free(peer->out);
	*peer = (struct gsn_peer){.fd = -1};
}

/* Room for `more` bytes behind `used`; doubles, so that appending stays linear. */
static bool make_room(char **buffer, size_t *capacity, size_t used, size_t more)
{
	size_t wanted = *capacity ? *capacity : READ_BYTES;
	char *grown;

	while (wanted < used + more)
		wanted *= 2;
	if (wanted == *capacity)
		return true;
	grown = gsn_grow(*buffer, *capacity, wanted, 1);
	if (!grown)
		return false;
	*buffer = grown;
	*capacity = wanted;
	return true;
}

static void find_line(struct gsn_peer *peer, size_t from)
{
	const char *end = NULL;

	if (peer->in_bytes > from)
		end = memchr(peer->in + from, '\n', peer->in_bytes - from);
	peer->line_bytes = end ? (size_t)(end - peer->in) + 1 : 0;
}

bool gsn_peer_receive(struct gsn_peer *peer, size_t line_max)
{
	size_t old = peer->in_bytes;
	ssize_t got;

	if (old > line_max)
		return true;
	if (!make_room(&peer->in, &peer->in_capacity, old, READ_BYTES))
		return false;
	do
		got = recv(peer->fd, peer->in + old, READ_BYTES, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK;
	peer->ended = got == 0;
	peer->in_bytes += (size_t)got;
	if (peer->line_bytes == 0)
		find_line(peer, old);
	return true;
}

bool gsn_peer_is_over_long(const struct gsn_peer *peer, size_t line_max)
{
	size_t bytes = peer->line_bytes ? peer->line_bytes - 1 : peer->in_bytes;

	return bytes > line_max;
}

void gsn_peer_next(struct gsn_peer *peer)
{
	peer->in_bytes -= peer->line_bytes;
	memmove(peer->in, peer->in + peer->line_bytes, peer->in_bytes);
	find_line(peer, 0);
}

bool gsn_peer_put(struct gsn_peer *peer, const char *line)
{
	size_t length = strlen(line);

	if (!make_room(&peer->out, &peer->out_capacity, peer->out_bytes, length + 1))
		return false;
	if (gsn_peer_backlog(peer) == 0)
		peer->moved_at = gsn_clock_seconds();
	memcpy(peer->out + peer->out_bytes, line, length);
	peer->out[peer->out_bytes + length] = '\n';
	peer->out_bytes += length + 1;
	return true;
}

size_t gsn_peer_backlog(const struct gsn_peer *peer)
{
	return peer->out_bytes - peer->out_sent;
}

bool gsn_peer_flush(struct gsn_peer *peer)
{
	while (gsn_peer_backlog(peer) > 0) {
		ssize_t sent = send(
			peer->fd, peer->out + peer->out_sent, gsn_peer_backlog(peer), MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK;
		peer->out_sent += (size_t)sent;
		peer->moved_at = gsn_clock_seconds();
	}
	/* All is sent: give a large answer's memory back. */
	gsn_free(peer->out);
	peer->out = NULL;
	peer->out_bytes = peer->out_sent = peer->out_capacity = 0;
	return true;
}
