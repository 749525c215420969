/* SPDX-License-Identifier: Apache-2.0 */
/* Staging memory of the host device. */
#include "kernels/host_pinned.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "formats/base/fail.h"

gpusnap_status gsn_host_pinned_alloc(
	void *context, uint64_t bytes, void **ret_memory, gpusnap_error *err)
{
	void *memory;

	(void)context;
	if (bytes == 0 || bytes > INT64_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"host device: pinned memory of %" PRIu64 " bytes", bytes);
	memory = mmap(
		NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return gsn_fail_os(err, GPUSNAP_E_NOMEM, errno,
			"host device: pinned memory of %" PRIu64 " bytes: %s", bytes,
			strerror(errno));
	(void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
	*ret_memory = memory;
	return GPUSNAP_OK;
}

void gsn_host_pinned_free(void *context, void *memory, uint64_t bytes)
{
	(void)context;
	if (memory)
		(void)munmap(memory, (size_t)bytes);
}
