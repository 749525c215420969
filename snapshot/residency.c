/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps between "offloaded" and "usable" that resume and restore share: physical memory,
 * poison, what a policy puts back without a copy, callbacks, and the final state.
 */
#include "snapshot/residency.h"

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/ranges.h"
#include "snapshot/region_memory.h"

/* Offloaded when the job began: from there until it is usable a region has a backing's name. */
static bool was_offloaded(const struct gsn_region *region)
{
	return region->backing_name != NULL;
}

static gpusnap_status map_until(gpusnap_registry *registry, struct gsn_region *region, uint64_t end,
	uint8_t fill, gpusnap_error *err)
{
	gpusnap_status s = gsn_region_memory_map(registry, region, end, fill, err);

	if (s)
		gsn_error_prefix(err, "region %u '%s', %llu bytes (all regions stay offloaded)",
			region->id, region->tag, (unsigned long long)region->bytes);
	return s;
}

void gsn_region_begin(struct gsn_region *region)
{
	region->state = GPUSNAP_REGION_DISCARDED;
	region->generation++;
}

gpusnap_status gsn_region_extend(
	gpusnap_registry *registry, struct gsn_region *region, uint64_t end, gpusnap_error *err)
{
	return map_until(registry, region, end, GSN_POISON_BYTE, err);
}

gpusnap_status gsn_regions_map(gpusnap_registry *registry, struct gsn_region *const *regions,
	size_t count, gpusnap_error *err)
{
	for (size_t i = 0; i < count; i++) {
		gpusnap_status s;

		if (regions[i]->state != GPUSNAP_REGION_OFFLOADED)
			continue;
		s = map_until(registry, regions[i], regions[i]->reserved_bytes, 0, err);
		if (s) {
			gsn_regions_unmap(registry, regions, count);
			return s;
		}
		gsn_region_begin(regions[i]);
	}
	return GPUSNAP_OK;
}

void gsn_regions_unmap(gpusnap_registry *registry, struct gsn_region *const *regions, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct gsn_region *region = regions[i];

		if (!was_offloaded(region))
			continue;
		/* Where it fails the memory stays, and the next map has nothing to do. */
		(void)gsn_region_memory_unmap(registry, region, NULL);
		region->state = GPUSNAP_REGION_OFFLOADED;
	}
}

gpusnap_status gsn_regions_poison(gpusnap_registry *registry, struct gsn_region *const *regions,
	size_t count, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < count; i++)
		s = registry->device->ops->fill(registry->stream, regions[i]->address,
			GSN_POISON_BYTE, gsn_region_resident_bytes(regions[i]), err);
	return gsn_registry_settle(registry, s, err);
}

static bool is_among(
	const struct gsn_region *region, struct gsn_region *const *regions, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (regions[i] == region)
			return true;
	return false;
}

/* Fill the ranges of `regions` that `wanted` chooses, and wait. */
static gpusnap_status fill_ranges(gpusnap_registry *registry, struct gsn_region *const *regions,
	size_t count, bool (*wanted)(gpusnap_policy policy), uint8_t value, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = registry->device->ops;
	struct gsn_range *ranges;
	size_t range_count;
	gpusnap_status s = gsn_registry_ranges(registry, &ranges, &range_count, err);

	if (s)
		return s;
	for (size_t i = 0; !s && i < range_count; i++)
		if (wanted(ranges[i].policy) && ranges[i].bytes > 0 &&
			is_among(ranges[i].region, regions, count))
			s = ops->fill(registry->stream, gsn_range_address(&ranges[i]), value,
				ranges[i].bytes, err);
	gsn_free(ranges);
	return gsn_registry_settle(registry, s, err);
}

static bool is_not_kept(gpusnap_policy policy)
{
	return policy != GPUSNAP_POLICY_KEEP;
}

gpusnap_status gsn_regions_poison_rest(gpusnap_registry *registry,
	struct gsn_region *const *regions, size_t count, gpusnap_error *err)
{
	return fill_ranges(registry, regions, count, is_not_kept, GSN_POISON_BYTE, err);
}

/* ---- finish ---- */

static bool is_zeroed(gpusnap_policy policy)
{
	return policy == GPUSNAP_POLICY_ZERO;
}

static bool is_recomputed(const struct gsn_region *region)
{
	return region->policy == GPUSNAP_POLICY_RECOMPUTE ||
	       region->unclaimed == GPUSNAP_POLICY_RECOMPUTE;
}

static gpusnap_status call_back(const struct gsn_region *region, const char *what,
	gpusnap_status (*callback)(void *, gpusnap_address, uint64_t, gpusnap_error *),
	gpusnap_error *err)
{
	gpusnap_error detail = {.message = "it gave no reason"};
	gpusnap_status s = callback(region->user, region->address, region->bytes, &detail);

	if (s)
		return gsn_fail_os(err, s, detail.os_errno, "region %u '%s': callback %s: %s",
			region->id, region->tag, what, detail.message);
	return GPUSNAP_OK;
}

static gpusnap_status call_backs(
	struct gsn_region *const *regions, size_t count, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < count; i++)
		if (is_recomputed(regions[i]) && regions[i]->refill)
			s = call_back(regions[i], "refill", regions[i]->refill, err);
	for (size_t i = 0; !s && i < count; i++)
		if (was_offloaded(regions[i]) && regions[i]->remapped)
			s = call_back(regions[i], "remapped", regions[i]->remapped, err);
	return s;
}

/* Discarded bytes, and those to be recomputed that no callback refills, are the application's. */
static gpusnap_region_state final_state(const struct gsn_region *region)
{
	if (region->policy == GPUSNAP_POLICY_DISCARD)
		return GPUSNAP_REGION_DISCARDED;
	if (is_recomputed(region) && !region->refill)
		return GPUSNAP_REGION_DISCARDED;
	return GPUSNAP_REGION_RESIDENT;
}

gpusnap_status gsn_regions_finish(gpusnap_registry *registry, struct gsn_region *const *regions,
	size_t count, gpusnap_error *err)
{
	gpusnap_status s = fill_ranges(registry, regions, count, is_zeroed, 0, err);

	if (!s)
		s = call_backs(regions, count, err);
	if (s)
		return s;
	for (size_t i = 0; i < count; i++) {
		struct gsn_region *region = regions[i];

		region->state = final_state(region);
		gpusnap_snapshot_close(region->backing);
		region->backing = NULL;
		gsn_free(region->backing_name);
		region->backing_name = NULL;
	}
	return GPUSNAP_OK;
}
