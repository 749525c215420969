/* SPDX-License-Identifier: Apache-2.0 */
/* Staging memory of the host device. */
#include "kernels/host_pinned.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/host_device.h"

/* What one thread touches at a time. */
#define TOUCH_BYTES ((uint64_t)16 << 20)
#define PAGE_BYTES  4096u /* the smallest there is */

struct touch_job {
	char *memory;
	uint64_t bytes;
	atomic_int failure; /* errno */
};

/* Have the kernel put all pages there; before Linux 5.14 by writing to each of them. */
static void touch_piece(void *argument, uint64_t task)
{
	struct touch_job *job = argument;
	uint64_t offset = task * TOUCH_BYTES;
	uint64_t bytes = gsn_min(TOUCH_BYTES, job->bytes - offset);
	volatile char *piece = job->memory + offset;

	if (madvise(job->memory + offset, (size_t)bytes, MADV_POPULATE_WRITE) == 0)
		return;
	if (errno != EINVAL) {
		atomic_store(&job->failure, errno);
		return;
	}
	for (uint64_t i = 0; i < bytes; i += PAGE_BYTES)
		piece[i] = 0;
}

gpusnap_status gsn_host_pinned_alloc(
	void *context, uint64_t bytes, void **ret_memory, gpusnap_error *err)
{
	struct gsn_host *host = context;
	struct touch_job job = {.bytes = gsn_align_up(bytes, GSN_HOST_GRANULE)};
	int failure = ENOMEM;

	if (bytes == 0 || bytes > INT64_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"host device: pinned memory of %" PRIu64 " bytes", bytes);
	atomic_init(&job.failure, 0);
	job.memory = gsn_host_pages_take(job.bytes, PROT_READ | PROT_WRITE, 0);
	if (job.memory) {
		(void)madvise(job.memory, (size_t)job.bytes, MADV_HUGEPAGE);
		gsn_host_run(
			host, job.bytes, touch_piece, &job, gsn_ceil_div(job.bytes, TOUCH_BYTES));
		failure = atomic_load(&job.failure);
	}
	if (failure) {
		gsn_host_pinned_free(context, job.memory, bytes);
		return gsn_fail_os(err, GPUSNAP_E_NOMEM, failure,
			"host device: pinned memory of %" PRIu64 " bytes: %s", bytes,
			strerror(failure));
	}
	*ret_memory = job.memory;
	return GPUSNAP_OK;
}

void gsn_host_pinned_free(void *context, void *memory, uint64_t bytes)
{
	(void)context;
	if (memory)
		(void)munmap(memory, (size_t)gsn_align_up(bytes, GSN_HOST_GRANULE));
}
