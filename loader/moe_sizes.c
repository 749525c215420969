/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and dtypes of a MoE layer's tensors, and what follows from them. */
#include "loader/moe_sizes.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"

#define RANK_MAX   4u
#define FP4_BLOCK  32u /* columns of an FP4 scale, which has one row */
#define FP4_PIECE  16u /* bytes of such a block, where the file gives it a dimension */
#define SHAPE_TEXT 100u

/* ---- shapes ---- */

struct shape {
	uint32_t rank;
	uint64_t sizes[RANK_MAX];
};

static const char *format_shape(uint32_t rank, const uint64_t *sizes, char text[SHAPE_TEXT])
{
	size_t used = (size_t)snprintf(text, SHAPE_TEXT, "[");

	for (uint32_t d = 0; d < rank && used < SHAPE_TEXT; d++)
		used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%llu", d ? ", " : "",
			(unsigned long long)sizes[d]);
	if (used < SHAPE_TEXT)
		(void)snprintf(text + used, SHAPE_TEXT - used, "]");
	return text;
}

static bool has_shape(const gpusnap_tensor *t, const struct shape *shape)
{
	return t->rank == shape->rank &&
	       (t->rank == 0 || memcmp(t->shape, shape->sizes, t->rank * sizeof *t->shape) == 0);
}

static gpusnap_status check_shape(
	const gpusnap_tensor *t, const struct shape *shape, gpusnap_error *err)
{
	char has[SHAPE_TEXT], wanted[SHAPE_TEXT];

	if (has_shape(t, shape))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT, "tensor %s has shape %s, expected %s", t->name,
		format_shape(t->rank, t->shape, has),
		format_shape(shape->rank, shape->sizes, wanted));
}

/* Of a tensor with matrices of rows x columns, counted in elements of the file. */
static struct shape matrix_shape(const struct gsn_moe_slot_tensors *slot, const gpusnap_tensor *t,
	uint64_t rows, uint64_t columns)
{
	uint64_t all_rows = slot->parts * rows;

	if (slot->layout == GSN_LAYOUT_MATRIX)
		return (struct shape){2, {rows, columns}};
	if (slot->layout == GSN_LAYOUT_TRANSPOSED)
		return (struct shape){3, {slot->experts, columns, all_rows}};
	if (t->dtype == GPUSNAP_U8 && t->rank == 4)
		return (struct shape){4, {slot->experts, all_rows, columns / FP4_PIECE, FP4_PIECE}};
	return (struct shape){3, {slot->experts, all_rows, columns}};
}

static gpusnap_status check_matrices(const struct gsn_moe_slot_tensors *slot, uint64_t rows,
	uint64_t columns, gpusnap_error *err)
{
	size_t step = slot->layout == GSN_LAYOUT_MATRIX ? 1 : (size_t)slot->experts * slot->parts;
	gpusnap_status st = GPUSNAP_OK;

	for (size_t i = 0; !st && i < (size_t)slot->experts * slot->parts; i += step) {
		const gpusnap_tensor *t = slot->tensors[i]->tensor;
		struct shape shape = matrix_shape(slot, t, rows, columns);

		st = check_shape(t, &shape, err);
	}
	return st;
}

static gpusnap_status check_same_dtype(
	const struct gsn_moe_slot_tensors *slot, gpusnap_dtype dtype, gpusnap_error *err)
{
	for (size_t i = 0; i < (size_t)slot->parts * slot->experts; i++) {
		const gpusnap_tensor *t = slot->tensors[i]->tensor;

		if (t->dtype != dtype)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor %s is %s, the layer's other experts are %s", t->name,
				gpusnap_dtype_name(t->dtype), gpusnap_dtype_name(dtype));
	}
	return GPUSNAP_OK;
}

static bool is_float(gpusnap_dtype dtype)
{
	return dtype == GPUSNAP_BF16 || dtype == GPUSNAP_F16 || dtype == GPUSNAP_F32;
}

/* ---- tables of the layer ---- */

