/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting and checking the tensors of a MoE layer. */
#include "loader/moe_tensors.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

/* ---- collecting ---- */

static gpusnap_status open_slot(struct gsn_moe_slot_tensors *slot, const struct gsn_config *config,
	const struct gsn_tensor_rule *rule, gpusnap_error *err)
{
	if (slot->tensors)
		return GPUSNAP_OK;
	slot->parts = rule->parts;
	slot->experts = gsn_rule_is_per_expert(rule) ? config->experts : 1;
	slot->axis = rule->axis;
	slot->tensors = gsn_alloc(
		(size_t)slot->parts * slot->experts, sizeof(struct gsn_checkpoint_tensor *));
	if (!slot->tensors)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u experts", slot->experts);
	return GPUSNAP_OK;
}

gpusnap_status gsn_moe_tensors_add(struct gsn_moe_tensors *layer, const struct gsn_config *config,
	const struct gsn_tensor_match *match, const struct gsn_checkpoint_tensor *tensor,
	gpusnap_error *err)
{
	struct gsn_moe_slot_tensors *slot = &layer->slots[match->rule->slot];
	const struct gsn_checkpoint_tensor **place;
	gpusnap_status st = open_slot(slot, config, match->rule, err);

	if (st)
		return st;
	if (match->expert >= slot->experts)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor %s is of expert %u; config.json says %u experts, 0 to %u",
			tensor->tensor->name, match->expert, slot->experts, slot->experts - 1);
	place = &slot->tensors[(size_t)match->expert * slot->parts + match->rule->part];
	if (*place)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "tensors %s and %s are the same parameter",
			(*place)->tensor->name, tensor->tensor->name);
	*place = tensor;
	layer->prefixed = match->prefixed;
	return GPUSNAP_OK;
}

bool gsn_moe_tensors_any(const struct gsn_moe_tensors *layer)
{
	for (uint32_t s = 0; s < GPUSNAP_MOE_SLOTS; s++)
		if (s != GPUSNAP_MOE_NORM && layer->slots[s].tensors)
			return true;
	return false;
}

void gsn_moe_tensors_release(struct gsn_moe_tensors *layer)
{
	for (uint32_t s = 0; s < GPUSNAP_MOE_SLOTS; s++)
		gsn_free((void *)layer->slots[s].tensors);
	memset(layer, 0, sizeof *layer);
}

/* ---- completeness ---- */

struct missing {
	size_t count;
	size_t used; /* of `names` */
	char names[400];
};

static gpusnap_status note_missing(struct missing *missing, const struct gsn_tensor_rule *rule,
	const struct gsn_moe_tensors *layer, uint32_t expert, gpusnap_error *err)
{
	char *name = gsn_rule_name(rule, layer->prefixed, layer->layer, expert);
	size_t length;

	if (!name)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a tensor name");
	length = strlen(name) + 2;
	if (missing->used + length < sizeof missing->names)
		missing->used += (size_t)snprintf(missing->names + missing->used,
			sizeof missing->names - missing->used, "%s%s", missing->count ? ", " : "",
			name);
	else
		missing->used = sizeof missing->names; /* full: only counted from here on */
	missing->count++;
	gsn_free(name);
	return GPUSNAP_OK;
}

static gpusnap_status find_missing(struct missing *missing, const struct gsn_tensor_rule *rule,
	const struct gsn_moe_tensors *layer, const struct gsn_config *config, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *slot = &layer->slots[rule->slot];
	uint32_t experts = gsn_rule_is_per_expert(rule) ? config->experts : 1;
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t e = 0; !st && e < experts; e++)
		if (!slot->tensors || !slot->tensors[(size_t)e * rule->parts + rule->part])
			st = note_missing(missing, rule, layer, e, err);
	return st;
}

