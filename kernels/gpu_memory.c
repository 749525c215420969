/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserve, map, unmap and release on a GPU, over the driver's virtual memory management. A map owns
 * its physical memory: a handle is dropped once it is mapped, so that unmapping frees it. What
 * the driver gives may hold another process's bytes or this one's; it is filled before it is given.
 */
#include "kernels/gpu_memory.h"

#include <assert.h>
#include <inttypes.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/gpu_device.h"
#include "kernels/pages.h"

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

/* Unmap the driver's pieces in [address, end); those behind a failure stay. */
static gpuError_t unmap_pieces(struct gsn_gpu *gpu, uint64_t address, uint64_t end)
{
	const struct gsn_range *piece;
	gpuError_t code = (gpuError_t)gpuSuccess;

	while (!code && (piece = gsn_ranges_meeting(&gpu->pieces, address, end)) != NULL) {
		code = gpuMemUnmap(&gpu->vmm, piece->address, piece->bytes);
		if (!code)
			gsn_ranges_take_out(&gpu->pieces, piece);
	}
	return code;
}

void gsn_gpu_memory_release(struct gsn_gpu *gpu)
{
	const struct gsn_ranges *reserved = &gpu->ranges.reserved;

	/* What the driver does not unmap is forgotten: nobody can ask for it again. */
	while (unmap_pieces(gpu, 0, UINT64_MAX))
		gsn_ranges_take_out(&gpu->pieces, &gpu->pieces.items[0]);
	for (size_t i = 0; i < reserved->count; i++)
		(void)gpuMemFree(&gpu->vmm, reserved->items[i].address, reserved->items[i].bytes);
	gsn_address_ranges_free(&gpu->ranges);
	gsn_free(gpu->pieces.items);
	gsn_free(gpu->registered.items);
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

/* One physical handle, mapped and opened. Once mapped it is in the list, whatever fails then. */
static gpuError_t map_piece(struct gsn_gpu *gpu, uint64_t address, uint64_t bytes)
{
	gpuMemHandle memory;
	gpuError_t code = gpuMemCreate(&gpu->vmm, gpu->index, bytes, &memory);

	if (code)
		return code;
	code = gpuMemMap(&gpu->vmm, address, bytes, memory);
	(void)gpuMemRelease(&gpu->vmm, memory);
	if (code)
		return code;
	gsn_ranges_insert(&gpu->pieces, address, bytes);
	return gpuMemAllow(&gpu->vmm, gpu->index, address, bytes);
}

static gpuError_t map_pieces(struct gsn_gpu *gpu, uint64_t address, uint64_t bytes, uint64_t each)
{
	gpuError_t code = (gpuError_t)gpuSuccess;

	for (uint64_t at = 0; !code && at < bytes; at += each) {
		code = (gpuError_t)gpuErrorMemoryAllocation;
		if (gsn_ranges_make_room(&gpu->pieces))
			code = map_piece(gpu, address + at, gsn_min(each, bytes - at));
	}
	if (code)
		(void)unmap_pieces(gpu, address, address + bytes);
	return code;
}

/* Whether pieces may do where the whole has failed: not for want of memory. */
static bool may_do_in_pieces(uint64_t bytes)
{
	size_t available = 0;
	size_t total = 0;

	return gpuMapPieceBytes && bytes > gpuMapPieceBytes && !gpuMemGetInfo(&available, &total) &&
	       available >= bytes;
}

/*
 * Put new physical memory behind the addresses; nothing is mapped after a failure. What the driver
 * would not unmap when an earlier map was undone goes first.
 */
static gpusnap_status map_memory(struct gsn_gpu *gpu, gpusnap_address address, uint64_t bytes,
	uint8_t fill, gpusnap_error *err)
{
	gpuError_t code = unmap_pieces(gpu, address, address + bytes);

	if (!code)
		code = map_pieces(gpu, address, bytes, bytes);
	if (code && may_do_in_pieces(bytes)) {
		(void)gpuClearError();
		code = map_pieces(
			gpu, address, bytes, gsn_align_up(gpuMapPieceBytes, gpu->ranges.granule));
	}
	if (code)
		return gsn_gpu_fail(gpu, code, err,
			"mapping %" PRIu64 " bytes of memory at 0x%" PRIx64, bytes, address);
	code = gpuMemsetAsync(pointer(address), fill, bytes, gpu->housework);
	if (!code)
		code = gpuStreamSynchronize(gpu->housework);
	if (code) {
		(void)unmap_pieces(gpu, address, address + bytes);
		return gsn_gpu_fail(
			gpu, code, err, "filling %" PRIu64 " bytes at 0x%" PRIx64, bytes, address);
	}
	return GPUSNAP_OK;
}

static gpusnap_status map_locked(struct gsn_gpu *gpu, gpusnap_address address, uint64_t bytes,
	uint8_t fill, gpusnap_error *err)
{
	gpusnap_status status = gsn_address_ranges_may_map(&gpu->ranges, address, bytes, err);

	if (!status)
		status = map_memory(gpu, address, bytes, fill, err);
	if (!status)
		gsn_ranges_insert(&gpu->ranges.mapped, address, bytes);
	return status;
}

gpusnap_status gsn_gpu_map(
	void *context, gpusnap_address address, uint64_t bytes, uint8_t fill, gpusnap_error *err)
{
	struct gsn_gpu *gpu = context;
	gpusnap_status status = gsn_address_ranges_check(&gpu->ranges, "map", address, bytes, err);
	int caller;

	if (status)
		return status;
	caller = gsn_gpu_enter(gpu);
	(void)pthread_mutex_lock(&gpu->lock);
	status = map_locked(gpu, address, bytes, fill, err);
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
	code = unmap_pieces(gpu, address, address + bytes);
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

/* Addresses that the driver does not unmap stay reserved until the device closes. */
static void release_locked(struct gsn_gpu *gpu, const struct gsn_range *range)
{
	uint64_t end = gsn_range_end(range);
	const struct gsn_range *map;

	while ((map = gsn_ranges_meeting(&gpu->ranges.mapped, range->address, end)) != NULL)
		gsn_ranges_take_out(&gpu->ranges.mapped, map);
	if (unmap_pieces(gpu, range->address, end))
		return;
	(void)gpuMemFree(&gpu->vmm, range->address, range->bytes);
	gsn_ranges_take_out(&gpu->ranges.reserved, range);
}

void gsn_gpu_release(void *context, gpusnap_address address, uint64_t bytes)
{
	struct gsn_gpu *gpu = context;
	int caller = gsn_gpu_enter(gpu);
	const struct gsn_range *range;

	(void)pthread_mutex_lock(&gpu->lock);
	range = gsn_ranges_find(&gpu->ranges.reserved, address, bytes);
	assert(range && "release of a range that was not reserved");
	if (range)
		release_locked(gpu, range);
	(void)pthread_mutex_unlock(&gpu->lock);
	gsn_gpu_leave(caller);
}

static void unregister_all(struct gsn_gpu *gpu, uint64_t address, uint64_t end)
{
	const struct gsn_range *range;
	uint64_t piece;

	/* The driver is called without the lock: others pin at the same time. */
	(void)pthread_mutex_lock(&gpu->lock);
	while ((range = gsn_ranges_meeting(&gpu->registered, address, end)) != NULL) {
		piece = range->address;
		gsn_ranges_take_out(&gpu->registered, range);
		(void)pthread_mutex_unlock(&gpu->lock);
		(void)gpuHostUnregister(pointer(piece));
		(void)pthread_mutex_lock(&gpu->lock);
	}
	(void)pthread_mutex_unlock(&gpu->lock);
}

static gpuError_t register_piece(struct gsn_gpu *gpu, uint64_t address, uint64_t bytes)
{
	gpuError_t code = gpuHostRegister(pointer(address), bytes, gpuHostDefault);
	bool room;

	if (code)
		return code;
	(void)pthread_mutex_lock(&gpu->lock);
	room = gsn_ranges_make_room(&gpu->registered);
	if (room)
		gsn_ranges_insert(&gpu->registered, address, bytes);
	(void)pthread_mutex_unlock(&gpu->lock);
	if (room)
		return code;
	(void)gpuHostUnregister(pointer(address));
	return (gpuError_t)gpuErrorMemoryAllocation;
}

static gpuError_t register_pieces(
	struct gsn_gpu *gpu, uint64_t address, uint64_t bytes, uint64_t each)
{
	gpuError_t code = (gpuError_t)gpuSuccess;

	for (uint64_t at = 0; !code && at < bytes; at += each)
		code = register_piece(gpu, address + at, gsn_min(each, bytes - at));
	if (code)
		unregister_all(gpu, address, address + bytes);
	return code;
}

static gpusnap_status register_memory(
	struct gsn_gpu *gpu, void *memory, uint64_t bytes, gpusnap_error *err)
{
	uint64_t address = (uintptr_t)memory;
	int caller = gsn_gpu_enter(gpu);
	gpuError_t code = register_pieces(gpu, address, bytes, bytes);

	if (code && gpuRegisterPieceBytes && bytes > gpuRegisterPieceBytes) {
		(void)gpuClearError();
		code = register_pieces(gpu, address, bytes, gpuRegisterPieceBytes);
	}
	gsn_gpu_leave(caller);
	return code ? gsn_gpu_fail(
			      gpu, code, err, "locking %" PRIu64 " bytes of host memory", bytes)
		    : GPUSNAP_OK;
}

gpusnap_status gsn_gpu_pin(void *context, void *memory, uint64_t bytes, gpusnap_error *err)
{
	return register_memory(context, memory, bytes, err);
}

void gsn_gpu_unpin(void *context, void *memory, uint64_t bytes)
{
	struct gsn_gpu *gpu = context;
	int caller = gsn_gpu_enter(gpu);

	unregister_all(gpu, (uintptr_t)memory, (uintptr_t)memory + bytes);
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

	if (status)
		return status;
	status = register_memory(gpu, memory, gsn_align_up(bytes, GSN_PAGES_UNIT), err);
	if (status) {
		gsn_pages_give_back(memory, bytes);
		return status;
	}
	*ret_memory = memory;
	return GPUSNAP_OK;
}

void gsn_gpu_pinned_free(void *context, void *memory, uint64_t bytes)
{
	if (!memory)
		return;
	gsn_gpu_unpin(context, memory, gsn_align_up(bytes, GSN_PAGES_UNIT));
	gsn_pages_give_back(memory, bytes);
}

uint64_t gsn_gpu_registered_part(
	struct gsn_gpu *gpu, uint64_t address, uint64_t bytes, bool *ret_registered)
{
	const struct gsn_range *range;
	uint64_t end = address + bytes;

	(void)pthread_mutex_lock(&gpu->lock);
	range = gsn_ranges_meeting(&gpu->registered, address, end);
	*ret_registered = range && range->address <= address;
	if (*ret_registered)
		end = gsn_min(end, gsn_range_end(range));
	else if (range)
		end = range->address;
	(void)pthread_mutex_unlock(&gpu->lock);
	return end - address;
}
