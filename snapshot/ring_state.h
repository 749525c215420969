/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RING_STATE_H
#define GSN_RING_STATE_H
/* The ring's insides, shared by ring.c and its engines only. */
#include "snapshot/ring.h"

struct gsn_ring_slot {
	struct gsn_ring_request request;
	uint64_t done;	   /* bytes moved so far */
	uint32_t attempts; /* in a row that moved nothing */
	bool busy;
};

#define GSN_RING_PROBE_BYTES 4096u

struct gsn_ring {
	const struct gsn_ring_engine *engine;
	void *state; /* the engine's own */
	struct gsn_ring_slot *slots;
	uint32_t depth;
	uint32_t in_flight;
	bool direct; /* the file that it was probed with is O_DIRECT */
	/* Of the probe, with room to align it: a read that was given up may still arrive, until the
	 * engine is closed. */
	uint8_t probe_room[2 * GSN_RING_PROBE_BYTES];
};

/* One call's worth of a request: at most GSN_RING_PART_MAX bytes from where it stands. */
#define GSN_RING_PART_MAX 0x7ffff000u
struct gsn_ring_part {
	enum gsn_ring_op op;
	int fd;
	uint8_t *memory;
	uint32_t length;
	uint64_t offset;
};
struct gsn_ring_part gsn_ring_part(const struct gsn_ring_slot *slot);

/*
 * Read the file's first bytes through a ring that has nothing in flight; that the file is empty is
 * an answer too. `what` names the engine in the message. E_UNSUPPORTED: it will not do.
 */
gpusnap_status gsn_ring_probe(
	struct gsn_ring *ring, int probe_fd, const char *what, gpusnap_error *err);

extern const struct gsn_ring_engine gsn_ring_aio;
extern const struct gsn_ring_engine gsn_ring_uring;
extern const struct gsn_ring_engine gsn_ring_threads;

#endif
