/* SPDX-License-Identifier: Apache-2.0 */
/* Fusing the experts of a layer: which rows and columns of which tensor go where. */
#include "loader/moe_layer.h"

#include <string.h>

#include <gpusnap/expert_map.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "loader/moe_sizes.h"
#include "loader/part_matrix.h"
#include "loader/rank_slice.h"
#include "loader/scale_blocks.h"

/* FP4 is scaled by powers of two, 2^(byte - 127); others by numbers. Padding is scaled by 1. */
#define ONE_F32	 0x3f800000u
#define ONE_E8M0 0x7f7f7f7fu

/* The experts that tokens choose from, or the one that all go through. */
struct experts {
	const struct gsn_expert_slots *slots;
	const struct gsn_weight_format *format;
	struct gsn_slice share; /* of the intermediate axis */
	struct gsn_scale_blocks blocks;
	uint32_t first, local;
};

struct builder {
	struct gsn_rank_state *state;
	const struct gsn_moe_tensors *tensors;
	const struct gsn_rank *rank;
	struct gsn_moe_sizes sizes;
	struct experts routed;
	struct experts shared; /* of no width where the shared expert is not */
	gpusnap_moe_layer *layer;
};

struct slot_buffer {
	gpusnap_moe_slot slot;
	gpusnap_role role;
	const char *suffix;
};

static const struct slot_buffer expert_buffers[] = {
	{GPUSNAP_MOE_W13, GPUSNAP_ROLE_WEIGHT, "experts.w13_weight"},
	{GPUSNAP_MOE_W13_SCALE, GPUSNAP_ROLE_SCALE, "experts.w13_weight_scale_inv"},
	{GPUSNAP_MOE_W2, GPUSNAP_ROLE_WEIGHT, "experts.w2_weight"},
	{GPUSNAP_MOE_W2_SCALE, GPUSNAP_ROLE_SCALE, "experts.w2_weight_scale_inv"},
};

static const struct slot_buffer shared_buffers[] = {
	{GPUSNAP_MOE_SHARED_W13, GPUSNAP_ROLE_WEIGHT, "shared_expert.w13_weight"},
	{GPUSNAP_MOE_SHARED_W13_SCALE, GPUSNAP_ROLE_SCALE, "shared_expert.w13_weight_scale_inv"},
	{GPUSNAP_MOE_SHARED_W2, GPUSNAP_ROLE_WEIGHT, "shared_expert.w2_weight"},
	{GPUSNAP_MOE_SHARED_W2_SCALE, GPUSNAP_ROLE_SCALE, "shared_expert.w2_weight_scale_inv"},
};

static const struct slot_buffer w13_bias_buffer = {
	GPUSNAP_MOE_W13_BIAS, GPUSNAP_ROLE_BIAS, "experts.w13_bias"};
static const struct slot_buffer w2_bias_buffer = {
	GPUSNAP_MOE_W2_BIAS, GPUSNAP_ROLE_BIAS, "experts.w2_bias"};

/* Tables that every rank which computes with them holds whole. */
static const struct slot_buffer router_buffers[] = {
	{GPUSNAP_MOE_ROUTER, GPUSNAP_ROLE_ROUTER, "gate.weight"},
	{GPUSNAP_MOE_ROUTER_BIAS, GPUSNAP_ROLE_BIAS, "gate.bias"},
	{GPUSNAP_MOE_SELECTION_BIAS, GPUSNAP_ROLE_BIAS, "gate.e_score_correction_bias"},
	{GPUSNAP_MOE_HASH, GPUSNAP_ROLE_EXPERT_MAP, "gate.tid2eid"},
};
static const struct slot_buffer gate_buffer = {
	GPUSNAP_MOE_SHARED_GATE, GPUSNAP_ROLE_ROUTER, "shared_expert_gate.weight"};

/* Tables that say which experts the rank holds. */
static const struct slot_buffer mask_buffer = {
	GPUSNAP_MOE_MASK, GPUSNAP_ROLE_EXPERT_MASK, "expert_mask"};
