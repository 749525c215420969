/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/route_case.h"

#include <math.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "kernels/moe_math.h"
#include "tests/support/expert_case.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

static void *must_alloc(uint64_t count, size_t size)
{
	void *memory = gsn_alloc(count, size);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static gpusnap_dtype draw_dtype(uint64_t *random)
{
	const gpusnap_dtype dtypes[] = {GPUSNAP_BF16, GPUSNAP_F16, GPUSNAP_F32};

	return dtypes[random_below(random, 3)];
}

static bool is_single(const struct route_case *test)
{
	return test->score == GPUSNAP_SCORE_SIGMOID || test->score == GPUSNAP_SCORE_SQRT_SOFTPLUS;
}

/* Groups of at least two, of which enough are kept for top_k. */
static void draw_groups(struct route_case *test, uint64_t *random)
{
	uint32_t size = 1 + (uint32_t)random_below(random, 6);

	test->groups = 2 + (uint32_t)random_below(random, 6);
	test->experts = test->groups * size;
	test->top_groups = 1 + (uint32_t)random_below(random, test->groups);
	test->top_k = 1 + (uint32_t)random_below(random, (uint64_t)test->top_groups * size);
}

static void draw_single(struct route_case *test, uint64_t *random)
{
	switch (random_below(random, 4)) {
	case 0:
		draw_groups(test, random);
		break;
	case 1:
		test->vocabulary = 1 + (uint32_t)random_below(random, 50);
		test->hash_dtype = random_below(random, 2) ? GPUSNAP_I32 : GPUSNAP_I64;
		return;
	default:
		break;
	}
	test->selection_biased = random_below(random, 2);
	test->selection_bias_dtype = draw_dtype(random);
}

void route_case_draw(struct route_case *test, uint32_t most_experts, uint64_t *random)
{
	test->score = (gpusnap_score)(1 + random_below(random, 4));
	test->router_dtype = draw_dtype(random);
	test->router_biased = random_below(random, 2);
	test->router_bias_dtype = draw_dtype(random);
	test->renormalise = random_below(random, 2);
	test->scale = random_below(random, 2) ? 2.5f : 0.0f;
	test->experts = 1 + (uint32_t)random_below(random, most_experts);
	test->top_k = 1 + (uint32_t)random_below(random, test->experts < 9 ? test->experts : 9);
	if (is_single(test))
		draw_single(test, random);
}

uint64_t route_case_logit_count(const struct route_case *test)
{
	return (uint64_t)test->tokens * test->experts;
}

uint64_t route_case_pair_count(const struct route_case *test)
{
	return (uint64_t)test->tokens * test->top_k;
}

uint64_t route_case_hash_bytes(const struct route_case *test)
{
	return test->vocabulary ? (uint64_t)test->vocabulary * test->top_k *
					  gpusnap_dtype_bits(test->hash_dtype) / 8
				: 0;
}

static void make_hash(struct route_case *test, uint64_t *random)
{
	uint64_t count = (uint64_t)test->vocabulary * test->top_k;

	test->hash = must_alloc(route_case_hash_bytes(test), 1);
	test->token_ids = must_alloc(test->tokens, sizeof *test->token_ids);
	for (uint64_t i = 0; i < count; i++) {
		int64_t id = (int64_t)random_below(random, test->experts);

		if (test->hash_dtype == GPUSNAP_I64)
			((int64_t *)(void *)test->hash)[i] = id;
		else
			((int32_t *)(void *)test->hash)[i] = (int32_t)id;
	}
	for (uint32_t i = 0; i < test->tokens; i++)
		test->token_ids[i] = (int32_t)random_below(random, test->vocabulary);
}

void route_case_make(struct route_case *test, uint64_t *random)
{
	uint64_t x_count = (uint64_t)test->tokens * test->hidden;

	test->x = must_alloc(x_count, sizeof *test->x);
	for (uint64_t i = 0; i < x_count; i++)
		test->x[i] = random_unit(random);
	test->router = expert_case_elements(
		(uint64_t)test->experts * test->hidden, test->router_dtype, random);
	if (test->selection_biased)
		test->selection_bias =
			expert_case_elements(test->experts, test->selection_bias_dtype, random);
	if (test->router_biased)
		test->router_bias =
			expert_case_elements(test->experts, test->router_bias_dtype, random);
	if (test->vocabulary)
		make_hash(test, random);
	test->logits = must_alloc(route_case_logit_count(test), sizeof *test->logits);
	test->keys = must_alloc(route_case_logit_count(test), sizeof *test->keys);
	test->weights = must_alloc(route_case_pair_count(test), sizeof *test->weights);
	test->ids = must_alloc(route_case_pair_count(test), sizeof *test->ids);
}

void route_case_free(struct route_case *test)
{
	gsn_free(test->x);
	gsn_free(test->router);
	gsn_free(test->selection_bias);
	gsn_free(test->router_bias);
	gsn_free(test->hash);
	gsn_free(test->token_ids);
	gsn_free(test->logits);
	gsn_free(test->keys);
	gsn_free(test->weights);
	gsn_free(test->ids);
}

static gpusnap_address address(const void *memory)
{
	return (gpusnap_address)(uintptr_t)memory;
}

struct gsn_moe_route route_case_args(struct route_case *test)
{
	return (struct gsn_moe_route){
		.tokens = test->tokens,
		.hidden = test->hidden,
		.experts = test->experts,
		.top_k = test->top_k,
		.score = test->score,
		.renormalise = test->renormalise,
		.router_dtype = test->router_dtype,
		.x = address(test->x),
		.router = address(test->router),
		.logits = address(test->logits),
		.ids = address(test->ids),
		.weights = address(test->weights),
		.counters = address(&test->counters),
		.selection_bias = address(test->selection_bias),
		.selection_bias_dtype = test->selection_bias_dtype,
		.groups = test->groups,
		.top_groups = test->top_groups,
		.scale = test->scale,
		.keys = address(test->keys),
		.router_bias = address(test->router_bias),
		.router_bias_dtype = test->router_bias_dtype,
		.hash_dtype = test->hash_dtype,
		.hash = address(test->hash),
		.token_ids = address(test->token_ids),
		.vocabulary = test->vocabulary,
	};
}

void route_case_run(struct route_case *test, const struct gsn_cpu_path *path, struct gsn_pool *pool)
{
	const struct gsn_host_moe host = {.pool = pool, .path = path};
	struct gsn_moe_route args = route_case_args(test);
	gpusnap_error err;

	memset(test->logits, 0xff, route_case_logit_count(test) * sizeof *test->logits);
	memset(test->weights, 0xff, route_case_pair_count(test) * sizeof *test->weights);
	memset(test->ids, 0xff, route_case_pair_count(test) * sizeof *test->ids);
	memset(&test->counters, 0, sizeof test->counters);
	ck_ok(gsn_host_moe_route(&host, &args, &err));
}

/* ---- checks in float64 ---- */

static double exact_score(const struct route_case *test, float logit)
{
	double x = (double)logit;

	if (test->score == GPUSNAP_SCORE_SIGMOID)
		return 1.0 / (1.0 + exp(-x));
	if (test->score == GPUSNAP_SCORE_SQRT_SOFTPLUS)
		return sqrt(log1p(exp(x)));
	return exp(x);
}

static void check_logits(const struct route_case *test, uint32_t token)
{
	const float *x = test->x + (size_t)token * test->hidden;

	for (uint32_t e = 0; e < test->experts; e++) {
		double sum = 0.0, size = 0.0, got;

		for (uint32_t i = 0; i < test->hidden; i++) {
			double product =
				(double)x[i] * expert_case_element(test->router_dtype, test->router,
						       (uint64_t)e * test->hidden + i);

			sum += product;
			size += fabs(product);
		}
		if (test->router_biased)
			sum += expert_case_element(test->router_bias_dtype, test->router_bias, e);
		got = (double)test->logits[(size_t)token * test->experts + e];
		ck_assert_double_le(fabs(got - sum),
			4.0 * sqrt(test->hidden) * 0x1p-24 * size + 0x1p-24 * fabs(sum));
	}
}

/* A hash table's row as it is; else different experts, none beaten by one left out by much. */
static void check_ids(const struct route_case *test, uint32_t token)
{
	const int32_t *ids = test->ids + (size_t)token * test->top_k;

	for (uint32_t slot = 0; slot < test->top_k; slot++) {
		uint64_t at = 0;

		if (test->vocabulary)
			at = (uint64_t)test->token_ids[token] * test->top_k + slot;
		if (!test->vocabulary)
			for (uint32_t other = 0; other < slot; other++)
				ck_assert_int_ne(ids[slot], ids[other]);
		else if (test->hash_dtype == GPUSNAP_I64)
			ck_assert_int_eq(ids[slot], ((int64_t *)(void *)test->hash)[at]);
		else
			ck_assert_int_eq(ids[slot], ((int32_t *)(void *)test->hash)[at]);
	}
}

static double exact_key(const struct route_case *test, const float *logits, uint32_t expert)
{
	double key = is_single(test) ? exact_score(test, logits[expert]) : (double)logits[expert];

	if (test->selection_biased)
		key += expert_case_element(
			test->selection_bias_dtype, test->selection_bias, expert);
	return key;
}

static double exact_group(const struct route_case *test, const float *logits, uint32_t group)
{
	uint32_t size = test->experts / test->groups;
	double first = -INFINITY, second = -INFINITY;

	for (uint32_t i = 0; i < size; i++) {
		double key = exact_key(test, logits, group * size + i);

		second = fmax(second, fmin(first, key));
		first = fmax(first, key);
	}
	return size > 1 ? first + second : first;
}

static bool is_chosen(const struct route_case *test, const int32_t *ids, uint32_t expert)
{
	for (uint32_t slot = 0; slot < test->top_k; slot++)
		if (ids[slot] == (int32_t)expert)
			return true;
	return false;
}

/* Groups that beat the expert's by more than rounding could. */
static uint32_t groups_before(const struct route_case *test, const float *logits, uint32_t expert)
{
	double own = exact_group(test, logits, expert / (test->experts / test->groups));
	uint32_t better = 0;

	for (uint32_t g = 0; g < test->groups; g++)
		better += exact_group(test, logits, g) > own + 1e-5;
	return better;
}

static void check_choice(const struct route_case *test, uint32_t token)
{
	const float *logits = test->logits + (size_t)token * test->experts;
	const int32_t *ids = test->ids + (size_t)token * test->top_k;
	uint32_t size = test->groups ? test->experts / test->groups : test->experts;

	for (uint32_t slot = 0; slot < test->top_k; slot++) {
		double key = exact_key(test, logits, (uint32_t)ids[slot]);

		ck_assert(slot == 0 ||
			  key <= exact_key(test, logits, (uint32_t)ids[slot - 1]) + 1e-5);
		if (test->groups)
			ck_assert_uint_lt(
				groups_before(test, logits, (uint32_t)ids[slot]), test->top_groups);
		for (uint32_t e = 0; e < test->experts; e++)
			if (!test->groups || e / size == (uint32_t)ids[slot] / size)
				ck_assert(is_chosen(test, ids, e) ||
					  exact_key(test, logits, e) <= key + 1e-5);
	}
}

static double exact_sum(const struct route_case *test, const float *logits, const int32_t *ids)
{
	double sum = 0.0;

	if (test->score == GPUSNAP_SCORE_SOFTMAX && !test->renormalise) {
		for (uint32_t e = 0; e < test->experts; e++)
			sum += exact_score(test, logits[e]);
		return sum;
	}
	if (is_single(test) && !test->renormalise)
		return 1.0;
	for (uint32_t slot = 0; slot < test->top_k; slot++)
		sum += exact_score(test, logits[ids[slot]]);
	return sum;
}

/* Within a few units, and what rounding the difference of two logits costs. */
static void check_weights(const struct route_case *test, uint32_t token)
{
	const float *logits = test->logits + (size_t)token * test->experts;
	const int32_t *ids = test->ids + (size_t)token * test->top_k;
	double scale = test->scale > 0.0f ? (double)test->scale : 1.0;

	for (uint32_t slot = 0; slot < test->top_k; slot++) {
		double exact =
			scale * exact_score(test, logits[ids[slot]]) / exact_sum(test, logits, ids);
		double got = (double)test->weights[(size_t)token * test->top_k + slot];
		double largest = fabs((double)logits[ids[0]]) + fabs((double)logits[ids[slot]]);

		ck_assert_msg(fabs(got - exact) <= exact * 0x1p-24 * (30.0 + 2.0 * largest) + 1e-37,
			"score %d, slot %u: %.9g, not %.9g", (int)test->score, slot, got, exact);
	}
}

void route_case_check(const struct route_case *test)
{
	for (uint32_t token = 0; token < test->tokens; token++) {
		check_logits(test, token);
		check_ids(test, token);
		if (!test->vocabulary)
			check_choice(test, token);
		check_weights(test, token);
	}
}
