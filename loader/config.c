/* SPDX-License-Identifier: Apache-2.0 */
/* Reading config.json by the keys of its family. */
#include "loader/config.h"

#include <math.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "loader/source_file.h"

#define CONFIG_NAME	 "config.json"
#define CONFIG_BYTES_MAX (16u << 20)
#define COUNT_MAX	 (1u << 20) /* layers, experts, rows a scale: far above any model's */
#define DEFAULT_BLOCK	 128u /* DeepSeek-V3's, which every public block-scaled checkpoint uses */

static gpusnap_status count_value(
	const gpusnap_json *value, const char *key, uint32_t *ret_count, gpusnap_error *err)
{
	int64_t number = gpusnap_json_integer(value, 0);

	if (gpusnap_json_kind_of(value) != GPUSNAP_JSON_INTEGER)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key '%s' is %s", key,
			value ? "not an integer" : "missing");
	if (number < 1 || number > COUNT_MAX)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key '%s' is %lld, outside 1..%u", key,
			(long long)number, COUNT_MAX);
	*ret_count = (uint32_t)number;
	return GPUSNAP_OK;
}

static gpusnap_status count_key(
	const gpusnap_json *json, const char *key, uint32_t *ret_count, gpusnap_error *err)
{
	return count_value(gpusnap_json_get(json, key), key, ret_count, err);
}

/* A count that may be absent, null or 0, which are the same. */
static gpusnap_status optional_count(
	const gpusnap_json *json, const char *key, uint32_t *ret_count, gpusnap_error *err)
{
	const gpusnap_json *value = key ? gpusnap_json_get(json, key) : NULL;

	if (gpusnap_json_kind_of(value) == GPUSNAP_JSON_NULL ||
		(gpusnap_json_kind_of(value) == GPUSNAP_JSON_INTEGER &&
			gpusnap_json_integer(value, 1) == 0)) {
		*ret_count = 0;
		return GPUSNAP_OK;
	}
	return count_value(value, key, ret_count, err);
}

/* ---- family ---- */

static gpusnap_status parse_family(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const gpusnap_json *value = gpusnap_json_get(json, "model_type");
	const char *model_type = gpusnap_json_text(value);

	if (!model_type)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key 'model_type' is %s",
			value ? "not a string" : "missing");
	config->model_type = gsn_strdup(model_type);
	if (!config->model_type)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the model's type");
	config->family = gsn_family_find(model_type);
	if (!config->family)
		config->family = &gsn_family_unknown;
	return GPUSNAP_OK;
}

/* A name that config.json gives must be the one expected; it may give none. */
static gpusnap_status check_word(
	const gpusnap_json *json, const char *key, const char *expected, gpusnap_error *err)
{
	const gpusnap_json *value = key ? gpusnap_json_get(json, key) : NULL;
	const char *word = gpusnap_json_text(value);
	char quoted[GSN_QUOTE_BYTES];

	if (gpusnap_json_kind_of(value) == GPUSNAP_JSON_NULL)
		return GPUSNAP_OK;
	if (!word)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key '%s' is not a string", key);
	if (strcmp(word, expected) == 0)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_UNSUPPORTED, "%s '%s' is unknown; known is %s", key,
		gsn_quote(word, strlen(word), quoted), expected);
}

/* ---- routing ---- */

/* Either spelling will do; two that disagree will not. */
static gpusnap_status parse_experts(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const char *const *keys = config->family->keys.experts;
	bool second_only =
		keys[1] && !gpusnap_json_get(json, keys[0]) && gpusnap_json_get(json, keys[1]);
	uint32_t other;
	gpusnap_status st;

	st = count_key(json, keys[second_only], &config->experts, err);
	if (st || second_only || !keys[1] || !gpusnap_json_get(json, keys[1]))
		return st;
	st = count_key(json, keys[1], &other, err);
	if (!st && other != config->experts)
		st = gsn_fail(err, GPUSNAP_E_FORMAT, "%s is %u and %s is %u", keys[0],
			config->experts, keys[1], other);
	return st;
}

static gpusnap_status parse_renormalise(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const char *key = config->family->keys.renormalise;
	const gpusnap_json *value = key ? gpusnap_json_get(json, key) : NULL;

	config->renormalise = true;
	if (!key)
		return GPUSNAP_OK;
	if (gpusnap_json_kind_of(value) != GPUSNAP_JSON_BOOLEAN)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key '%s' is %s", key,
			value ? "not a boolean" : "missing");
	config->renormalise = gpusnap_json_boolean(value, 0) != 0;
	return GPUSNAP_OK;
}

static gpusnap_status parse_scale(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const char *key = config->family->keys.routed_scale;
	const gpusnap_json *value = key ? gpusnap_json_get(json, key) : NULL;
	double scale = gpusnap_json_real(value, -1.0);

	if (!key)
		return GPUSNAP_OK;
	if (!value)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key '%s' is missing", key);
	if (!(scale > 0.0 && scale <= (double)GPUSNAP_MOE_SCALE_MAX && (float)scale > 0.0f))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key '%s' is no number above 0, up to %g",
			key, (double)GPUSNAP_MOE_SCALE_MAX);
	config->routed_scale = (float)scale;
	return GPUSNAP_OK;
}

