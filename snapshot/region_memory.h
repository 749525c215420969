/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_REGION_MEMORY_H
#define GSN_REGION_MEMORY_H
/*
 * The memory behind a managed region's addresses, in slices: bytes are on their way to the first
 * ones while the driver is still finding memory for the last. What is mapped is always the
 * beginning of the region, region->mapped_bytes.
 */
#include "snapshot/registry_state.h"

/*
 * Map what is missing of the slices that hold the first `end` bytes; every byte of them is `fill`.
 * A failure leaves those mapped that are.
 */
gpusnap_status gsn_region_memory_map(const gpusnap_registry *registry, struct gsn_region *region,
	uint64_t end, uint8_t fill, gpusnap_error *err);
/* Unmap all, the last slice first. A failure leaves those mapped that are. */
gpusnap_status gsn_region_memory_unmap(
	const gpusnap_registry *registry, struct gsn_region *region, gpusnap_error *err);

#endif
