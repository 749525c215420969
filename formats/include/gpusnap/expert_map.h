/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_EXPERT_MAP_H
#define GPUSNAP_EXPERT_MAP_H
/*
 * Expert index maps: for each routed expert of a layer its local id on this rank, -1 for those of
 * other ranks. Engines keep one beside the mask, or instead of it.
 *
 * A map given where a mask is wanted computes garbage and no error: all its values are plausible
 * integers. So a map is made of a type of its own, which no function takes for a mask's int32_t.
 * In memory it is the engines' I32 [experts].
 */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/mask.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSNAP_REMOTE (-1) /* the local id of another rank's expert */

typedef struct gpusnap_local_id {
	int32_t value;
} gpusnap_local_id;

/*
 * `type` says which block of experts is local, by the members that a mask's type has for it; it
 * passes gpusnap_mask_type_check(). Maps are of type->experts ids, whatever the kind of the mask.
 */

/** Fill type->experts ids. */
GPUSNAP_API void gpusnap_expert_map_fill(const gpusnap_mask_type *type, gpusnap_local_id *ids);
/**
 * Check ids against the type. E_CORRUPT names the most telling fault: all zero, a mask given for
 * a map, two experts swapped, the block shifted or of another rank, an id that is none, else the
 * first wrong index, what it holds and what it should hold. E_MISMATCH for another length.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_expert_map_check(const gpusnap_mask_type *type,
	const gpusnap_local_id *ids, uint32_t length, gpusnap_error *err);

/**
 * What a mask of type->kind means as a map: the exclusive prefix sum of its values, as a sorting
 * kernel numbers experts. Whatever the mask holds; ask gpusnap_mask_check() whether it is right.
 */
GPUSNAP_API void gpusnap_expert_map_from_mask(
	const gpusnap_mask_type *type, const int32_t *mask, gpusnap_local_id *ids);
/** The mask of type->kind that keeps the experts of a map: gpusnap_mask_length() values. */
GPUSNAP_API void gpusnap_expert_map_to_mask(
	const gpusnap_mask_type *type, const gpusnap_local_id *ids, int32_t *mask);

/** Index of the mask's sink, which stands for "no expert of mine"; GPUSNAP_REMOTE: it has none. */
GPUSNAP_API int32_t gpusnap_mask_sink(const gpusnap_mask_type *type);
/**
 * Global ids, as routers give them, to local ones; `remote` is what other ranks' become:
 * GPUSNAP_REMOTE, or the sink. In place is fine. E_INVALID for an id that is no expert: nothing is
 * written then.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_ids_to_local(const gpusnap_mask_type *type,
	const int32_t *global, size_t count, int32_t remote, int32_t *ret_local,
	gpusnap_error *err);
/** And back: `remote` becomes GPUSNAP_REMOTE, for whose expert it was is not known any more. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_ids_to_global(const gpusnap_mask_type *type,
	const int32_t *local, size_t count, int32_t remote, int32_t *ret_global,
	gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
