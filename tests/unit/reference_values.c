/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <gpusnap/safetensors.h>

#include "formats/base/alloc.h"
#include "tests/support/file.h"
#include "tests/support/moe_state.h"
#include "tests/support/suite.h"

/* Values that the transformers library computed (tests/data/checkpoints/README.md). */
struct values {
	uint8_t *bytes;
	size_t length;
	gpusnap_header *header;
};

static void open_values(struct values *values, const char *checkpoint)
{
	char path[512];
	uint64_t json_bytes;
	gpusnap_error err;

	(void)snprintf(path, sizeof path, "%s/checkpoints/%s/reference.safetensors",
		GPUSNAP_TEST_DATA, checkpoint);
	values->bytes = read_file(path, &values->length);
	ck_ok(gpusnap_header_measure(
		values->bytes, values->length, values->length, &json_bytes, &err));
	ck_ok(gpusnap_header_parse((const char *)values->bytes + 8, json_bytes, values->length,
		&values->header, &err));
}

static void close_values(struct values *values)
{
	gpusnap_header_free(values->header);
	free(values->bytes);
}

/* A copy, because the file does not align its tensors. */
static void *copy_tensor(
	const struct values *values, const char *module, const char *what, uint64_t *ret_rows)
{
	char name[128];
	const gpusnap_tensor *tensor;
	void *copy;

	(void)snprintf(name, sizeof name, "%s.%s", module, what);
	tensor = gpusnap_header_find(values->header, name);
	ck_assert_msg(tensor != NULL, "no %s", name);
	copy = gsn_alloc(1, tensor->end - tensor->begin);
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, values->bytes + gpusnap_header_data_offset(values->header) + tensor->begin,
		tensor->end - tensor->begin);
	*ret_rows = tensor->shape[0];
	return copy;
}

struct module_values {
	gpusnap_reference reference;
	float *in, *out, *weights;
	int64_t *ids;
};

static void read_module(struct module_values *to, const struct values *values, const char *module)
{
	uint64_t tokens, rows;

	to->in = copy_tensor(values, module, "in", &tokens);
	to->out = copy_tensor(values, module, "out", &rows);
	ck_assert_uint_eq(rows, tokens);
	to->weights = copy_tensor(values, module, "router1", &rows);
	to->ids = copy_tensor(values, module, "router2", &rows);
	to->reference = (gpusnap_reference){
		.module = module,
		.tokens = (uint32_t)tokens,
		.in = to->in,
		.out = to->out,
		.router_weights = to->weights,
		.router_ids = to->ids,
	};
}

static void free_module(struct module_values *from)
{
	gsn_free(from->in);
	gsn_free(from->out);
	gsn_free(from->weights);
	gsn_free(from->ids);
}

static const char *const checkpoints[] = {
	"qwen3_moe", "qwen3_moe_fp8", "mixtral", "qwen2_moe", "glm4_moe"};

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
			struct values values;

			options.mask = (gpusnap_mask_kind)kind;
			moe_state_load(&state, checkpoints[i], &options);
			open_values(&values, checkpoints[i]);
			for (uint32_t layer = 0; layer < state.model->layer_count; layer++) {
				struct module_values module;

				read_module(&module, &values, state.model->layers[layer].module);
				check_agrees(&state, &module.reference);
				module.reference.router_weights = NULL;
				module.reference.router_ids = NULL;
				check_agrees(&state, &module.reference);
				free_module(&module);
			}
			close_values(&values);
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
	struct values values;
	struct module_values module;
	size_t largest;
	gpusnap_error err;

	moe_state_load(&state, "qwen3_moe_fp8", &options);
	open_values(&values, "qwen3_moe_fp8");
	read_module(&module, &values, "model.layers.1.mlp");
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
	free_module(&module);
	close_values(&values);
	moe_state_free(&state);
}
END_TEST

START_TEST(ids_in_another_order_agree)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	struct moe_state state;
	struct values values;
	struct module_values module;

	moe_state_load(&state, "mixtral", &options);
	open_values(&values, "mixtral");
	read_module(&module, &values, "model.layers.0.mlp");
	for (size_t t = 0; t < module.reference.tokens; t++) {
		int64_t id = module.ids[2 * t];
		float weight = module.weights[2 * t];

		module.ids[2 * t] = module.ids[2 * t + 1];
		module.weights[2 * t] = module.weights[2 * t + 1];
		module.ids[2 * t + 1] = id;
		module.weights[2 * t + 1] = weight;
	}
	check_agrees(&state, &module.reference);
	free_module(&module);
	close_values(&values);
	moe_state_free(&state);
}
END_TEST

