/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/address_ranges.h"

#include <inttypes.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

/* Index of the first range that ends after `address`. */
static size_t find(const struct gsn_ranges *ranges, uint64_t address)
{
	size_t low = 0;
	size_t high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (gsn_range_end(&ranges->items[middle]) > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool gsn_ranges_make_room(struct gsn_ranges *ranges)
{
	size_t capacity = ranges->capacity ? 2 * ranges->capacity : 16;
	struct gsn_range *grown;

	if (ranges->count < ranges->capacity)
		return true;
	grown = gsn_grow(ranges->items, ranges->capacity, capacity, sizeof *grown);
	if (!grown)
		return false;
	ranges->items = grown;
	ranges->capacity = capacity;
	return true;
}

void gsn_ranges_insert(struct gsn_ranges *ranges, uint64_t address, uint64_t bytes)
{
	size_t at = find(ranges, address);

	memmove(&ranges->items[at + 1], &ranges->items[at],
		(ranges->count - at) * sizeof ranges->items[0]);
	ranges->items[at] = (struct gsn_range){address, bytes};
	ranges->count++;
}

void gsn_ranges_take_out(struct gsn_ranges *ranges, const struct gsn_range *range)
{
	size_t at = (size_t)(range - ranges->items);

	ranges->count--;
	memmove(&ranges->items[at], &ranges->items[at + 1],
		(ranges->count - at) * sizeof ranges->items[0]);
}

const struct gsn_range *gsn_ranges_find(
	const struct gsn_ranges *ranges, uint64_t address, uint64_t bytes)
{
	size_t at = find(ranges, address);

	if (at == ranges->count || ranges->items[at].address != address ||
		ranges->items[at].bytes != bytes)
		return NULL;
	return &ranges->items[at];
}

const struct gsn_range *gsn_ranges_meeting(
	const struct gsn_ranges *ranges, uint64_t address, uint64_t end)
{
	size_t at = find(ranges, address);

	if (at == ranges->count || ranges->items[at].address >= end)
		return NULL;
	return &ranges->items[at];
}

static bool covers(const struct gsn_ranges *ranges, uint64_t address, uint64_t end)
{
	size_t at = find(ranges, address);

	return at < ranges->count && ranges->items[at].address <= address &&
	       end <= gsn_range_end(&ranges->items[at]);
}

void gsn_address_ranges_free(struct gsn_address_ranges *ranges)
{
	gsn_free(ranges->reserved.items);
	gsn_free(ranges->mapped.items);
}

gpusnap_status gsn_address_ranges_check_bytes(const struct gsn_address_ranges *ranges,
	const char *what, uint64_t bytes, gpusnap_error *err)
{
	if (bytes == 0 || bytes % ranges->granule || bytes > INT64_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: %s of %" PRIu64 " bytes: not a positive multiple of the "
			"granule, %" PRIu64,
			ranges->kind, what, bytes, ranges->granule);
	return GPUSNAP_OK;
}

gpusnap_status gsn_address_ranges_check(const struct gsn_address_ranges *ranges, const char *what,
	gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status status = gsn_address_ranges_check_bytes(ranges, what, bytes, err);
	uint64_t end;

	if (status)
		return status;
	if (address % ranges->granule || gsn_add_overflow(address, bytes, &end))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: %s at 0x%" PRIx64 ": not a multiple of the granule, %" PRIu64,
			ranges->kind, what, address, ranges->granule);
	return GPUSNAP_OK;
}

gpusnap_status gsn_address_ranges_may_map(struct gsn_address_ranges *ranges,
	gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_range *other =
		gsn_ranges_meeting(&ranges->mapped, address, address + bytes);

	if (!covers(&ranges->reserved, address, address + bytes))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: map of %" PRIu64 " bytes at 0x%" PRIx64
			": not inside one reserved range",
			ranges->kind, bytes, address);
	if (other)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"%s device: map of %" PRIu64 " bytes at 0x%" PRIx64 ": %" PRIu64
			" bytes at 0x%" PRIx64 " are mapped already",
			ranges->kind, bytes, address, other->bytes, other->address);
	if (!gsn_ranges_make_room(&ranges->mapped))
		return gsn_fail(err, GPUSNAP_E_NOMEM, "%s device: map: no memory", ranges->kind);
	return GPUSNAP_OK;
}

gpusnap_status gsn_address_ranges_find_map(const struct gsn_address_ranges *ranges,
	gpusnap_address address, uint64_t bytes, const struct gsn_range **ret_map,
	gpusnap_error *err)
{
	const struct gsn_range *map = gsn_ranges_find(&ranges->mapped, address, bytes);

	if (!map)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"%s device: unmap of %" PRIu64 " bytes at 0x%" PRIx64
			": no map of that address and size",
			ranges->kind, bytes, address);
	*ret_map = map;
	return GPUSNAP_OK;
}
