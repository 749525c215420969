/* SPDX-License-Identifier: Apache-2.0 */
/* Fusing the experts of a layer: which rows and columns of which tensor go where. */
#include "loader/moe_layer.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "loader/scale_blocks.h"

struct builder {
	struct gsn_rank_state *state;
	const struct gsn_moe_tensors *tensors;
	const struct gsn_rank *rank;
	struct gsn_moe_sizes sizes;
	struct gsn_scale_blocks blocks;
	uint64_t share;	       /* intermediate of this rank */
	uint64_t shared_share; /* and of the shared expert; 0: it is not here */
	gpusnap_moe_layer *layer;
};

static const struct slot_buffer {
	gpusnap_moe_slot slot;
	gpusnap_role role;
	const char *suffix;
} slot_buffers[] = {
	{GPUSNAP_MOE_W13, GPUSNAP_ROLE_WEIGHT, "experts.w13_weight"},
	{GPUSNAP_MOE_W13_SCALE, GPUSNAP_ROLE_SCALE, "experts.w13_weight_scale_inv"},
	{GPUSNAP_MOE_W2, GPUSNAP_ROLE_WEIGHT, "experts.w2_weight"},
	{GPUSNAP_MOE_W2_SCALE, GPUSNAP_ROLE_SCALE, "experts.w2_weight_scale_inv"},
};

static const struct slot_buffer shared_buffers[] = {
	{GPUSNAP_MOE_SHARED_W13, GPUSNAP_ROLE_WEIGHT, "shared_expert.w13_weight"},
	{GPUSNAP_MOE_SHARED_W2, GPUSNAP_ROLE_WEIGHT, "shared_expert.w2_weight"},
};

/* Tables that every rank which computes with them holds whole. */
static const struct slot_buffer router_buffer = {
	GPUSNAP_MOE_ROUTER, GPUSNAP_ROLE_ROUTER, "gate.weight"};
static const struct slot_buffer bias_buffer = {
	GPUSNAP_MOE_SELECTION_BIAS, GPUSNAP_ROLE_BIAS, "gate.e_score_correction_bias"};
static const struct slot_buffer gate_buffer = {
	GPUSNAP_MOE_SHARED_GATE, GPUSNAP_ROLE_ROUTER, "shared_expert_gate.weight"};

static gpusnap_status name_slot(
	struct builder *b, gpusnap_moe_slot slot, const char *suffix, gpusnap_error *err)
{
	char *name = gsn_printf("%s.%s", b->layer->module, suffix);

	if (!name)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a buffer name");
	b->layer->buffers[slot] = name;
	return GPUSNAP_OK;
}

/* ---- slices ---- */

/* What a rank takes of a tensor [rows, columns]. */
struct extent {
	uint64_t first_row, rows;
	uint64_t first_column, columns;
};

static struct extent extent_of(const struct builder *b, enum gsn_shard_axis axis, uint64_t share)
{
	uint64_t first = share * b->rank->tp_rank;

	if (axis == GSN_SHARD_ROWS)
		return (struct extent){first, share, 0, b->sizes.hidden};
	return (struct extent){0, b->sizes.hidden, first, share};
}

static struct gsn_view weight_view(
	const struct gsn_checkpoint_tensor *tensor, const struct extent *extent)
{
	uint64_t element = gpusnap_dtype_bits(tensor->tensor->dtype) / 8;
	uint64_t pitch = tensor->tensor->shape[1] * element;
	uint64_t first = extent->first_row * pitch + extent->first_column * element;

	return gsn_view_rows(tensor->shard, tensor->offset + first, extent->rows,
		extent->columns * element, pitch);
}