/* One group, or none, is all experts: nothing is left out. */
static gpusnap_status parse_groups(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const struct gsn_family_keys *keys = &config->family->keys;
	uint32_t groups, top;
	gpusnap_status st = optional_count(json, keys->groups, &groups, err);

	if (!st)
		st = optional_count(json, keys->top_groups, &top, err);
	if (st || (groups <= 1 && top <= 1))
		return st;
	if (groups == 0 || groups > GPUSNAP_MOE_GROUPS_MAX || config->experts % groups ||
		top == 0 || top > groups ||
		(uint64_t)top * (config->experts / groups) < config->top_k)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%s is %u and %s is %u: no choice of %u from equal groups of %u experts",
			keys->groups, groups, keys->top_groups, top, config->top_k,
			config->experts);
	config->groups = groups;
	config->top_groups = top;
	return GPUSNAP_OK;
}

static gpusnap_status parse_shared(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	uint32_t shared;
	gpusnap_status st = optional_count(json, config->family->keys.shared, &shared, err);

	config->shared = !st && shared != 0;
	return st;
}

static gpusnap_status parse_routing(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const char *top_k = config->family->keys.top_k;
	gpusnap_status st = parse_experts(json, config, err);

	if (!st)
		st = count_key(json, top_k, &config->top_k, err);
	if (!st && config->top_k > config->experts)
		st = gsn_fail(err, GPUSNAP_E_FORMAT, "%s is %u, of %u experts", top_k,
			config->top_k, config->experts);
	if (!st)
		st = parse_renormalise(json, config, err);
	if (!st)
		st = parse_scale(json, config, err);
	if (!st)
		st = parse_groups(json, config, err);
	if (!st)
		st = parse_shared(json, config, err);
	return st;
}

/* ---- layers ---- */

static gpusnap_status parse_dense_layers(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const char *key = config->family->keys.dense_layers;
	const gpusnap_json *list = key ? gpusnap_json_get(json, key) : NULL;
	size_t count = gpusnap_json_size(list);

	if (gpusnap_json_kind_of(list) == GPUSNAP_JSON_NULL)
		return GPUSNAP_OK;
	if (gpusnap_json_kind_of(list) != GPUSNAP_JSON_ARRAY || count > config->layers)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"key '%s' is not a list of at most %u layers", key, config->layers);
	config->dense_layers = gsn_alloc(count, sizeof *config->dense_layers);
	if (!config->dense_layers)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu layer numbers", count);
	for (; config->dense_count < count; config->dense_count++) {
		int64_t layer =
			gpusnap_json_integer(gpusnap_json_at(list, config->dense_count), -1);

		if (layer < 0 || layer >= config->layers)
			return gsn_fail(err, GPUSNAP_E_FORMAT, "item %u of '%s' is no layer 0..%u",
				config->dense_count, key, config->layers - 1);
		config->dense_layers[config->dense_count] = (uint32_t)layer;
	}
	return GPUSNAP_OK;
}

/* "hash_moe" or "moe", a word a layer; later layers than the model's may have words as well. */
static gpusnap_status parse_layer_types(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const char *key = config->family->keys.layer_types;
	const gpusnap_json *list = key ? gpusnap_json_get(json, key) : NULL;

	if (gpusnap_json_kind_of(list) == GPUSNAP_JSON_NULL)
		return GPUSNAP_OK;
	if (gpusnap_json_size(list) < config->layers)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key '%s' is no list of %u words", key,
			config->layers);
	config->hashed = gsn_alloc(config->layers, sizeof *config->hashed);
	if (!config->hashed)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u layers", config->layers);
	for (uint32_t l = 0; l < config->layers; l++) {
		const char *word = gpusnap_json_text(gpusnap_json_at(list, l));

		config->hashed[l] = word && strcmp(word, "hash_moe") == 0;
		if (!config->hashed[l] && (!word || strcmp(word, "moe") != 0))
			return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
				"item %u of '%s' is neither moe nor hash_moe", l, key);
	}
	return GPUSNAP_OK;
}

/* 1 where it is not given. */
static gpusnap_status step_key(
	const gpusnap_json *json, const char *key, uint32_t *ret_step, gpusnap_error *err)
{
	*ret_step = 1;
	return key && gpusnap_json_get(json, key) ? count_key(json, key, ret_step, err)
						  : GPUSNAP_OK;
}

static gpusnap_status parse_layers(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const struct gsn_family_keys *keys = &config->family->keys;
	gpusnap_status st = count_key(json, "num_hidden_layers", &config->layers, err);

	if (!st)
		st = step_key(json, keys->sparse_step, &config->sparse_step, err);
	if (!st)
		st = step_key(json, keys->sparse_every, &config->sparse_every, err);
	if (!st)
		st = optional_count(json, keys->first_dense, &config->first_dense, err);
	if (!st)
		st = optional_count(json, keys->first_hash, &config->first_hash, err);
	if (!st)
		st = parse_dense_layers(json, config, err);
	if (!st)
		st = parse_layer_types(json, config, err);
	return st;
}

