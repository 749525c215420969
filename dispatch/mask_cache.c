/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a mask and knowing when it must be built again. Rebuilding in every decode step costs a
 * host-to-device copy a step; caching without the region's generation loses the mask in silence.
 */
#include "dispatch/mask_cache.h"

#include "dispatch/dispatch_state.h"
#include "formats/base/alloc.h"
#include "formats/base/fail.h"

static gpusnap_status write_mask(gpusnap_dispatch *dispatch, struct gsn_layer *layer,
	uint64_t generation, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = gsn_dispatch_ops(dispatch);
	const struct gsn_operand *mask = &layer->operands[GPUSNAP_MOE_MASK];
	gpusnap_status status;

	gpusnap_mask_fill(&layer->spec->mask, layer->mask.values);
	status = ops->copy(dispatch->stream, GSN_HOST_TO_DEVICE, mask->address,
		(uint64_t)(uintptr_t)layer->mask.values, mask->bytes, err);
	if (!status)
		status = ops->stream_sync(dispatch->stream, err);
	if (status)
		return status;
	layer->mask.owned = true;
	layer->mask.generation = generation;
	dispatch->counters.mask_builds++;
	dispatch->counters.mask_copies++;
	return GPUSNAP_OK;
}

static gpusnap_status mask_generation(const gpusnap_dispatch *dispatch,
	const struct gsn_layer *layer, uint64_t *ret_generation, gpusnap_error *err)
{
	gpusnap_region_info info;
	gpusnap_status status = gpusnap_region_get(
		dispatch->registry, layer->operands[GPUSNAP_MOE_MASK].region, &info, err);

	if (!status)
		*ret_generation = info.generation;
	return status;
}

gpusnap_status gsn_mask_refresh(
	gpusnap_dispatch *dispatch, struct gsn_layer *layer, gpusnap_error *err)
{
	uint64_t generation = 0;
	gpusnap_status status;

	if (!layer->mask.owned)
		return GPUSNAP_OK;
	status = mask_generation(dispatch, layer, &generation, err);
	if (status || generation == layer->mask.generation)
		return status;
	return write_mask(dispatch, layer, generation, err);
}

static gpusnap_status build_mask(
	gpusnap_dispatch *dispatch, struct gsn_layer *layer, gpusnap_error *err)
{
	uint64_t generation = 0;
	gpusnap_status status = gsn_layer_ready(dispatch, layer, err);

	if (!status)
		status = mask_generation(dispatch, layer, &generation, err);
	if (status || layer->mask.owned) /* then ready has written what had to be */
		return status;
	if (!layer->mask.values)
		layer->mask.values = gsn_alloc(
			gpusnap_mask_length(&layer->spec->mask), sizeof *layer->mask.values);
	if (!layer->mask.values)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "layer %u: building its mask: out of memory",
			layer->spec->layer);
	return write_mask(dispatch, layer, generation, err);
}

gpusnap_status gpusnap_dispatch_build_mask(
	gpusnap_dispatch *dispatch, uint32_t layer, gpusnap_error *err)
{
	struct gsn_layer *found;
	gpusnap_status status;

	gpusnap_registry_hold(dispatch->registry);
	status = gsn_dispatch_layer(dispatch, layer, &found, err);
	if (!status)
		status = build_mask(dispatch, found, err);
	gpusnap_registry_release(dispatch->registry);
	return status;
}
