/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Linux AIO engine, by its system calls: several O_DIRECT requests in flight where io_uring is
 * forbidden. Through the page cache io_submit() would move the bytes itself, one request after the
 * other, so it serves no such file.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/aio_abi.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/ring_state.h"

/* A part that io_submit() itself answered; reap() hands it out like any other. */
struct answered {
	struct gsn_ring_slot *slot;
	int64_t result;
};

struct aio_state {
	aio_context_t context;
	struct answered *answered; /* at most one a slot */
	uint32_t answered_count;
};

static gpusnap_status aio_submit(
	struct gsn_ring *ring, struct gsn_ring_slot *slot, gpusnap_error *err)
{
	struct aio_state *state = ring->state;
	struct gsn_ring_part part = gsn_ring_part(slot);
	struct iocb control = {
		.aio_data = (uintptr_t)slot,
		.aio_lio_opcode = part.op == GSN_RING_READ ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE,
		.aio_fildes = (uint32_t)part.fd,
		.aio_buf = (uintptr_t)part.memory,
		.aio_nbytes = part.length,
		.aio_offset = (int64_t)part.offset,
	};
	struct iocb *list[] = {&control};

	(void)err; /* ring.c judges a refusal as it does a failed transfer */
	if (syscall(SYS_io_submit, state->context, 1L, list) == 1)
		return GPUSNAP_OK;
	state->answered[state->answered_count++] =
		(struct answered){.slot = slot, .result = -errno};
	return GPUSNAP_OK;
}

static gpusnap_status aio_reap(struct gsn_ring *ring, struct gsn_ring_slot **ret_slot,
	int64_t *ret_result, gpusnap_error *err)
{
	struct aio_state *state = ring->state;
	struct io_event event;
	long got;

	if (state->answered_count) {
		struct answered answered = state->answered[--state->answered_count];

		*ret_slot = answered.slot;
		*ret_result = answered.result;
		return GPUSNAP_OK;
	}
	do
		got = syscall(SYS_io_getevents, state->context, 1L, 1L, &event, NULL);
	while (got == 0 || (got < 0 && errno == EINTR));
	if (got < 0)
		return gsn_fail_os(err, gsn_status_from_errno(errno), errno, "Linux AIO: wait: %s",
			strerror(errno));
	*ret_slot = (struct gsn_ring_slot *)(uintptr_t)event.data;
	*ret_result = event.res;
	return GPUSNAP_OK;
}

/* io_destroy() waits for what is in flight. */
static bool aio_close(struct gsn_ring *ring)
{
	struct aio_state *state = ring->state;
	bool waited = !state->context || syscall(SYS_io_destroy, state->context) == 0;

	gsn_free(state->answered);
	gsn_free(state);
	ring->state = NULL;
	return waited;
}

static gpusnap_status set_up(
	struct aio_state *state, const struct gsn_ring *ring, gpusnap_error *err)
{
	state->answered = gsn_alloc(ring->depth, sizeof *state->answered);
	if (!state->answered)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "Linux AIO: out of memory");
	if (syscall(SYS_io_setup, ring->depth, &state->context))
		return gsn_fail_os(err, GPUSNAP_E_UNSUPPORTED, errno,
			"Linux AIO is not available: %s", strerror(errno));
	return GPUSNAP_OK;
}

static gpusnap_status aio_open(struct gsn_ring *ring, int probe_fd, gpusnap_error *err)
{
	gpusnap_status status;

	if (!ring->direct)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED, "Linux AIO serves direct I/O only");
	ring->state = gsn_alloc(1, sizeof(struct aio_state));
	if (!ring->state)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "Linux AIO: out of memory");
	status = set_up(ring->state, ring, err);
	if (!status)
		status = gsn_ring_probe(ring, probe_fd, "Linux AIO", err);
	if (status)
		(void)aio_close(ring);
	return status;
}

static bool aio_register(struct gsn_ring *ring, void *memory, uint64_t bytes)
{
	(void)ring;
	(void)memory;
	(void)bytes;
	return false; /* the kernel has no such thing for it */
}

const struct gsn_ring_engine gsn_ring_aio = {
	.name = "aio",
	.open = aio_open,
	.close = aio_close,
	.register_memory = aio_register,
	.submit = aio_submit,
	.reap = aio_reap,
};
