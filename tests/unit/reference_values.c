/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "tests/support/moe_state.h"
#include "tests/support/moe_values.h"
#include "tests/support/suite.h"

static const char *const checkpoints[] = {"qwen3_moe", "qwen3_moe_fp8", "mixtral", "qwen2_moe",
	"glm4_moe", "deepseek_v3", "deepseek_v3_fp8", "deepseek_v4", "deepseek_v4_fp4", "gpt_oss",
	"gpt_oss_mxfp4"};

enum { CHECKPOINTS = sizeof checkpoints / sizeof checkpoints[0] };

static void check_agrees(const struct moe_state *state, const gpusnap_reference *reference)
{
	gpusnap_reference_result got;
	gpusnap_error err;

	ck_ok(gpusnap_reference_compare(state->dispatch, reference, &got, &err));
	ck_assert_msg(got.agrees && got.ids_equal && got.near_ties == 0,
		"%s: error %.3g of the bound, ids %s, %u near ties, weights off by %.3g",
		reference->module, got.max_error_over_bound, got.ids_equal ? "equal" : "differ",
		got.near_ties, got.max_weight_error);
	ck_assert(got.max_error_over_bound > 0.0 && got.max_error_over_bound <= 1.0);
	ck_assert(reference->router_weights ? got.max_weight_error < 1e-5
					    : got.max_weight_error == 0.0);
}

START_TEST(every_layer_agrees_with_the_reference_for_every_kind_of_mask)
{
	for (int i = 0; i < CHECKPOINTS; i++)
		for (int kind = GPUSNAP_MASK_STANDARD; kind <= GPUSNAP_MASK_VLLM_AITER; kind++) {
			gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
			struct moe_state state;
			struct moe_values values;

			options.mask = (gpusnap_mask_kind)kind;
			moe_state_load(&state, checkpoints[i], &options);
			moe_values_open(&values, checkpoints[i]);
			for (uint32_t layer = 0; layer < state.model->layer_count; layer++) {
				struct moe_module module;

				moe_module_read(
					&module, &values, state.model->layers[layer].module);
				check_agrees(&state, &module.reference);
				module.reference.router_weights = NULL;
				module.reference.router_ids = NULL;
				check_agrees(&state, &module.reference);
				moe_module_free(&module);
			}
			moe_values_close(&values);
			moe_state_free(&state);
		}
}
END_TEST

static size_t largest_of(const float *values, size_t count)
{
	size_t largest = 0;

	for (size_t i = 1; i < count; i++)
		if (fabsf(values[i]) > fabsf(values[largest]))
			largest = i;
	return largest;
}

/* One wrong value of the reference at a time: the bound must be tight enough to see it. */
START_TEST(a_wrong_output_weight_or_id_disagrees)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_reference_result got;
	struct moe_state state;
	struct moe_values values;
	struct moe_module module;
	size_t largest;
	gpusnap_error err;

	moe_state_load(&state, "qwen3_moe_fp8", &options);
	moe_values_open(&values, "qwen3_moe_fp8");
	moe_module_read(&module, &values, "model.layers.1.mlp");
	largest = largest_of(module.out, (size_t)module.reference.tokens * 256);
	module.out[largest] *= 1.001f;
	ck_ok(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err));
	ck_assert(!got.agrees && got.ids_equal && got.max_error_over_bound > 1.0);
	module.out[largest] /= 1.001f;
	module.weights[5] *= 1.001f;
	ck_ok(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err));
	ck_assert(!got.agrees && got.ids_equal && got.max_weight_error > 9e-4);
	module.weights[5] /= 1.001f;
	module.ids[9] = (module.ids[9] + 1) % 8 == module.ids[8] ? (module.ids[9] + 2) % 8
								 : (module.ids[9] + 1) % 8;
	ck_ok(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err));
	ck_assert(!got.agrees && !got.ids_equal);
	moe_module_free(&module);
	moe_values_close(&values);
	moe_state_free(&state);
}
END_TEST

START_TEST(ids_in_another_order_agree)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	struct moe_state state;
	struct moe_values values;
	struct moe_module module;

	moe_state_load(&state, "mixtral", &options);
	moe_values_open(&values, "mixtral");
	moe_module_read(&module, &values, "model.layers.0.mlp");
	for (size_t t = 0; t < module.reference.tokens; t++) {
		int64_t id = module.ids[2 * t];
		float weight = module.weights[2 * t];

		module.ids[2 * t] = module.ids[2 * t + 1];
		module.weights[2 * t] = module.weights[2 * t + 1];
		module.ids[2 * t + 1] = id;
		module.weights[2 * t + 1] = weight;
	}
	check_agrees(&state, &module.reference);
	moe_module_free(&module);
	moe_values_close(&values);
	moe_state_free(&state);
}
END_TEST

static void compare_tied(const struct moe_state *state, struct moe_module *module, int64_t first,
	int64_t second, gpusnap_reference_result *ret_got)
{
	gpusnap_error err;

	for (size_t t = 0; t < module->reference.tokens; t++) {
		module->ids[2 * t] = first;
		module->ids[2 * t + 1] = second;
	}
	ck_ok(gpusnap_reference_compare(state->dispatch, &module->reference, ret_got, &err));
	ck_assert_uint_eq(ret_got->near_ties, module->reference.tokens);
	ck_assert(isfinite(ret_got->max_error_over_bound) && isfinite(ret_got->max_weight_error));
}

