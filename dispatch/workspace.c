/* SPDX-License-Identifier: Apache-2.0 */
/* Laying out one step's arrays in one block of device memory, and growing that block. */
#include "dispatch/workspace.h"

#include "dispatch/dispatch_state.h"
#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

/* Vector loads of every device are happy with this, and arrays do not share cache lines. */
enum { SLICE_ALIGNMENT = 256 };

/* bind.c has seen to it that two biases have one dtype. */
static gpusnap_dtype bias_dtype(const struct gsn_operand *operands)
{
	const struct gsn_operand *first = &operands[GPUSNAP_MOE_W13_BIAS];

	return first->name ? first->dtype : operands[GPUSNAP_MOE_W2_BIAS].dtype;
}

void gsn_experts_args(const struct gsn_layer *layer, uint32_t tokens, uint32_t top_k,
	struct gsn_moe_experts *ret_args)
{
	const gpusnap_moe_layer *spec = layer->spec;
	const struct gsn_operand *operands = layer->operands;

	*ret_args = (struct gsn_moe_experts){
		.tokens = tokens,
		.hidden = spec->hidden,
		.intermediate = spec->intermediate,
		.top_k = top_k,
		.local_experts = spec->mask.local,
		.activation = (uint32_t)spec->activation,
		.weight_dtype = operands[GPUSNAP_MOE_W13].dtype,
		.block_n = spec->block_n,
		.block_k = spec->block_k,
		.mask = operands[GPUSNAP_MOE_MASK].address,
		.mask_length = gpusnap_mask_length(&spec->mask),
		.w13 = operands[GPUSNAP_MOE_W13].address,
		.w13_scale = operands[GPUSNAP_MOE_W13_SCALE].address,
		.w2 = operands[GPUSNAP_MOE_W2].address,
		.w2_scale = operands[GPUSNAP_MOE_W2_SCALE].address,
		.scale_dtype = operands[GPUSNAP_MOE_W13_SCALE].dtype,
		.bias_dtype = bias_dtype(operands),
		.w13_bias = operands[GPUSNAP_MOE_W13_BIAS].address,
		.w2_bias = operands[GPUSNAP_MOE_W2_BIAS].address,
		.limit = spec->activation_limit,
		.weight_before_w2 = spec->weight_before_w2,
	};
}

void gsn_shared_args(
	const struct gsn_layer *layer, uint32_t tokens, struct gsn_moe_experts *ret_args)
{
	const gpusnap_moe_layer *spec = layer->spec;
	const struct gsn_operand *operands = layer->operands;

	*ret_args = (struct gsn_moe_experts){
		.tokens = tokens,
		.hidden = spec->hidden,
		.intermediate = spec->shared_intermediate,
		.top_k = 1,
		.local_experts = 1,
		.activation = (uint32_t)spec->activation,
		.weight_dtype = operands[GPUSNAP_MOE_SHARED_W13].dtype,
		.block_n = spec->shared_block_n,
		.block_k = spec->shared_block_k,
		.mask_length = 1,
		.w13 = operands[GPUSNAP_MOE_SHARED_W13].address,
		.w13_scale = operands[GPUSNAP_MOE_SHARED_W13_SCALE].address,
		.w2 = operands[GPUSNAP_MOE_SHARED_W2].address,
		.w2_scale = operands[GPUSNAP_MOE_SHARED_W2_SCALE].address,
		.scale_dtype = operands[GPUSNAP_MOE_SHARED_W13_SCALE].dtype,
		.limit = spec->activation_limit,
	};
}

static gpusnap_address take(gpusnap_address *next, uint64_t bytes)
{
	gpusnap_address at = *next;

	*next = gsn_align_up(at + bytes, SLICE_ALIGNMENT);
	return at;
}

/* @return bytes of scratch that it needs */
static uint64_t lay_out_shared(const gpusnap_dispatch *dispatch, const struct gsn_layer *layer,
	uint32_t tokens, gpusnap_address *next, struct gsn_slices *slices)
{
	uint64_t values = (uint64_t)tokens * sizeof(float);
	struct gsn_moe_experts args;

	if (!layer->spec->shared_intermediate)
		return 0;
	gsn_shared_args(layer, tokens, &args);
	slices->shared_counters = take(next, sizeof(struct gsn_moe_counters));
	slices->shared_logits = take(next, values);
	slices->shared_ids = take(next, values);
	slices->shared_weights = take(next, values);
	slices->shared_mask = take(next, sizeof(int32_t));
	slices->shared_y = take(next, values * layer->spec->hidden);
	return gsn_dispatch_ops(dispatch)->moe_scratch_bytes(&args);
}

