/* SPDX-License-Identifier: Apache-2.0 */
/* config.json by the keys of its family: what is read, what is refused. */
#include "loader/config.h"
#include "tests/support/checkpoint_copy.h"

static char scratch[PATH_MAX];

static const char qwen[] =
	"{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 6, \"num_experts\": 16, "
	"\"num_experts_per_tok\": 4, \"norm_topk_prob\": false, \"hidden_act\": \"silu\", "
	"\"rms_norm_eps\": 1e-5, \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3], "
	"\"quantization_config\": {\"weight_block_size\": [64, 128]}}";

/* `qwen` with one part replaced. */
static gpusnap_status parse_changed(
	const char *from, const char *to, struct gsn_config *ret_config, gpusnap_error *err)
{
	const char *at = strstr(qwen, from);
	gpusnap_json *json;
	char text[1024];
	gpusnap_status st;

	ck_assert_ptr_nonnull(at);
	(void)snprintf(
		text, sizeof text, "%.*s%s%s", (int)(at - qwen), qwen, to, at + strlen(from));
	ck_assert_int_eq(gpusnap_json_parse(text, strlen(text), "test", &json, err), GPUSNAP_OK);
	st = gsn_config_parse(json, ret_config, err);
	gpusnap_json_free(json);
	return st;
}

START_TEST(all_values_are_read)
{
	struct gsn_config config;
	gpusnap_error err;

	ck_ok(parse_changed("{", "{", &config, &err));
	ck_assert_str_eq(config.family->model_type, "qwen3_moe");
	ck_assert_uint_eq(config.layers, 6);
	ck_assert_uint_eq(config.experts, 16);
	ck_assert_uint_eq(config.top_k, 4);
	ck_assert(!config.renormalise);
	ck_assert_float_eq(config.norm_epsilon, 1e-5f);
	ck_assert_uint_eq(config.block_n, 64);
	ck_assert_uint_eq(config.block_k, 128);
	for (uint32_t l = 0; l < 8; l++) /* every second one, 3 excepted, 7 is past the end */
		ck_assert_int_eq(gsn_config_is_sparse(&config, l), l == 1 || l == 5);
	gsn_config_release(&config);
}
END_TEST

START_TEST(defaults_of_optional_keys)
{
	struct gsn_config config;
	gpusnap_error err;

	ck_ok(parse_changed(
		", \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]", "", &config, &err));
	for (uint32_t l = 0; l < 6; l++)
		ck_assert(gsn_config_is_sparse(&config, l));
	gsn_config_release(&config);
	ck_ok(parse_changed(", \"quantization_config\": {\"weight_block_size\": [64, 128]}",
		", \"quantization_config\": null, \"mlp_only_layers_\": null", &config, &err));
	ck_assert_uint_eq(config.block_n, 128);
	ck_assert_uint_eq(config.block_k, 128);
	gsn_config_release(&config);
}
END_TEST

START_TEST(both_spellings_of_the_expert_count)
{
	struct gsn_config config;
	gpusnap_error err;

	ck_ok(parse_changed("num_experts\"", "num_local_experts\"", &config, &err));
	ck_assert_uint_eq(config.experts, 16);
	gsn_config_release(&config);
	ck_ok(parse_changed("\"num_experts\": 16", "\"num_experts\": 16, \"num_local_experts\": 16",
		&config, &err));
	gsn_config_release(&config);
	ck_fails(parse_changed("\"num_experts\": 16",
			 "\"num_experts\": 16, \"num_local_experts\": 4", &config, &err),
		GPUSNAP_E_FORMAT, "num_experts is 16 and num_local_experts is 4");
}
END_TEST