/* The router's shape gives the layer's hidden size, its rows the experts. */
static gpusnap_status check_router(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, uint64_t *ret_hidden, gpusnap_error *err)
{
	const gpusnap_tensor *t = layer->slots[GPUSNAP_MOE_ROUTER].tensors[0]->tensor;

	if (t->rank != 2 || t->shape[0] == 0 || t->shape[1] == 0)
		return gsn_fail(
			err, GPUSNAP_E_FORMAT, "router %s is no matrix [experts, hidden]", t->name);
	if (t->shape[0] != config->experts)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"router %s has %llu rows; config.json says %u experts", t->name,
			(unsigned long long)t->shape[0], config->experts);
	if (t->shape[1] > GPUSNAP_MOE_WIDTH_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "router %s has %llu columns, %u at most",
			t->name, (unsigned long long)t->shape[1], GPUSNAP_MOE_WIDTH_MAX);
	if (!is_float(t->dtype))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "router %s is %s; expected BF16, F16 or F32",
			t->name, gpusnap_dtype_name(t->dtype));
	*ret_hidden = t->shape[1];
	return GPUSNAP_OK;
}

/* A table of floats, where the layer has it. */
static gpusnap_status check_table(const struct gsn_moe_tensors *layer, gpusnap_moe_slot slot,
	const char *what, const struct shape *shape, gpusnap_error *err)
{
	const gpusnap_tensor *t;
	char has[SHAPE_TEXT], wanted[SHAPE_TEXT];

	if (!layer->slots[slot].tensors)
		return GPUSNAP_OK;
	t = layer->slots[slot].tensors[0]->tensor;
	if (is_float(t->dtype) && has_shape(t, shape))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT, "%s %s is %s %s; expected BF16, F16 or F32 %s", what,
		t->name, gpusnap_dtype_name(t->dtype), format_shape(t->rank, t->shape, has),
		format_shape(shape->rank, shape->sizes, wanted));
}

static gpusnap_status check_hash(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, uint32_t *ret_vocabulary, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *bias = &layer->slots[GPUSNAP_MOE_SELECTION_BIAS];
	const struct gsn_moe_slot_tensors *hash = &layer->slots[GPUSNAP_MOE_HASH];
	const gpusnap_tensor *t;

	if (!hash->tensors)
		return GPUSNAP_OK;
	t = hash->tensors[0]->tensor;
	if (bias->tensors)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensors %s and %s: experts are chosen by a table or by scores, not both",
			t->name, bias->tensors[0]->tensor->name);
	if (t->dtype != GPUSNAP_I64 && t->dtype != GPUSNAP_I32)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "hash table %s is %s; expected I64 or I32",
			t->name, gpusnap_dtype_name(t->dtype));
	if (t->rank != 2 || t->shape[0] == 0 || t->shape[0] > INT32_MAX ||
		t->shape[1] != config->top_k)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"hash table %s is no matrix [vocabulary, %u experts of a token]", t->name,
			config->top_k);
	*ret_vocabulary = (uint32_t)t->shape[0];
	return GPUSNAP_OK;
}

static gpusnap_status check_tables(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, struct gsn_moe_sizes *sizes, gpusnap_error *err)
{
	const struct shape hidden = {1, {sizes->hidden}}, experts = {1, {config->experts}},
			   row = {2, {1, sizes->hidden}};
	gpusnap_status st = check_table(layer, GPUSNAP_MOE_NORM, "norm", &hidden, err);

	if (!st)
		st = check_table(
			layer, GPUSNAP_MOE_SELECTION_BIAS, "selection bias", &experts, err);
	if (!st)
		st = check_table(layer, GPUSNAP_MOE_ROUTER_BIAS, "router bias", &experts, err);
	if (!st)
		st = check_table(layer, GPUSNAP_MOE_SHARED_GATE, "gate", &row, err);
	if (!st)
		st = check_hash(layer, config, &sizes->vocabulary, err);
	return st;
}

static gpusnap_status check_expert_biases(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, const struct gsn_moe_sizes *sizes, gpusnap_error *err)
{
	const struct shape w13 = {2, {config->experts, 2 * sizes->intermediate}};
	const struct shape w2 = {2, {config->experts, sizes->hidden}};
	gpusnap_status st = check_table(layer, GPUSNAP_MOE_W13_BIAS, "bias", &w13, err);

	return st ? st : check_table(layer, GPUSNAP_MOE_W2_BIAS, "bias", &w2, err);
}

/* ---- weights ---- */

