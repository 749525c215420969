/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record "model" of a snapshot: the MoE layers and the buffers that hold them, as JSON
 * (formats/gsnap.md, section "Record model").
 */
#include <gpusnap/moe.h>

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/fields.h"

enum { MODEL_FORMAT = 1 };

static const char *const score_names[] = {
	[GPUSNAP_SCORE_SOFTMAX] = "softmax",
	[GPUSNAP_SCORE_SIGMOID] = "sigmoid",
};
static const char activation_name[] = "silu";

static const char *const slot_names[GPUSNAP_MOE_SLOTS] = {
	[GPUSNAP_MOE_ROUTER] = "router",
	[GPUSNAP_MOE_W13] = "w13",
	[GPUSNAP_MOE_W13_SCALE] = "w13_scale",
	[GPUSNAP_MOE_W2] = "w2",
	[GPUSNAP_MOE_W2_SCALE] = "w2_scale",
	[GPUSNAP_MOE_MASK] = "mask",
	[GPUSNAP_MOE_NORM] = "norm",
	[GPUSNAP_MOE_SELECTION_BIAS] = "selection_bias",
	[GPUSNAP_MOE_SHARED_W13] = "shared_w13",
	[GPUSNAP_MOE_SHARED_W2] = "shared_w2",
	[GPUSNAP_MOE_SHARED_GATE] = "shared_gate",
	[GPUSNAP_MOE_ROUTER_BIAS] = "router_bias",
	[GPUSNAP_MOE_W13_BIAS] = "w13_bias",
	[GPUSNAP_MOE_W2_BIAS] = "w2_bias",
	[GPUSNAP_MOE_HASH] = "hash",
	[GPUSNAP_MOE_SHARED_W13_SCALE] = "shared_w13_scale",
	[GPUSNAP_MOE_SHARED_W2_SCALE] = "shared_w2_scale",
};

const char *gpusnap_moe_slot_name(gpusnap_moe_slot slot)
{
	return (unsigned)slot < GPUSNAP_MOE_SLOTS ? slot_names[slot] : "unknown";
}

/* Of a number that is no score too, which decoding then refuses. */
static const char *score_name(gpusnap_score score)
{
	bool known = score >= GPUSNAP_SCORE_SOFTMAX && score <= GPUSNAP_SCORE_SIGMOID;

	return known ? score_names[score] : "unknown";
}

gpusnap_status gsn_moe_slot_parse(const char *name, gpusnap_moe_slot *ret_slot, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (int i = 0; i < GPUSNAP_MOE_SLOTS; i++) {
		if (strcmp(slot_names[i], name) == 0) {
			*ret_slot = (gpusnap_moe_slot)i;
			return GPUSNAP_OK;
		}
	}
	return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
		"MoE slot '%s' is unknown to this build; use a newer gpusnap",
		gsn_quote(name, strlen(name), quoted));
}

static gpusnap_json *encode_buffers(const gpusnap_moe_layer *layer)
{
	gpusnap_json *buffers = gpusnap_json_pack("{}");

	for (int i = 0; buffers && i < GPUSNAP_MOE_SLOTS; i++) {
		if (!layer->buffers[i])
			continue;
		if (gpusnap_json_set(
			    buffers, slot_names[i], gpusnap_json_pack("s", layer->buffers[i]))) {
			gpusnap_json_free(buffers);
			return NULL;
		}
	}
	return buffers;
}

/* Members that most layers do not have are absent there. @return not 0: no memory */
static int add_optional(gpusnap_json *json, const gpusnap_moe_layer *layer)
{
	int failed = 0;

	if (layer->routed_scale != 0.0f)
		failed |= gpusnap_json_set(
			json, "routed_scale", gpusnap_json_pack("f", (double)layer->routed_scale));
	if (layer->groups)
		failed |= gpusnap_json_set(json, "groups",
			gpusnap_json_pack(
				"[I, I]", (long long)layer->groups, (long long)layer->top_groups));
	if (layer->shared_intermediate)
		failed |= gpusnap_json_set(json, "shared_intermediate",
			gpusnap_json_pack("I", (long long)layer->shared_intermediate));
	return failed;
}

static gpusnap_json *encode_layer(const gpusnap_moe_layer *layer)
{
	gpusnap_json *json = gpusnap_json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:s, s:[I, I], s:f, s:o, s:o}", "module",
		layer->module, "layer", (long long)layer->layer, "hidden", (long long)layer->hidden,
		"intermediate", (long long)layer->intermediate, "experts",
		(long long)layer->experts, "top_k", (long long)layer->top_k, "score",
		score_name(layer->score), "renormalise", (int)layer->renormalise, "activation",
		activation_name, "block", (long long)layer->block_n, (long long)layer->block_k,
		"norm_epsilon", (double)layer->norm_epsilon, "mask", gsn_mask_encode(&layer->mask),
		"buffers", encode_buffers(layer));

	if (json && add_optional(json, layer)) {
		gpusnap_json_free(json);
		return NULL;
	}
	return json;
}

