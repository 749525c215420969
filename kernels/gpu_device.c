/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a GPU kind and the one symbol of its module; counting, opening, describing. */
#include "kernels/gpu_device.h"

#include <stdarg.h>
#include <stdio.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "kernels/gpu_copy.h"
#include "kernels/gpu_digest.h"
#include "kernels/gpu_launch.h"
#include "kernels/gpu_memory.h"
#include "kernels/gpu_stream.h"

int gsn_gpu_enter(const struct gsn_gpu *gpu)
{
	int before = gpu->index;

	/* A failure shows in the call that follows: nothing works without a current device. */
	(void)gpuGetDevice(&before);
	if (before != gpu->index)
		(void)gpuSetDevice(gpu->index);
	return before;
}

void gsn_gpu_leave(int device)
{
	int now = device;

	(void)gpuGetDevice(&now);
	if (now != device)
		(void)gpuSetDevice(device);
}

static gpusnap_status status_of(gpuError_t code)
{
	switch ((int)code) {
	case gpuErrorMemoryAllocation:
		return GPUSNAP_E_NOMEM;
	case gpuErrorInsufficientDriver:
	case gpuErrorNoDevice:
		return GPUSNAP_E_NODEV;
	default:
		return GPUSNAP_E_DEVICE;
	}
}

gpusnap_status gsn_gpu_fail(
	const struct gsn_gpu *gpu, gpuError_t code, gpusnap_error *err, const char *format, ...)
{
	gpusnap_status status = status_of(code);
	char what[192];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	(void)gpuClearError();
	gsn_error_set(err, status, 0, 0, "%s:%d: %s: %s (%s)", GSN_GPU_KIND, gpu->index, what,
		gpuErrorName(code), gpuErrorString(code));
	if (err)
		err->device_code = (int)code;
	return status;
}

static gpusnap_status gpu_count(uint32_t *ret_count, gpusnap_error *err)
{
	int count = 0;
	gpuError_t code = gpuGetDeviceCount(&count);

	if (!code) {
		*ret_count = (uint32_t)count;
		return GPUSNAP_OK;
	}
	(void)gpuClearError();
	gsn_error_set(err, GPUSNAP_E_NODEV, 0, 0, "%s: %s (%s)",
		(int)code == gpuErrorNoDevice ? GSN_GPU_NO_DEVICE : GSN_GPU_NO_DRIVER,
		gpuErrorName(code), gpuErrorString(code));
	if (err)
		err->device_code = (int)code;
	return GPUSNAP_E_NODEV;
}

static gpusnap_status find_vmm(struct gsn_gpu *gpu, gpusnap_error *err)
{
	for (size_t i = 0; i < sizeof gpuVmmEntries / sizeof gpuVmmEntries[0]; i++) {
		void *function = NULL;
		gpuError_t code = gpuEntryPoint(gpuVmmEntries[i].name, &function);

		if (code)
			return gsn_gpu_fail(gpu, code, err, "the driver's entry point %s",
				gpuVmmEntries[i].name);
		memcpy((char *)&gpu->vmm + gpuVmmEntries[i].offset, &function, sizeof function);
	}
	return GPUSNAP_OK;
}

static gpusnap_status describe(struct gsn_gpu *gpu, gpusnap_error *err)
{
	size_t granule = 0;
	int multiprocessors = 0;
	int reaches = 0;
	gpuError_t code = gpuMemGranularity(&gpu->vmm, gpu->index, &granule);

	if (code)
		return gsn_gpu_fail(gpu, code, err, "granularity of memory");
	code = gpuMultiprocessors(gpu->index, &multiprocessors);
	if (code)
		return gsn_gpu_fail(gpu, code, err, "number of multiprocessors");
	code = gpuDeviceName(gpu->index, gpu->description);
	if (code)
		return gsn_gpu_fail(gpu, code, err, "its name");
	code = gpuReachesRegistered(gpu->index, &reaches);
	if (code)
		return gsn_gpu_fail(gpu, code, err, "whether kernels reach the host's memory");
	gpu->reaches_registered = reaches != 0;
	gpu->ranges.granule = granule;
	gpu->ranges.kind = GSN_GPU_KIND;
	gpu->multiprocessors = (uint32_t)multiprocessors;
	return GPUSNAP_OK;
}