/* Rows of one part, by the layout. 0: the tensor has too few dimensions. */
static uint64_t rows_of_part(const struct gsn_moe_slot_tensors *slot, const gpusnap_tensor *t)
{
	if (slot->layout == GSN_LAYOUT_MATRIX)
		return t->rank == 2 ? t->shape[0] : 0;
	if (slot->layout == GSN_LAYOUT_STACKED)
		return t->rank >= 3 ? t->shape[1] / slot->parts : 0;
	return t->rank == 3 ? t->shape[2] / slot->parts : 0;
}

/* Bytes of which each holds two FP4 elements may be called whatever has eight bits. */
static bool is_packed(gpusnap_dtype dtype)
{
	return dtype == GPUSNAP_I8 || dtype == GPUSNAP_U8;
}

static gpusnap_status take_format(
	const gpusnap_tensor *t, struct gsn_weight_format *format, gpusnap_error *err)
{
	*format = (struct gsn_weight_format){.dtype = t->dtype, .packed = 1};
	if (is_packed(t->dtype) || t->dtype == GPUSNAP_F4) {
		format->dtype = GPUSNAP_F4;
		format->packed = 2;
		return GPUSNAP_OK;
	}
	if (is_float(t->dtype) || t->dtype == GPUSNAP_F8_E4M3)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
		"tensor %s is %s; weights may be BF16, F16, F32, F8_E4M3 or FP4 (F4, or packed in "
		"I8 or U8)",
		t->name, gpusnap_dtype_name(t->dtype));
}

static gpusnap_status check_weights(const struct gsn_moe_tensors *layer,
	const struct gsn_expert_slots *slots, uint64_t hidden, uint64_t *ret_intermediate,
	struct gsn_weight_format *ret_format, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *w13 = &layer->slots[slots->w13];
	const struct gsn_moe_slot_tensors *w2 = &layer->slots[slots->w2];
	const gpusnap_tensor *first = w13->tensors[0]->tensor;
	uint64_t intermediate = rows_of_part(w13, first);
	uint32_t packed = is_packed(first->dtype) ? 2 : 1; /* F4 counts elements itself */
	gpusnap_status st;

	if (intermediate == 0 || intermediate > GPUSNAP_MOE_WIDTH_MAX)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor %s is no matrix [intermediate, hidden] of 1 to %u rows",
			first->name, GPUSNAP_MOE_WIDTH_MAX);
	st = take_format(first, ret_format, err);
	if (!st)
		st = check_matrices(w13, intermediate, gsn_ceil_div(hidden, packed), err);
	if (!st)
		st = check_matrices(w2, hidden, gsn_ceil_div(intermediate, packed), err);
	if (!st)
		st = check_same_dtype(w13, first->dtype, err);
	if (!st)
		st = check_same_dtype(w2, first->dtype, err);
	if (!st && (hidden % ret_format->packed || intermediate % ret_format->packed))
		st = gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"tensor %s packs pairs of FP4, of rows of odd length (%llu x %llu)",
			first->name, (unsigned long long)intermediate, (unsigned long long)hidden);
	*ret_intermediate = intermediate;
	return st;
}

/* ---- scales ---- */

static gpusnap_status refuse_scales(
	const struct gsn_moe_slot_tensors *slot, gpusnap_dtype weight_dtype, gpusnap_error *err)
{
	for (size_t i = 0; i < (size_t)slot->parts * slot->experts; i++)
		if (slot->tensors[i])
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor %s scales weights that are %s; only F8_E4M3 and FP4 have "
				"scales",
				slot->tensors[i]->tensor->name, gpusnap_dtype_name(weight_dtype));
	return GPUSNAP_OK;
}

static gpusnap_status check_scale_dtype(const struct gsn_moe_slot_tensors *slot,
	const struct gsn_weight_format *format, gpusnap_error *err)
{
	for (size_t i = 0; i < (size_t)slot->parts * slot->experts; i++) {
		const gpusnap_tensor *t = slot->tensors[i]->tensor;
		bool exponents = t->dtype == GPUSNAP_F8_E8M0 || t->dtype == GPUSNAP_U8;

		if (!exponents && format->dtype == GPUSNAP_F4)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor %s is %s; scales of FP4 are F8_E8M0 or U8", t->name,
				gpusnap_dtype_name(t->dtype));
		if (!exponents && t->dtype != GPUSNAP_F32 && t->dtype != GPUSNAP_BF16)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor %s is %s; block scales are F32, BF16 or F8_E8M0", t->name,
				gpusnap_dtype_name(t->dtype));
		if (exponents != (format->scale_dtype == GPUSNAP_F8_E8M0))
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor %s is %s, the layer's other scales are %s", t->name,
				gpusnap_dtype_name(t->dtype),
				gpusnap_dtype_name(format->scale_dtype));
	}
	return GPUSNAP_OK;
}

