/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_AGENT_PEER_H
#define GSN_AGENT_PEER_H
/*
 * One connection to the agent: lines in, lines out, never blocking. What a client can make the
 * agent hold is bounded: one line of input, and answers up to a backlog after which no further
 * request of it is looked at.
 */
#include <stdbool.h>
#include <stddef.h>

struct gsn_peer {
	int fd; /* -1: free */
	char *in;
	size_t in_bytes, in_capacity;
	size_t line_bytes; /* of the complete line at the front, with its newline; 0: none */
	char *out;
	size_t out_bytes, out_sent, out_capacity;
	double moved_at; /* when the client last took something, on the monotonic clock */
	bool ended;	 /* nothing more will be read */
};

enum { GSN_PEER_BACKLOG_BYTES = 1 << 20 };

void gsn_peer_open(struct gsn_peer *peer, int fd);
void gsn_peer_close(struct gsn_peer *peer); /* takes a closed one */
/* Read what is there, at most `line_max` bytes of a line. False: the connection is lost. */
bool gsn_peer_receive(struct gsn_peer *peer, size_t line_max);
/* A line of more than `line_max` bytes is under way; it will never be complete. */
bool gsn_peer_is_over_long(const struct gsn_peer *peer, size_t line_max);
/* Drop the line at the front. */
void gsn_peer_next(struct gsn_peer *peer);
/* Append a line. False: no memory. */
bool gsn_peer_put(struct gsn_peer *peer, const char *line);
/* Write as much as the client takes. False: the connection is lost. */
bool gsn_peer_flush(struct gsn_peer *peer);
size_t gsn_peer_backlog(const struct gsn_peer *peer);

#endif