static gpusnap_status set_up(struct gsn_gpu *gpu, gpusnap_error *err)
{
	gpuError_t code = gpuSetDevice(gpu->index);
	gpusnap_status status;

	if (code)
		return gsn_gpu_fail(gpu, code, err, "making the device current");
	status = find_vmm(gpu, err);
	if (!status)
		status = describe(gpu, err);
	if (!status)
		status = gsn_pool_create(0, &gpu->pool, err);
	if (status)
		return status;
	code = gpuStreamCreate(&gpu->housework, gpuStreamNonBlocking);
	return code ? gsn_gpu_fail(gpu, code, err, "making a stream") : GPUSNAP_OK;
}

static void gpu_close(void *context)
{
	struct gsn_gpu *gpu = context;
	int caller = gsn_gpu_enter(gpu);

	gsn_gpu_memory_release(gpu);
	gsn_gpu_scratch_release(&gpu->scratch);
	if (gpu->housework)
		(void)gpuStreamDestroy(gpu->housework);
	gsn_pool_destroy(gpu->pool);
	(void)pthread_mutex_destroy(&gpu->lock);
	gsn_free(gpu);
	gsn_gpu_leave(caller);
}

static gpusnap_status gpu_open(uint32_t index, void **ret_context, gpusnap_error *err)
{
	struct gsn_gpu *gpu = gsn_alloc(1, sizeof *gpu);
	gpusnap_status status;
	int caller;

	if (!gpu)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "%s:%u: no memory", GSN_GPU_KIND, index);
	gpu->index = (int)index;
	(void)pthread_mutex_init(&gpu->lock, NULL); /* cannot fail on Linux */
	gsn_gpu_scratch_init(&gpu->scratch);
	caller = gsn_gpu_enter(gpu);
	status = set_up(gpu, err);
	gsn_gpu_leave(caller);
	if (status) {
		gpu_close(gpu);
		return status;
	}
	*ret_context = gpu;
	return GPUSNAP_OK;
}

static gpusnap_status gpu_query(void *context, gpusnap_device_properties *ret, gpusnap_error *err)
{
	const struct gsn_gpu *gpu = context;
	int caller = gsn_gpu_enter(gpu);
	size_t available = 0;
	size_t total = 0;
	gpuError_t code = gpuMemGetInfo(&available, &total);

	gsn_gpu_leave(caller);
	if (code)
		return gsn_gpu_fail(gpu, code, err, "asking for its free memory");
	memcpy(ret->description, gpu->description, sizeof ret->description);
	ret->memory_bytes = total;
	ret->free_bytes = available;
	ret->granule_bytes = gpu->ranges.granule;
	return GPUSNAP_OK;
}

static const struct gsn_device_ops gpu_ops = {
	.abi = GSN_DEVICE_ABI,
	.kind = GSN_GPU_KIND,
	.count = gpu_count,
	.open = gpu_open,
	.close = gpu_close,
	.query = gpu_query,
	.reserve = gsn_gpu_reserve,
	.map = gsn_gpu_map,
	.unmap = gsn_gpu_unmap,
	.release = gsn_gpu_release,
	.pinned_alloc = gsn_gpu_pinned_alloc,
	.pinned_free = gsn_gpu_pinned_free,
	.pin = gsn_gpu_pin,
	.unpin = gsn_gpu_unpin,
	.stream_create = gsn_gpu_stream_create,
	.stream_destroy = gsn_gpu_stream_destroy,
	.stream_sync = gsn_gpu_stream_sync,
	.event_create = gsn_gpu_event_create,
	.event_destroy = gsn_gpu_event_destroy,
	.event_record = gsn_gpu_event_record,
	.event_sync = gsn_gpu_event_sync,
	.stream_wait = gsn_gpu_stream_wait,
	.copy = gsn_gpu_copy,
	.copy_strided = gsn_gpu_copy_strided,
	.fill = gsn_gpu_fill,
	.digest = gsn_gpu_digest,
	.moe_scratch_bytes = gsn_gpu_moe_scratch_bytes,
	.moe_route = gsn_gpu_moe_route,
	.moe_localise = gsn_gpu_moe_localise,
	.moe_experts = gsn_gpu_moe_experts,
	.moe_combine = gsn_gpu_moe_combine,
	.rms_norm = gsn_gpu_rms_norm,
};

GPUSNAP_API const struct gsn_device_ops *gpusnap_device_module(void);

const struct gsn_device_ops *gpusnap_device_module(void)
{
	return &gpu_ops;
}