static void compare_tied(const struct moe_state *state, struct module_values *module, int64_t first,
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
	struct values values;
	struct module_values module;
	size_t count;

	moe_state_load(&state, "mixtral", &options);
	open_values(&values, "mixtral");
	read_module(&module, &values, "model.layers.0.mlp");
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
	free_module(&module);
	close_values(&values);
	moe_state_free(&state);
}
END_TEST

START_TEST(values_that_are_not_finite_are_refused_by_name)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_reference_result got;
	struct moe_state state;
	struct values values;
	struct module_values module;
	float kept;
	gpusnap_error err;

	moe_state_load(&state, "mixtral", &options);
	open_values(&values, "mixtral");
	read_module(&module, &values, "model.layers.1.mlp");
	kept = module.out[129];
	module.out[129] = NAN;
	ck_fails(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err),
		GPUSNAP_E_INVALID, "reference 'model.layers.1.mlp': out[1][1] is nan");
	module.out[129] = kept;
	module.weights[4] = INFINITY;
	ck_fails(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err),
		GPUSNAP_E_INVALID, "router weights[2][0] is inf");
	free_module(&module);
	close_values(&values);
	moe_state_free(&state);
}
END_TEST

START_TEST(one_wrong_scale_disagrees)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_reference_result got;
	struct moe_state state;
	struct values values;
	struct module_values module;
	uint64_t size;
	float *scales;
	gpusnap_error err;

	moe_state_load(&state, "qwen3_moe_fp8", &options);
	open_values(&values, "qwen3_moe_fp8");
	read_module(&module, &values, "model.layers.0.mlp");
	scales = moe_state_bytes(&state, 0, GPUSNAP_MOE_W2_SCALE, &size);
	for (uint64_t i = 0; i < size / sizeof *scales; i++)
		scales[i] *= 1.01f;
	ck_ok(gpusnap_reference_compare(state.dispatch, &module.reference, &got, &err));
	ck_assert(!got.agrees && got.ids_equal);
	free_module(&module);
	close_values(&values);
	moe_state_free(&state);
}
END_TEST

START_TEST(a_part_of_the_model_or_an_unknown_module_is_refused)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_reference_result got;
	struct moe_state state;
	struct values values;
	struct module_values module;
	gpusnap_error err;

	open_values(&values, "qwen3_moe");
	read_module(&module, &values, "model.layers.0.mlp");
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
	free_module(&module);
	close_values(&values);
	moe_state_free(&state);
}
END_TEST

/* ---- ranks of a loaded model ---- */

struct step {
	float *out, *slots, *shared;
	int32_t *ids;
	size_t values, pairs;
};

static void decode(const struct moe_state *state, uint32_t layer,
	const struct module_values *module, struct step *to)
{
	const gpusnap_moe_layer *spec = &state->model->layers[layer];
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	gpusnap_error err;

	io.tokens = module->reference.tokens;
	io.x = module->in;
	to->pairs = (size_t)io.tokens * spec->top_k;
	to->values = (size_t)io.tokens * spec->hidden;
	to->out = io.out = gsn_alloc(to->values, sizeof *io.out);
	to->slots = io.slots = gsn_alloc(to->pairs * spec->hidden, sizeof *io.slots);
	to->shared = io.shared = gsn_alloc(to->values, sizeof *io.shared);
	to->ids = io.ids = gsn_alloc(to->pairs, sizeof *io.ids);
	ck_ok(gpusnap_decode_layer(state->dispatch, layer, &io, &err));
}

static void free_step(struct step *from)
{
	gsn_free(from->out);
	gsn_free(from->slots);
	gsn_free(from->shared);
	gsn_free(from->ids);
}