/* The same extent of the weight's scales; rows and columns counted in blocks of the rank. */
static struct gsn_view scale_view(const struct builder *b,
	const struct gsn_checkpoint_tensor *tensor, const struct extent *extent)
{
	const struct gsn_scale_blocks *blocks = &b->blocks;
	uint64_t element = gpusnap_dtype_bits(tensor->tensor->dtype) / 8;
	uint64_t pitch = tensor->tensor->shape[1] * element;
	uint64_t row = extent->first_row / blocks->block_n;
	uint64_t column = extent->first_column / blocks->block_k;
	uint64_t rows = gsn_ceil_div(extent->rows, blocks->block_n);
	uint64_t columns = gsn_ceil_div(extent->columns, blocks->block_k);
	uint64_t source =
		tensor->offset + row / blocks->ratio_n * pitch + column / blocks->ratio_k * element;

	if (tensor->tensor->dtype == GPUSNAP_F32 && blocks->ratio_n == 1 && blocks->ratio_k == 1)
		return gsn_view_rows(tensor->shard, source, rows, columns * element, pitch);
	return (struct gsn_view){
		.kind = GSN_VIEW_SCALE,
		.shard = tensor->shard,
		.source = source,
		.count = {1, rows, columns},
		.stride = {0, pitch, element},
		.run = sizeof(float),
		.scale = {tensor->tensor->dtype, blocks->ratio_n, blocks->ratio_k,
			(uint32_t)(row % blocks->ratio_n), (uint32_t)(column % blocks->ratio_k)},
	};
}

/* ---- fused buffers ---- */

static gpusnap_status add_slot_views(
	struct builder *b, gpusnap_moe_slot slot, const struct extent *extent, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *from = &b->tensors->slots[slot];
	const gpusnap_mask_type *mask = &b->layer->mask;
	bool scales = slot == GPUSNAP_MOE_W13_SCALE || slot == GPUSNAP_MOE_W2_SCALE;
	size_t first = (size_t)mask->first * from->parts;
	size_t count = (size_t)mask->local * from->parts;
	gpusnap_status st = GPUSNAP_OK;

	for (size_t i = 0; !st && i < count; i++) {
		const struct gsn_checkpoint_tensor *tensor = from->tensors[first + i];
		struct gsn_view view =
			scales ? scale_view(b, tensor, extent) : weight_view(tensor, extent);

		view.storage = tensor->tensor->end - tensor->tensor->begin;
		view.target = i * gsn_view_target_bytes(&view);
		st = gsn_rank_state_add_view(b->state, &view, err);
	}
	return st;
}

/* [local experts, parts * rows, columns] of what the rank takes of each tensor. */
static gpusnap_status add_slot(struct builder *b, const struct slot_buffer *to, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *from = &b->tensors->slots[to->slot];
	struct extent extent = extent_of(b, from->axis, b->share);
	bool scales = to->role == GPUSNAP_ROLE_SCALE;
	uint64_t rows = scales ? gsn_ceil_div(extent.rows, b->blocks.block_n) : extent.rows;
	uint64_t columns =
		scales ? gsn_ceil_div(extent.columns, b->blocks.block_k) : extent.columns;
	uint64_t shape[] = {b->layer->mask.local, from->parts * rows, columns};
	struct gsn_buffer_spec spec = {
		.role = to->role,
		.dtype = scales ? GPUSNAP_F32 : b->sizes.dtype,
		.rank = 3,
		.shape = shape,
	};
	gpusnap_status st = name_slot(b, to->slot, to->suffix, err);

	spec.name = b->layer->buffers[to->slot];
	if (!st)
		st = gsn_rank_state_add_buffer(b->state, &spec, err);
	if (!st)
		st = add_slot_views(b, to->slot, &extent, err);
	return st;
}