gpusnap_json *gpusnap_moe_model_encode(const gpusnap_moe_model *model)
{
	gpusnap_json *layers = gpusnap_json_pack("[]");

	for (uint32_t i = 0; layers && i < model->layer_count; i++) {
		if (gpusnap_json_append(layers, encode_layer(&model->layers[i]))) {
			gpusnap_json_free(layers);
			return NULL;
		}
	}
	return gpusnap_json_pack("{s:i, s:s, s:[I, I], s:[I, I], s:o}", "format", MODEL_FORMAT,
		"family", model->family, "tp", (long long)model->tp_rank, (long long)model->tp_size,
		"ep", (long long)model->ep_rank, (long long)model->ep_size, "layers", layers);
}

static gpusnap_status check_word(
	const gpusnap_json *json, const char *key, const char *known, gpusnap_error *err)
{
	const char *word;
	char quoted[GSN_QUOTE_BYTES];
	gpusnap_status status = gsn_field_text(json, key, &word, err);

	if (status)
		return status;
	if (strcmp(word, known) != 0)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED, "'%s' is '%s', this build knows '%s'",
			key, gsn_quote(word, strlen(word), quoted), known);
	return GPUSNAP_OK;
}

static gpusnap_status decode_sizes(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_status status = gsn_field_u32(json, "layer", 0, UINT32_MAX, &layer->layer, err);

	if (!status)
		status = gsn_field_u32(
			json, "hidden", 1, GPUSNAP_MOE_WIDTH_MAX, &layer->hidden, err);
	if (!status)
		status = gsn_field_u32(
			json, "intermediate", 1, GPUSNAP_MOE_WIDTH_MAX, &layer->intermediate, err);
	if (!status)
		status = gsn_field_u32(
			json, "experts", 1, GPUSNAP_EXPERTS_MAX, &layer->experts, err);
	if (!status)
		status = gsn_field_u32(json, "top_k", 1, layer->experts, &layer->top_k, err);
	return status;
}

static gpusnap_status decode_block(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_json *block;
	int64_t n, k;
	gpusnap_status status = gsn_field_array(json, "block", 2, 2, &block, err);

	if (status)
		return status;
	status = gsn_item_i64(block, 0, 0, GPUSNAP_MOE_WIDTH_MAX, &n, err);
	if (!status)
		status = gsn_item_i64(block, 1, 0, GPUSNAP_MOE_WIDTH_MAX, &k, err);
	if (status) {
		gsn_error_prefix(err, "'block'");
		return status;
	}
	if ((n == 0) != (k == 0))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'block' is [%d, %d], expected two sizes, or zeros for no scales", (int)n,
			(int)k);
	layer->block_n = (uint32_t)n;
	layer->block_k = (uint32_t)k;
	return GPUSNAP_OK;
}

static gpusnap_status decode_score(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	const char *word;
	char quoted[GSN_QUOTE_BYTES];
	gpusnap_status status = gsn_field_text(json, "score", &word, err);

	if (status)
		return status;
	for (int i = GPUSNAP_SCORE_SOFTMAX; i <= GPUSNAP_SCORE_SIGMOID; i++)
		if (strcmp(word, score_names[i]) == 0) {
			layer->score = (gpusnap_score)i;
			return GPUSNAP_OK;
		}
	return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
		"'score' is '%s', this build knows 'softmax' and 'sigmoid'",
		gsn_quote(word, strlen(word), quoted));
}

static gpusnap_status decode_scale(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	const gpusnap_json *value = gpusnap_json_get(json, "routed_scale");
	double scale = gpusnap_json_real(value, -1.0);

	if (!value)
		return GPUSNAP_OK;
	if (!(scale > 0.0 && scale <= (double)GPUSNAP_MOE_SCALE_MAX && (float)scale > 0.0f))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'routed_scale' is %g, expected a number above 0, up to %g", scale,
			(double)GPUSNAP_MOE_SCALE_MAX);
	layer->routed_scale = (float)scale;
	return GPUSNAP_OK;
}