static const struct slot_buffer map_buffer = {
	GPUSNAP_MOE_MAP, GPUSNAP_ROLE_EXPERT_MAP, "expert_map"};

static gpusnap_status name_slot(
	struct builder *b, gpusnap_moe_slot slot, const char *suffix, gpusnap_error *err)
{
	char *name = gsn_printf("%s.%s", b->layer->module, suffix);

	if (!name)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a buffer name");
	b->layer->buffers[slot] = name;
	return GPUSNAP_OK;
}

/* ---- fused buffers ---- */

/*
 * A buffer of matrices [rows, columns], one below the other for each expert and part. Rows and
 * columns are counted in elements of the file, or in scale blocks of the rank.
 */
struct fused {
	const struct slot_buffer *to;
	const struct gsn_moe_slot_tensors *from;
	const struct experts *experts;
	struct gsn_slice rows, columns;
	gpusnap_dtype dtype;
	uint32_t packed; /* elements of the buffer for one of the file */
	uint32_t unit;	 /* bytes of the buffer for one of the file */
	uint32_t fill;	 /* of padding */
};

static uint64_t part_bytes(const struct fused *f)
{
	return f->rows.padded * f->columns.padded * f->unit;
}

/* Scales as they are, or each for all blocks of the rank that it is the scale of. */
static struct gsn_view scale_view(const struct fused *f, const struct gsn_part_matrix *matrix,
	const struct gsn_checkpoint_tensor *tensor)
{
	const struct gsn_scale_blocks *blocks = &f->experts->blocks;
	gpusnap_dtype dtype = tensor->tensor->dtype;
	uint64_t row = f->rows.first, column = f->columns.first;

	if (dtype != GPUSNAP_BF16 && blocks->ratio_n == 1 && blocks->ratio_k == 1)
		return gsn_part_matrix_view(matrix, &f->rows, &f->columns, f->fill);
	return (struct gsn_view){
		.kind = GSN_VIEW_SCALE,
		.shard = matrix->shard,
		.source = matrix->source + row / blocks->ratio_n * matrix->row_stride +
			  column / blocks->ratio_k * matrix->column_stride,
		.storage = matrix->storage,
		.count = {1, f->rows.have, f->columns.have},
		.stride = {0, matrix->row_stride, matrix->column_stride},
		.run = f->unit,
		.pad = (f->columns.padded - f->columns.have) * f->unit,
		.fill = f->fill,
		.scale = {f->unit == 1 ? GPUSNAP_F8_E8M0 : dtype, blocks->ratio_n, blocks->ratio_k,
			(uint32_t)(row % blocks->ratio_n), (uint32_t)(column % blocks->ratio_k)},
	};
}

/* Views of one part of a local expert: what the tensor has, and the rows that it lacks. */
static gpusnap_status add_part(struct builder *b, const struct fused *f, uint32_t expert,
	uint32_t part, gpusnap_error *err)
{
	uint32_t whole = f->experts->first + expert, parts = f->from->parts;
	const struct gsn_checkpoint_tensor *tensor = f->from->tensors[(size_t)whole * parts + part];
	struct gsn_part_matrix matrix =
		gsn_part_matrix_of(tensor, f->from->layout, parts, whole, part);
	uint64_t rows = f->columns.have ? f->rows.have : 0;
	uint64_t bytes = rows * f->columns.padded * f->unit;
	struct gsn_view view, padding = gsn_view_padding(f->fill, part_bytes(f) - bytes);
	gpusnap_status st = GPUSNAP_OK;

	view = f->to->role == GPUSNAP_ROLE_SCALE
		       ? scale_view(f, &matrix, tensor)
		       : gsn_part_matrix_view(&matrix, &f->rows, &f->columns, f->fill);
	view.target = ((uint64_t)expert * parts + part) * part_bytes(f);
	padding.target = view.target + bytes;
	if (bytes)
		st = gsn_rank_state_add_view(b->state, &view, err);
	if (!st && padding.run)
		st = gsn_rank_state_add_view(b->state, &padding, err);
	return st;
}

