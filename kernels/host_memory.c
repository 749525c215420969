/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserve, map, unmap and release on the host. Reserved addresses are an inaccessible mapping.
 * Mapping makes the pages accessible; they are zero because they are new. Unmapping puts a new
 * inaccessible mapping in their place, so the pages are gone and a touch faults. Every call is
 * checked against the lists, since MAP_FIXED would replace anything that lies there.
 */
#include "kernels/host_memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/host_copy.h"
#include "kernels/host_device.h"
#include "kernels/host_meminfo.h"
#include "kernels/pages.h"

/* Below this a huge page could be a large part of a map that is only partly used. */
#define HUGE_PAGE_MAP_BYTES ((uint64_t)16 << 20)

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

void gsn_host_memory_init(struct gsn_host_memory *memory)
{
	(void)pthread_mutex_init(&memory->lock, NULL); /* cannot fail on Linux */
	memory->ranges.granule = GSN_HOST_GRANULE;
	memory->ranges.kind = gsn_host_ops.kind;
}

void gsn_host_memory_release(struct gsn_host_memory *memory)
{
	const struct gsn_ranges *reserved = &memory->ranges.reserved;

	for (size_t i = 0; i < reserved->count; i++) {
		const struct gsn_range *range = &reserved->items[i];

		(void)munmap(pointer(range->address), (size_t)range->bytes);
	}
	gsn_address_ranges_free(&memory->ranges);
	(void)pthread_mutex_destroy(&memory->lock);
}

/* First byte of [address, end) that is reserved and not mapped, or `end`. */
static uint64_t first_unmapped(
	const struct gsn_address_ranges *ranges, uint64_t address, uint64_t end)
{
	while (address < end) {
		const struct gsn_range *reserved =
			gsn_ranges_meeting(&ranges->reserved, address, end);
		const struct gsn_range *mapped;

		if (!reserved)
			return end;
		address = gsn_max(address, reserved->address);
		mapped = gsn_ranges_meeting(&ranges->mapped, address, address + 1);
		if (!mapped)
			return address;
		address = gsn_range_end(mapped);
	}
	return end;
}

gpusnap_status gsn_host_memory_check(struct gsn_host_memory *memory, uint64_t address,
	uint64_t bytes, const char *what, gpusnap_error *err)
{
	uint64_t bad;

	(void)pthread_mutex_lock(&memory->lock);
	bad = first_unmapped(&memory->ranges, address, address + bytes);
	(void)pthread_mutex_unlock(&memory->lock);
	if (bad < address + bytes)
		return gsn_fail(err, GPUSNAP_E_DEVICE,
			"host device: %s of %" PRIu64 " bytes at 0x%" PRIx64 ": address 0x%" PRIx64
			" is reserved but not mapped",
			what, bytes, address, bad);
	return GPUSNAP_OK;
}

static gpusnap_status reserve_locked(struct gsn_host_memory *memory, uint64_t bytes,
	gpusnap_address *ret_address, gpusnap_error *err)
{
	void *pages;

	if (!gsn_ranges_make_room(&memory->ranges.reserved))
		return gsn_fail(err, GPUSNAP_E_NOMEM, "host device: reserve: no memory");
	pages = gsn_pages_take(bytes, PROT_NONE, MAP_NORESERVE);
	if (!pages)
		return gsn_fail_os(err, GPUSNAP_E_NOMEM, errno,
			"host device: cannot reserve %" PRIu64 " bytes of addresses: %s", bytes,
			strerror(errno));
	*ret_address = (uint64_t)(uintptr_t)pages;
	gsn_ranges_insert(&memory->ranges.reserved, *ret_address, bytes);
	return GPUSNAP_OK;
}

gpusnap_status gsn_host_reserve(
	void *context, uint64_t bytes, gpusnap_address *ret_address, gpusnap_error *err)
{
	struct gsn_host_memory *memory = &((struct gsn_host *)context)->memory;
	gpusnap_status status =
		gsn_address_ranges_check_bytes(&memory->ranges, "reserve", bytes, err);

	if (status)
		return status;
	(void)pthread_mutex_lock(&memory->lock);
	status = reserve_locked(memory, bytes, ret_address, err);
	(void)pthread_mutex_unlock(&memory->lock);
	return status;
}