static gpusnap_status check_scale_shapes(const struct gsn_moe_slot_tensors *slot,
	const struct gsn_weight_format *format, uint64_t rows, uint64_t columns, gpusnap_error *err)
{
	gpusnap_status st = check_matrices(slot, gsn_ceil_div(rows, format->block_n),
		gsn_ceil_div(columns, format->block_k), err);

	if (st)
		gsn_error_prefix(
			err, "scales of blocks of %u x %u", format->block_n, format->block_k);
	return st;
}

/* Blocks of the size that config.json says, unless the scales' shape fits a usual one alone. */
static void choose_blocks(const struct gsn_moe_slot_tensors *scales,
	const struct gsn_config *config, uint64_t rows, uint64_t columns,
	struct gsn_weight_format *format)
{
	const uint32_t candidates[][2] = {
		{config->block_n, config->block_k}, {128, 128}, {1, FP4_BLOCK}};
	uint32_t first = format->dtype == GPUSNAP_F4 ? 2 : 0;

	format->block_n = candidates[first][0];
	format->block_k = candidates[first][1];
	for (uint32_t i = first; i < 3; i++) {
		const gpusnap_tensor *t = scales->tensors[0]->tensor;
		struct shape shape = matrix_shape(scales, t, gsn_ceil_div(rows, candidates[i][0]),
			gsn_ceil_div(columns, candidates[i][1]));

		if (has_shape(t, &shape)) {
			format->block_n = candidates[i][0];
			format->block_k = candidates[i][1];
			return;
		}
	}
}

static gpusnap_status check_scales(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, const struct gsn_expert_slots *slots, uint64_t hidden,
	uint64_t intermediate, struct gsn_weight_format *format, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *w13 = &layer->slots[slots->w13_scale];
	const struct gsn_moe_slot_tensors *w2 = &layer->slots[slots->w2_scale];
	gpusnap_status st;

	if (!gsn_moe_tensors_scaled(layer, slots)) {
		st = refuse_scales(w13, format->dtype, err);
		return st ? st : refuse_scales(w2, format->dtype, err);
	}
	format->scale_dtype = w13->tensors[0]->tensor->dtype;
	if (format->scale_dtype == GPUSNAP_U8)
		format->scale_dtype = GPUSNAP_F8_E8M0;
	choose_blocks(w13, config, intermediate, hidden, format);
	st = check_scale_dtype(w13, format, err);
	if (!st)
		st = check_scale_dtype(w2, format, err);
	if (!st)
		st = check_scale_shapes(w13, format, intermediate, hidden, err);
	if (!st)
		st = check_scale_shapes(w2, format, hidden, intermediate, err);
	return st;
}

/* ---- the layer ---- */

static gpusnap_status check_experts(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, const struct gsn_expert_slots *slots, uint64_t hidden,
	uint64_t *ret_intermediate, struct gsn_weight_format *ret_format, gpusnap_error *err)
{
	gpusnap_status st = check_weights(layer, slots, hidden, ret_intermediate, ret_format, err);

	return st ? st
		  : check_scales(layer, config, slots, hidden, *ret_intermediate, ret_format, err);
}

gpusnap_status gsn_moe_sizes_take(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, struct gsn_moe_sizes *ret_sizes, gpusnap_error *err)
{
	struct gsn_moe_sizes sizes = {0};
	gpusnap_status st = gsn_moe_tensors_complete(layer, config, err);

	if (!st)
		st = check_router(layer, config, &sizes.hidden, err);
	if (!st)
		st = check_tables(layer, config, &sizes, err);
	if (!st)
		st = check_experts(layer, config, &gsn_routed_slots, sizes.hidden,
			&sizes.intermediate, &sizes.routed_format, err);
	if (!st)
		st = check_expert_biases(layer, config, &sizes, err);
	if (!st && layer->slots[GPUSNAP_MOE_SHARED_W13].tensors)
		st = check_experts(layer, config, &gsn_shared_slots, sizes.hidden, &sizes.shared,
			&sizes.shared_format, err);
	if (!st)
		*ret_sizes = sizes;
	return st;
}