static gpusnap_status decode_groups(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_json *pair;
	int64_t groups, top;
	gpusnap_status status;

	if (!gpusnap_json_get(json, "groups"))
		return GPUSNAP_OK;
	status = gsn_field_array(json, "groups", 2, 2, &pair, err);
	if (!status)
		status = gsn_item_i64(pair, 0, 1, GPUSNAP_MOE_GROUPS_MAX, &groups, err);
	if (!status)
		status = gsn_item_i64(pair, 1, 1, GPUSNAP_MOE_GROUPS_MAX, &top, err);
	if (status) {
		gsn_error_prefix(err, "'groups'");
		return status;
	}
	if (layer->experts % groups || top > groups ||
		top * (layer->experts / groups) < layer->top_k)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'groups' is [%d, %d], expected equal groups of %u experts, the best of "
			"which hold %u",
			(int)groups, (int)top, layer->experts, layer->top_k);
	layer->groups = (uint32_t)groups;
	layer->top_groups = (uint32_t)top;
	return GPUSNAP_OK;
}

static gpusnap_status decode_optional(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_status status = decode_scale(json, layer, err);

	if (!status)
		status = decode_groups(json, layer, err);
	if (!status && gpusnap_json_get(json, "shared_intermediate"))
		status = gsn_field_u32(json, "shared_intermediate", 1, GPUSNAP_MOE_WIDTH_MAX,
			&layer->shared_intermediate, err);
	return status;
}

static gpusnap_status decode_arithmetic(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	double epsilon = gpusnap_json_real(gpusnap_json_get(json, "norm_epsilon"), -1.0);
	gpusnap_status status = decode_score(json, layer, err);

	if (!status)
		status = check_word(json, "activation", activation_name, err);
	if (!status)
		status = gsn_field_bool(json, "renormalise", &layer->renormalise, err);
	if (!status)
		status = decode_block(json, layer, err);
	if (status)
		return status;
	if (!(epsilon >= 0.0 && epsilon <= 1.0))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'norm_epsilon' is missing or %g, expected a number from 0 to 1", epsilon);
	layer->activation = GPUSNAP_ACTIVATION_SILU;
	layer->norm_epsilon = (float)epsilon;
	return GPUSNAP_OK;
}

static gpusnap_status decode_buffers(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_json *buffers;
	gpusnap_status status = gsn_field_object(json, "buffers", &buffers, err);

	for (void *at = status ? NULL : gpusnap_json_first(buffers); at && !status;
		at = gpusnap_json_next(buffers, at)) {
		gpusnap_moe_slot slot;

		status = gsn_moe_slot_parse(gpusnap_json_key(at), &slot, err);
		if (!status)
			status = gsn_field_copy(
				buffers, gpusnap_json_key(at), &layer->buffers[slot], err);
	}
	return status;
}

static gpusnap_status check_shared(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	static const gpusnap_moe_slot slots[] = {
		GPUSNAP_MOE_SHARED_W13, GPUSNAP_MOE_SHARED_W2, GPUSNAP_MOE_SHARED_GATE};
	bool shared = layer->shared_intermediate != 0;

	for (int i = 0; i < 3; i++) {
		bool named = layer->buffers[slots[i]] != NULL;

		if (!shared && named)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"a buffer is named for '%s', but there is no 'shared_intermediate'",
				slot_names[slots[i]]);
		if (shared && !named && slots[i] != GPUSNAP_MOE_SHARED_GATE)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"no buffer is named for '%s', but 'shared_intermediate' is %u",
				slot_names[slots[i]], layer->shared_intermediate);
	}
	return GPUSNAP_OK;
}

static gpusnap_status check_selection(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	if (layer->score == GPUSNAP_SCORE_SIGMOID)
		return GPUSNAP_OK;
	if (layer->buffers[GPUSNAP_MOE_SELECTION_BIAS] || layer->groups)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"score '%s' with %s, this build knows them with 'sigmoid'",
			score_names[layer->score],
			layer->groups ? "'groups'" : "a 'selection_bias'");
	return GPUSNAP_OK;
}

/* Which slots a layer must name, and which it must not. */
static gpusnap_status check_buffers(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	bool scaled = layer->block_n != 0;

	for (int i = 0; i < GPUSNAP_MOE_SLOTS; i++) {
		bool is_scale = i == GPUSNAP_MOE_W13_SCALE || i == GPUSNAP_MOE_W2_SCALE;
		bool needed = i == GPUSNAP_MOE_ROUTER || i == GPUSNAP_MOE_W13 ||
			      i == GPUSNAP_MOE_W2 || (is_scale && scaled);

		if (needed && !layer->buffers[i])
			return gsn_fail(err, GPUSNAP_E_FORMAT, "no buffer is named for '%s'",
				slot_names[i]);
		if (is_scale && !scaled && layer->buffers[i])
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"a buffer is named for '%s', but 'block' says that there are no "
				"scales",
				slot_names[i]);
	}
	if (layer->buffers[GPUSNAP_MOE_NORM] && layer->norm_epsilon == 0.0f)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'norm_epsilon' is 0, expected more where a buffer is named for 'norm'");
	return check_selection(layer, err);
}

