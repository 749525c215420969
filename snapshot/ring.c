/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring above its engines: which engine serves a file, the bookkeeping of requests, and what
 * short, empty and failed transfers mean. Engines only move bytes.
 */
#include "snapshot/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "snapshot/ring_state.h"

/*
 * After a short O_DIRECT transfer the rest must start on a boundary again. No file with a coarser
 * rule is opened O_DIRECT (direct.c), and 4096 satisfies every finer one.
 */
#define REALIGN_BYTES 4096u

/* A request may be told EINTR or EAGAIN this often in a row before that becomes its failure. */
#define ATTEMPTS_MAX 64u

enum {
	REFUSALS_BYTES = 240,
	/* A second in all. */
	CLOSE_REFUSALS_MAX = 500,
	CLOSE_PAUSE_NS = 2000000,
};

struct gsn_ring_part gsn_ring_part(const struct gsn_ring_slot *slot)
{
	const struct gsn_ring_request *request = &slot->request;

	return (struct gsn_ring_part){
		.op = request->op,
		.fd = request->fd,
		.memory = (uint8_t *)request->memory + slot->done,
		.length = (uint32_t)gsn_min(request->length - slot->done, GSN_RING_PART_MAX),
		.offset = request->offset + slot->done,
	};
}

static bool fd_is_direct(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_DIRECT);
}

/*
 * What cannot be waited for now may be in a moment: short of memory, the kernel refuses the call.
 * False when it goes on refusing.
 */
static bool drain(struct gsn_ring *ring)
{
	static const struct timespec pause = {.tv_nsec = CLOSE_PAUSE_NS};
	unsigned refusals = 0;
	struct gsn_ring_slot *slot;
	int64_t result;

	while (ring->in_flight && refusals < CLOSE_REFUSALS_MAX) {
		if (ring->engine->reap(ring, &slot, &result, NULL) == GPUSNAP_OK) {
			ring->in_flight--;
			refusals = 0;
		} else if (++refusals < CLOSE_REFUSALS_MAX) {
			(void)nanosleep(&pause, NULL);
		}
	}
	return !ring->in_flight;
}

bool gsn_ring_close(struct gsn_ring *ring)
{
	bool drained;

	if (!ring)
		return true;
	drained = drain(ring);
	drained = ring->engine->close(ring) || drained;
	gsn_free(ring->slots);
	gsn_free(ring);
	return drained;
}

static bool is_passing(int64_t result)
{
	return result == -EINTR || result == -EAGAIN;
}

static bool retry(struct gsn_ring_slot *slot)
{
	return ++slot->attempts < ATTEMPTS_MAX;
}

gpusnap_status gsn_ring_probe(
	struct gsn_ring *ring, int probe_fd, const char *what, gpusnap_error *err)
{
	uint64_t memory = gsn_align_up((uintptr_t)ring->probe_room, GSN_RING_PROBE_BYTES);
	struct gsn_ring_slot slot = {.request = {.fd = probe_fd,
					     .memory = (void *)(uintptr_t)memory,
					     .length = GSN_RING_PROBE_BYTES}};
	struct gsn_ring_slot *reaped;
	int64_t result = 0;
	gpusnap_status status;

	do {
		status = ring->engine->submit(ring, &slot, err);
		if (!status)
			status = ring->engine->reap(ring, &reaped, &result, err);
	} while (!status && is_passing(result) && retry(&slot));
	if (!status && result < 0)
		return gsn_fail_os(err, GPUSNAP_E_UNSUPPORTED, (int)-result,
			"%s refused a read: %s", what, strerror((int)-result));
	return status;
}

static gpusnap_status ring_new(uint32_t depth, struct gsn_ring **out, gpusnap_error *err)
{
	struct gsn_ring *ring = gsn_alloc(1, sizeof *ring);

	if (!ring)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "I/O ring: out of memory");
	ring->slots = gsn_alloc(depth, sizeof *ring->slots);
	if (!ring->slots) {
		gsn_free(ring);
		return gsn_fail(err, GPUSNAP_E_NOMEM, "I/O ring of depth %u: out of memory", depth);
	}
	ring->depth = depth;
	*out = ring;
	return GPUSNAP_OK;
}

