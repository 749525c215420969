/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record "model" of a snapshot: the MoE layers and the buffers that hold them, as JSON
 * (formats/gsnap.md, section "Record model").
 */
#include <gpusnap/moe.h>

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/fields.h"
#include "formats/moe_check.h"
#include "formats/moe_words.h"

/*
 * Format 1 is the record as it was before members that an older reader would ignore and so compute
 * with another formula; 2 is written where a layer has one of them.
 */
enum { MODEL_FORMAT = 1, MODEL_FORMAT_FORMULA = 2 };

static gpusnap_json *encode_buffers(const gpusnap_moe_layer *layer)
{
	gpusnap_json *buffers = gpusnap_json_pack("{}");

	for (int i = 0; buffers && i < GPUSNAP_MOE_SLOTS; i++) {
		if (!layer->buffers[i])
			continue;
		if (gpusnap_json_set(buffers, gpusnap_moe_slot_name((gpusnap_moe_slot)i),
			    gpusnap_json_pack("s", layer->buffers[i]))) {
			gpusnap_json_free(buffers);
			return NULL;
		}
	}
	return buffers;
}

static int set_size(gpusnap_json *json, const char *key, uint32_t value)
{
	return gpusnap_json_set(json, key, gpusnap_json_pack("I", (long long)value));
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
		failed |= set_size(json, "shared_intermediate", layer->shared_intermediate);
	if (layer->shared_block_n)
		failed |= gpusnap_json_set(json, "shared_block",
			gpusnap_json_pack("[I, I]", (long long)layer->shared_block_n,
				(long long)layer->shared_block_k));
	if (layer->vocabulary)
		failed |= set_size(json, "vocabulary", layer->vocabulary);
	if (layer->activation_limit != 0.0f)
		failed |= gpusnap_json_set(json, "activation_limit",
			gpusnap_json_pack("f", (double)layer->activation_limit));
	if (layer->weight_before_w2)
		failed |= gpusnap_json_set(json, "weight_before_w2", gpusnap_json_pack("b", 1));
	return failed;
}

static gpusnap_json *encode_layer(const gpusnap_moe_layer *layer)
{
	gpusnap_json *json = gpusnap_json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:s, s:[I, I], s:f, s:o, s:o}", "module",
		layer->module, "layer", (long long)layer->layer, "hidden", (long long)layer->hidden,
		"intermediate", (long long)layer->intermediate, "experts",
		(long long)layer->experts, "top_k", (long long)layer->top_k, "score",
		gsn_score_name(layer->score), "renormalise", (int)layer->renormalise, "activation",
		gsn_activation_name(layer->activation), "block", (long long)layer->block_n,
		(long long)layer->block_k, "norm_epsilon", (double)layer->norm_epsilon, "mask",
		gsn_mask_encode(&layer->mask), "buffers", encode_buffers(layer));

	if (json && add_optional(json, layer)) {
		gpusnap_json_free(json);
		return NULL;
	}
	return json;
}

static int format_of(const gpusnap_moe_model *model)
{
	for (uint32_t i = 0; i < model->layer_count; i++)
		if (model->layers[i].activation_limit != 0.0f || model->layers[i].weight_before_w2)
			return MODEL_FORMAT_FORMULA;
	return MODEL_FORMAT;
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
	return gpusnap_json_pack("{s:i, s:s, s:[I, I], s:[I, I], s:o}", "format", format_of(model),
		"family", model->family, "tp", (long long)model->tp_rank, (long long)model->tp_size,
		"ep", (long long)model->ep_rank, (long long)model->ep_size, "layers", layers);
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

static gpusnap_status decode_block(const gpusnap_json *json, const char *key, uint32_t *ret_n,
	uint32_t *ret_k, gpusnap_error *err)
{
	gpusnap_json *block;
	int64_t n, k;
	gpusnap_status status = gsn_field_array(json, key, 2, 2, &block, err);

	if (status)
		return status;
	status = gsn_item_i64(block, 0, 0, GPUSNAP_MOE_WIDTH_MAX, &n, err);
	if (!status)
		status = gsn_item_i64(block, 1, 0, GPUSNAP_MOE_WIDTH_MAX, &k, err);
	if (status) {
		gsn_error_prefix(err, "'%s'", key);
		return status;
	}
	if ((n == 0) != (k == 0))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'%s' is [%d, %d], expected two sizes, or zeros for no scales", key, (int)n,
			(int)k);
	*ret_n = (uint32_t)n;
	*ret_k = (uint32_t)k;
	return GPUSNAP_OK;
}