/* Without input all experts score alike: any two may be chosen, but that proves no output. */
START_TEST(ties_excuse_tied_experts_and_prove_nothing_alone)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_reference_result got;
	struct moe_state state;
	struct moe_values values;
	struct moe_module module;
	size_t count;

	moe_state_load(&state, "mixtral", &options);
	moe_values_open(&values, "mixtral");
	moe_module_read(&module, &values, "model.layers.0.mlp");
	module.reference.router_weights = NULL;
	count = (size_t)module.reference.tokens * 128;
	memset(module.in, 0, count * sizeof *module.in);
	compare_tied(&state, &module, 6, 3, &got);
	ck_assert(got.ids_equal && !got.agrees);
	compare_tied(&state, &module, -1, 3, &got);
	ck_assert(!got.ids_equal && !got.agrees);
	compare_tied(&state, &module, 8, 3, &got);
	ck_assert(!got.ids_equal && !got.agrees);
	compare_tied(&state, &module, 6, 6, &got);
	ck_assert(!got.ids_equal && !got.agrees);
	compare_tied(&state, &module, 0, 1, &got); /* ours: outputs count, and are not zero there */
	ck_assert(got.ids_equal && !got.agrees && got.max_error_over_bound > 1.0);
	memset(module.out, 0, count * sizeof *module.out);
	compare_tied(&state, &module, 1, 0, &got);
	ck_assert(got.ids_equal && got.agrees && got.max_error_over_bound == 0.0);
	moe_module_free(&module);
	moe_values_close(&values);
	moe_state_free(&state);
}
END_TEST

START_TEST(values_that_are_not_finite_are_refused_by_name)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_reference_result got;
	struct moe_state state;
	struct moe_values values;
	struct moe_module module;
	float kept;
	gpusnap_error err;

	moe_state_load(&state, "mixtral", &options);
	moe_values_open(&values, "mixtral");
	moe_module_read(&module, &values, "model.layers.1.mlp");
	kept = module.out[129];
	module.out[129] = NAN;
	ck_fails(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err),
		GPUSNAP_E_INVALID, "reference 'model.layers.1.mlp': out[1][1] is nan");
	module.out[129] = kept;
	module.weights[4] = INFINITY;
	ck_fails(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err),
		GPUSNAP_E_INVALID, "router weights[2][0] is inf");
	moe_module_free(&module);
	moe_values_close(&values);
	moe_state_free(&state);
}
END_TEST

START_TEST(one_wrong_scale_disagrees)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_reference_result got;
	struct moe_state state;
	struct moe_values values;
	struct moe_module module;
	uint64_t size;
	float *scales;
	gpusnap_error err;

	moe_state_load(&state, "qwen3_moe_fp8", &options);
	moe_values_open(&values, "qwen3_moe_fp8");
	moe_module_read(&module, &values, "model.layers.0.mlp");
	scales = moe_state_bytes(&state, 0, GPUSNAP_MOE_W2_SCALE, &size);
	for (uint64_t i = 0; i < size / sizeof *scales; i++)
		scales[i] *= 1.01f;
	ck_ok(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err));
	ck_assert(!got.agrees && got.ids_equal);
	moe_module_free(&module);
	moe_values_close(&values);
	moe_state_free(&state);
}
END_TEST

START_TEST(a_part_of_the_model_or_an_unknown_module_is_refused)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_reference_result got;
	struct moe_state state;
	struct moe_values values;
	struct moe_module module;
	gpusnap_error err;

	moe_values_open(&values, "qwen3_moe");
	moe_module_read(&module, &values, "model.layers.0.mlp");
	options.ep_size = 2;
	moe_state_load(&state, "qwen3_moe", &options);
	ck_fails(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err),
		GPUSNAP_E_INVALID, "8 of 16 experts at tp_size 1");
	moe_state_free(&state);
	options.ep_size = 1;
	options.tp_size = 2;
	moe_state_load(&state, "qwen3_moe", &options);
	ck_fails(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err),
		GPUSNAP_E_INVALID, "at tp_size 2");
	module.reference.module = "model.layers.7.mlp";
	ck_fails(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err),
		GPUSNAP_E_INVALID, "no MoE module 'model.layers.7.mlp'");
	module.reference.router_ids = NULL;
	ck_fails(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err),
		GPUSNAP_E_INVALID, "without router ids");
	moe_module_free(&module);
	moe_values_close(&values);
	moe_state_free(&state);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_layer_agrees_with_the_reference_for_every_kind_of_mask,
		a_wrong_output_weight_or_id_disagrees,
		ids_in_another_order_agree,
		ties_excuse_tied_experts_and_prove_nothing_alone,
		values_that_are_not_finite_are_refused_by_name,
		one_wrong_scale_disagrees,
		a_part_of_the_model_or_an_unknown_module_is_refused,
	};

	return RUN_SUITE("reference_values", tests);
}