gpusnap_status gsn_ring_open_engine(const struct gsn_ring_engine *engine,
	const gpusnap_io_options *options, int probe_fd, void *memory, uint64_t memory_bytes,
	struct gsn_ring **out, gpusnap_io_report *ret_report, gpusnap_error *err)
{
	struct gsn_ring *ring;
	gpusnap_status status = ring_new(options->depth, &ring, err);

	if (status)
		return status;
	ring->engine = engine;
	ring->direct = fd_is_direct(probe_fd);
	status = engine->open(ring, probe_fd, err);
	if (status) {
		gsn_free(ring->slots);
		gsn_free(ring);
		return status;
	}
	ret_report->registered = memory && engine->register_memory(ring, memory, memory_bytes);
	ret_report->engine = engine->name;
	ret_report->direct = ring->direct;
	ret_report->depth = ring->depth;
	ret_report->block_bytes = options->block_bytes;
	*out = ring;
	return GPUSNAP_OK;
}

/*
 * O_DIRECT wants many requests in flight, which the kernel keeps; a warm page cache is copied
 * faster by several workers.
 */
static const struct gsn_ring_engine *const direct_order[] = {
	&gsn_ring_uring, &gsn_ring_aio, &gsn_ring_threads, NULL};
static const struct gsn_ring_engine *const cached_order[] = {
	&gsn_ring_threads, &gsn_ring_uring, NULL};
static const struct gsn_ring_engine *const one_each[][2] = {
	[GPUSNAP_IO_URING] = {&gsn_ring_uring, NULL},
	[GPUSNAP_IO_AIO] = {&gsn_ring_aio, NULL},
	[GPUSNAP_IO_THREADS] = {&gsn_ring_threads, NULL},
	[GPUSNAP_IO_MMAP] = {NULL},
};

static const struct gsn_ring_engine *const *engine_candidates(gpusnap_io_engine wanted, bool direct)
{
	if (wanted != GPUSNAP_IO_AUTO)
		return one_each[wanted];
	return direct ? direct_order : cached_order;
}

/* Why those before the engine that serves did not: their messages in one line. */
struct refusals {
	gpusnap_error last;
	char text[REFUSALS_BYTES];
};

static void refusals_add(struct refusals *refusals, const gpusnap_error *latest)
{
	size_t used = strlen(refusals->text);

	refusals->last = *latest;
	(void)snprintf(refusals->text + used, sizeof refusals->text - used, "%s%.110s",
		used ? ", and " : "", latest->message);
}

static gpusnap_status refusals_fail(const struct refusals *refusals, gpusnap_error *err)
{
	return gsn_fail_os(
		err, refusals->last.status, refusals->last.os_errno, "%s", refusals->text);
}

static void explain(gpusnap_io_report *report, const gpusnap_io_options *options,
	const struct refusals *refusals)
{
	const char *why = "it passed its probe";

	if (refusals->last.status)
		why = refusals->text;
	else if (options->engine != GPUSNAP_IO_AUTO)
		why = "it was asked for";
	(void)snprintf(report->reason, sizeof report->reason, "%s", why);
}

gpusnap_status gsn_ring_open(const gpusnap_io_options *options, int probe_fd, void *memory,
	uint64_t memory_bytes, struct gsn_ring **out, gpusnap_io_report *ret_report,
	gpusnap_error *err)
{
	const struct gsn_ring_engine *const *candidate =
		engine_candidates(options->engine, fd_is_direct(probe_fd));
	struct refusals refusals = {.text = ""};
	gpusnap_error latest;

	if (options->engine == GPUSNAP_IO_MMAP)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"I/O engine mmap reads checkpoints only; choose another for snapshots");
	for (; *candidate; candidate++) {
		gpusnap_status status = gsn_ring_open_engine(*candidate, options, probe_fd, memory,
			memory_bytes, out, ret_report, &latest);

		if (!status) {
			explain(ret_report, options, &refusals);
			return GPUSNAP_OK;
		}
		refusals_add(&refusals, &latest);
		if (status == GPUSNAP_E_NOMEM)
			break; /* no other engine does with less */
	}
	return refusals_fail(&refusals, err);
}

