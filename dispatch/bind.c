/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each buffer of a MoE layer must be: role, element types and shape, from the layer's sizes.
 * Everything that kernels rely on is checked here, once, so that a decode step need not.
 */
#include "dispatch/bind.h"

#include <stdio.h>
#include <string.h>

#include "dispatch/dispatch_state.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

#define DTYPE_BIT(dtype) (1u << (dtype))

enum {
	FLOATS = DTYPE_BIT(GPUSNAP_BF16) | DTYPE_BIT(GPUSNAP_F16) | DTYPE_BIT(GPUSNAP_F32),
	SCALED = DTYPE_BIT(GPUSNAP_F8_E4M3) | DTYPE_BIT(GPUSNAP_F4),
	SCALES = DTYPE_BIT(GPUSNAP_F32) | DTYPE_BIT(GPUSNAP_F8_E8M0),
};

struct requirement {
	bool needed;
	uint32_t roles;	 /* bit set of gpusnap_role */
	uint32_t dtypes; /* bit set of gpusnap_dtype */
	uint32_t rank;
	uint64_t shape[3];
};

/* Blocks that `length` rows or columns fall into; none without scales. */
static uint64_t blocks(uint64_t length, uint32_t block)
{
	return block ? gsn_ceil_div(length, block) : 0;
}

/* What a layer may have: it does if it names one, formats/moe_check.c says where it must not. */
static struct requirement table_requirement(const gpusnap_moe_layer *spec, gpusnap_moe_slot slot,
	uint32_t roles, uint64_t rows, uint64_t columns)
{
	return (struct requirement){
		.needed = spec->buffers[slot] != NULL,
		.roles = roles,
		.dtypes = FLOATS,
		.rank = columns ? 2 : 1,
		.shape = {rows, columns},
	};
}

static struct requirement scale_requirement(const gpusnap_moe_layer *spec, gpusnap_moe_slot slot)
{
	bool is_w13 = slot == GPUSNAP_MOE_W13_SCALE;
	uint64_t row_blocks = is_w13 ? 2 * blocks(spec->intermediate, spec->block_n)
				     : blocks(spec->hidden, spec->block_n);
	uint64_t columns = is_w13 ? spec->hidden : spec->intermediate;

	return (struct requirement){
		.needed = spec->block_n != 0,
		.roles = 1u << GPUSNAP_ROLE_SCALE,
		.dtypes = SCALES,
		.rank = 3,
		.shape = {spec->mask.local, row_blocks, blocks(columns, spec->block_k)},
	};
}

static struct requirement weight_requirement(
	const gpusnap_moe_layer *spec, uint64_t rows, uint64_t columns)
{
	return (struct requirement){
		.needed = true,
		.roles = 1u << GPUSNAP_ROLE_WEIGHT,
		.dtypes = spec->block_n ? SCALED : FLOATS | DTYPE_BIT(GPUSNAP_F8_E4M3),
		.rank = 3,
		.shape = {spec->mask.local, rows, columns},
	};
}

/* [rows, columns] of what every token goes through; none without a shared expert. */
static struct requirement shared_requirement(
	const gpusnap_moe_layer *spec, uint64_t rows, uint64_t columns)
{
	return (struct requirement){
		.needed = spec->shared_intermediate != 0,
		.roles = 1u << GPUSNAP_ROLE_WEIGHT,
		.dtypes = spec->shared_block_n ? SCALED : FLOATS | DTYPE_BIT(GPUSNAP_F8_E4M3),
		.rank = 2,
		.shape = {rows, columns},
	};
}

static struct requirement shared_scale_requirement(
	const gpusnap_moe_layer *spec, gpusnap_moe_slot slot)
{
	bool is_w13 = slot == GPUSNAP_MOE_SHARED_W13_SCALE;
	uint64_t row_blocks = is_w13 ? 2 * blocks(spec->shared_intermediate, spec->shared_block_n)
				     : blocks(spec->hidden, spec->shared_block_n);
	uint64_t columns = is_w13 ? spec->hidden : spec->shared_intermediate;
	struct requirement need = table_requirement(spec, slot, 1u << GPUSNAP_ROLE_SCALE,
		row_blocks, blocks(columns, spec->shared_block_k));

	need.dtypes = SCALES;
	return need;
}

