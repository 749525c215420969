/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/region_memory.h"

#include "formats/base/bytes.h"

/* Slices of a region; longer ones where it is small, which is soon mapped anyway. */
enum { SLICES = 32, LEAST_GRANULES = 16 };

#define MOST_BYTES ((uint64_t)256 << 20)

static uint64_t slice_bytes(const gpusnap_registry *registry, const struct gsn_region *region)
{
	uint64_t granule = registry->granule_bytes;
	uint64_t share = gsn_min(region->reserved_bytes / SLICES, MOST_BYTES);

	return gsn_align_up(gsn_max(share, LEAST_GRANULES * granule), granule);
}

gpusnap_status gsn_region_memory_map(const gpusnap_registry *registry, struct gsn_region *region,
	uint64_t end, uint8_t fill, gpusnap_error *err)
{
	const gpusnap_device *device = registry->device;
	uint64_t slice = slice_bytes(registry, region);

	while (region->mapped_bytes < end) {
		uint64_t next = gsn_min(region->reserved_bytes, region->mapped_bytes + slice);
		gpusnap_status s =
			device->ops->map(device->context, region->address + region->mapped_bytes,
				next - region->mapped_bytes, fill, err);

		if (s)
			return s;
		region->mapped_bytes = next;
	}
	return GPUSNAP_OK;
}

gpusnap_status gsn_region_memory_unmap(
	const gpusnap_registry *registry, struct gsn_region *region, gpusnap_error *err)
{
	const gpusnap_device *device = registry->device;
	uint64_t slice = slice_bytes(registry, region);

	while (region->mapped_bytes > 0) {
		uint64_t begin = (region->mapped_bytes - 1) / slice * slice;
		gpusnap_status s = device->ops->unmap(device->context, region->address + begin,
			region->mapped_bytes - begin, err);

		if (s)
			return s;
		region->mapped_bytes = begin;
	}
	return GPUSNAP_OK;
}