/* [parts * rows, columns]. */
static gpusnap_status add_shared_slot(
	struct builder *b, const struct slot_buffer *to, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *from = &b->tensors->slots[to->slot];
	struct extent extent = extent_of(b, from->axis, b->shared_share);
	uint64_t shape[] = {from->parts * extent.rows, extent.columns};
	struct gsn_buffer_spec spec = {
		.role = to->role,
		.dtype = b->sizes.shared_dtype,
		.rank = 2,
		.shape = shape,
	};
	gpusnap_status st = name_slot(b, to->slot, to->suffix, err);

	spec.name = b->layer->buffers[to->slot];
	if (!st)
		st = gsn_rank_state_add_buffer(b->state, &spec, err);
	for (uint32_t i = 0; !st && i < from->parts; i++) {
		const struct gsn_checkpoint_tensor *tensor = from->tensors[i];
		struct gsn_view view = weight_view(tensor, &extent);

		view.storage = tensor->tensor->end - tensor->tensor->begin;
		view.target = i * gsn_view_target_bytes(&view);
		st = gsn_rank_state_add_view(b->state, &view, err);
	}
	return st;
}

static gpusnap_status add_experts(struct builder *b, gpusnap_error *err)
{
	bool scaled = b->sizes.dtype == GPUSNAP_F8_E4M3;
	gpusnap_status st = GPUSNAP_OK;

	for (size_t i = 0; !st && i < sizeof slot_buffers / sizeof slot_buffers[0]; i++)
		if (scaled || slot_buffers[i].role != GPUSNAP_ROLE_SCALE)
			st = add_slot(b, &slot_buffers[i], err);
	return st;
}

/* ---- replicated buffers and the mask ---- */

/* Nothing where the layer has no such table. */
static gpusnap_status add_table(struct builder *b, const struct slot_buffer *to, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *from = &b->tensors->slots[to->slot];
	gpusnap_status st;

	if (!from->tensors)
		return GPUSNAP_OK;
	st = name_slot(b, to->slot, to->suffix, err);
	if (st)
		return st;
	return gsn_rank_state_add_whole(
		b->state, from->tensors[0], b->layer->buffers[to->slot], to->role, err);
}

static gpusnap_status add_shared(struct builder *b, gpusnap_error *err)
{
	gpusnap_status st;

	if (!b->shared_share)
		return GPUSNAP_OK;
	st = add_table(b, &gate_buffer, err);
	for (size_t i = 0; !st && i < sizeof shared_buffers / sizeof shared_buffers[0]; i++)
		st = add_shared_slot(b, &shared_buffers[i], err);
	return st;
}

/* The norm keeps the name it has in the checkpoint: dense layers have one too. */
static gpusnap_status add_norm(struct builder *b, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *slot = &b->tensors->slots[GPUSNAP_MOE_NORM];
	const struct gsn_checkpoint_tensor *tensor = slot->tensors ? slot->tensors[0] : NULL;

	if (!tensor)
		return GPUSNAP_OK;
	b->layer->buffers[GPUSNAP_MOE_NORM] = gsn_strdup(tensor->tensor->name);
	if (!b->layer->buffers[GPUSNAP_MOE_NORM])
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a buffer name");
	return gsn_rank_state_add_whole(
		b->state, tensor, tensor->tensor->name, GPUSNAP_ROLE_OTHER, err);
}

static gpusnap_status add_mask(struct builder *b, gpusnap_error *err)
{
	uint64_t length = gpusnap_mask_length(&b->layer->mask);
	struct gsn_buffer_spec spec = {
		.role = GPUSNAP_ROLE_EXPERT_MASK,
		.dtype = GPUSNAP_I32,
		.rank = 1,
		.shape = &length,
	};
	struct gsn_view view = gsn_view_bytes(0, 0, length * sizeof(int32_t));
	struct gsn_buffer_plan *buffer;
	int32_t *values;
	gpusnap_status st = name_slot(b, GPUSNAP_MOE_MASK, "expert_mask", err);

	spec.name = b->layer->buffers[GPUSNAP_MOE_MASK];
	if (!st)
		st = gsn_rank_state_add_buffer(b->state, &spec, err);
	if (st)
		return st;
	values = gsn_alloc(length, sizeof *values);
	if (!values)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a mask");
	gpusnap_mask_fill(&b->layer->mask, values);
	buffer = &b->state->buffers[b->state->buffer_count - 1];
	buffer->mask = b->layer->mask;
	buffer->content = (uint8_t *)values;
	view.kind = GSN_VIEW_MEMORY;
	view.memory = buffer->content;
	return gsn_rank_state_add_view(b->state, &view, err);
}

