/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
/* What one thread touches at a time. */
#define TOUCH_BYTES ((uint64_t)16 << 20)
#define PAGE_BYTES  4096u /* the smallest there is */

struct touch_job {
	char *memory;
	uint64_t bytes;
	atomic_int failure; /* errno */
};

void *gsn_pages_take(uint64_t bytes, int protection, int flags)
{
	uint64_t alignment = bytes < HUGE_PAGE_BYTES ? GSN_PAGES_UNIT : HUGE_PAGE_BYTES;
	uint64_t whole = bytes + alignment;
	void *base =
		mmap(NULL, (size_t)whole, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	uint64_t begin = (uint64_t)(uintptr_t)base;
	uint64_t address;

	if (base == MAP_FAILED)
		return NULL;
	address = gsn_align_up(begin, alignment);
	if (address > begin)
		(void)munmap(base, (size_t)(address - begin));
	if (begin + whole > address + bytes)
		(void)munmap((void *)(uintptr_t)(address + bytes),
			(size_t)(begin + whole - address - bytes));
	return (void *)(uintptr_t)address;
}

/*
 * Have the kernel put all pages there; before Linux 5.14 by writing to each of them. @return errno
 */
static int touch(void *memory, uint64_t bytes)
{
	volatile char *pages = memory;

	if (madvise(memory, (size_t)bytes, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return errno;
	for (uint64_t i = 0; i < bytes; i += PAGE_BYTES)
		pages[i] = 0;
	return 0;
}

static void touch_piece(void *argument, uint64_t task)
{
	struct touch_job *job = argument;
	uint64_t offset = task * TOUCH_BYTES;
	int failure = touch(job->memory + offset, gsn_min(TOUCH_BYTES, job->bytes - offset));

	if (failure)
		atomic_store(&job->failure, failure);
}

static gpusnap_status fail(const char *kind, uint64_t bytes, int failure, gpusnap_error *err)
{
	return gsn_fail_os(err, GPUSNAP_E_NOMEM, failure,
		"%s device: pinned memory of %" PRIu64 " bytes: %s", kind, bytes,
		strerror(failure));
}

void *gsn_pages_take_staging(uint64_t bytes)
{
	uint64_t whole = gsn_align_up(bytes, GSN_PAGES_UNIT);
	void *memory = gsn_pages_take(whole, PROT_READ | PROT_WRITE, 0);

	if (memory)
		(void)madvise(memory, (size_t)whole, MADV_HUGEPAGE);
	return memory;
}

gpusnap_status gsn_pages_touch(const char *kind, void *memory, uint64_t bytes, gpusnap_error *err)
{
	int failure = touch(memory, bytes);

	return failure ? fail(kind, bytes, failure, err) : GPUSNAP_OK;
}

gpusnap_status gsn_pages_take_touched(struct gsn_pool *pool, const char *kind, uint64_t bytes,
	void **ret_memory, gpusnap_error *err)
{
	struct touch_job job = {.bytes = gsn_align_up(bytes, GSN_PAGES_UNIT)};
	int failure = ENOMEM;

	if (bytes == 0 || bytes > INT64_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: pinned memory of %" PRIu64 " bytes", kind, bytes);
	atomic_init(&job.failure, 0);
	job.memory = gsn_pages_take_staging(job.bytes);
	if (job.memory) {
		gsn_pool_run(pool, touch_piece, &job, gsn_ceil_div(job.bytes, TOUCH_BYTES));
		failure = atomic_load(&job.failure);
	}
	if (failure) {
		gsn_pages_give_back(job.memory, bytes);
		return fail(kind, bytes, failure, err);
	}
	*ret_memory = job.memory;
	return GPUSNAP_OK;
}

void gsn_pages_give_back(void *memory, uint64_t bytes)
{
	if (memory)
		(void)munmap(memory, (size_t)gsn_align_up(bytes, GSN_PAGES_UNIT));
}
