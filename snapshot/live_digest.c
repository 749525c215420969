/* SPDX-License-Identifier: Apache-2.0 */
/* Digesting what a registry holds now. */
#include "snapshot/live_digest.h"

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

gpusnap_status gsn_live_check(const struct gsn_range *ranges, size_t count, gpusnap_error *err)
{
	for (size_t i = 0; i < count; i++) {
		gpusnap_status status;

		if (ranges[i].policy != GPUSNAP_POLICY_KEEP)
			continue;
		status = gsn_region_usable(ranges[i].region, err);
		if (status)
			return status;
	}
	return GPUSNAP_OK;
}

/* Move the kept ranges to the front; their number. */
static size_t keep_kept(struct gsn_range *ranges, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (ranges[i].policy == GPUSNAP_POLICY_KEEP)
			ranges[kept++] = ranges[i];
	return kept;
}

static void fill_segments(struct gsn_live *live)
{
	uint64_t leaf = 0;

	for (size_t i = 0; i < live->count; i++) {
		const struct gsn_range *range = &live->ranges[i];

		live->segments[i] = (struct gsn_segment){
			.name = gsn_range_name(range),
			.region = range->region->id,
			.address = gsn_range_address(range),
			.bytes = range->bytes,
			.first_leaf = leaf,
		};
		leaf += gpusnap_leaf_count(range->bytes);
	}
	live->leaf_count = leaf;
}

gpusnap_status gsn_live_digest(
	struct gsn_live *live, gpusnap_registry *registry, gpusnap_error *err)
{
	size_t count;
	gpusnap_status status = gsn_registry_ranges(registry, &live->ranges, &count, err);

	if (!status)
		status = gsn_live_check(live->ranges, count, err);
	if (status)
		return status;
	live->count = keep_kept(live->ranges, count);
	live->segments = gsn_alloc(live->count, sizeof *live->segments);
	if (!live->segments)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu ranges", live->count);
	fill_segments(live);
	live->leaves = gsn_alloc((size_t)live->leaf_count, sizeof *live->leaves);
	if (!live->leaves)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %llu leaf digests",
			(unsigned long long)live->leaf_count);
	return gsn_ranges_digest(registry, live->ranges, live->count, live->leaves, err);
}

void gsn_live_release(struct gsn_live *live)
{
	gsn_free(live->ranges);
	gsn_free(live->segments);
	gsn_free(live->leaves);
	*live = (struct gsn_live)GSN_LIVE_INIT;
}