bool gsn_config_is_sparse(const struct gsn_config *config, uint32_t layer)
{
	for (uint32_t i = 0; i < config->dense_count; i++)
		if (config->dense_layers[i] == layer)
			return false;
	return layer >= config->first_dense && layer < config->layers &&
	       (layer + 1) % config->sparse_step == 0 && layer % config->sparse_every == 0;
}

bool gsn_config_is_hashed(const struct gsn_config *config, uint32_t layer)
{
	return config->hashed ? config->hashed[layer] : layer < config->first_hash;
}

/* ---- arithmetic ---- */

/* The activation's own name is the family's; what it is built on must be known. */
static gpusnap_status parse_activation(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const char *key = config->family->keys.limit;
	const gpusnap_json *value = key ? gpusnap_json_get(json, key) : NULL;
	double limit = gpusnap_json_real(value, -1.0);

	if (!gpusnap_json_text(gpusnap_json_get(json, "hidden_act")))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key 'hidden_act' is missing or no string");
	config->limit = config->family->limit_default;
	if (gpusnap_json_kind_of(value) != GPUSNAP_JSON_NULL) {
		if (!(limit > 0.0 && limit <= (double)GPUSNAP_MOE_SCALE_MAX && (float)limit > 0.0f))
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"key '%s' is no number above 0, up to %g", key,
				(double)GPUSNAP_MOE_SCALE_MAX);
		config->limit = (float)limit;
	}
	return check_word(json, "hidden_act", "silu", err);
}

static gpusnap_status parse_epsilon(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const gpusnap_json *value = gpusnap_json_get(json, "rms_norm_eps");
	double epsilon = gpusnap_json_real(value, -1.0);

	if (!value)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key 'rms_norm_eps' is missing");
	if (!isfinite(epsilon) || epsilon <= 0.0 || epsilon >= 1.0)
		return gsn_fail(
			err, GPUSNAP_E_FORMAT, "key 'rms_norm_eps' is no number between 0 and 1");
	config->norm_epsilon = (float)epsilon;
	return GPUSNAP_OK;
}

static gpusnap_status parse_blocks(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	static const char key[] = "weight_block_size";
	const gpusnap_json *quantization = gpusnap_json_get(json, "quantization_config");
	const gpusnap_json *block = gpusnap_json_get(quantization, key);
	gpusnap_status st;

	config->block_n = config->block_k = DEFAULT_BLOCK;
	if (gpusnap_json_kind_of(block) == GPUSNAP_JSON_NULL)
		return GPUSNAP_OK;
	if (gpusnap_json_kind_of(block) != GPUSNAP_JSON_ARRAY || gpusnap_json_size(block) != 2)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "key '%s' is no list of two sizes", key);
	st = count_value(gpusnap_json_at(block, 0), key, &config->block_n, err);
	if (!st)
		st = count_value(gpusnap_json_at(block, 1), key, &config->block_k, err);
	return st;
}

/* ---- the file ---- */

static gpusnap_status parse_known(
	const gpusnap_json *json, struct gsn_config *config, gpusnap_error *err)
{
	const struct gsn_family *family = config->family;
	gpusnap_status st = parse_layers(json, config, err);

	if (!st)
		st = parse_routing(json, config, err);
	if (!st)
		st = check_word(json, family->keys.scoring, family->scoring_word, err);
	if (!st)
		st = parse_activation(json, config, err);
	if (!st)
		st = parse_epsilon(json, config, err);
	if (!st)
		st = parse_blocks(json, config, err);
	config->untied = !gpusnap_json_boolean(gpusnap_json_get(json, "tie_word_embeddings"), 1);
	return st;
}

gpusnap_status gsn_config_parse(
	gpusnap_json *json, struct gsn_config *ret_config, gpusnap_error *err)
{
	struct gsn_config config = {0};
	gpusnap_status st = parse_family(json, &config, err);

	if (!st && config.family->model_type)
		st = parse_known(json, &config, err);
	if (st)
		gsn_config_release(&config);
	else
		*ret_config = config;
	return st;
}

gpusnap_status gsn_config_read(
	const char *directory, struct gsn_config *ret_config, gpusnap_error *err)
{
	gpusnap_json *json = NULL;
	gpusnap_status st;

	st = gsn_json_file_read(directory, CONFIG_NAME, CONFIG_BYTES_MAX, &json, err);
	if (st)
		return st;
	st = gsn_config_parse(json, ret_config, err);
	if (st)
		gsn_error_prefix(err, "%s/%s", directory, CONFIG_NAME);
	gpusnap_json_free(json);
	return st;
}

gpusnap_status gsn_config_none(struct gsn_config *ret_config, gpusnap_error *err)
{
	char *model_type = gsn_strdup("no config.json");

	if (!model_type)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the model's type");
	*ret_config = (struct gsn_config){.family = &gsn_family_unknown, .model_type = model_type};
	return GPUSNAP_OK;
}

void gsn_config_release(struct gsn_config *config)
{
	gsn_free(config->model_type);
	gsn_free(config->hashed);
	gsn_free(config->dense_layers);
	memset(config, 0, sizeof *config);
}
