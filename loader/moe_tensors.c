/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting the tensors of a MoE layer. */
#include "loader/moe_tensors.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "loader/name_list.h"

const struct gsn_expert_slots gsn_routed_slots = {
	GPUSNAP_MOE_W13, GPUSNAP_MOE_W13_SCALE, GPUSNAP_MOE_W2, GPUSNAP_MOE_W2_SCALE};
const struct gsn_expert_slots gsn_shared_slots = {GPUSNAP_MOE_SHARED_W13,
	GPUSNAP_MOE_SHARED_W13_SCALE, GPUSNAP_MOE_SHARED_W2, GPUSNAP_MOE_SHARED_W2_SCALE};

/* ---- collecting ---- */

static bool is_of_experts(const struct gsn_tensor_rule *rule)
{
	return rule->layout != GSN_LAYOUT_MATRIX || gsn_rule_is_per_expert(rule);
}

static gpusnap_status open_slot(struct gsn_moe_slot_tensors *slot, const struct gsn_config *config,
	const struct gsn_tensor_rule *rule, gpusnap_error *err)
{
	if (slot->tensors)
		return GPUSNAP_OK;
	slot->parts = rule->parts;
	slot->experts = is_of_experts(rule) ? config->experts : 1;
	slot->axis = rule->axis;
	slot->layout = rule->layout;
	slot->tensors = gsn_alloc(
		(size_t)slot->parts * slot->experts, sizeof(struct gsn_checkpoint_tensor *));
	if (!slot->tensors)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u experts", slot->experts);
	return GPUSNAP_OK;
}

/* One place, or all of them from there on. */
static gpusnap_status take_places(struct gsn_moe_slot_tensors *slot, size_t first, size_t count,
	const struct gsn_checkpoint_tensor *tensor, gpusnap_error *err)
{
	for (size_t i = first; i < first + count; i++) {
		if (slot->tensors[i])
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensors %s and %s are the same parameter",
				slot->tensors[i]->tensor->name, tensor->tensor->name);
		slot->tensors[i] = tensor;
	}
	return GPUSNAP_OK;
}

gpusnap_status gsn_moe_tensors_add(struct gsn_moe_tensors *layer, const struct gsn_config *config,
	const struct gsn_tensor_match *match, const struct gsn_checkpoint_tensor *tensor,
	gpusnap_error *err)
{
	const struct gsn_tensor_rule *rule = match->rule;
	struct gsn_moe_slot_tensors *slot = &layer->slots[rule->slot];
	gpusnap_status st = open_slot(slot, config, rule, err);

	if (st)
		return st;
	layer->prefixed = match->prefixed;
	if (rule->layout != GSN_LAYOUT_MATRIX)
		return take_places(slot, 0, (size_t)slot->experts * slot->parts, tensor, err);
	if (match->expert >= slot->experts)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"tensor %s is of expert %u; config.json says %u experts, 0 to %u",
			tensor->tensor->name, match->expert, slot->experts, slot->experts - 1);
	return take_places(slot, (size_t)match->expert * slot->parts + rule->part, 1, tensor, err);
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

/* ---- what must be there ---- */

static bool takes_scales(gpusnap_dtype dtype)
{
	return dtype == GPUSNAP_F8_E4M3 || dtype == GPUSNAP_F4 || dtype == GPUSNAP_I8 ||
	       dtype == GPUSNAP_U8;
}

bool gsn_moe_tensors_scaled(
	const struct gsn_moe_tensors *layer, const struct gsn_expert_slots *slots)
{
	const struct gsn_moe_slot_tensors *w13 = &layer->slots[slots->w13];

	for (size_t i = 0; i < (size_t)w13->parts * w13->experts; i++)
		if (w13->tensors[i])
			return takes_scales(w13->tensors[i]->tensor->dtype);
	return false;
}

struct needs {
	bool scales, shared, shared_scales, hash;
};