static gpusnap_status decode_mask(const gpusnap_json *json, const gpusnap_moe_model *model,
	gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_mask_type *mask = &layer->mask;
	gpusnap_json *object;
	uint32_t first, local;
	gpusnap_status status = gsn_field_object(json, "mask", &object, err);

	if (!status)
		status = gsn_mask_decode(object, mask, err);
	if (status) {
		gsn_error_prefix(err, "mask");
		return status;
	}
	gpusnap_expert_block(layer->experts, model->ep_rank, model->ep_size, &first, &local);
	if (mask->experts != layer->experts || mask->rank != model->ep_rank ||
		mask->world != model->ep_size)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"mask of %u experts on rank %u of %u, the layer has %u on rank %u of %u",
			mask->experts, mask->rank, mask->world, layer->experts, model->ep_rank,
			model->ep_size);
	if (mask->first != first || mask->local != local || local == 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"mask of experts [%u, %u), rank %u of %u holds [%u, %u), one or more",
			mask->first, mask->first + mask->local, model->ep_rank, model->ep_size,
			first, first + local);
	return GPUSNAP_OK;
}

static gpusnap_status decode_layer(const gpusnap_json *json, const gpusnap_moe_model *model,
	gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_status status = gsn_field_copy(json, "module", &layer->module, err);

	if (!status)
		status = decode_sizes(json, layer, err);
	if (!status)
		status = decode_arithmetic(json, layer, err);
	if (!status)
		status = decode_optional(json, layer, err);
	if (!status)
		status = decode_mask(json, model, layer, err);
	if (!status)
		status = decode_buffers(json, layer, err);
	if (!status)
		status = check_buffers(layer, err);
	if (!status)
		status = check_shared(layer, err);
	return status;
}

static gpusnap_status decode_layers(
	const gpusnap_json *json, gpusnap_moe_model *model, gpusnap_error *err)
{
	gpusnap_json *layers;
	gpusnap_status status =
		gsn_field_array(json, "layers", 1, GPUSNAP_MOE_LAYERS_MAX, &layers, err);

	if (status)
		return status;
	model->layer_count = (uint32_t)gpusnap_json_size(layers);
	model->layers = gsn_alloc(model->layer_count, sizeof *model->layers);
	if (!model->layers)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %u layers", model->layer_count);
	for (uint32_t i = 0; i < model->layer_count; i++) {
		gpusnap_moe_layer *layer = &model->layers[i];

		status = decode_layer(gpusnap_json_at(layers, i), model, layer, err);
		if (!status && i > 0 && layer->layer <= layer[-1].layer)
			status = gsn_fail(err, GPUSNAP_E_FORMAT,
				"'layer' is %u after %u, expected more", layer->layer,
				layer[-1].layer);
		if (status) {
			gsn_error_prefix(err, "MoE layer at position %u", i);
			return status;
		}
	}
	return GPUSNAP_OK;
}

static gpusnap_status decode_model(
	const gpusnap_json *json, gpusnap_moe_model *model, gpusnap_error *err)
{
	uint32_t format;
	gpusnap_status status = gsn_field_u32(json, "format", 1, UINT32_MAX, &format, err);

	if (!status && format != MODEL_FORMAT)
		status = gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"format %u, this build reads %d; use a newer gpusnap", format,
			MODEL_FORMAT);
	if (!status)
		status = gsn_field_copy(json, "family", &model->family, err);
	if (!status)
		status = gsn_field_rank(json, "tp", &model->tp_rank, &model->tp_size, err);
	if (!status)
		status = gsn_field_rank(json, "ep", &model->ep_rank, &model->ep_size, err);
	if (!status)
		status = decode_layers(json, model, err);
	return status;
}

gpusnap_status gpusnap_moe_model_decode(
	gpusnap_json *json, gpusnap_moe_model **out, gpusnap_error *err)
{
	gpusnap_moe_model *model = gsn_alloc(1, sizeof *model);
	gpusnap_status status;

	if (!model)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a model record");
	status = decode_model(json, model, err);
	if (status) {
		gsn_error_prefix(err, "model record");
		gpusnap_moe_model_free(model);
		return status;
	}
	*out = model;
	return GPUSNAP_OK;
}

void gpusnap_moe_model_free(gpusnap_moe_model *model)
{
	if (!model)
		return;
	for (uint32_t i = 0; model->layers && i < model->layer_count; i++) {
		gsn_free(model->layers[i].module);
		for (int slot = 0; slot < GPUSNAP_MOE_SLOTS; slot++)
			gsn_free(model->layers[i].buffers[slot]);
	}
	gsn_free(model->layers);
	gsn_free(model->family);
	gsn_free(model);
}