/* ---- the layer ---- */

static gpusnap_status divide(struct builder *b, const struct gsn_config *config, gpusnap_error *err)
{
	const gpusnap_tensor *first = b->tensors->slots[GPUSNAP_MOE_W13].tensors[0]->tensor;
	uint32_t tp_size = b->rank->tp_size;
	gpusnap_status st = GPUSNAP_OK;

	if (b->sizes.intermediate % tp_size != 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"tp_size %u does not divide the %llu rows of tensor %s", tp_size,
			(unsigned long long)b->sizes.intermediate, first->name);
	if (b->sizes.shared % tp_size != 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"tp_size %u does not divide the %llu rows of tensor %s", tp_size,
			(unsigned long long)b->sizes.shared,
			b->tensors->slots[GPUSNAP_MOE_SHARED_W13].tensors[0]->tensor->name);
	b->share = b->sizes.intermediate / tp_size;
	b->shared_share = b->rank->ep_rank == 0 ? b->sizes.shared / tp_size : 0;
	if (b->sizes.dtype == GPUSNAP_F8_E4M3)
		st = gsn_scale_blocks_choose(
			config->block_n, config->block_k, b->share, tp_size, &b->blocks, err);
	if (st)
		gsn_error_prefix(err, "tensor %s", first->name);
	return st;
}

static gpusnap_status describe(
	struct builder *b, const struct gsn_config *config, gpusnap_error *err)
{
	gpusnap_moe_layer *layer = b->layer;

	layer->module = gsn_printf("model.layers.%u.mlp", b->tensors->layer);
	if (!layer->module)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a module name");
	layer->layer = b->tensors->layer;
	layer->hidden = (uint32_t)b->sizes.hidden;
	layer->intermediate = (uint32_t)b->share;
	layer->experts = config->experts;
	layer->top_k = config->top_k;
	layer->score = config->family->score;
	layer->renormalise = config->renormalise;
	layer->routed_scale = config->routed_scale;
	layer->groups = config->groups;
	layer->top_groups = config->top_groups;
	layer->shared_intermediate = (uint32_t)b->shared_share;
	layer->activation = GPUSNAP_ACTIVATION_SILU;
	layer->block_n = b->blocks.block_n;
	layer->block_k = b->blocks.block_k;
	layer->norm_epsilon = config->norm_epsilon;
	layer->mask = (gpusnap_mask_type){
		.kind = b->rank->mask,
		.experts = config->experts,
		.rank = b->rank->ep_rank,
		.world = b->rank->ep_size,
	};
	gpusnap_expert_block(config->experts, b->rank->ep_rank, b->rank->ep_size,
		&layer->mask.first, &layer->mask.local);
	return GPUSNAP_OK;
}

gpusnap_status gsn_moe_layer_build(struct gsn_rank_state *state,
	const struct gsn_moe_tensors *tensors, const struct gsn_config *config,
	const struct gsn_rank *rank, gpusnap_moe_layer *ret_layer, gpusnap_error *err)
{
	struct builder b = {.state = state, .tensors = tensors, .rank = rank, .layer = ret_layer};
	gpusnap_status st = gsn_moe_tensors_check(tensors, config, &b.sizes, err);

	if (!st)
		st = divide(&b, config, err);
	if (!st)
		st = describe(&b, config, err);
	if (!st)
		st = add_norm(&b, err);
	if (!st)
		st = add_table(&b, &router_buffer, err);
	if (!st)
		st = add_table(&b, &bias_buffer, err);
	if (!st)
		st = add_experts(&b, err);
	if (!st)
		st = add_shared(&b, err);
	if (!st)
		st = add_mask(&b, err);
	return st;
}