START_TEST(missing_and_wrong_keys_are_named)
{
	static const struct {
		const char *from, *to, *text;
		gpusnap_status status;
	} cases[] = {
		{"\"model_type\"", "\"m\"", "key 'model_type' is missing", GPUSNAP_E_FORMAT},
		{"\"qwen3_moe\"", "7", "key 'model_type' is not a string", GPUSNAP_E_FORMAT},
		{"\"num_hidden_layers\"", "\"m\"", "key 'num_hidden_layers' is missing",
			GPUSNAP_E_FORMAT},
		{"\"num_hidden_layers\": 6", "\"num_hidden_layers\": 0",
			"key 'num_hidden_layers' is 0, outside", GPUSNAP_E_FORMAT},
		{"\"num_hidden_layers\": 6", "\"num_hidden_layers\": 4294967297",
			"key 'num_hidden_layers' is 4294967297", GPUSNAP_E_FORMAT},
		{"\"num_experts\"", "\"m\"", "key 'num_experts' is missing", GPUSNAP_E_FORMAT},
		{"16", "16.0", "key 'num_experts' is not an integer", GPUSNAP_E_FORMAT},
		{"16", "-1", "key 'num_experts' is -1", GPUSNAP_E_FORMAT},
		{"\"num_experts_per_tok\"", "\"m\"", "key 'num_experts_per_tok' is missing",
			GPUSNAP_E_FORMAT},
		{"\"num_experts_per_tok\": 4", "\"num_experts_per_tok\": 17",
			"num_experts_per_tok is 17, of 16 experts", GPUSNAP_E_FORMAT},
		{"\"norm_topk_prob\"", "\"m\"", "key 'norm_topk_prob' is missing",
			GPUSNAP_E_FORMAT},
		{"false", "0", "key 'norm_topk_prob' is not a boolean", GPUSNAP_E_FORMAT},
		{"\"hidden_act\"", "\"m\"", "key 'hidden_act' is missing", GPUSNAP_E_FORMAT},
		{"\"silu\"", "\"gelu\"", "hidden_act 'gelu' is unknown", GPUSNAP_E_UNSUPPORTED},
		{"\"rms_norm_eps\"", "\"m\"", "key 'rms_norm_eps' is missing", GPUSNAP_E_FORMAT},
		{"1e-5", "-1", "key 'rms_norm_eps' is no number", GPUSNAP_E_FORMAT},
		{"1e-5", "\"x\"", "key 'rms_norm_eps' is no number", GPUSNAP_E_FORMAT},
		{"\"decoder_sparse_step\": 2", "\"decoder_sparse_step\": 0",
			"key 'decoder_sparse_step' is 0", GPUSNAP_E_FORMAT},
		{"[3]", "3", "key 'mlp_only_layers' is not a list", GPUSNAP_E_FORMAT},
		{"[3]", "[6]", "item 0 of 'mlp_only_layers' is no layer 0..5", GPUSNAP_E_FORMAT},
		{"[3]", "[1, \"x\"]", "item 1 of 'mlp_only_layers'", GPUSNAP_E_FORMAT},
		{"[64, 128]", "[64]", "key 'weight_block_size' is no list of two",
			GPUSNAP_E_FORMAT},
		{"[64, 128]", "[64, 0]", "key 'weight_block_size' is 0", GPUSNAP_E_FORMAT},
		{"\"qwen3_moe\"", "3", "key 'model_type' is not a string", GPUSNAP_E_FORMAT},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gsn_config config;
		gpusnap_error err;

		ck_fails(parse_changed(cases[i].from, cases[i].to, &config, &err), cases[i].status,
			cases[i].text);
	}
}
END_TEST

START_TEST(unknown_families_have_no_layers_to_look_at)
{
	struct gsn_config config;
	gpusnap_error err;

	ck_ok(parse_changed("qwen3_moe", "llama", &config, &err));
	ck_assert_ptr_eq(config.family, &gsn_family_unknown);
	ck_assert_str_eq(config.model_type, "llama");
	ck_assert_uint_eq(config.layers, 0);
	gsn_config_release(&config);
}
END_TEST

/* ---- DeepSeek and GPT-OSS ---- */

#define DEEPSEEK_V4                                                                                \
	"\"model_type\": \"deepseek_v4\", \"num_hidden_layers\": 3, \"n_routed_experts\": 16, "    \
	"\"num_experts_per_tok\": 4, \"norm_topk_prob\": true, \"hidden_act\": \"silu\", "         \
	"\"routed_scaling_factor\": 1.5, \"rms_norm_eps\": 1e-6"

static gpusnap_status parse_deepseek(
	const char *more, struct gsn_config *ret_config, gpusnap_error *err)
{
	gpusnap_json *json;
	char text[1024];
	gpusnap_status st;

	(void)snprintf(text, sizeof text, "{" DEEPSEEK_V4 "%s}", more);
	ck_assert_int_eq(gpusnap_json_parse(text, strlen(text), "test", &json, err), GPUSNAP_OK);
	st = gsn_config_parse(json, ret_config, err);
	gpusnap_json_free(json);
	return st;
}

