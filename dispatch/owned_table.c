/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a mask or a map and knowing when it must be built again. Rebuilding in every decode step
 * costs a host-to-device copy a step; caching without the region's generation loses the table in
 * silence.
 */
#include "dispatch/owned_table.h"

#include <gpusnap/expert_map.h>

#include "dispatch/dispatch_state.h"
#include "formats/base/alloc.h"
#include "formats/base/fail.h"

static struct gsn_owned_table *table_of(struct gsn_layer *layer, gpusnap_moe_slot slot)
{
	return slot == GPUSNAP_MOE_MASK ? &layer->mask : &layer->map;
}

/* A map's ids are laid out as a mask's values are. */
static void fill(const struct gsn_layer *layer, gpusnap_moe_slot slot, int32_t *values)
{
	if (slot == GPUSNAP_MOE_MASK)
		gpusnap_mask_fill(&layer->spec->mask, values);
	else
		gpusnap_expert_map_fill(&layer->spec->mask, (gpusnap_local_id *)(void *)values);
}

static gpusnap_status write_table(gpusnap_dispatch *dispatch, struct gsn_layer *layer,
	gpusnap_moe_slot slot, uint64_t generation, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = gsn_dispatch_ops(dispatch);
	const struct gsn_operand *operand = &layer->operands[slot];
	struct gsn_owned_table *table = table_of(layer, slot);
	gpusnap_status status;

	fill(layer, slot, table->values);
	status = ops->copy(dispatch->stream, GSN_HOST_TO_DEVICE, operand->address,
		(uint64_t)(uintptr_t)table->values, operand->bytes, err);
	if (!status)
		status = ops->stream_sync(dispatch->stream, err);
	if (status)
		return status;
	table->owned = true;
	table->generation = generation;
	if (slot == GPUSNAP_MOE_MASK)
		dispatch->counters.mask_builds++;
	else
		dispatch->counters.map_builds++;
	dispatch->counters.mask_copies++;
	return GPUSNAP_OK;
}

static gpusnap_status generation_of(const gpusnap_dispatch *dispatch, const struct gsn_layer *layer,
	gpusnap_moe_slot slot, uint64_t *ret_generation, gpusnap_error *err)
{
	gpusnap_region_info info;
	gpusnap_status status =
		gpusnap_region_get(dispatch->registry, layer->operands[slot].region, &info, err);

	if (!status)
		*ret_generation = info.generation;
	return status;
}

static gpusnap_status refresh(gpusnap_dispatch *dispatch, struct gsn_layer *layer,
	gpusnap_moe_slot slot, gpusnap_error *err)
{
	const struct gsn_owned_table *table = table_of(layer, slot);
	uint64_t generation = 0;
	gpusnap_status status;

	if (!table->owned)
		return GPUSNAP_OK;
	status = generation_of(dispatch, layer, slot, &generation, err);
	if (status || generation == table->generation)
		return status;
	return write_table(dispatch, layer, slot, generation, err);
}

gpusnap_status gsn_tables_refresh(
	gpusnap_dispatch *dispatch, struct gsn_layer *layer, gpusnap_error *err)
{
	gpusnap_status status = refresh(dispatch, layer, GPUSNAP_MOE_MASK, err);

	return status ? status : refresh(dispatch, layer, GPUSNAP_MOE_MAP, err);
}

static gpusnap_status build(gpusnap_dispatch *dispatch, struct gsn_layer *layer,
	gpusnap_moe_slot slot, gpusnap_error *err)
{
	struct gsn_owned_table *table = table_of(layer, slot);
	const struct gsn_operand *operand = &layer->operands[slot];
	uint64_t generation = 0;
	gpusnap_status status = gsn_layer_ready(dispatch, layer, err);

	if (!status && !operand->name)
		status = gsn_fail(err, GPUSNAP_E_INVALID, "layer %u has no %s to build",
			layer->spec->layer, gpusnap_moe_slot_name(slot));
	if (!status)
		status = generation_of(dispatch, layer, slot, &generation, err);
	if (status || table->owned) /* then ready has written what had to be */
		return status;
	if (!table->values)
		table->values = gsn_alloc(1, operand->bytes);
	if (!table->values)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "layer %u: building its %s: out of memory",
			layer->spec->layer, gpusnap_moe_slot_name(slot));
	return write_table(dispatch, layer, slot, generation, err);
}

static gpusnap_status build_held(
	gpusnap_dispatch *dispatch, uint32_t layer, gpusnap_moe_slot slot, gpusnap_error *err)
{
	struct gsn_layer *found;
	gpusnap_status status;

	gpusnap_registry_hold(dispatch->registry);
	status = gsn_dispatch_layer(dispatch, layer, &found, err);
	if (!status)
		status = build(dispatch, found, slot, err);
	gpusnap_registry_release(dispatch->registry);
	return status;
}

gpusnap_status gpusnap_dispatch_build_mask(
	gpusnap_dispatch *dispatch, uint32_t layer, gpusnap_error *err)
{
	return build_held(dispatch, layer, GPUSNAP_MOE_MASK, err);
}

gpusnap_status gpusnap_dispatch_build_map(
	gpusnap_dispatch *dispatch, uint32_t layer, gpusnap_error *err)
{
	return build_held(dispatch, layer, GPUSNAP_MOE_MAP, err);
}
