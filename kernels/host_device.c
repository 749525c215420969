/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the `host` device; opening, closing and describing it. */
#include "kernels/host_device.h"

#include <stdio.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "kernels/host_copy.h"
#include "kernels/host_digest.h"
#include "kernels/host_meminfo.h"
#include "kernels/host_pinned.h"
#include "kernels/host_stream.h"

static gpusnap_status host_count(uint32_t *ret_count, gpusnap_error *err)
{
	(void)err;
	*ret_count = 1;
	return GPUSNAP_OK;
}

static void host_close(void *context)
{
	struct gsn_host *host = context;

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
	status = gsn_host_memory_init(&host->memory, err);
	if (status) {
		gsn_free(host);
		return status;
	}
	*ret_context = host;
	return GPUSNAP_OK;
}

static gpusnap_status host_query(void *context, gpusnap_device_properties *ret, gpusnap_error *err)
{
	struct gsn_host_meminfo info;
	gpusnap_status status = gsn_host_meminfo_read("", &info, err);

	(void)context;
	if (status)
		return status;
	(void)snprintf(ret->description, sizeof ret->description, "CPU, %ld threads",
		sysconf(_SC_NPROCESSORS_ONLN));
	ret->memory_bytes = info.total_bytes;
	ret->free_bytes = info.available_bytes;
	ret->granule_bytes = GSN_HOST_GRANULE;
	return GPUSNAP_OK;
}

#define NOT_YET(name, args_type)                                                                   \
	static gpusnap_status name(                                                                \
		struct gsn_stream *stream, const args_type *args, gpusnap_error *err)              \
	{                                                                                          \
		(void)stream;                                                                      \
		(void)args;                                                                        \
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED, "host device: " #name);                \
	}
NOT_YET(moe_route, struct gsn_moe_route)
NOT_YET(moe_localise, struct gsn_moe_localise)
NOT_YET(moe_experts, struct gsn_moe_experts)
NOT_YET(moe_combine, struct gsn_moe_combine)
NOT_YET(rms_norm, struct gsn_rms_norm)

static uint64_t moe_scratch_bytes(const struct gsn_moe_experts *args)
{
	(void)args;
	return UINT64_MAX;
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
	.moe_scratch_bytes = moe_scratch_bytes,
	.moe_route = moe_route,
	.moe_localise = moe_localise,
	.moe_experts = moe_experts,
	.moe_combine = moe_combine,
	.rms_norm = rms_norm,
};