/* Bytes of a step's arrays when they begin at `base`. */
static uint64_t lay_out(const gpusnap_dispatch *dispatch, const struct gsn_layer *layer,
	uint32_t tokens, uint32_t top_k, gpusnap_address base, struct gsn_slices *ret_slices)
{
	const gpusnap_moe_layer *spec = layer->spec;
	uint64_t pairs = (uint64_t)tokens * top_k;
	uint64_t row = (uint64_t)spec->hidden * sizeof(float);
	uint64_t logits = (uint64_t)tokens * spec->experts * sizeof(float);
	gpusnap_address next = base;
	struct gsn_moe_experts args;
	uint64_t scratch;

	gsn_experts_args(layer, tokens, top_k, &args);
	*ret_slices = (struct gsn_slices){
		.counters = take(&next, sizeof(struct gsn_moe_counters)),
	};
	ret_slices->x = take(&next, tokens * row);
	ret_slices->normed = take(&next, tokens * row);
	ret_slices->logits = take(&next, logits);
	ret_slices->keys = take(&next, logits);
	ret_slices->ids = take(&next, pairs * sizeof(int32_t));
	ret_slices->mask_ids = take(&next, pairs * sizeof(int32_t));
	ret_slices->weights = take(&next, pairs * sizeof(float));
	ret_slices->token_ids = take(&next, (uint64_t)tokens * sizeof(int32_t));
	ret_slices->mask = take(&next, spec->mask.local * sizeof(int32_t));
	ret_slices->y = take(&next, pairs * row);
	ret_slices->out = take(&next, tokens * row);
	scratch = lay_out_shared(dispatch, layer, tokens, &next, ret_slices);
	scratch = gsn_max(scratch, gsn_dispatch_ops(dispatch)->moe_scratch_bytes(&args));
	ret_slices->scratch = take(&next, scratch);
	return next - base;
}

static uint64_t largest_layout(const gpusnap_dispatch *dispatch, uint32_t tokens, uint32_t top_k)
{
	struct gsn_slices unused;
	uint64_t most = 0;

	for (uint32_t i = 0; i < dispatch->model->layer_count; i++)
		most = gsn_max(
			most, lay_out(dispatch, &dispatch->layers[i], tokens, top_k, 0, &unused));
	return most;
}

static void unmap_block(gpusnap_dispatch *dispatch)
{
	const struct gsn_device_ops *ops = gsn_dispatch_ops(dispatch);
	struct gsn_workspace *workspace = &dispatch->workspace;
	void *context = gsn_dispatch_context(dispatch);

	if (!workspace->bytes)
		return;
	/* A failure leaves memory mapped that release then gives back with the range. */
	(void)ops->unmap(context, workspace->base, workspace->bytes, NULL);
	ops->release(context, workspace->base, workspace->bytes);
	workspace->base = 0;
	workspace->bytes = 0;
}

static gpusnap_status map_block(gpusnap_dispatch *dispatch, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = gsn_dispatch_ops(dispatch);
	void *context = gsn_dispatch_context(dispatch);
	gpusnap_device_properties properties;
	gpusnap_address base;
	gpusnap_status status = ops->query(context, &properties, err);

	if (status)
		return status;
	bytes = gsn_align_up(bytes, properties.granule_bytes);
	status = ops->reserve(context, bytes, &base, err);
	if (status)
		return status;
	status = ops->map(context, base, bytes, 0, err);
	if (status) {
		ops->release(context, base, bytes);
		return status;
	}
	unmap_block(dispatch);
	dispatch->workspace.base = base;
	dispatch->workspace.bytes = bytes;
	dispatch->counters.allocations++;
	return GPUSNAP_OK;
}

static gpusnap_status grow_ones(gpusnap_dispatch *dispatch, uint64_t count, gpusnap_error *err)
{
	struct gsn_workspace *workspace = &dispatch->workspace;
	float *ones;

	if (count <= workspace->ones_count)
		return GPUSNAP_OK;
	ones = gsn_grow(workspace->ones, workspace->ones_count, count, sizeof *ones);
	if (!ones)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "decode of %llu pairs: out of memory",
			(unsigned long long)count);
	for (uint64_t i = workspace->ones_count; i < count; i++)
		ones[i] = 1.0f;
	workspace->ones = ones;
	workspace->ones_count = count;
	dispatch->counters.allocations++;
	return GPUSNAP_OK;
}

gpusnap_status gsn_workspace_reserve(gpusnap_dispatch *dispatch, const struct gsn_layer *layer,
	uint32_t tokens, uint32_t top_k, struct gsn_slices *ret_slices, gpusnap_error *err)
{
	uint64_t bytes = lay_out(dispatch, layer, tokens, top_k, 0, ret_slices);
	gpusnap_status status = grow_ones(dispatch, (uint64_t)tokens * top_k, err);

	if (!status && bytes > dispatch->workspace.bytes)
		status = map_block(dispatch, largest_layout(dispatch, tokens, top_k), err);
	if (status) {
		gsn_error_prefix(err, "layer %u: decode of %u tokens", layer->spec->layer, tokens);
		return status;
	}
	(void)lay_out(dispatch, layer, tokens, top_k, dispatch->workspace.base, ret_slices);
	return GPUSNAP_OK;
}

void gsn_workspace_release(gpusnap_dispatch *dispatch)
{
	if (dispatch->registry)
		unmap_block(dispatch);
	gsn_free(dispatch->workspace.ones);
	dispatch->workspace.ones = NULL;
	dispatch->workspace.ones_count = 0;
}
