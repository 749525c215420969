/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher: a model bound to buffers, with the stream and the scratch memory that its decode
 * steps use. Whether a layer may be used now is answered here, for decode and validate alike.
 */
#include <gpusnap/dispatch.h>

#include "dispatch/bind.h"
#include "dispatch/dispatch_state.h"
#include "dispatch/peek.h"
#include "formats/base/alloc.h"
#include "formats/base/fail.h"

const struct gsn_device_ops *gsn_dispatch_ops(const gpusnap_dispatch *dispatch)
{
	return gpusnap_registry_device(dispatch->registry)->ops;
}

void *gsn_dispatch_context(const gpusnap_dispatch *dispatch)
{
	return gpusnap_registry_device(dispatch->registry)->context;
}

/* A deep copy by way of the record's own form, which also checks every range. */
static gpusnap_status copy_model(
	const gpusnap_moe_model *model, gpusnap_moe_model **out, gpusnap_error *err)
{
	gpusnap_json *json = gpusnap_moe_model_encode(model);
	gpusnap_status status;

	if (!json)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "copying the model: out of memory");
	status = gpusnap_moe_model_decode(json, out, err);
	gpusnap_json_free(json);
	return status;
}

/* The weights of another rank have this rank's names, dtypes and shapes. */
static gpusnap_status check_ranks(
	const gpusnap_registry *registry, const gpusnap_moe_model *model, gpusnap_error *err)
{
	const gpusnap_registry_options *here = gpusnap_registry_ranks(registry);

	if (here->tp_rank == model->tp_rank && here->tp_size == model->tp_size &&
		here->ep_rank == model->ep_rank && here->ep_size == model->ep_size)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_MISMATCH,
		"model '%s' is of tensor-parallel rank %u of %u, expert-parallel %u of %u; the "
		"state is of %u of %u, %u of %u: take both from one snapshot",
		model->family, model->tp_rank, model->tp_size, model->ep_rank, model->ep_size,
		here->tp_rank, here->tp_size, here->ep_rank, here->ep_size);
}

static gpusnap_status bind_model(gpusnap_dispatch *dispatch, gpusnap_error *err)
{
	const gpusnap_moe_model *model = dispatch->model;
	gpusnap_status status = GPUSNAP_OK;

	status = check_ranks(dispatch->registry, model, err);
	if (status)
		return status;
	if (model->layer_count == 0)
		return gsn_fail(
			err, GPUSNAP_E_INVALID, "model '%s' has no MoE layer", model->family);
	dispatch->layers = gsn_alloc(model->layer_count, sizeof *dispatch->layers);
	if (!dispatch->layers)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "binding %u layers: out of memory",
			model->layer_count);
	for (uint32_t i = 0; i < model->layer_count && !status; i++) {
		dispatch->layers[i].spec = &model->layers[i];
		status = gsn_bind_layer(
			dispatch->registry, &model->layers[i], dispatch->layers[i].operands, err);
	}
	return status;
}

gpusnap_status gpusnap_dispatch_create(gpusnap_registry *registry, const gpusnap_moe_model *model,
	gpusnap_dispatch **out, gpusnap_error *err)
{
	gpusnap_dispatch *dispatch = gsn_alloc(1, sizeof *dispatch);
	gpusnap_status status;

	if (!dispatch)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "creating a dispatcher: out of memory");
	dispatch->registry = registry;
	gpusnap_registry_hold(registry);
	status = copy_model(model, &dispatch->model, err);
	if (!status)
		status = bind_model(dispatch, err);
	if (!status)
		status = gsn_dispatch_ops(dispatch)->stream_create(
			gsn_dispatch_context(dispatch), &dispatch->stream, err);
	gpusnap_registry_release(registry);
	if (status) {
		gpusnap_dispatch_free(dispatch);
		return status;
	}
	*out = dispatch;
	return GPUSNAP_OK;
}

