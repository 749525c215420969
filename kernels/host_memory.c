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

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/host_device.h"
#include "kernels/host_meminfo.h"

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
/* Below this a huge page could be a large part of a map that is only partly used. */
#define HUGE_PAGE_MAP_BYTES ((uint64_t)16 << 20)

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static uint64_t end_of(const struct gsn_host_range *range)
{
	return range->address + range->bytes;
}

/* Index of the first range that ends after `address`. */
static size_t find(const struct gsn_host_ranges *ranges, uint64_t address)
{
	size_t low = 0;
	size_t high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (end_of(&ranges->items[middle]) > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Room for one more range, so that insert() cannot fail once the system call is done. */
static bool make_room(struct gsn_host_ranges *ranges)
{
	size_t capacity = ranges->capacity ? 2 * ranges->capacity : 16;
	struct gsn_host_range *grown;

	if (ranges->count < ranges->capacity)
		return true;
	grown = gsn_grow(ranges->items, ranges->capacity, capacity, sizeof *grown);
	if (!grown)
		return false;
	ranges->items = grown;
	ranges->capacity = capacity;
	return true;
}

static void insert(struct gsn_host_ranges *ranges, uint64_t address, uint64_t bytes)
{
	size_t at = find(ranges, address);

	memmove(&ranges->items[at + 1], &ranges->items[at],
		(ranges->count - at) * sizeof ranges->items[0]);
	ranges->items[at] = (struct gsn_host_range){address, bytes};
	ranges->count++;
}

static void take_out(struct gsn_host_ranges *ranges, size_t at)
{
	ranges->count--;
	memmove(&ranges->items[at], &ranges->items[at + 1],
		(ranges->count - at) * sizeof ranges->items[0]);
}

/* The range that begins at `address` and has that size, or NULL. */
static const struct gsn_host_range *find_exactly(
	const struct gsn_host_ranges *ranges, uint64_t address, uint64_t bytes)
{
	size_t at = find(ranges, address);

	if (at == ranges->count || ranges->items[at].address != address ||
		ranges->items[at].bytes != bytes)
		return NULL;
	return &ranges->items[at];
}

static bool covers(const struct gsn_host_ranges *ranges, uint64_t address, uint64_t end)
{
	size_t at = find(ranges, address);

	return at < ranges->count && ranges->items[at].address <= address &&
	       end <= end_of(&ranges->items[at]);
}

/* The first range that meets [address, end), or NULL. */
static const struct gsn_host_range *meets(
	const struct gsn_host_ranges *ranges, uint64_t address, uint64_t end)
{
	size_t at = find(ranges, address);

	if (at == ranges->count || ranges->items[at].address >= end)
		return NULL;
	return &ranges->items[at];
}

void gsn_host_memory_init(struct gsn_host_memory *memory)
{
	(void)pthread_mutex_init(&memory->lock, NULL); /* cannot fail on Linux */
}

void gsn_host_memory_release(struct gsn_host_memory *memory)
{
	for (size_t i = 0; i < memory->reserved.count; i++) {
		const struct gsn_host_range *range = &memory->reserved.items[i];

		(void)munmap(pointer(range->address), (size_t)range->bytes);
	}
	gsn_free(memory->reserved.items);
	gsn_free(memory->mapped.items);
	(void)pthread_mutex_destroy(&memory->lock);
}

/* First byte of [address, end) that is reserved and not mapped, or `end`. */
static uint64_t first_unmapped(const struct gsn_host_memory *memory, uint64_t address, uint64_t end)
{
	while (address < end) {
		const struct gsn_host_range *reserved = meets(&memory->reserved, address, end);
		const struct gsn_host_range *mapped;

		if (!reserved)
			return end;
		address = gsn_max(address, reserved->address);
		mapped = meets(&memory->mapped, address, address + 1);
		if (!mapped)
			return address;
		address = end_of(mapped);
	}
	return end;
}

gpusnap_status gsn_host_memory_check(struct gsn_host_memory *memory, uint64_t address,
	uint64_t bytes, const char *what, gpusnap_error *err)
{
	uint64_t bad;

	(void)pthread_mutex_lock(&memory->lock);
	bad = first_unmapped(memory, address, address + bytes);
	(void)pthread_mutex_unlock(&memory->lock);
	if (bad < address + bytes)
		return gsn_fail(err, GPUSNAP_E_DEVICE,
			"host device: %s of %" PRIu64 " bytes at 0x%" PRIx64 ": address 0x%" PRIx64
			" is reserved but not mapped",
			what, bytes, address, bad);
	return GPUSNAP_OK;
}

static gpusnap_status check_bytes(const char *what, uint64_t bytes, gpusnap_error *err)
{
	if (bytes == 0 || bytes % GSN_HOST_GRANULE || bytes > INT64_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"host device: %s of %" PRIu64 " bytes: not a positive multiple of the "
			"granule, %u",
			what, bytes, GSN_HOST_GRANULE);
	return GPUSNAP_OK;
}

static gpusnap_status check_range(
	const char *what, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status status = check_bytes(what, bytes, err);
	uint64_t end;

	if (status)
		return status;
	if (address % GSN_HOST_GRANULE || gsn_add_overflow(address, bytes, &end))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"host device: %s at 0x%" PRIx64 ": not a multiple of the granule, %u", what,
			address, GSN_HOST_GRANULE);
	return GPUSNAP_OK;
}

void *gsn_host_pages_take(uint64_t bytes, int protection, int flags)
{
	uint64_t alignment = bytes < HUGE_PAGE_BYTES ? GSN_HOST_GRANULE : HUGE_PAGE_BYTES;
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
		(void)munmap(pointer(address + bytes), (size_t)(begin + whole - address - bytes));
	return pointer(address);
}

static gpusnap_status reserve_locked(struct gsn_host_memory *memory, uint64_t bytes,
	gpusnap_address *ret_address, gpusnap_error *err)
{
	void *pages;

	if (!make_room(&memory->reserved))
		return gsn_fail(err, GPUSNAP_E_NOMEM, "host device: reserve: no memory");
	pages = gsn_host_pages_take(bytes, PROT_NONE, MAP_NORESERVE);
	if (!pages)
		return gsn_fail_os(err, GPUSNAP_E_NOMEM, errno,
			"host device: cannot reserve %" PRIu64 " bytes of addresses: %s", bytes,
			strerror(errno));
	*ret_address = (uint64_t)(uintptr_t)pages;
	insert(&memory->reserved, *ret_address, bytes);
	return GPUSNAP_OK;
}

gpusnap_status gsn_host_reserve(
	void *context, uint64_t bytes, gpusnap_address *ret_address, gpusnap_error *err)
{
	struct gsn_host_memory *memory = &((struct gsn_host *)context)->memory;
	gpusnap_status status = check_bytes("reserve", bytes, err);

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
	const struct gsn_host_range *other = meets(&memory->mapped, address, address + bytes);

	if (!covers(&memory->reserved, address, address + bytes))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"host device: map of %" PRIu64 " bytes at 0x%" PRIx64
			": not inside one reserved range",
			bytes, address);
	if (other)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"host device: map of %" PRIu64 " bytes at 0x%" PRIx64 ": %" PRIu64
			" bytes at 0x%" PRIx64 " are mapped already",
			bytes, address, other->bytes, other->address);
	if (!make_room(&memory->mapped))
		return gsn_fail(err, GPUSNAP_E_NOMEM, "host device: map: no memory");
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
	insert(&memory->mapped, address, bytes);
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
	void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_host_memory *memory = &((struct gsn_host *)context)->memory;
	gpusnap_status status = check_range("map", address, bytes, err);

	if (!status)
		status = check_available(bytes, err);
	if (status)
		return status;
	(void)pthread_mutex_lock(&memory->lock);
	status = map_locked(memory, address, bytes, err);
	(void)pthread_mutex_unlock(&memory->lock);
	return status;
}

