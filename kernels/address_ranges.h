/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_ADDRESS_RANGES_H
#define GSN_ADDRESS_RANGES_H
/*
 * Which addresses of a device are reserved, and which of them are mapped; and the checks of the
 * table's map, unmap and release that hold for every device. Vendors' own checks differ, and some
 * take a wrong call for a right one, so each kind keeps these books itself. Not locked.
 */
#include <stdbool.h>
#include <stddef.h>

#include <gpusnap/device.h>

struct gsn_range {
	uint64_t address;
	uint64_t bytes;
};

/* Disjoint ranges by ascending address. Empty when zeroed. */
struct gsn_ranges {
	struct gsn_range *items;
	size_t count;
	size_t capacity;
};

struct gsn_address_ranges {
	struct gsn_ranges reserved;
	struct gsn_ranges mapped;
	uint64_t granule; /* set by the owner before the first call */
	const char *kind; /* the same; named in errors */
};

static inline uint64_t gsn_range_end(const struct gsn_range *range)
{
	return range->address + range->bytes;
}

/* Room for one more range, so that gsn_ranges_insert() cannot fail once the memory is mapped. */
bool gsn_ranges_make_room(struct gsn_ranges *ranges);
void gsn_ranges_insert(struct gsn_ranges *ranges, uint64_t address, uint64_t bytes);
void gsn_ranges_take_out(struct gsn_ranges *ranges, const struct gsn_range *range);
/* The range that begins at `address` and has that size, or NULL. */
const struct gsn_range *gsn_ranges_find(
	const struct gsn_ranges *ranges, uint64_t address, uint64_t bytes);
/* The first range that meets [address, end), or NULL. */
const struct gsn_range *gsn_ranges_meeting(
	const struct gsn_ranges *ranges, uint64_t address, uint64_t end);

/* Frees the lists; what is in them stays as it is on the device. */
void gsn_address_ranges_free(struct gsn_address_ranges *ranges);
/* E_INVALID unless a positive multiple of the granule. `what` names the operation. */
gpusnap_status gsn_address_ranges_check_bytes(const struct gsn_address_ranges *ranges,
	const char *what, uint64_t bytes, gpusnap_error *err);
/* The same for a range of addresses. */
gpusnap_status gsn_address_ranges_check(const struct gsn_address_ranges *ranges, const char *what,
	gpusnap_address address, uint64_t bytes, gpusnap_error *err);
/* Whether [address, address + bytes) may be mapped now; makes room for it in `mapped`. */
gpusnap_status gsn_address_ranges_may_map(struct gsn_address_ranges *ranges,
	gpusnap_address address, uint64_t bytes, gpusnap_error *err);
/* The map of exactly that address and size; E_STATE when there is none. */
gpusnap_status gsn_address_ranges_find_map(const struct gsn_address_ranges *ranges,
	gpusnap_address address, uint64_t bytes, const struct gsn_range **ret_map,
	gpusnap_error *err);

#endif