static struct gsn_ring_slot *free_slot(struct gsn_ring *ring)
{
	for (uint32_t i = 0; i < ring->depth; i++)
		if (!ring->slots[i].busy)
			return &ring->slots[i];
	return NULL;
}

gpusnap_status gsn_ring_submit(
	struct gsn_ring *ring, const struct gsn_ring_request *request, gpusnap_error *err)
{
	struct gsn_ring_slot *slot = free_slot(ring);
	gpusnap_status status;

	if (!slot)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "I/O ring: %u requests are in flight already",
			ring->depth);
	*slot = (struct gsn_ring_slot){.request = *request};
	status = ring->engine->submit(ring, slot, err);
	if (status)
		return status;
	slot->busy = true;
	ring->in_flight++;
	return GPUSNAP_OK;
}

uint32_t gsn_ring_in_flight(const struct gsn_ring *ring)
{
	return ring->in_flight;
}

/* What became of a request after one more part of it. */
enum part_outcome { PART_MORE, PART_DONE, PART_FAILED };

static bool at_end_of_file(const struct gsn_ring_slot *slot)
{
	struct stat file;

	return fstat(slot->request.fd, &file) == 0 &&
	       slot->request.offset + slot->done >= (uint64_t)file.st_size;
}

static enum part_outcome moved(struct gsn_ring_slot *slot, uint64_t bytes, int *ret_errno)
{
	uint64_t before = slot->done;

	slot->done += bytes;
	if (slot->done >= slot->request.length)
		return PART_DONE;
	if (slot->request.op == GSN_RING_READ && at_end_of_file(slot))
		return PART_DONE;
	if (fd_is_direct(slot->request.fd))
		slot->done = gsn_align_down(slot->done, REALIGN_BYTES);
	if (slot->done <= before && !retry(slot)) {
		*ret_errno = EIO;
		return PART_FAILED;
	}
	if (slot->done > before)
		slot->attempts = 0;
	return PART_MORE;
}

static enum part_outcome judge(struct gsn_ring_slot *slot, int64_t result, int *ret_errno)
{
	if (is_passing(result)) {
		*ret_errno = (int)-result;
		return retry(slot) ? PART_MORE : PART_FAILED;
	}
	if (result < 0) {
		*ret_errno = (int)-result;
		return PART_FAILED;
	}
	if (result == 0 && slot->request.length) {
		*ret_errno = EIO;
		return slot->request.op == GSN_RING_READ && at_end_of_file(slot) ? PART_DONE
										 : PART_FAILED;
	}
	return moved(slot, (uint64_t)result, ret_errno);
}

gpusnap_status gsn_ring_wait(
	struct gsn_ring *ring, struct gsn_ring_completion *ret_completion, gpusnap_error *err)
{
	struct gsn_ring_slot *slot;
	enum part_outcome outcome;
	gpusnap_status status;
	int64_t result;
	int os_errno = 0;

	if (!ring->in_flight)
		return gsn_fail(err, GPUSNAP_E_STATE, "I/O ring: nothing is in flight");
	for (;;) {
		status = ring->engine->reap(ring, &slot, &result, err);
		if (status)
			return status;
		outcome = judge(slot, result, &os_errno);
		if (outcome != PART_MORE)
			break;
		status = ring->engine->submit(ring, slot, err);
		if (status) {
			slot->busy = false;
			ring->in_flight--;
			return status;
		}
	}
	slot->busy = false;
	ring->in_flight--;
	*ret_completion = (struct gsn_ring_completion){
		.tag = slot->request.tag,
		.status = outcome == PART_DONE ? GPUSNAP_OK : gsn_status_from_errno(os_errno),
		.os_errno = outcome == PART_DONE ? 0 : os_errno,
		.done = slot->done,
	};
	return GPUSNAP_OK;
}
