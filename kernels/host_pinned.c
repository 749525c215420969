/* SPDX-License-Identifier: Apache-2.0 */
/* Staging memory of the host device. */
#include "kernels/host_pinned.h"

#include "kernels/host_device.h"
#include "kernels/pages.h"

gpusnap_status gsn_host_pinned_alloc(
	void *context, uint64_t bytes, void **ret_memory, gpusnap_error *err)
{
	struct gsn_host *host = context;

	return gsn_pages_take_touched(host->pool, gsn_host_ops.kind, bytes, ret_memory, err);
}

void gsn_host_pinned_free(void *context, void *memory, uint64_t bytes)
{
	(void)context;
	gsn_pages_give_back(memory, bytes);
}

gpusnap_status gsn_host_pin(void *context, void *memory, uint64_t bytes, gpusnap_error *err)
{
	(void)context;
	(void)memory;
	(void)bytes;
	(void)err;
	return GPUSNAP_OK;
}

void gsn_host_unpin(void *context, void *memory, uint64_t bytes)
{
	(void)context;
	(void)memory;
	(void)bytes;
}