/* Tables of integers that say where tokens go. */
static struct requirement index_requirement(const gpusnap_moe_layer *spec, gpusnap_moe_slot slot)
{
	bool hash = slot == GPUSNAP_MOE_HASH;
	struct requirement need = table_requirement(spec, slot,
		1u << GPUSNAP_ROLE_EXPERT_MAP | (hash ? 1u << GPUSNAP_ROLE_OTHER : 0),
		hash ? spec->vocabulary : spec->experts, hash ? spec->top_k : 0);

	need.dtypes = DTYPE_BIT(GPUSNAP_I32) | (hash ? DTYPE_BIT(GPUSNAP_I64) : 0);
	return need;
}

static struct requirement requirement_of(const gpusnap_moe_layer *spec, gpusnap_moe_slot slot)
{
	const uint32_t router = 1u << GPUSNAP_ROLE_ROUTER, bias = 1u << GPUSNAP_ROLE_BIAS;

	switch (slot) {
	case GPUSNAP_MOE_ROUTER:
		return table_requirement(spec, slot, router, spec->experts, spec->hidden);
	case GPUSNAP_MOE_W13:
		return weight_requirement(spec, 2ull * spec->intermediate, spec->hidden);
	case GPUSNAP_MOE_W2:
		return weight_requirement(spec, spec->hidden, spec->intermediate);
	case GPUSNAP_MOE_W13_SCALE:
	case GPUSNAP_MOE_W2_SCALE:
		return scale_requirement(spec, slot);
	case GPUSNAP_MOE_MASK:
		return (struct requirement){true, 1u << GPUSNAP_ROLE_EXPERT_MASK,
			DTYPE_BIT(GPUSNAP_I32), 1, {gpusnap_mask_length(&spec->mask)}};
	case GPUSNAP_MOE_SELECTION_BIAS:
	case GPUSNAP_MOE_ROUTER_BIAS:
		return table_requirement(spec, slot, bias, spec->experts, 0);
	case GPUSNAP_MOE_W13_BIAS:
		return table_requirement(
			spec, slot, bias, spec->mask.local, 2ull * spec->intermediate);
	case GPUSNAP_MOE_W2_BIAS:
		return table_requirement(spec, slot, bias, spec->mask.local, spec->hidden);
	case GPUSNAP_MOE_HASH:
	case GPUSNAP_MOE_MAP:
		return index_requirement(spec, slot);
	case GPUSNAP_MOE_SHARED_W13:
		return shared_requirement(spec, 2ull * spec->shared_intermediate, spec->hidden);
	case GPUSNAP_MOE_SHARED_W2:
		return shared_requirement(spec, spec->hidden, spec->shared_intermediate);
	case GPUSNAP_MOE_SHARED_GATE:
		return table_requirement(spec, slot, router, 1, spec->hidden);
	case GPUSNAP_MOE_SHARED_W13_SCALE:
	case GPUSNAP_MOE_SHARED_W2_SCALE:
		return shared_scale_requirement(spec, slot);
	default: /* GPUSNAP_MOE_NORM: the probe can do without */
		return table_requirement(spec, slot,
			1u << GPUSNAP_ROLE_WEIGHT | 1u << GPUSNAP_ROLE_OTHER, spec->hidden, 0);
	}
}

static void format_shape(uint32_t rank, const uint64_t *shape, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < rank && used < size; i++) {
		int wrote = snprintf(text + used, size - used, "%s%llu", i ? ", " : "",
			(unsigned long long)shape[i]);

		used += wrote > 0 ? (size_t)wrote : 0;
	}
}

static gpusnap_status check_shape(
	const struct requirement *need, const gpusnap_buffer_info *info, gpusnap_error *err)
{
	char has[80];
	char wants[80];

	if (info->rank == need->rank &&
		memcmp(info->shape, need->shape, need->rank * sizeof need->shape[0]) == 0)
		return GPUSNAP_OK;
	format_shape(info->rank, info->shape, has, sizeof has);
	format_shape(need->rank, need->shape, wants, sizeof wants);
	return gsn_fail(err, GPUSNAP_E_MISMATCH, "shape is [%s], the model needs [%s]", has, wants);
}

