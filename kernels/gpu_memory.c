/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserve, map, unmap and release on a GPU, over the driver's virtual memory management. A map owns
 * its physical memory: the handle is dropped once it is mapped, so that unmapping frees it. What
 * the driver gives may hold another process's bytes or this one's; it is zeroed before it is given.
 */
#include "kernels/gpu_memory.h"

#include <assert.h>
#include <inttypes.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/gpu_device.h"
#include "kernels/pages.h"

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static void unmap_all(struct gsn_gpu *gpu, uint64_t address, uint64_t end)
{
	struct gsn_ranges *mapped = &gpu->ranges.mapped;
	const struct gsn_range *map;

	while ((map = gsn_ranges_meeting(mapped, address, end)) != NULL) {
		(void)gpuMemUnmap(&gpu->vmm, map->address, map->bytes);
		gsn_ranges_take_out(mapped, map);
	}
}

void gsn_gpu_memory_release(struct gsn_gpu *gpu)
{
	const struct gsn_ranges *reserved = &gpu->ranges.reserved;

	unmap_all(gpu, 0, UINT64_MAX);
	for (size_t i = 0; i < reserved->count; i++)
		(void)gpuMemFree(&gpu->vmm, reserved->items[i].address, reserved->items[i].bytes);
	gsn_address_ranges_free(&gpu->ranges);
}

static gpusnap_status reserve_locked(
	struct gsn_gpu *gpu, uint64_t bytes, gpusnap_address *ret_address, gpusnap_error *err)
{
	gpuError_t code;

	if (!gsn_ranges_make_room(&gpu->ranges.reserved))
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "%s device: reserve: no memory", GSN_GPU_KIND);
	code = gpuMemReserve(&gpu->vmm, bytes, gpu->ranges.granule, ret_address);
	/* The size is a multiple of the granule: what the driver finds invalid is its amount. */
	if ((int)code == gpuErrorInvalidValue)
		code = (gpuError_t)gpuErrorMemoryAllocation;
	if (code)
		return gsn_gpu_fail(
			gpu, code, err, "reserving %" PRIu64 " bytes of addresses", bytes);
	gsn_ranges_insert(&gpu->ranges.reserved, *ret_address, bytes);
	return GPUSNAP_OK;
}

gpusnap_status gsn_gpu_reserve(
	void *context, uint64_t bytes, gpusnap_address *ret_address, gpusnap_error *err)
{
	struct gsn_gpu *gpu = context;
	gpusnap_status status = gsn_address_ranges_check_bytes(&gpu->ranges, "reserve", bytes, err);
	int caller;

	if (status)
		return status;
	caller = gsn_gpu_enter(gpu);
	(void)pthread_mutex_lock(&gpu->lock);
	status = reserve_locked(gpu, bytes, ret_address, err);
	(void)pthread_mutex_unlock(&gpu->lock);
	gsn_gpu_leave(caller);
	return status;
}

/* Put new physical memory behind the addresses; nothing is mapped after a failure. */
static gpusnap_status map_memory(
	struct gsn_gpu *gpu, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	gpuMemHandle memory;
	gpuError_t code = gpuMemCreate(&gpu->vmm, gpu->index, bytes, &memory);

	if (code)
		return gsn_gpu_fail(gpu, code, err, "getting %" PRIu64 " bytes of memory", bytes);
	code = gpuMemMap(&gpu->vmm, address, bytes, memory);
	(void)gpuMemRelease(&gpu->vmm, memory);
	if (code)
		return gsn_gpu_fail(
			gpu, code, err, "mapping %" PRIu64 " bytes at 0x%" PRIx64, bytes, address);
	code = gpuMemAllow(&gpu->vmm, gpu->index, address, bytes);
	if (!code)
		code = gpuMemsetAsync(pointer(address), 0, bytes, gpu->housework);
	if (!code)
		code = gpuStreamSynchronize(gpu->housework);
	if (code) {
		(void)gpuMemUnmap(&gpu->vmm, address, bytes);
		return gsn_gpu_fail(gpu, code, err,
			"opening and zeroing %" PRIu64 " bytes at 0x%" PRIx64, bytes, address);
	}
	return GPUSNAP_OK;
}