static gpusnap_status note_padding(
	struct builder *b, const struct fused *f, uint32_t rows_axis, gpusnap_error *err)
{
	const struct gsn_slice *rows = &f->rows, *columns = &f->columns;
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t p = 0; !st && rows->have < rows->padded && p < f->from->parts; p++)
		st = gsn_rank_state_add_padding(b->state, rows_axis, p * rows->padded + rows->have,
			(p + 1) * rows->padded, err);
	if (!st && columns->have < columns->padded)
		st = gsn_rank_state_add_padding(b->state, rows_axis + 1, columns->have * f->packed,
			columns->padded * f->packed, err);
	return st;
}

/* Tensors of the checkpoint that a fused buffer is made of. */
static uint64_t tensors_of(const struct fused *f)
{
	return f->from->layout == GSN_LAYOUT_MATRIX ? (uint64_t)f->experts->local * f->from->parts
						    : 1;
}

static uint64_t padding_bytes(const struct fused *f)
{
	uint64_t filled = f->rows.have * f->columns.have * f->unit;

	return (uint64_t)f->experts->local * f->from->parts * (part_bytes(f) - filled);
}

/* Biases have no columns, and the shared expert's buffers no axis of experts. */
static gpusnap_status add_fused(struct builder *b, const struct fused *f, gpusnap_error *err)
{
	const uint64_t shape[] = {
		f->experts->local, f->from->parts * f->rows.padded, f->columns.padded * f->packed};
	uint32_t first = f->experts == &b->shared ? 1 : 0;
	uint32_t end = f->to->role == GPUSNAP_ROLE_BIAS ? 2 : 3;
	struct gsn_buffer_spec spec = {
		.role = f->to->role,
		.dtype = f->dtype,
		.rank = end - first,
		.shape = shape + first,
	};
	gpusnap_status st = name_slot(b, f->to->slot, f->to->suffix, err);

	spec.name = b->layer->buffers[f->to->slot];
	if (!st)
		st = gsn_rank_state_add_buffer(b->state, &spec, err);
	if (!st)
		st = note_padding(b, f, 1 - first, err);
	for (uint32_t e = 0; !st && e < f->experts->local; e++)
		for (uint32_t p = 0; !st && p < f->from->parts; p++)
			st = add_part(b, f, e, p, err);
	b->state->tensors += tensors_of(f);
	b->state->padding_bytes += padding_bytes(f);
	return st;
}

static gpusnap_status add_weights(struct builder *b, const struct experts *experts,
	const struct slot_buffer *to, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *from = &b->tensors->slots[to->slot];
	const struct gsn_weight_format *format = experts->format;
	struct gsn_slice hidden = gsn_slice_whole(b->sizes.hidden);
	bool by_rows = from->axis == GSN_SHARD_ROWS;
	struct fused f = {
		.to = to,
		.from = from,
		.experts = experts,
		.rows = by_rows ? experts->share : hidden,
		.columns = by_rows ? hidden : experts->share,
		.dtype = format->dtype,
		.packed = format->packed,
		.unit = gpusnap_dtype_bits(format->dtype) * format->packed / 8,
	};

	if (to->role == GPUSNAP_ROLE_SCALE) {
		bool exponents = format->scale_dtype == GPUSNAP_F8_E8M0;

		f.rows = gsn_slice_in(&f.rows, experts->blocks.block_n);
		f.columns = gsn_slice_in(&f.columns, experts->blocks.block_k);
		f.dtype = exponents ? GPUSNAP_F8_E8M0 : GPUSNAP_F32;
		f.packed = 1;
		f.unit = exponents ? 1 : sizeof(float);
		f.fill = exponents ? ONE_E8M0 : ONE_F32;
	} else {
		f.columns = gsn_slice_in(&f.columns, format->packed);
	}
	return add_fused(b, &f, err);
}

static gpusnap_status add_experts(struct builder *b, const struct experts *experts,
	const struct slot_buffer *buffers, size_t count, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (size_t i = 0; !st && i < count; i++)
		if (experts->format->block_n || buffers[i].role != GPUSNAP_ROLE_SCALE)
			st = add_weights(b, experts, &buffers[i], err);
	return st;
}

