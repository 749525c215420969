/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MASK_CACHE_H
#define GSN_MASK_CACHE_H
/*
 * Masks that the dispatcher writes itself: built once, kept on the device, valid as long as their
 * region has not been remapped. A mask that the loader or the engine fills is only read.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/status.h>

struct gpusnap_dispatch;
struct gsn_layer;

struct gsn_mask_cache {
	bool owned;	     /* built by the dispatcher, which writes it again after a remap */
	uint64_t generation; /* of the region when it was written */
	int32_t *values;     /* what was written; kept so that writing again allocates nothing */
};

/* Write an owned mask again if its region was remapped since; nothing to do otherwise. */
gpusnap_status gsn_mask_refresh(
	struct gpusnap_dispatch *dispatch, struct gsn_layer *layer, gpusnap_error *err);

#endif