static gpusnap_status check_mask_type(
	const gpusnap_mask_type *has, const gpusnap_mask_type *wants, gpusnap_error *err)
{
	if (has->kind != wants->kind)
		return gsn_fail(err, GPUSNAP_E_MISMATCH, "mask kind is %s, the model needs %s",
			gpusnap_mask_kind_name(has->kind), gpusnap_mask_kind_name(wants->kind));
	if (has->experts != wants->experts || has->first != wants->first ||
		has->local != wants->local || has->shared != wants->shared)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"mask is for experts %u..+%u of %u with %u shared, the model needs "
			"%u..+%u of %u with %u",
			has->first, has->local, has->experts, has->shared, wants->first,
			wants->local, wants->experts, wants->shared);
	return GPUSNAP_OK;
}

/* Codes of the FNUZ kinds have the bits of E4M3, and half of its values: nothing would notice. */
static gpusnap_status check_dtype(
	gpusnap_moe_slot slot, gpusnap_dtype dtype, uint32_t dtypes, gpusnap_error *err)
{
	if (dtypes & DTYPE_BIT(dtype))
		return GPUSNAP_OK;
	if (dtype == GPUSNAP_F8_E4M3FNUZ || dtype == GPUSNAP_F8_E5M2FNUZ)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"dtype %s is not one that %s can have: its codes are worth half of "
			"F8_E4M3's; load the checkpoint's own F8_E4M3, or register the buffer as "
			"F8_E4M3 and halve its scales",
			gpusnap_dtype_name(dtype), gpusnap_moe_slot_name(slot));
	return gsn_fail(err, GPUSNAP_E_MISMATCH, "dtype %s is not one that %s can have",
		gpusnap_dtype_name(dtype), gpusnap_moe_slot_name(slot));
}

static gpusnap_status check_placed(const gpusnap_buffer_info *info, gpusnap_error *err)
{
	uint32_t width = gpusnap_dtype_bits(info->dtype) / 8;

	if (info->dtype == GPUSNAP_F4 && info->rank > 0 && info->shape[info->rank - 1] % 2)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"rows of %llu F4 elements end inside a byte; an even number is needed",
			(unsigned long long)info->shape[info->rank - 1]);
	if (width > 1 && info->address % width)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"address %#llx is not a multiple of the element size %u",
			(unsigned long long)info->address, width);
	return GPUSNAP_OK;
}

static gpusnap_status check_buffer(const gpusnap_moe_layer *spec, gpusnap_moe_slot slot,
	const gpusnap_buffer_info *info, gpusnap_error *err)
{
	struct requirement need = requirement_of(spec, slot);
	gpusnap_status status;

	if (!(need.roles & 1u << info->role))
		return gsn_fail(err, GPUSNAP_E_MISMATCH, "role is %s, which no %s can have",
			gpusnap_role_name(info->role), gpusnap_moe_slot_name(slot));
	status = check_dtype(slot, info->dtype, need.dtypes, err);
	if (!status)
		status = check_placed(info, err);
	if (!status && slot == GPUSNAP_MOE_MASK)
		status = check_mask_type(&info->mask, &spec->mask, err);
	return status ? status : check_shape(&need, info, err);
}

static gpusnap_status bind_slot(const gpusnap_registry *registry, const gpusnap_moe_layer *spec,
	gpusnap_moe_slot slot, struct gsn_operand *operand, gpusnap_error *err)
{
	const char *name = spec->buffers[slot];
	bool needed = requirement_of(spec, slot).needed;
	gpusnap_buffer_info info;
	gpusnap_status status;

	if ((name != NULL) != needed)
		return gsn_fail(err, GPUSNAP_E_INVALID, "layer %u: model %s %s buffer%s%s",
			spec->layer, name ? "must not name a" : "names no",
			gpusnap_moe_slot_name(slot), name ? ": " : "", name ? name : "");
	if (!name)
		return GPUSNAP_OK;
	operand->name = name;
	status = gpusnap_buffer_find(registry, name, &info, err);
	if (status == GPUSNAP_E_INVALID && slot == GPUSNAP_MOE_MASK)
		return GPUSNAP_OK;
	if (status == GPUSNAP_E_INVALID)
		status = gsn_fail(err, GPUSNAP_E_MISMATCH,
			"is not among the %u buffers of the registry; model and state are not of "
			"one snapshot",
			gpusnap_buffer_count(registry));
	if (!status)
		status = check_buffer(spec, slot, &info, err);
	if (status) {
		gsn_error_prefix(err, "layer %u: %s buffer '%s'", spec->layer,
			gpusnap_moe_slot_name(slot), name);
		return status;
	}
	operand->bound = true;
	operand->region = info.region;
	operand->offset = info.offset;
	operand->bytes = info.bytes;
	operand->dtype = info.dtype;
	operand->address = info.address;
	return GPUSNAP_OK;
}