/* The dtype that decides whether there must be scales: of the first weight that is there. */
static const struct gsn_checkpoint_tensor *first_weight(const struct gsn_moe_tensors *layer)
{
	const struct gsn_moe_slot_tensors *slot = &layer->slots[GPUSNAP_MOE_W13];

	for (size_t i = 0; i < (size_t)slot->parts * slot->experts; i++)
		if (slot->tensors[i])
			return slot->tensors[i];
	return NULL;
}

static bool is_scaled(const struct gsn_moe_tensors *layer)
{
	const struct gsn_checkpoint_tensor *weight = first_weight(layer);

	return weight && weight->tensor->dtype == GPUSNAP_F8_E4M3;
}

static bool is_shared_slot(gpusnap_moe_slot slot)
{
	return slot == GPUSNAP_MOE_SHARED_W13 || slot == GPUSNAP_MOE_SHARED_W2 ||
	       slot == GPUSNAP_MOE_SHARED_GATE;
}

/* The tensors say so, or config.json does. */
static bool has_shared(const struct gsn_moe_tensors *layer, const struct gsn_config *config)
{
	bool any = config->shared;

	for (int s = 0; s < GPUSNAP_MOE_SLOTS; s++)
		any |= is_shared_slot((gpusnap_moe_slot)s) && layer->slots[s].tensors;
	return any;
}

/* Of a slot that the family has a rule for. */
static bool is_required(gpusnap_moe_slot slot, bool scaled, bool shared)
{
	switch (slot) {
	case GPUSNAP_MOE_ROUTER:
	case GPUSNAP_MOE_W13:
	case GPUSNAP_MOE_W2:
	case GPUSNAP_MOE_SELECTION_BIAS:
		return true;
	case GPUSNAP_MOE_W13_SCALE:
	case GPUSNAP_MOE_W2_SCALE:
		return scaled;
	default:
		return shared && is_shared_slot(slot);
	}
}

static gpusnap_status check_complete(
	const struct gsn_moe_tensors *layer, const struct gsn_config *config, gpusnap_error *err)
{
	struct missing missing = {0};
	bool scaled = is_scaled(layer);
	bool shared = has_shared(layer, config);
	gpusnap_status st = GPUSNAP_OK;

	for (const struct gsn_tensor_rule *rule = config->family->rules; !st && rule->pattern;
		rule++)
		if (is_required(rule->slot, scaled, shared))
			st = find_missing(&missing, rule, layer, config, err);
	if (st || !missing.count)
		return st;
	return gsn_fail(err, GPUSNAP_E_FORMAT, "layer %u lacks %zu tensors: %s%s", layer->layer,
		missing.count, missing.names, missing.used == sizeof missing.names ? ", ..." : "");
}

/* ---- shapes ---- */

static gpusnap_status check_matrix(const struct gsn_checkpoint_tensor *tensor, uint64_t rows,
	uint64_t columns, gpusnap_error *err)
{
	const gpusnap_tensor *t = tensor->tensor;

	if (t->rank != 2)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor %s has %u dimensions, expected [%llu, %llu]", t->name, t->rank,
			(unsigned long long)rows, (unsigned long long)columns);
	if (t->shape[0] == rows && t->shape[1] == columns)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"tensor %s has shape [%llu, %llu], expected [%llu, %llu]", t->name,
		(unsigned long long)t->shape[0], (unsigned long long)t->shape[1],
		(unsigned long long)rows, (unsigned long long)columns);
}

static gpusnap_status check_slot_shapes(const struct gsn_moe_slot_tensors *slot, uint64_t rows,
	uint64_t columns, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (size_t i = 0; !st && i < (size_t)slot->parts * slot->experts; i++)
		st = check_matrix(slot->tensors[i], rows, columns, err);
	return st;
}

static gpusnap_status check_slot_dtype(
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
	if (t->shape[1] > UINT32_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "router %s has %llu columns", t->name,
			(unsigned long long)t->shape[1]);
	if (!is_float(t->dtype))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "router %s is %s; expected BF16, F16 or F32",
			t->name, gpusnap_dtype_name(t->dtype));
	*ret_hidden = t->shape[1];
	return GPUSNAP_OK;
}