static void release_tables(struct gsn_layer *layer)
{
	gsn_free(layer->mask.values);
	gsn_free(layer->map.values);
}

void gpusnap_dispatch_free(gpusnap_dispatch *dispatch)
{
	if (!dispatch)
		return;
	gsn_dispatch_ops(dispatch)->stream_destroy(dispatch->stream);
	gsn_workspace_release(dispatch);
	gsn_peek_release(dispatch);
	for (uint32_t i = 0; dispatch->layers && i < dispatch->model->layer_count; i++)
		release_tables(&dispatch->layers[i]);
	gsn_free(dispatch->layers);
	gpusnap_moe_model_free(dispatch->model);
	gsn_free(dispatch);
}

const gpusnap_moe_model *gpusnap_dispatch_model(const gpusnap_dispatch *dispatch)
{
	return dispatch->model;
}

gpusnap_dispatch_counters gpusnap_dispatch_get_counters(const gpusnap_dispatch *dispatch)
{
	gpusnap_dispatch_counters counters;

	gpusnap_registry_hold(dispatch->registry);
	counters = dispatch->counters;
	gpusnap_registry_release(dispatch->registry);
	return counters;
}

gpusnap_status gsn_dispatch_layer(gpusnap_dispatch *dispatch, uint32_t index,
	struct gsn_layer **ret_layer, gpusnap_error *err)
{
	if (index >= dispatch->model->layer_count)
		return gsn_fail(err, GPUSNAP_E_INVALID, "layer index %u: the model has %u layers",
			index, dispatch->model->layer_count);
	*ret_layer = &dispatch->layers[index];
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_dispatch_bind_mask(gpusnap_dispatch *dispatch, uint32_t layer,
	uint32_t region, uint64_t offset, gpusnap_error *err)
{
	struct gsn_layer *found;
	gpusnap_status status;

	gpusnap_registry_hold(dispatch->registry);
	status = gsn_dispatch_layer(dispatch, layer, &found, err);
	if (!status)
		status = gsn_bind_mask(dispatch->registry, found->spec, region, offset,
			&found->operands[GPUSNAP_MOE_MASK], err);
	if (!status)
		found->mask.owned = false;
	gpusnap_registry_release(dispatch->registry);
	return status;
}

static gpusnap_status check_resident(const struct gsn_layer *layer,
	const struct gsn_operand *operand, const gpusnap_region_info *info, gpusnap_error *err)
{
	if (info->state == GPUSNAP_REGION_RESIDENT)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_STATE,
		"layer %u: buffer '%s' is not resident: region %u (%s) is %s; %s first",
		layer->spec->layer, operand->name, info->id, info->tag,
		gpusnap_region_state_name(info->state),
		info->state == GPUSNAP_REGION_OFFLOADED ? "resume it"
							: "restore it, or rewrite it and say so");
}

static gpusnap_status operand_ready(gpusnap_dispatch *dispatch, const struct gsn_layer *layer,
	struct gsn_operand *operand, gpusnap_region_info *info, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	if (!operand->bound)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"layer %u: no buffer is named '%s'; say where the mask is with "
			"gpusnap_dispatch_bind_mask()",
			layer->spec->layer, operand->name);
	if (info->id != operand->region || !info->tag)
		status = gpusnap_region_get(dispatch->registry, operand->region, info, err);
	if (!status)
		status = check_resident(layer, operand, info, err);
	if (!status)
		operand->address = info->address + operand->offset;
	return status;
}

gpusnap_status gsn_layer_ready(
	gpusnap_dispatch *dispatch, struct gsn_layer *layer, gpusnap_error *err)
{
	gpusnap_region_info info = {0};
	gpusnap_status status = GPUSNAP_OK;

	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS && !status; slot++)
		if (layer->operands[slot].name)
			status = operand_ready(dispatch, layer, &layer->operands[slot], &info, err);
	return status ? status : gsn_tables_refresh(dispatch, layer, err);
}