static gpusnap_status map_locked(
	struct gsn_gpu *gpu, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status status = gsn_address_ranges_may_map(&gpu->ranges, address, bytes, err);

	if (!status)
		status = map_memory(gpu, address, bytes, err);
	if (!status)
		gsn_ranges_insert(&gpu->ranges.mapped, address, bytes);
	return status;
}

gpusnap_status gsn_gpu_map(
	void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_gpu *gpu = context;
	gpusnap_status status = gsn_address_ranges_check(&gpu->ranges, "map", address, bytes, err);
	int caller;

	if (status)
		return status;
	caller = gsn_gpu_enter(gpu);
	(void)pthread_mutex_lock(&gpu->lock);
	status = map_locked(gpu, address, bytes, err);
	(void)pthread_mutex_unlock(&gpu->lock);
	gsn_gpu_leave(caller);
	return status;
}

static gpusnap_status unmap_locked(
	struct gsn_gpu *gpu, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_range *map;
	gpusnap_status status =
		gsn_address_ranges_find_map(&gpu->ranges, address, bytes, &map, err);
	gpuError_t code;

	if (status)
		return status;
	code = gpuMemUnmap(&gpu->vmm, address, bytes);
	if (code)
		return gsn_gpu_fail(gpu, code, err, "unmapping %" PRIu64 " bytes at 0x%" PRIx64,
			bytes, address);
	gsn_ranges_take_out(&gpu->ranges.mapped, map);
	return GPUSNAP_OK;
}

gpusnap_status gsn_gpu_unmap(
	void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_gpu *gpu = context;
	gpusnap_status status =
		gsn_address_ranges_check(&gpu->ranges, "unmap", address, bytes, err);
	int caller;

	if (status)
		return status;
	caller = gsn_gpu_enter(gpu);
	(void)pthread_mutex_lock(&gpu->lock);
	status = unmap_locked(gpu, address, bytes, err);
	(void)pthread_mutex_unlock(&gpu->lock);
	gsn_gpu_leave(caller);
	return status;
}

void gsn_gpu_release(void *context, gpusnap_address address, uint64_t bytes)
{
	struct gsn_gpu *gpu = context;
	int caller = gsn_gpu_enter(gpu);
	const struct gsn_range *range;

	(void)pthread_mutex_lock(&gpu->lock);
	range = gsn_ranges_find(&gpu->ranges.reserved, address, bytes);
	assert(range && "release of a range that was not reserved");
	if (range) {
		unmap_all(gpu, address, address + bytes);
		(void)gpuMemFree(&gpu->vmm, address, bytes);
		gsn_ranges_take_out(&gpu->ranges.reserved, range);
	}
	(void)pthread_mutex_unlock(&gpu->lock);
	gsn_gpu_leave(caller);
}

/* Registering memory that is there is ten times as fast as having the vendor allocate it. */
gpusnap_status gsn_gpu_pinned_alloc(
	void *context, uint64_t bytes, void **ret_memory, gpusnap_error *err)
{
	struct gsn_gpu *gpu = context;
	void *memory;
	gpusnap_status status =
		gsn_pages_take_touched(gpu->pool, GSN_GPU_KIND, bytes, &memory, err);
	gpuError_t code;
	int caller;

	if (status)
		return status;
	caller = gsn_gpu_enter(gpu);
	code = gpuHostRegister(memory, gsn_align_up(bytes, GSN_PAGES_UNIT), gpuHostDefault);
	gsn_gpu_leave(caller);
	if (code) {
		gsn_pages_give_back(memory, bytes);
		return gsn_gpu_fail(
			gpu, code, err, "locking %" PRIu64 " bytes of host memory", bytes);
	}
	*ret_memory = memory;
	return GPUSNAP_OK;
}

void gsn_gpu_pinned_free(void *context, void *memory, uint64_t bytes)
{
	int caller;

	if (!memory)
		return;
	caller = gsn_gpu_enter(context);
	(void)gpuHostUnregister(memory);
	gsn_gpu_leave(caller);
	gsn_pages_give_back(memory, bytes);
}