static gpusnap_status map_locked(
	struct gsn_host_memory *memory, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status status = gsn_address_ranges_may_map(&memory->ranges, address, bytes, err);

	if (status)
		return status;
	/* mprotect, not mmap: mmap(MAP_FIXED) that fails may leave a hole in the reservation. */
	if (mprotect(pointer(address), (size_t)bytes, PROT_READ | PROT_WRITE)) {
		int failure = errno;

		(void)mprotect(pointer(address), (size_t)bytes, PROT_NONE);
		return gsn_fail_os(err, gsn_status_from_errno(failure), failure,
			"host device: cannot map %" PRIu64 " bytes at 0x%" PRIx64 ": %s", bytes,
			address, strerror(failure));
	}
	if (bytes >= HUGE_PAGE_MAP_BYTES)
		(void)madvise(pointer(address), (size_t)bytes, MADV_HUGEPAGE);
	gsn_ranges_insert(&memory->ranges.mapped, address, bytes);
	return GPUSNAP_OK;
}

/*
 * The kernel gives pages at the first touch and kills the process when there are none. A device
 * refuses the map, so what cannot be there now is refused here.
 */
static gpusnap_status check_available(uint64_t bytes, gpusnap_error *err)
{
	struct gsn_host_meminfo info;
	gpusnap_status status = gsn_host_meminfo_read("", &info, err);

	if (!status && bytes > info.available_bytes)
		status = gsn_fail(err, GPUSNAP_E_NOMEM,
			"host device: map of %" PRIu64 " bytes: %" PRIu64
			" bytes of memory are available",
			bytes, info.available_bytes);
	return status;
}

gpusnap_status gsn_host_map(
	void *context, gpusnap_address address, uint64_t bytes, uint8_t fill, gpusnap_error *err)
{
	struct gsn_host_memory *memory = &((struct gsn_host *)context)->memory;
	gpusnap_status status =
		gsn_address_ranges_check(&memory->ranges, "map", address, bytes, err);

	if (!status)
		status = check_available(bytes, err);
	if (status)
		return status;
	(void)pthread_mutex_lock(&memory->lock);
	status = map_locked(memory, address, bytes, err);
	(void)pthread_mutex_unlock(&memory->lock);
	/* New pages are zeros. */
	if (!status && fill)
		gsn_host_fill_now(context, address, bytes, fill);
	return status;
}

static gpusnap_status unmap_locked(
	struct gsn_host_memory *memory, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_range *range;
	gpusnap_status status =
		gsn_address_ranges_find_map(&memory->ranges, address, bytes, &range, err);

	if (status)
		return status;
	if (mmap(pointer(address), (size_t)bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return gsn_fail_os(err, gsn_status_from_errno(errno), errno,
			"host device: cannot unmap %" PRIu64 " bytes at 0x%" PRIx64 ": %s", bytes,
			address, strerror(errno));
	gsn_ranges_take_out(&memory->ranges.mapped, range);
	return GPUSNAP_OK;
}

gpusnap_status gsn_host_unmap(
	void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_host_memory *memory = &((struct gsn_host *)context)->memory;
	gpusnap_status status =
		gsn_address_ranges_check(&memory->ranges, "unmap", address, bytes, err);

	if (status)
		return status;
	(void)pthread_mutex_lock(&memory->lock);
	status = unmap_locked(memory, address, bytes, err);
	(void)pthread_mutex_unlock(&memory->lock);
	return status;
}

void gsn_host_release(void *context, gpusnap_address address, uint64_t bytes)
{
	struct gsn_host_memory *memory = &((struct gsn_host *)context)->memory;
	struct gsn_address_ranges *ranges = &memory->ranges;
	const struct gsn_range *range;
	const struct gsn_range *inside;

	(void)pthread_mutex_lock(&memory->lock);
	range = gsn_ranges_find(&ranges->reserved, address, bytes);
	assert(range && "release of a range that was not reserved");
	if (range) {
		gsn_ranges_take_out(&ranges->reserved, range);
		while ((inside = gsn_ranges_meeting(&ranges->mapped, address, address + bytes)) !=
			NULL)
			gsn_ranges_take_out(&ranges->mapped, inside);
		(void)munmap(pointer(address), (size_t)bytes);
	}
	(void)pthread_mutex_unlock(&memory->lock);
}
