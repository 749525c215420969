/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RESIDENCY_H
#define GSN_RESIDENCY_H
/*
 * Bringing regions back, in the steps that resume and restore share:
 *
 *   map everything or nothing -> poison -> (the job puts kept bytes back and checks them) -> finish
 *
 * From map to finish a region is DISCARDED: its memory is there, callbacks may write it, nothing
 * else may use it. Call inside a job.
 */
#include "snapshot/registry_state.h"

/* What memory holds until real content has arrived, so that a lost byte does not read as zero. */
#define GSN_POISON_BYTE 0xa5

/*
 * Map the offloaded ones among `regions`; their generation grows. On failure all are as before.
 * Regions that are mapped already are left alone.
 */
gpusnap_status gsn_regions_map(gpusnap_registry *registry, struct gsn_region *const *regions,
	size_t count, gpusnap_error *err);
/*
 * The same for one region step by step: it is begun, then mapped as far as `end` at least, and what
 * is mapped is poisoned.
 */
void gsn_region_begin(struct gsn_region *region);
gpusnap_status gsn_region_extend(
	gpusnap_registry *registry, struct gsn_region *region, uint64_t end, gpusnap_error *err);
/* After a failure: what was mapped or begun is offloaded again, with its backing. */
void gsn_regions_unmap(gpusnap_registry *registry, struct gsn_region *const *regions, size_t count);
/* Fill every byte that is mapped with the poison byte and wait. */
gpusnap_status gsn_regions_poison(gpusnap_registry *registry, struct gsn_region *const *regions,
	size_t count, gpusnap_error *err);
/* The same for those bytes that are not kept, for a job that poisons kept ones as it goes. */
gpusnap_status gsn_regions_poison_rest(gpusnap_registry *registry,
	struct gsn_region *const *regions, size_t count, gpusnap_error *err);
/*
 * Kept bytes are back: zero what policy zero promises, call refill, then remapped (where the
 * region was offloaded), set the final state and drop the backing snapshot. On failure no state
 * has changed.
 */
gpusnap_status gsn_regions_finish(gpusnap_registry *registry, struct gsn_region *const *regions,
	size_t count, gpusnap_error *err);

#endif