static bool has_shared(const struct gsn_moe_tensors *layer)
{
	const struct gsn_moe_slot_tensors *slots = layer->slots;

	return slots[GPUSNAP_MOE_SHARED_W13].tensors || slots[GPUSNAP_MOE_SHARED_W2].tensors ||
	       slots[GPUSNAP_MOE_SHARED_W13_SCALE].tensors ||
	       slots[GPUSNAP_MOE_SHARED_W2_SCALE].tensors || slots[GPUSNAP_MOE_SHARED_GATE].tensors;
}

/* The tensors say so, or config.json does. */
static struct needs needs_of(const struct gsn_moe_tensors *layer, const struct gsn_config *config)
{
	return (struct needs){
		.scales = gsn_moe_tensors_scaled(layer, &gsn_routed_slots),
		.shared = config->shared || has_shared(layer),
		.shared_scales = gsn_moe_tensors_scaled(layer, &gsn_shared_slots),
		.hash = gsn_config_is_hashed(config, layer->layer) ||
			layer->slots[GPUSNAP_MOE_HASH].tensors,
	};
}

/* Of a slot that the family has a rule for. */
static bool is_needed(gpusnap_moe_slot slot, const struct needs *needs)
{
	switch (slot) {
	case GPUSNAP_MOE_NORM:
		return false;
	case GPUSNAP_MOE_SELECTION_BIAS:
		return !needs->hash;
	case GPUSNAP_MOE_HASH:
		return needs->hash;
	case GPUSNAP_MOE_W13_SCALE:
	case GPUSNAP_MOE_W2_SCALE:
		return needs->scales;
	case GPUSNAP_MOE_SHARED_W13:
	case GPUSNAP_MOE_SHARED_W2:
	case GPUSNAP_MOE_SHARED_GATE:
		return needs->shared;
	case GPUSNAP_MOE_SHARED_W13_SCALE:
	case GPUSNAP_MOE_SHARED_W2_SCALE:
		return needs->shared_scales;
	default:
		return true;
	}
}

/* ---- what is missing ---- */

static gpusnap_status find_missing(struct gsn_name_list *list, const struct gsn_tensor_rule *rule,
	const struct gsn_moe_tensors *layer, const struct gsn_config *config, gpusnap_error *err)
{
	const struct gsn_moe_slot_tensors *slot = &layer->slots[rule->slot];
	uint32_t tensors = gsn_rule_is_per_expert(rule) ? config->experts : 1;

	for (uint32_t e = 0; e < tensors; e++) {
		char *name;

		if (slot->tensors && slot->tensors[(size_t)e * rule->parts + rule->part])
			continue;
		name = gsn_rule_name(rule, layer->prefixed, layer->layer, e);
		if (!name)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a tensor name");
		gsn_name_list_add(list, name);
		gsn_free(name);
	}
	return GPUSNAP_OK;
}

/* Another spelling of an earlier rule's tensor. */
static bool is_respelled(const struct gsn_family *family, const struct gsn_tensor_rule *rule)
{
	for (const struct gsn_tensor_rule *r = family->rules; r < rule; r++)
		if (r->slot == rule->slot && r->part == rule->part)
			return true;
	return false;
}

gpusnap_status gsn_moe_tensors_complete(
	const struct gsn_moe_tensors *layer, const struct gsn_config *config, gpusnap_error *err)
{
	const struct gsn_family *family = config->family;
	struct needs needs = needs_of(layer, config);
	struct gsn_name_list missing = {0};
	gpusnap_status st = GPUSNAP_OK;

	for (const struct gsn_tensor_rule *rule = family->rules; !st && rule->pattern; rule++)
		if (is_needed(rule->slot, &needs) && !is_respelled(family, rule))
			st = find_missing(&missing, rule, layer, config, err);
	if (st || !missing.count)
		return st;
	return gsn_fail(err, GPUSNAP_E_FORMAT, "layer %u lacks %zu tensors: %s", layer->layer,
		missing.count, missing.text);
}
