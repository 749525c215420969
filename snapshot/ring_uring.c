/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring engine. Nothing is concluded from versions: the set-up flags are tried from the
 * best down, and a real read through the ring decides whether it serves (a container's seccomp
 * filter, a sysctl or a memory limit may each refuse).
 */
#include <errno.h>
#include <string.h>

#include <liburing.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "snapshot/ring_state.h"

/* The kernel takes at most this much as one registered buffer. */
#define FIXED_BYTES_MAX (UINT64_C(1) << 30)
enum { FIXED_COUNT_MAX = 16, SUBMIT_TRIES = 64 };

struct uring_state {
	struct io_uring ring;
	uint8_t *fixed; /* registered memory, in pieces of FIXED_BYTES_MAX; NULL for none */
	uint64_t fixed_bytes;
	int fixed_fd; /* the descriptor that is registered as file 0; -1 for none */
};

static int set_up(struct io_uring *ring, uint32_t depth)
{
	/* One thread submits and reaps, so completions need not interrupt it. */
	static const unsigned flag_sets[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_COOP_TASKRUN,
		0,
	};
	int result = -EINVAL;

	for (size_t i = 0; i < sizeof flag_sets / sizeof flag_sets[0] && result == -EINVAL; i++)
		result = io_uring_queue_init(depth, ring, flag_sets[i]);
	return result;
}

/* The index of the registered piece that holds the whole part, or -1. */
static int fixed_index(const struct uring_state *state, const struct gsn_ring_part *part)
{
	uint64_t begin, end;

	if (!state->fixed || part->memory < state->fixed ||
		part->memory + part->length > state->fixed + state->fixed_bytes || !part->length)
		return -1;
	begin = (uint64_t)(part->memory - state->fixed);
	end = begin + part->length - 1;
	return begin / FIXED_BYTES_MAX == end / FIXED_BYTES_MAX ? (int)(begin / FIXED_BYTES_MAX)
								: -1;
}

static void prepare(
	struct io_uring_sqe *sqe, const struct uring_state *state, const struct gsn_ring_part *part)
{
	int index = fixed_index(state, part);
	bool fixed_file = part->fd == state->fixed_fd && part->fd >= 0;
	int fd = fixed_file ? 0 : part->fd;

	if (part->op == GSN_RING_READ && index >= 0)
		io_uring_prep_read_fixed(sqe, fd, part->memory, part->length, part->offset, index);
	else if (part->op == GSN_RING_READ)
		io_uring_prep_read(sqe, fd, part->memory, part->length, part->offset);
	else if (index >= 0)
		io_uring_prep_write_fixed(sqe, fd, part->memory, part->length, part->offset, index);
	else
		io_uring_prep_write(sqe, fd, part->memory, part->length, part->offset);
	io_uring_sqe_set_flags(sqe, fixed_file ? IOSQE_FIXED_FILE : 0);
}

/* Short of memory the kernel says EAGAIN; give it a few chances, not for ever. */
static int submit_all(struct io_uring *ring)
{
	int result = -EAGAIN;

	for (int tries = 0; tries < SUBMIT_TRIES && (result == -EAGAIN || result == -EINTR);
		tries++)
		result = io_uring_submit(ring);
	if (result == 0)
		return -EAGAIN;
	return result < 0 ? result : 0;
}

static gpusnap_status uring_submit(
	struct gsn_ring *ring, struct gsn_ring_slot *slot, gpusnap_error *err)
{
	struct uring_state *state = ring->state;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&state->ring);
	struct gsn_ring_part part = gsn_ring_part(slot);
	int result;

	if (!sqe)
		return gsn_fail(
			err, GPUSNAP_E_IO, "io_uring: submission queue of %u is full", ring->depth);
	prepare(sqe, state, &part);
	/* Through the page cache a request is a copy: let workers make several at once. */
	if (!ring->direct)
		sqe->flags |= IOSQE_ASYNC;
	io_uring_sqe_set_data(sqe, slot);
	result = submit_all(&state->ring);
	if (result)
		return gsn_fail_os(err, gsn_status_from_errno(-result), -result,
			"io_uring: submit: %s", strerror(-result));
	return GPUSNAP_OK;
}

static gpusnap_status uring_reap(struct gsn_ring *ring, struct gsn_ring_slot **ret_slot,
	int64_t *ret_result, gpusnap_error *err)
{
	struct uring_state *state = ring->state;
	struct io_uring_cqe *cqe;
	int result;

	do
		result = io_uring_wait_cqe(&state->ring, &cqe);
	while (result == -EINTR || result == -EAGAIN);
	if (result)
		return gsn_fail_os(err, gsn_status_from_errno(-result), -result,
			"io_uring: wait: %s", strerror(-result));
	*ret_slot = io_uring_cqe_get_data(cqe);
	*ret_result = cqe->res;
	io_uring_cqe_seen(&state->ring, cqe);
	return GPUSNAP_OK;
}

/* Requests that are still in flight go on without the ring. */
static bool uring_close(struct gsn_ring *ring)
{
	struct uring_state *state = ring->state;

	/* The kernel takes a ring apart when it likes; the file must be let go of before. */
	if (state->fixed_fd >= 0)
		(void)io_uring_unregister_files(&state->ring);
	io_uring_queue_exit(&state->ring);
	gsn_free(state);
	ring->state = NULL;
	return false;
}

static gpusnap_status uring_open(struct gsn_ring *ring, int probe_fd, gpusnap_error *err)
{
	struct uring_state *state = gsn_alloc(1, sizeof *state);
	gpusnap_status status;
	int result;

	if (!state)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "io_uring: out of memory");
	result = set_up(&state->ring, ring->depth);
	if (result) {
		gsn_free(state);
		return gsn_fail_os(err, GPUSNAP_E_UNSUPPORTED, -result,
			"io_uring is not available: %s", strerror(-result));
	}
	state->fixed_fd = -1;
	ring->state = state;
	status = gsn_ring_probe(ring, probe_fd, "io_uring", err);
	if (status) {
		(void)uring_close(ring);
		return status;
	}
	/* Refused, it is named by its descriptor like any other. */
	if (io_uring_register_files(&state->ring, &probe_fd, 1) == 0)
		state->fixed_fd = probe_fd;
	return GPUSNAP_OK;
}

/* All of it or nothing: a partial registration is undone, and plain requests are used. */
static bool uring_register(struct gsn_ring *ring, void *memory, uint64_t bytes)
{
	struct uring_state *state = ring->state;
	struct iovec pieces[FIXED_COUNT_MAX];
	uint64_t count = gsn_ceil_div(bytes, FIXED_BYTES_MAX);
	int result;

	if (!count || count > FIXED_COUNT_MAX)
		return false;
	for (uint64_t i = 0; i < count; i++)
		pieces[i] = (struct iovec){
			.iov_base = (uint8_t *)memory + i * FIXED_BYTES_MAX,
			.iov_len = (size_t)gsn_min(bytes - i * FIXED_BYTES_MAX, FIXED_BYTES_MAX),
		};
	result = io_uring_register_buffers(&state->ring, pieces, (unsigned)count);
	if (result > 0)
		(void)io_uring_unregister_buffers(&state->ring);
	if (result)
		return false;
	state->fixed = memory;
	state->fixed_bytes = bytes;
	return true;
}

const struct gsn_ring_engine gsn_ring_uring = {
	.name = "uring",
	.open = uring_open,
	.close = uring_close,
	.register_memory = uring_register,
	.submit = uring_submit,
	.reap = uring_reap,
};
