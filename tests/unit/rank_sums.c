/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models in parts: expert-parallel ranks summed slot by slot give the bits of one rank, and
 * tensor-parallel ranks a sum within the float64 bound of what another engine computed.
 */
#include <math.h>
#include <string.h>

#include "dispatch/dispatch_state.h"
#include "dispatch/exact.h"
#include "formats/base/alloc.h"
#include "tests/support/moe_state.h"
#include "tests/support/moe_values.h"
#include "tests/support/suite.h"

static const char *const checkpoints[] = {"qwen3_moe", "qwen3_moe_fp8", "mixtral", "qwen2_moe",
	"glm4_moe", "deepseek_v3", "deepseek_v3_fp8", "deepseek_v4", "deepseek_v4_fp4", "gpt_oss",
	"gpt_oss_mxfp4"};

enum { CHECKPOINTS = sizeof checkpoints / sizeof checkpoints[0], RANKS_MAX = 4 };

/* One rank's decode of a module. */
struct part {
	float *out, *slots, *shared, *weights;
	int32_t *ids;
};

static void decode_part(struct part *part, const struct moe_state *state, uint32_t layer,
	const struct moe_module *module)
{
	const gpusnap_moe_layer *spec = &state->model->layers[layer];
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	size_t pairs = (size_t)module->reference.tokens * spec->top_k;
	size_t values = (size_t)module->reference.tokens * spec->hidden;
	gpusnap_error err;

	part->out = gsn_alloc(values, sizeof *part->out);
	part->shared = gsn_alloc(values, sizeof *part->shared);
	part->slots = gsn_alloc(values * spec->top_k, sizeof *part->slots);
	part->weights = gsn_alloc(pairs, sizeof *part->weights);
	part->ids = gsn_alloc(pairs, sizeof *part->ids);
	io.tokens = module->reference.tokens;
	io.x = module->in;
	io.token_ids = module->token_ids;
	io.out = part->out;
	io.shared = part->shared;
	io.slots = part->slots;
	io.weights = part->weights;
	io.ids = part->ids;
	ck_ok(gpusnap_decode_layer(state->dispatch, layer, &io, &err));
}

static void free_part(struct part *part)
{
	gsn_free(part->out);
	gsn_free(part->shared);
	gsn_free(part->slots);
	gsn_free(part->weights);
	gsn_free(part->ids);
}

/* A model whole, and in parts of one kind. */
struct split {
	struct moe_state whole;
	struct moe_state ranks[RANKS_MAX];
	uint32_t count;
	struct moe_values values;
};

static void open_split(struct split *split, const char *name, uint32_t tp_size, uint32_t ep_size,
	gpusnap_mask_kind mask)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;

	moe_state_load(&split->whole, name, &options);
	options.tp_size = tp_size;
	options.ep_size = ep_size;
	options.mask = mask;
	split->count = tp_size * ep_size;
	for (uint32_t r = 0; r < split->count; r++) {
		options.tp_rank = r % tp_size;
		options.ep_rank = r / tp_size;
		moe_state_load(&split->ranks[r], name, &options);
	}
	moe_values_open(&split->values, name);
}

static void close_split(struct split *split)
{
	moe_values_close(&split->values);
	for (uint32_t r = 0; r < split->count; r++)
		moe_state_free(&split->ranks[r]);
	moe_state_free(&split->whole);
}

/* out[i] of all ranks: slot by slot, each rank's in turn, then the shared expert's. */
static float sum_slots(const struct part *parts, uint32_t count, const gpusnap_moe_layer *spec,
	size_t token, size_t column)
{
	float sum = 0.0f, shared = 0.0f;

	for (uint32_t s = 0; s < spec->top_k; s++) {
		float slot = 0.0f;

		for (uint32_t r = 0; r < count; r++)
			slot += parts[r].slots[(token * spec->top_k + s) * spec->hidden + column];
		sum += slot;
	}
	for (uint32_t r = 0; r < count; r++)
		shared += parts[r].shared[token * spec->hidden + column];
	return sum + shared;
}

static void check_expert_parallel(struct split *split, uint32_t layer)
{
	const gpusnap_moe_layer *spec = &split->whole.model->layers[layer];
	struct moe_module module;
	struct part whole, parts[RANKS_MAX];
	uint32_t tokens;

	moe_module_read(&module, &split->values, spec->module);
	tokens = module.reference.tokens;
	decode_part(&whole, &split->whole, layer, &module);
	for (uint32_t r = 0; r < split->count; r++) {
		decode_part(&parts[r], &split->ranks[r], layer, &module);
		ck_assert_mem_eq(
			parts[r].ids, whole.ids, (size_t)tokens * spec->top_k * sizeof *whole.ids);
	}
	for (size_t t = 0; t < tokens; t++)
		for (size_t j = 0; j < spec->hidden; j++) {
			float sum = sum_slots(parts, split->count, spec, t, j);

			ck_assert_mem_eq(&sum, &whole.out[t * spec->hidden + j], sizeof sum);
		}
	for (uint32_t r = 0; r < split->count; r++)
		free_part(&parts[r]);
	free_part(&whole);
	moe_module_free(&module);
}