static gpusnap_status check_layer(const gpusnap_moe_layer *spec, gpusnap_error *err)
{
	if (spec->mask.shared)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"layer %u: mask has %u fused shared experts; only routed ones are known",
			spec->layer, spec->mask.shared);
	if (spec->mask.experts != spec->experts || spec->mask.local == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"layer %u: mask is for %u local of %u experts, the layer has %u",
			spec->layer, spec->mask.local, spec->mask.experts, spec->experts);
	return GPUSNAP_OK;
}

/* Slots that kernels take with one dtype for both. */
static gpusnap_status check_one_dtype(
	const gpusnap_moe_layer *spec, const struct gsn_operand *operands, gpusnap_error *err)
{
	static const gpusnap_moe_slot pairs[][2] = {
		{GPUSNAP_MOE_W13, GPUSNAP_MOE_W2},
		{GPUSNAP_MOE_W13_SCALE, GPUSNAP_MOE_W2_SCALE},
		{GPUSNAP_MOE_W13_BIAS, GPUSNAP_MOE_W2_BIAS},
		{GPUSNAP_MOE_SHARED_W13, GPUSNAP_MOE_SHARED_W2},
		{GPUSNAP_MOE_SHARED_W13_SCALE, GPUSNAP_MOE_SHARED_W2_SCALE},
	};

	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		const struct gsn_operand *a = &operands[pairs[i][0]], *b = &operands[pairs[i][1]];

		if (a->name && b->name && a->dtype != b->dtype)
			return gsn_fail(err, GPUSNAP_E_MISMATCH,
				"layer %u: '%s' is %s but '%s' is %s; both must have one dtype",
				spec->layer, a->name, gpusnap_dtype_name(a->dtype), b->name,
				gpusnap_dtype_name(b->dtype));
	}
	return GPUSNAP_OK;
}

gpusnap_status gsn_bind_layer(const gpusnap_registry *registry, const gpusnap_moe_layer *spec,
	struct gsn_operand *operands, gpusnap_error *err)
{
	gpusnap_status status = check_layer(spec, err);

	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS && !status; slot++)
		status = bind_slot(registry, spec, (gpusnap_moe_slot)slot, &operands[slot], err);
	return status ? status : check_one_dtype(spec, operands, err);
}

gpusnap_status gsn_bind_mask(const gpusnap_registry *registry, const gpusnap_moe_layer *spec,
	uint32_t region, uint64_t offset, struct gsn_operand *mask, gpusnap_error *err)
{
	uint64_t bytes = (uint64_t)gpusnap_mask_length(&spec->mask) * sizeof(int32_t);
	gpusnap_region_info info;
	gpusnap_status status = gpusnap_region_get(registry, region, &info, err);

	if (status)
		return status;
	if (offset > info.bytes || bytes > info.bytes - offset)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"layer %u: mask bytes [%llu, +%llu) leave region %u of %llu bytes",
			spec->layer, (unsigned long long)offset, (unsigned long long)bytes, region,
			(unsigned long long)info.bytes);
	if ((info.address + offset) % sizeof(int32_t))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"layer %u: mask at offset %llu of region %u is not aligned to 4 bytes",
			spec->layer, (unsigned long long)offset, region);
	*mask = (struct gsn_operand){
		.name = mask->name,
		.bound = true,
		.region = region,
		.offset = offset,
		.bytes = bytes,
		.dtype = GPUSNAP_I32,
		.address = info.address + offset,
	};
	return GPUSNAP_OK;
}