/* Nothing where the layer has none. */
static gpusnap_status add_bias(struct builder *b, const struct slot_buffer *to,
	const struct gsn_slice *rows, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *from = &b->tensors->slots[to->slot];
	struct fused f = {
		.to = to,
		.from = from,
		.experts = &b->routed,
		.rows = *rows,
		.columns = gsn_slice_whole(1),
		.packed = 1,
	};

	if (!from->tensors)
		return GPUSNAP_OK;
	f.dtype = from->tensors[0]->tensor->dtype;
	f.unit = gpusnap_dtype_bits(f.dtype) / 8;
	return add_fused(b, &f, err);
}

/* What is added to the sum over the tensor-parallel ranks is held by one of them. */
static gpusnap_status add_biases(struct builder *b, gpusnap_error *err)
{
	struct gsn_slice hidden = gsn_slice_whole(b->sizes.hidden);
	gpusnap_status st = add_bias(b, &w13_bias_buffer, &b->routed.share, err);

	if (!st && b->rank->tp_rank == 0)
		st = add_bias(b, &w2_bias_buffer, &hidden, err);
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

static gpusnap_status add_router(struct builder *b, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (size_t i = 0; !st && i < sizeof router_buffers / sizeof router_buffers[0]; i++)
		st = add_table(b, &router_buffers[i], err);
	return st;
}

static gpusnap_status add_shared(struct builder *b, gpusnap_error *err)
{
	gpusnap_status st;

	if (!b->shared.share.padded)
		return GPUSNAP_OK;
	st = add_table(b, &gate_buffer, err);
	if (!st)
		st = add_experts(b, &b->shared, shared_buffers,
			sizeof shared_buffers / sizeof shared_buffers[0], err);
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

/* A buffer of `length` integers that no tensor holds; ret_values, zeros, are the state's. */
static gpusnap_status add_made(struct builder *b, const struct slot_buffer *to, uint64_t length,
	int32_t **ret_values, gpusnap_error *err)
{
	struct gsn_buffer_spec spec = {
		.role = to->role,
		.dtype = GPUSNAP_I32,
		.rank = 1,
		.shape = &length,
	};
	struct gsn_view view = gsn_view_bytes(0, 0, length * sizeof(int32_t));
	struct gsn_buffer_plan *buffer;
	gpusnap_status st = name_slot(b, to->slot, to->suffix, err);

	spec.name = b->layer->buffers[to->slot];
	if (!st)
		st = gsn_rank_state_add_buffer(b->state, &spec, err);
	if (st)
		return st;
	*ret_values = gsn_alloc(length, sizeof **ret_values);
	if (!*ret_values)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for '%s'", spec.name);
	buffer = &b->state->buffers[b->state->buffer_count - 1];
	buffer->content = (uint8_t *)*ret_values;
	view.kind = GSN_VIEW_MEMORY;
	view.memory = buffer->content;
	return gsn_rank_state_add_view(b->state, &view, err);
}

static gpusnap_status add_mask(struct builder *b, gpusnap_error *err)
{
	const gpusnap_mask_type *type = &b->layer->mask;
	int32_t *values;
	gpusnap_status st = add_made(b, &mask_buffer, gpusnap_mask_length(type), &values, err);

	if (st)
		return st;
	gpusnap_mask_fill(type, values);
	b->state->buffers[b->state->buffer_count - 1].mask = *type;
	return GPUSNAP_OK;
}

static gpusnap_status add_map(struct builder *b, gpusnap_error *err)
{
	const gpusnap_mask_type *type = &b->layer->mask;
	int32_t *values;
	gpusnap_status st;

	if (!b->rank->expert_maps)
		return GPUSNAP_OK;
	st = add_made(b, &map_buffer, type->experts, &values, err);
	if (!st)
		gpusnap_expert_map_fill(type, (gpusnap_local_id *)(void *)values);
	return st;
}

/* ---- the layer ---- */

/* Slices are as wide as kernels need a scale block to be. */
static gpusnap_status divide_experts(
	struct builder *b, struct experts *experts, uint64_t intermediate, gpusnap_error *err)
{
	const struct gsn_weight_format *format = experts->format;
	const struct gsn_rank *rank = b->rank;
	uint32_t unit = format->dtype == GPUSNAP_F4 ? format->block_k
			: format->block_k	    ? GSN_BLOCK_K_UNIT
						    : 1;
	gpusnap_status st = GPUSNAP_OK;

	experts->share = gsn_slice_of_rank(intermediate, rank->tp_rank, rank->tp_size, unit);
	if (format->block_k)
		st = gsn_scale_blocks_choose(format->block_n, format->block_k,
			experts->share.padded, rank->tp_size, &experts->blocks, err);
	if (st)
		gsn_error_prefix(err, "tensor %s",
			b->tensors->slots[experts->slots->w13].tensors[0]->tensor->name);
	return st;
}

static gpusnap_status divide(struct builder *b, const struct gsn_config *config, gpusnap_error *err)
{
	gpusnap_status st;

	b->routed.slots = &gsn_routed_slots;
	b->routed.format = &b->sizes.routed_format;
	gpusnap_expert_block(config->experts, b->rank->ep_rank, b->rank->ep_size, &b->routed.first,
		&b->routed.local);
	st = divide_experts(b, &b->routed, b->sizes.intermediate, err);
	if (st || !b->sizes.shared || b->rank->ep_rank != 0)
		return st;
	b->shared.slots = &gsn_shared_slots;
	b->shared.format = &b->sizes.shared_format;
	b->shared.local = 1;
	return divide_experts(b, &b->shared, b->sizes.shared, err);
}

static void describe_routing(
	const struct builder *b, const struct gsn_config *config, gpusnap_moe_layer *layer)
{
	layer->experts = config->experts;
	layer->top_k = config->top_k;
	layer->score = config->family->score;
	layer->renormalise = config->renormalise;
	layer->routed_scale = config->routed_scale;
	layer->groups = config->groups;
	layer->top_groups = config->top_groups;
	layer->vocabulary = b->sizes.vocabulary;
	layer->mask = (gpusnap_mask_type){
		.kind = b->rank->mask,
		.experts = config->experts,
		.rank = b->rank->ep_rank,
		.world = b->rank->ep_size,
		.first = b->routed.first,
		.local = b->routed.local,
	};
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
	layer->intermediate = (uint32_t)b->routed.share.padded;
	layer->shared_intermediate = (uint32_t)b->shared.share.padded;
	layer->activation = config->family->activation;
	layer->activation_limit = config->limit;
	layer->block_n = b->routed.blocks.block_n;
	layer->block_k = b->routed.blocks.block_k;
	layer->shared_block_n = b->shared.blocks.block_n;
	layer->shared_block_k = b->shared.blocks.block_k;
	layer->norm_epsilon = config->norm_epsilon;
	describe_routing(b, config, layer);
	return GPUSNAP_OK;
}

gpusnap_status gsn_moe_layer_build(struct gsn_rank_state *state,
	const struct gsn_moe_tensors *tensors, const struct gsn_config *config,
	const struct gsn_rank *rank, gpusnap_moe_layer *ret_layer, gpusnap_error *err)
{
	struct builder b = {.state = state, .tensors = tensors, .rank = rank, .layer = ret_layer};
	gpusnap_status st = gsn_moe_sizes_take(tensors, config, &b.sizes, err);

	if (!st)
		st = divide(&b, config, err);
	if (!st)
		st = describe(&b, config, err);
	if (!st)
		st = add_norm(&b, err);
	if (!st)
		st = add_router(&b, err);
	if (!st)
		st = add_experts(&b, &b.routed, expert_buffers,
			sizeof expert_buffers / sizeof expert_buffers[0], err);
	if (!st)
		st = add_biases(&b, err);
	if (!st)
		st = add_shared(&b, err);
	if (!st)
		st = add_mask(&b, err);
	if (!st)
		st = add_map(&b, err);
	return st;
}