static void check_checkpoint(const char *name, uint32_t ep_size, gpusnap_mask_kind mask)
{
	struct split split;

	open_split(&split, name, 1, ep_size, mask);
	for (uint32_t l = 0; l < split.whole.model->layer_count; l++)
		check_expert_parallel(&split, l);
	close_split(&split);
}

START_TEST(expert_parallel_ranks_sum_to_the_bits_of_one)
{
	static const gpusnap_mask_kind kinds[] = {
		GPUSNAP_MASK_STANDARD, GPUSNAP_MASK_DEEPEP, GPUSNAP_MASK_VLLM_AITER};

	for (int i = 0; i < CHECKPOINTS; i++)
		for (int kind = 0; kind < 3; kind++)
			for (uint32_t size = 1; size <= RANKS_MAX; size *= 2)
				check_checkpoint(checkpoints[i], size, kinds[kind]);
}
END_TEST

/* Add |weight| times the bound of the loaded expert's output. */
static void add_bound(
	struct gsn_exact *exact, const float *x, double weight, double *y, double *bound)
{
	double *more = y + exact->hidden;

	gsn_exact_apply(exact, x, y, more);
	for (uint32_t j = 0; j < exact->hidden; j++)
		bound[j] += fabs(weight) * more[j];
}

/* Bounds of the experts' outputs alone: what routing adds is left out, to be on the strict side. */
static double *exact_bounds(const struct moe_state *state, uint32_t layer,
	const struct moe_module *module, const struct part *whole)
{
	const gpusnap_moe_layer *spec = &state->model->layers[layer];
	size_t tokens = module->reference.tokens;
	double *bounds = gsn_alloc(tokens * spec->hidden, sizeof *bounds);
	double *scratch = gsn_alloc(2 * (size_t)spec->hidden, sizeof *scratch);
	struct gsn_exact exact;
	gpusnap_error err;

	ck_ok(gsn_exact_init(&exact, state->dispatch, &state->dispatch->layers[layer], &err));
	for (uint32_t e = 0; e < spec->experts; e++) {
		ck_ok(gsn_exact_load(&exact, e, &err));
		for (size_t pair = 0; pair < tokens * spec->top_k; pair++)
			if (whole->ids[pair] == (int32_t)e)
				add_bound(&exact, module->in + pair / spec->top_k * spec->hidden,
					(double)whole->weights[pair], scratch,
					bounds + pair / spec->top_k * spec->hidden);
	}
	gsn_exact_release(&exact);
	gsn_free(scratch);
	return bounds;
}

static void check_tensor_parallel(struct split *split, uint32_t layer)
{
	const gpusnap_moe_layer *spec = &split->whole.model->layers[layer];
	struct moe_module module;
	struct part whole, parts[RANKS_MAX];
	double *bounds;

	moe_module_read(&module, &split->values, spec->module);
	decode_part(&whole, &split->whole, layer, &module);
	for (uint32_t r = 0; r < split->count; r++)
		decode_part(&parts[r], &split->ranks[r], layer, &module);
	bounds = exact_bounds(&split->whole, layer, &module, &whole);
	for (size_t i = 0; i < (size_t)module.reference.tokens * spec->hidden; i++) {
		double sum = 0.0;

		for (uint32_t r = 0; r < split->count; r++)
			sum += (double)parts[r].out[i];
		ck_assert_msg(fabs(sum - (double)module.out[i]) <= 2.0 * bounds[i],
			"%s[%zu]: %.9g, reference %.9g, bound %.3g", spec->module, i, sum,
			(double)module.out[i], bounds[i]);
	}
	for (uint32_t r = 0; r < split->count; r++)
		free_part(&parts[r]);
	free_part(&whole);
	gsn_free(bounds);
	moe_module_free(&module);
}

START_TEST(tensor_parallel_ranks_sum_to_the_reference)
{
	for (int i = 0; i < CHECKPOINTS; i++) {
		struct split split;

		open_split(&split, checkpoints[i], 2, 1, GPUSNAP_MASK_STANDARD);
		for (uint32_t l = 0; l < split.whole.model->layer_count; l++)
			check_tensor_parallel(&split, l);
		close_split(&split);
	}
}
END_TEST

START_TEST(ranks_of_both_kinds_sum_to_the_reference)
{
	struct split split;

	open_split(&split, "deepseek_v4_fp4", 2, 2, GPUSNAP_MASK_DEEPEP);
	for (uint32_t l = 0; l < split.whole.model->layer_count; l++)
		check_tensor_parallel(&split, l);
	close_split(&split);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		expert_parallel_ranks_sum_to_the_bits_of_one,
		tensor_parallel_ranks_sum_to_the_reference,
		ranks_of_both_kinds_sum_to_the_reference,
	};

	return RUN_SUITE("rank_sums", tests);
}