static gpusnap_status check_norm(
	const struct gsn_moe_tensors *layer, uint64_t hidden, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *slot = &layer->slots[GPUSNAP_MOE_NORM];
	const gpusnap_tensor *t;

	if (!slot->tensors)
		return GPUSNAP_OK;
	t = slot->tensors[0]->tensor;
	if (t->rank == 1 && t->shape[0] == hidden && is_float(t->dtype))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"norm %s is %s [%llu] of rank %u; expected BF16, F16 or F32 [%llu]", t->name,
		gpusnap_dtype_name(t->dtype), (unsigned long long)(t->rank ? t->shape[0] : 0),
		t->rank, (unsigned long long)hidden);
}

static gpusnap_status check_weights(
	const struct gsn_moe_tensors *layer, struct gsn_moe_sizes *sizes, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *w13 = &layer->slots[GPUSNAP_MOE_W13];
	const struct gsn_moe_slot_tensors *w2 = &layer->slots[GPUSNAP_MOE_W2];
	const gpusnap_tensor *first = w13->tensors[0]->tensor;
	gpusnap_status st;

	if (first->rank != 2 || first->shape[0] == 0 || first->shape[0] > UINT32_MAX / 2)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor %s is no matrix [intermediate, hidden]", first->name);
	sizes->intermediate = first->shape[0];
	sizes->dtype = first->dtype;
	if (!is_float(first->dtype) && first->dtype != GPUSNAP_F8_E4M3)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"tensor %s is %s; expert weights may be BF16, F16, F32 or F8_E4M3",
			first->name, gpusnap_dtype_name(first->dtype));
	st = check_slot_shapes(w13, sizes->intermediate, sizes->hidden, err);
	if (!st)
		st = check_slot_shapes(w2, sizes->hidden, sizes->intermediate, err);
	if (!st)
		st = check_slot_dtype(w13, sizes->dtype, err);
	if (!st)
		st = check_slot_dtype(w2, sizes->dtype, err);
	return st;
}

static gpusnap_status check_selection_bias(
	const struct gsn_moe_tensors *layer, const struct gsn_config *config, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *slot = &layer->slots[GPUSNAP_MOE_SELECTION_BIAS];
	const gpusnap_tensor *t;

	if (!slot->tensors)
		return GPUSNAP_OK;
	t = slot->tensors[0]->tensor;
	if (t->rank == 1 && t->shape[0] == config->experts && is_float(t->dtype))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"selection bias %s is %s [%llu] of rank %u; expected BF16, F16 or F32 [%u]",
		t->name, gpusnap_dtype_name(t->dtype),
		(unsigned long long)(t->rank ? t->shape[0] : 0), t->rank, config->experts);
}

static gpusnap_status check_shared_gate(
	const struct gsn_moe_tensors *layer, uint64_t hidden, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *slot = &layer->slots[GPUSNAP_MOE_SHARED_GATE];
	const gpusnap_tensor *t;

	if (!slot->tensors)
		return GPUSNAP_OK;
	t = slot->tensors[0]->tensor;
	if (!is_float(t->dtype))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "gate %s is %s; expected BF16, F16 or F32",
			t->name, gpusnap_dtype_name(t->dtype));
	return check_matrix(slot->tensors[0], 1, hidden, err);
}