START_TEST(layers_routed_by_hash_are_told_in_two_ways)
{
	struct gsn_config config;
	gpusnap_error err;

	ck_ok(parse_deepseek("", &config, &err));
	for (uint32_t l = 0; l < 3; l++)
		ck_assert(!gsn_config_is_hashed(&config, l));
	ck_assert_float_eq(config.limit, 0.0f);
	gsn_config_release(&config);
	ck_ok(parse_deepseek(", \"num_hash_layers\": 2, \"swiglu_limit\": 10.0", &config, &err));
	for (uint32_t l = 0; l < 3; l++)
		ck_assert_int_eq(gsn_config_is_hashed(&config, l), l < 2);
	ck_assert_float_eq(config.limit, 10.0f);
	gsn_config_release(&config);
	ck_ok(parse_deepseek(
		", \"mlp_layer_types\": [\"moe\", \"hash_moe\", \"moe\"]", &config, &err));
	for (uint32_t l = 0; l < 3; l++)
		ck_assert_int_eq(gsn_config_is_hashed(&config, l), l == 1);
	gsn_config_release(&config);
}
END_TEST

START_TEST(words_and_limits_that_are_unknown_are_named)
{
	static const struct {
		const char *more, *text;
		gpusnap_status status;
	} cases[] = {
		{", \"mlp_layer_types\": [\"moe\", \"moe\"]", "'mlp_layer_types' is no list of 3",
			GPUSNAP_E_FORMAT},
		{", \"mlp_layer_types\": [\"moe\", \"dense\", \"moe\"]",
			"item 1 of 'mlp_layer_types' is neither", GPUSNAP_E_UNSUPPORTED},
		{", \"scoring_func\": \"softmax\"",
			"scoring_func 'softmax' is unknown; known is sqrtsoftplus",
			GPUSNAP_E_UNSUPPORTED},
		{", \"scoring_func\": 1", "key 'scoring_func' is not a string", GPUSNAP_E_FORMAT},
		{", \"swiglu_limit\": 0", "key 'swiglu_limit' is no number above 0",
			GPUSNAP_E_FORMAT},
		{", \"swiglu_limit\": \"7\"", "key 'swiglu_limit' is no number above 0",
			GPUSNAP_E_FORMAT},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gsn_config config;
		gpusnap_error err;

		ck_fails(parse_deepseek(cases[i].more, &config, &err), cases[i].status,
			cases[i].text);
	}
}
END_TEST

START_TEST(files_that_are_none_are_refused)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct gsn_config config;
	gpusnap_error err;

	tempdir_make(folder, scratch);
	tempdir_join(path, folder, "config.json");
	ck_fails(gsn_config_read(folder, &config, &err), GPUSNAP_E_IO, "config.json");
	file_write(path, "{", 1);
	ck_fails(gsn_config_read(folder, &config, &err), GPUSNAP_E_FORMAT, path);
	file_write(path, "[]", 2);
	ck_fails(gsn_config_read(folder, &config, &err), GPUSNAP_E_FORMAT, path);
	assert(truncate(path, (16 << 20) + 1) == 0);
	ck_fails(gsn_config_read(folder, &config, &err), GPUSNAP_E_LIMIT, "16777217 bytes");
	tempdir_remove(folder);
}
END_TEST

START_TEST(test_checkpoints_are_read)
{
	struct gsn_config config;
	gpusnap_error err;

	ck_ok(gsn_config_read(GPUSNAP_TEST_DATA "/checkpoints/mixtral", &config, &err));
	ck_assert_str_eq(config.family->model_type, "mixtral");
	ck_assert_uint_eq(config.experts, 8);
	ck_assert_uint_eq(config.top_k, 2);
	ck_assert(config.renormalise); /* without a key: Mixtral always does */
	gsn_config_release(&config);
	ck_ok(gsn_config_read(GPUSNAP_TEST_DATA "/checkpoints/qwen3_moe_fp8", &config, &err));
	ck_assert_uint_eq(config.block_n, 128);
	gsn_config_release(&config);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		all_values_are_read,
		defaults_of_optional_keys,
		both_spellings_of_the_expert_count,
		missing_and_wrong_keys_are_named,
		unknown_families_have_no_layers_to_look_at,
		layers_routed_by_hash_are_told_in_two_ways,
		words_and_limits_that_are_unknown_are_named,
		files_that_are_none_are_refused,
		test_checkpoints_are_read,
	};
	int result;

	tempdir_make(scratch, NULL);
	result = RUN_SUITE("config_keys", tests);
	tempdir_remove(scratch);
	return result;
}
