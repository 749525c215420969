/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RING_H
#define GSN_RING_H
/*
 * The I/O ring: requests on files, several in flight, each done whole or failed. Short
 * completions are resumed inside, re-aligned for O_DIRECT; a read that ends before its length
 * although the file does not is an error. One thread per ring: the one that opened it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/io.h>

enum gsn_ring_op { GSN_RING_READ, GSN_RING_WRITE };

struct gsn_ring_request {
	enum gsn_ring_op op;
	int fd;
	void *memory;	 /* aligned as the file wants it when the fd is O_DIRECT */
	uint64_t length; /* over 0x7ffff000 is split inside */
	uint64_t offset;
	void *tag; /* comes back with the completion */
};

struct gsn_ring_completion {
	void *tag;
	gpusnap_status status;
	int os_errno;
	uint64_t done; /* bytes; on success the length, or what the file has before its end */
};

struct gsn_ring;
struct gsn_ring_slot; /* ring_state.h */

/*
 * One engine; a const table per file: ring_uring.c, ring_aio.c, ring_threads.c. It moves one part
 * of a request at a time, as gsn_ring_part() cuts it, and answers bytes or a negative errno; what a
 * short or a failed part means is decided in ring.c alone.
 */
struct gsn_ring_engine {
	const char *name;
	/* Set up and prove it with a real read of `probe_fd`; E_UNSUPPORTED when it will not do. */
	gpusnap_status (*open)(struct gsn_ring *ring, int probe_fd, gpusnap_error *err);
	/* True: nothing is in flight any more, whatever was. */
	bool (*close)(struct gsn_ring *ring);
	/* Register [memory, memory+bytes) for fixed I/O; false: plain requests are used. */
	bool (*register_memory)(struct gsn_ring *ring, void *memory, uint64_t bytes);
	gpusnap_status (*submit)(
		struct gsn_ring *ring, struct gsn_ring_slot *slot, gpusnap_error *err);
	/* Wait for any one part. */
	gpusnap_status (*reap)(struct gsn_ring *ring, struct gsn_ring_slot **ret_slot,
		int64_t *ret_result, gpusnap_error *err);
};

/*
 * Opens the engine that the options ask for, or the first that passes its probe: io_uring, Linux
 * AIO, workers when probe_fd is O_DIRECT; workers, io_uring when it goes through the page cache.
 * The reason then tells why those before it would not do. Options must be
 * resolved (gsn_io_options_resolve). `memory` is offered for registration; it must outlive the
 * ring. Fills engine, direct, registered, depth, block_bytes and reason of the report.
 */
gpusnap_status gsn_ring_open(const gpusnap_io_options *options, int probe_fd, void *memory,
	uint64_t memory_bytes, struct gsn_ring **out, gpusnap_io_report *ret_report,
	gpusnap_error *err);
/* The same with one engine given by the caller. */
gpusnap_status gsn_ring_open_engine(const struct gsn_ring_engine *engine,
	const gpusnap_io_options *options, int probe_fd, void *memory, uint64_t memory_bytes,
	struct gsn_ring **out, gpusnap_io_report *ret_report, gpusnap_error *err);
/*
 * Waits for what is in flight. False when that cannot be waited for: the memory of requests may be
 * read or written until the process ends, so nobody may have it again. Takes NULL.
 */
bool gsn_ring_close(struct gsn_ring *ring);
/* At most options.depth in flight: E_LIMIT beyond; reap first. */
gpusnap_status gsn_ring_submit(
	struct gsn_ring *ring, const struct gsn_ring_request *request, gpusnap_error *err);
/* Wait for one request to be done. A failed request is OK here, with completion->status set. */
gpusnap_status gsn_ring_wait(
	struct gsn_ring *ring, struct gsn_ring_completion *ret_completion, gpusnap_error *err);
uint32_t gsn_ring_in_flight(const struct gsn_ring *ring);

#endif