static gpusnap_status unmap_locked(
	struct gsn_host_memory *memory, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_host_range *range = find_exactly(&memory->mapped, address, bytes);

	if (!range)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"host device: unmap of %" PRIu64 " bytes at 0x%" PRIx64
			": no map of that address and size",
			bytes, address);
	if (mmap(pointer(address), (size_t)bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return gsn_fail_os(err, gsn_status_from_errno(errno), errno,
			"host device: cannot unmap %" PRIu64 " bytes at 0x%" PRIx64 ": %s", bytes,
			address, strerror(errno));
	take_out(&memory->mapped, (size_t)(range - memory->mapped.items));
	return GPUSNAP_OK;
}

gpusnap_status gsn_host_unmap(
	void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_host_memory *memory = &((struct gsn_host *)context)->memory;
	gpusnap_status status = check_range("unmap", address, bytes, err);

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
	const struct gsn_host_range *range;
	const struct gsn_host_range *inside;

	(void)pthread_mutex_lock(&memory->lock);
	range = find_exactly(&memory->reserved, address, bytes);
	assert(range && "release of a range that was not reserved");
	if (range) {
		take_out(&memory->reserved, (size_t)(range - memory->reserved.items));
		while ((inside = meets(&memory->mapped, address, address + bytes)) != NULL)
			take_out(&memory->mapped, (size_t)(inside - memory->mapped.items));
		(void)munmap(pointer(address), (size_t)bytes);
	}
	(void)pthread_mutex_unlock(&memory->lock);
}