/* What all ranks computed, added slot by slot and then the shared expert's, has the same bits. */
static void check_sum(
	const float *slots, const float *shared, uint32_t tokens, const struct step *whole)
{
	size_t hidden = whole->values / tokens, top_k = whole->pairs / tokens;
	size_t wrong = 0;

	for (size_t i = 0; i < whole->values; i++) {
		const float *first = slots + i / hidden * top_k * hidden + i % hidden;
		float out = first[0];

		for (size_t slot = 1; slot < top_k; slot++)
			out += first[slot * hidden];
		out += shared[i]; /* where there is none: a zero, which changes no bit but of -0 */
		out += 0.0f;
		wrong += memcmp(&out, &whole->out[i], sizeof out) != 0;
	}
	ck_assert_uint_eq(wrong, 0);
}

static void check_expert_ranks(const char *checkpoint, uint32_t ep_size, gpusnap_mask_kind kind,
	const struct module_values *module, const struct step *whole)
{
	size_t slot_values = whole->pairs * (whole->values / module->reference.tokens);
	float *sum = gsn_alloc(slot_values, sizeof *sum);
	float *shared = gsn_alloc(whole->values, sizeof *shared);

	for (uint32_t rank = 0; rank < ep_size; rank++) {
		gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
		struct moe_state state;
		struct step part;

		options.ep_rank = rank;
		options.ep_size = ep_size;
		options.mask = kind;
		moe_state_load(&state, checkpoint, &options);
		decode(&state, 0, module, &part);
		ck_assert_mem_eq(part.ids, whole->ids, whole->pairs * sizeof *part.ids);
		for (size_t i = 0; i < slot_values; i++)
			sum[i] += part.slots[i];
		for (size_t i = 0; i < whole->values; i++)
			shared[i] += part.shared[i];
		free_step(&part);
		moe_state_free(&state);
	}
	ck_assert_mem_eq(sum, whole->slots, slot_values * sizeof *sum);
	check_sum(sum, shared, module->reference.tokens, whole);
	gsn_free(shared);
	gsn_free(sum);
}

/* A split of every dot product of w2: equal up to rounding, not bit for bit. */
static void check_tensor_ranks(
	const char *checkpoint, const struct module_values *module, const struct step *whole)
{
	float *sum = gsn_alloc(whole->values, sizeof *sum);
	float largest = 0.0f;

	for (uint32_t rank = 0; rank < 2; rank++) {
		gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
		struct moe_state state;
		struct step part;

		options.tp_rank = rank;
		options.tp_size = 2;
		moe_state_load(&state, checkpoint, &options);
		decode(&state, 0, module, &part);
		ck_assert_mem_eq(part.ids, whole->ids, whole->pairs * sizeof *part.ids);
		for (size_t i = 0; i < whole->values; i++)
			sum[i] += part.out[i];
		free_step(&part);
		moe_state_free(&state);
	}
	for (size_t i = 0; i < whole->values; i++)
		largest = fmaxf(largest, fabsf(whole->out[i]));
	for (size_t i = 0; i < whole->values; i++)
		ck_assert(fabsf(sum[i] - whole->out[i]) <= largest * 0x1p-20f);
	gsn_free(sum);
}

START_TEST(ranks_of_every_checkpoint_add_up_to_the_whole)
{
	const gpusnap_mask_kind kinds[] = {
		GPUSNAP_MASK_STANDARD, GPUSNAP_MASK_DEEPEP, GPUSNAP_MASK_VLLM_AITER};

	for (int i = 0; i < CHECKPOINTS; i++) {
		gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
		struct module_values module;
		struct moe_state state;
		struct values values;
		struct step whole;

		moe_state_load(&state, checkpoints[i], &options);
		open_values(&values, checkpoints[i]);
		read_module(&module, &values, state.model->layers[0].module);
		decode(&state, 0, &module, &whole);
		for (int kind = 0; kind < 3; kind++)
			for (uint32_t ep_size = 1; ep_size <= 4; ep_size *= 2)
				check_expert_ranks(
					checkpoints[i], ep_size, kinds[kind], &module, &whole);
		check_tensor_ranks(checkpoints[i], &module, &whole);
		free_step(&whole);
		free_module(&module);
		close_values(&values);
		moe_state_free(&state);
	}
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
		ranks_of_every_checkpoint_add_up_to_the_whole,
	};

	return RUN_SUITE("reference_values", tests);
}