static gpusnap_status check_shared(
	const struct gsn_moe_tensors *layer, struct gsn_moe_sizes *sizes, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *w13 = &layer->slots[GPUSNAP_MOE_SHARED_W13];
	const struct gsn_moe_slot_tensors *w2 = &layer->slots[GPUSNAP_MOE_SHARED_W2];
	const gpusnap_tensor *first;
	gpusnap_status st;

	if (!w13->tensors)
		return GPUSNAP_OK;
	first = w13->tensors[0]->tensor;
	if (first->rank != 2 || first->shape[0] == 0 || first->shape[0] > UINT32_MAX / 2)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor %s is no matrix [intermediate, hidden]", first->name);
	if (!is_float(first->dtype))
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"tensor %s is %s; weights of shared experts may be BF16, F16 or F32",
			first->name, gpusnap_dtype_name(first->dtype));
	sizes->shared = first->shape[0];
	sizes->shared_dtype = first->dtype;
	st = check_slot_shapes(w13, sizes->shared, sizes->hidden, err);
	if (!st)
		st = check_slot_shapes(w2, sizes->hidden, sizes->shared, err);
	if (!st)
		st = check_slot_dtype(w13, sizes->shared_dtype, err);
	if (!st)
		st = check_slot_dtype(w2, sizes->shared_dtype, err);
	return st ? st : check_shared_gate(layer, sizes->hidden, err);
}

/* ---- scales ---- */

static gpusnap_status refuse_scales(
	const struct gsn_moe_slot_tensors *slot, gpusnap_dtype weight_dtype, gpusnap_error *err)
{
	for (size_t i = 0; i < (size_t)slot->parts * slot->experts; i++)
		if (slot->tensors[i])
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor %s scales weights that are %s; only F8_E4M3 has scales",
				slot->tensors[i]->tensor->name, gpusnap_dtype_name(weight_dtype));
	return GPUSNAP_OK;
}

static gpusnap_status check_scales(const struct gsn_moe_slot_tensors *slot,
	const struct gsn_config *config, uint64_t rows, uint64_t columns, gpusnap_error *err)
{
	gpusnap_status st;

	for (size_t i = 0; i < (size_t)slot->parts * slot->experts; i++) {
		const gpusnap_tensor *t = slot->tensors[i]->tensor;

		if (t->dtype != GPUSNAP_F32 && t->dtype != GPUSNAP_BF16)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor %s is %s; block scales are F32 or BF16", t->name,
				gpusnap_dtype_name(t->dtype));
	}
	st = check_slot_shapes(slot, gsn_ceil_div(rows, config->block_n),
		gsn_ceil_div(columns, config->block_k), err);
	if (st)
		gsn_error_prefix(err, "scales of blocks of %u x %u (weight_block_size)",
			config->block_n, config->block_k);
	return st;
}

static gpusnap_status check_all_scales(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, const struct gsn_moe_sizes *sizes, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *w13 = &layer->slots[GPUSNAP_MOE_W13_SCALE];
	const struct gsn_moe_slot_tensors *w2 = &layer->slots[GPUSNAP_MOE_W2_SCALE];
	gpusnap_status st;

	if (sizes->dtype != GPUSNAP_F8_E4M3) {
		st = refuse_scales(w13, sizes->dtype, err);
		return st ? st : refuse_scales(w2, sizes->dtype, err);
	}
	st = check_scales(w13, config, sizes->intermediate, sizes->hidden, err);
	return st ? st : check_scales(w2, config, sizes->hidden, sizes->intermediate, err);
}

gpusnap_status gsn_moe_tensors_check(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, struct gsn_moe_sizes *ret_sizes, gpusnap_error *err)
{
	struct gsn_moe_sizes sizes = {0};
	gpusnap_status st = check_complete(layer, config, err);

	if (!st)
		st = check_router(layer, config, &sizes.hidden, err);
	if (!st)
		st = check_norm(layer, sizes.hidden, err);
	if (!st)
		st = check_selection_bias(layer, config, err);
	if (!st)
		st = check_weights(layer, &sizes, err);
	if (!st)
		st = check_shared(layer, &sizes, err);
	if (!st)
		st = check_all_scales(layer, config, &sizes, err);
	if (!st)
		*ret_sizes = sizes;
	return st;
}
