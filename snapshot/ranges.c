/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting regions into named and unclaimed ranges, and digesting ranges on the device. */
#include "snapshot/ranges.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

const char *gsn_range_name(const struct gsn_range *range)
{
	return range->buffer ? range->buffer->name : range->name;
}

gpusnap_address gsn_range_address(const struct gsn_range *range)
{
	return range->region->address + range->offset;
}

/* Empty buffers come before the one that begins at the same place. */
static int compare_buffers(const void *a, const void *b)
{
	const struct gsn_buffer *x = *(struct gsn_buffer *const *)a;
	const struct gsn_buffer *y = *(struct gsn_buffer *const *)b;

	if (x->region != y->region)
		return x->region < y->region ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	if ((x->bytes == 0) != (y->bytes == 0))
		return x->bytes == 0 ? -1 : 1;
	return x->serial < y->serial ? -1 : x->serial > y->serial;
}

/* First of `count` sorted buffers that lies in this region or in one with a larger id. */
static size_t first_in_region(struct gsn_buffer *const *sorted, size_t count, uint32_t region)
{
	size_t low = 0;

	while (low < count) {
		size_t middle = low + (count - low) / 2;

		if (sorted[middle]->region < region)
			low = middle + 1;
		else
			count = middle;
	}
	return low;
}

static void put_raw(
	struct gsn_range *range, const struct gsn_region *region, uint64_t offset, uint64_t bytes)
{
	*range = (struct gsn_range){
		.region = region, .offset = offset, .bytes = bytes, .policy = region->unclaimed};
	(void)snprintf(range->name, sizeof range->name, GPUSNAP_RAW_FORMAT, region->id,
		(unsigned long long)offset);
}

/* Cut one region; `next` is the first of its sorted buffers. Returns how many ranges it gave. */
static size_t cut_region(const struct gsn_region *region, struct gsn_buffer *const *next,
	struct gsn_buffer *const *end, struct gsn_range *ranges)
{
	uint64_t at = 0;
	size_t count = 0;

	for (; next < end && (*next)->region == region->id; next++) {
		const struct gsn_buffer *buffer = *next;

		if (buffer->offset > at) {
			put_raw(&ranges[count++], region, at, buffer->offset - at);
			at = buffer->offset;
		}
		ranges[count++] = (struct gsn_range){
			.buffer = buffer,
			.region = region,
			.offset = buffer->offset,
			.bytes = buffer->bytes,
			.policy = region->policy,
		};
		if (buffer->bytes > 0)
			at = buffer->offset + buffer->bytes;
	}
	if (at < region->bytes)
		put_raw(&ranges[count++], region, at, region->bytes - at);
	return count;
}

gpusnap_status gsn_registry_ranges(const gpusnap_registry *registry, struct gsn_range **ret_ranges,
	size_t *ret_count, gpusnap_error *err)
{
	size_t buffers = registry->buffer_count;
	size_t most = 2 * buffers + registry->region_count; /* a gap before each, one at the end */
	struct gsn_buffer **sorted = gsn_alloc(buffers, sizeof(void *));
	struct gsn_range *ranges = gsn_alloc(most, sizeof *ranges);
	size_t count = 0;

	if (!sorted || !ranges) {
		gsn_free(sorted);
		gsn_free(ranges);
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu ranges", most);
	}
	if (buffers > 0) {
		memcpy(sorted, registry->buffers, buffers * sizeof(void *));
		qsort(sorted, buffers, sizeof(void *), compare_buffers);
	}
	for (uint32_t i = 0; i < registry->region_count; i++) {
		const struct gsn_region *region = &registry->regions[i];
		size_t first = first_in_region(sorted, buffers, region->id);

		count += cut_region(region, sorted + first, sorted + buffers, ranges + count);
	}
	assert(count <= most);
	gsn_free(sorted);
	*ret_ranges = ranges;
	*ret_count = count;
	return GPUSNAP_OK;
}

uint64_t gsn_ranges_leaf_count(const struct gsn_range *ranges, size_t count)
{
	uint64_t leaves = 0;

	for (size_t i = 0; i < count; i++)
		leaves += gpusnap_leaf_count(ranges[i].bytes);
	return leaves;
}

gpusnap_status gsn_ranges_digest_async(const gpusnap_registry *registry, struct gsn_stream *stream,
	const struct gsn_range *ranges, size_t count, gpusnap_digest *ret_leaves,
	gpusnap_error *err)
{
	struct gsn_leaf_range *jobs = gsn_alloc(count, sizeof *jobs);
	size_t job_count = 0;
	gpusnap_status s = GPUSNAP_OK;

	if (!jobs)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to digest %zu ranges", count);
	for (size_t i = 0; i < count; i++) {
		if (ranges[i].bytes == 0)
			continue;
		jobs[job_count++] = (struct gsn_leaf_range){
			.address = gsn_range_address(&ranges[i]),
			.bytes = ranges[i].bytes,
			.out = ret_leaves,
		};
		ret_leaves += gpusnap_leaf_count(ranges[i].bytes);
	}
	if (job_count > 0)
		s = registry->device->ops->digest(stream, jobs, job_count, err);
	gsn_free(jobs);
	return s;
}

gpusnap_status gsn_ranges_digest(gpusnap_registry *registry, const struct gsn_range *ranges,
	size_t count, gpusnap_digest *ret_leaves, gpusnap_error *err)
{
	gpusnap_status s =
		gsn_ranges_digest_async(registry, registry->stream, ranges, count, ret_leaves, err);

	return gsn_registry_settle(registry, s, err);
}