static gpusnap_status decode_words(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	const char *word;
	gpusnap_status status = gsn_field_text(json, "score", &word, err);

	if (!status)
		status = gsn_score_parse(word, &layer->score, err);
	if (!status)
		status = gsn_field_text(json, "activation", &word, err);
	if (!status)
		status = gsn_activation_parse(word, &layer->activation, err);
	return status;
}

/* A factor that may be absent, then it stays 0. */
static gpusnap_status decode_factor(
	const gpusnap_json *json, const char *key, float *ret_factor, gpusnap_error *err)
{
	const gpusnap_json *value = gpusnap_json_get(json, key);
	double factor = gpusnap_json_real(value, -1.0);

	if (!value)
		return GPUSNAP_OK;
	if (!(factor > 0.0 && factor <= (double)GPUSNAP_MOE_SCALE_MAX && (float)factor > 0.0f))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'%s' is %g, expected a number above 0, up to %g", key, factor,
			(double)GPUSNAP_MOE_SCALE_MAX);
	*ret_factor = (float)factor;
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

/* A size that may be absent, then it stays 0. */
static gpusnap_status decode_size(const gpusnap_json *json, const char *key, uint32_t max,
	uint32_t *ret_size, gpusnap_error *err)
{
	if (!gpusnap_json_get(json, key))
		return GPUSNAP_OK;
	return gsn_field_u32(json, key, 1, max, ret_size, err);
}

static gpusnap_status decode_optional(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_status status = decode_factor(json, "routed_scale", &layer->routed_scale, err);

	if (!status)
		status = decode_groups(json, layer, err);
	if (!status)
		status = decode_size(json, "shared_intermediate", GPUSNAP_MOE_WIDTH_MAX,
			&layer->shared_intermediate, err);
	if (!status && gpusnap_json_get(json, "shared_block"))
		status = decode_block(
			json, "shared_block", &layer->shared_block_n, &layer->shared_block_k, err);
	if (!status)
		status = decode_size(
			json, "vocabulary", GPUSNAP_MOE_VOCABULARY_MAX, &layer->vocabulary, err);
	if (!status)
		status = decode_factor(json, "activation_limit", &layer->activation_limit, err);
	if (!status && gpusnap_json_get(json, "weight_before_w2"))
		status = gsn_field_bool(json, "weight_before_w2", &layer->weight_before_w2, err);
	return status;
}

static gpusnap_status decode_arithmetic(
	const gpusnap_json *json, gpusnap_moe_layer *layer, gpusnap_error *err)
{
	double epsilon = gpusnap_json_real(gpusnap_json_get(json, "norm_epsilon"), -1.0);
	gpusnap_status status = decode_words(json, layer, err);

	if (!status)
		status = gsn_field_bool(json, "renormalise", &layer->renormalise, err);
	if (!status)
		status = decode_block(json, "block", &layer->block_n, &layer->block_k, err);
	if (status)
		return status;
	if (!(epsilon >= 0.0 && epsilon <= 1.0))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'norm_epsilon' is missing or %g, expected a number from 0 to 1", epsilon);
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
	return status ? status : gsn_moe_layer_check(layer, err);
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

	if (!status && format > MODEL_FORMAT_FORMULA)
		status = gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"format %u, this build reads 1 to %d; use a newer gpusnap", format,
			MODEL_FORMAT_FORMULA);
	if (!status)
		status = gsn_field_copy(json, "family", &model->family, err);
	if (!status)
		status = gsn_field_rank(json, "tp", &model->tp_rank, &model->tp_size, err);
	if (!status)
		status = gsn_field_rank(json, "ep", &model->ep_rank, &model->ep_size, err);
	if (!status)
		status = decode_layers(json, model, err);
	if (!status && format < (uint32_t)format_of(model))
		status = gsn_fail(err, GPUSNAP_E_FORMAT,
			"'format' is %u, expected %d where a layer has 'activation_limit' or "
			"'weight_before_w2'",
			format, MODEL_FORMAT_FORMULA);
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
