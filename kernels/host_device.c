/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the `host` device; opening, closing and describing it. */
#include "kernels/host_device.h"

#include <stdio.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "kernels/host_copy.h"
#include "kernels/host_digest.h"
#include "kernels/host_launch.h"
#include "kernels/host_meminfo.h"
#include "kernels/host_pinned.h"
#include "kernels/host_stream.h"

/* About 100 us of one thread's copying, many times what waking the pool costs. */
#define POOL_BYTES ((uint64_t)1 << 20)

static gpusnap_status host_count(uint32_t *ret_count, gpusnap_error *err)
{
	(void)err;
	*ret_count = 1;
	return GPUSNAP_OK;
}

static void host_close(void *context)
{
	struct gsn_host *host = context;

	gsn_pool_destroy(host->pool);
	gsn_host_memory_release(&host->memory);
	gsn_free(host);
}

static gpusnap_status host_open(uint32_t index, void **ret_context, gpusnap_error *err)
{
	struct gsn_host *host = gsn_alloc(1, sizeof *host);
	gpusnap_status status;

	(void)index;
	if (!host)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "host device: no memory");
	gsn_host_memory_init(&host->memory);
	status = gsn_pool_create(0, &host->pool, err);
	if (status) {
		host_close(host);
		return status;
	}
	host->moe = (struct gsn_host_moe){host->pool, gsn_cpu_path_best()};
	*ret_context = host;
	return GPUSNAP_OK;
}

static gpusnap_status host_query(void *context, gpusnap_device_properties *ret, gpusnap_error *err)
{
	const struct gsn_host *host = context;
	struct gsn_host_meminfo info;
	gpusnap_status status = gsn_host_meminfo_read("", &info, err);

	if (status)
		return status;
	(void)snprintf(ret->description, sizeof ret->description, "CPU, %u threads, %s kernels",
		gsn_pool_threads(host->pool), host->moe.path->name);
	ret->memory_bytes = info.total_bytes;
	ret->free_bytes = info.available_bytes;
	ret->granule_bytes = GSN_HOST_GRANULE;
	return GPUSNAP_OK;
}

void gsn_host_run(struct gsn_host *host, uint64_t bytes, gsn_pool_fn function, void *argument,
	uint64_t task_count)
{
	if (bytes >= POOL_BYTES)
		gsn_pool_run(host->pool, function, argument, task_count);
	else
		for (uint64_t task = 0; task < task_count; task++)
			function(argument, task);
}

const struct gsn_device_ops gsn_host_ops = {
	.abi = GSN_DEVICE_ABI,
	.caps = GSN_CAP_HOST_ADDRESSABLE,
	.kind = "host",
	.count = host_count,
	.open = host_open,
	.close = host_close,
	.query = host_query,
	.reserve = gsn_host_reserve,
	.map = gsn_host_map,
	.unmap = gsn_host_unmap,
	.release = gsn_host_release,
	.pinned_alloc = gsn_host_pinned_alloc,
	.pinned_free = gsn_host_pinned_free,
	.pin = gsn_host_pin,
	.unpin = gsn_host_unpin,
	.stream_create = gsn_host_stream_create,
	.stream_destroy = gsn_host_stream_destroy,
	.stream_sync = gsn_host_stream_sync,
	.event_create = gsn_host_event_create,
	.event_destroy = gsn_host_event_destroy,
	.event_record = gsn_host_event_record,
	.event_sync = gsn_host_event_sync,
	.stream_wait = gsn_host_stream_wait,
	.copy = gsn_host_copy,
	.copy_strided = gsn_host_copy_strided,
	.fill = gsn_host_fill,
	.digest = gsn_host_digest,
	.moe_scratch_bytes = gsn_host_moe_scratch_bytes,
	.moe_route = gsn_host_launch_route,
	.moe_localise = gsn_host_launch_localise,
	.moe_experts = gsn_host_launch_experts,
	.moe_combine = gsn_host_launch_combine,
	.rms_norm = gsn_host_launch_rms_norm,
};
