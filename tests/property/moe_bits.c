/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random routings and experts over all scores, activations, types, scales, biases and masks: right
 * within the error of float32, and the same bits on every CPU path, with every number of threads,
 * for a token alone, and for ranks summed slot by slot.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "kernels/moe_math.h"
#include "tests/support/expert_case.h"
#include "tests/support/random.h"
#include "tests/support/route_case.h"
#include "tests/support/suite.h"

enum { CASES = 1200, LONG_CASES = 40000, MAX_THREADS = 4 };

static struct gsn_pool *pools[MAX_THREADS + 1]; /* by threads */

static int case_count(void)
{
	return getenv("GPUSNAP_LONG") ? LONG_CASES : CASES;
}

static void open_pools(void)
{
	gpusnap_error err;

	for (uint32_t threads = 1; threads <= MAX_THREADS; threads++)
		ck_ok(gsn_pool_create(threads, &pools[threads], &err));
}

static void close_pools(void)
{
	for (uint32_t threads = 1; threads <= MAX_THREADS; threads++)
		gsn_pool_destroy(pools[threads]);
}

static uint32_t between(uint64_t *random, uint32_t low, uint32_t high)
{
	return low + (uint32_t)random_below(random, high - low + 1);
}

static void check_bits(const void *got, const void *expected, uint64_t count, const char *what)
{
	const uint32_t *a = got, *b = expected;

	for (uint64_t i = 0; i < count; i++)
		ck_assert_msg(a[i] == b[i], "%s: word %lu is %#x, not %#x", what, (unsigned long)i,
			a[i], b[i]);
}

static void *copy_of(const void *memory, uint64_t count)
{
	void *copy = gsn_alloc(count, 4);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, memory, count * 4);
	return copy;
}

/* ---- routing ---- */

/* All paths, with other numbers of threads, give what there is. */
static void check_route_paths(struct route_case *test, uint32_t threads)
{
	uint64_t logit_count = route_case_logit_count(test);
	uint64_t pairs = route_case_pair_count(test);
	float *logits = copy_of(test->logits, logit_count);
	float *weights = copy_of(test->weights, pairs);
	int32_t *ids = copy_of(test->ids, pairs);
	struct gsn_moe_counters counters = test->counters;
	const struct gsn_cpu_path *path;

	for (size_t i = 0; (path = gsn_cpu_path_at(i)); i++) {
		threads = threads % MAX_THREADS + 1;
		route_case_run(test, path, pools[threads]);
		check_bits(test->logits, logits, logit_count, "logits");
		check_bits(test->weights, weights, pairs, "weights");
		check_bits(test->ids, ids, pairs, "ids");
		ck_assert_mem_eq(&test->counters, &counters, sizeof counters);
	}
	gsn_free(logits);
	gsn_free(weights);
	gsn_free(ids);
}

/* A token routed without its companions. */
static void check_route_alone(struct route_case *test, uint32_t token)
{
	const struct gsn_host_moe host = {pools[2], gsn_cpu_path_best()};
	struct gsn_moe_route args = route_case_args(test);
	uint64_t pair = (uint64_t)token * test->top_k;
	float *weights = copy_of(test->weights + pair, test->top_k);
	int32_t *ids = copy_of(test->ids + pair, test->top_k);
	gpusnap_error err;

	args.tokens = 1;
	args.x += (uint64_t)token * test->hidden * sizeof(float);
	args.ids += pair * sizeof(int32_t);
	args.weights += pair * sizeof(float);
	args.token_ids += test->vocabulary ? token * sizeof(int32_t) : 0;
	ck_ok(gsn_host_moe_route(&host, &args, &err));
	check_bits(test->weights + pair, weights, test->top_k, "weights alone");
	check_bits(test->ids + pair, ids, test->top_k, "ids alone");
	gsn_free(weights);
	gsn_free(ids);
}

START_TEST(routings_are_right_and_depend_on_nothing_but_their_inputs)
{
	uint64_t random = random_seed(1);
	int cases = case_count();

	open_pools();
	for (int i = 0; i < cases; i++) {
		struct route_case test = {
			.tokens = between(&random, 1, 6), .hidden = between(&random, 1, 150)};

		route_case_draw(&test, 60, &random);
		route_case_make(&test, &random);
		route_case_run(&test, gsn_cpu_path_at(0), pools[1]);
		ck_assert_uint_eq(test.counters.faults, 0);
		route_case_check(&test);
		check_route_paths(&test, (uint32_t)i);
		check_route_alone(&test, between(&random, 0, test.tokens - 1));
		route_case_free(&test);
	}
	close_pools();
	printf("%d random routings\n", cases);
}
END_TEST

/* ---- experts ---- */

static const gpusnap_dtype weight_dtypes[] = {
	GPUSNAP_BF16, GPUSNAP_F8_E4M3, GPUSNAP_F4, GPUSNAP_F16, GPUSNAP_F32, GPUSNAP_F4};
static const gpusnap_dtype bias_dtypes[] = {GPUSNAP_BF16, GPUSNAP_F16, GPUSNAP_F32};

static void draw_blocks(struct expert_case *test, uint64_t *random)
{
	uint32_t chunk = test->dtype == GPUSNAP_F4 ? 32 : 16;

	if (!random_below(random, 5))
		return;
	test->block_n = random_below(random, 2) ? 1 : between(random, 1, 40);
	test->block_k = random_below(random, 2) ? 32 : chunk * between(random, 1, 8);
	test->e8m0 = random_below(random, 2);
}

static void draw_experts(struct expert_case *test, uint64_t *random)
{
	memset(test, 0, sizeof *test);
	test->dtype = weight_dtypes[random_below(random, 6)];
	test->hidden = 2 * between(random, 1, random_below(random, 3) ? 40 : 180);
	test->intermediate = 2 * between(random, 1, random_below(random, 3) ? 40 : 140);
	test->tokens = between(random, 1, 5);
	test->mask_length = between(random, 1, 8);
	test->local_experts = test->mask_length;
	test->top_k = between(random, 1, test->mask_length < 4 ? test->mask_length : 4);
	test->activation = (gpusnap_activation)between(random, 1, 2);
	test->limit = random_below(random, 2) ? 7.0f : 0.0f;
	test->weight_before_w2 = random_below(random, 2);
	test->biased = random_below(random, 2);
	test->bias_dtype = bias_dtypes[random_below(random, 3)];
	if (test->dtype == GPUSNAP_F8_E4M3 || test->dtype == GPUSNAP_F4)
		draw_blocks(test, random);
}

static int32_t local_id(const struct expert_case *test, int32_t id)
{
	int32_t local = 0;

	for (int32_t i = 0; i < id; i++)
		local += test->mask[i];
	return local;
}

/* Leave some experts out of the mask. */
static void make_holes(struct expert_case *test, uint64_t *random)
{
	for (uint32_t i = 0; i < test->mask_length; i++)
		test->mask[i] = random_below(random, 3) != 0;
	test->local_experts = (uint32_t)local_id(test, (int32_t)test->mask_length);
	test->local_experts += test->local_experts == 0;
}

static void check_pair(const struct expert_case *test, uint32_t pair)
{
	double *y = gsn_alloc(test->hidden, sizeof *y);
	double *bound = gsn_alloc(test->hidden, sizeof *bound);
	bool kept = test->mask[test->ids[pair]] != 0;

	ck_assert(y && bound);
	if (kept)
		expert_case_reference(
			test, pair, (uint32_t)local_id(test, test->ids[pair]), y, bound);
	for (uint32_t i = 0; i < test->hidden; i++) {
		float got = test->y[(size_t)pair * test->hidden + i];

		ck_assert_msg(
			kept ? fabs((double)got - y[i]) <= bound[i] : gsn_float_bits(got) == 0,
			"pair %u, row %u of %u x %u, %s: %.9g, not %.9g +- %.3g", pair, i,
			test->hidden, test->intermediate, gpusnap_dtype_name(test->dtype),
			(double)got, y[i], bound[i]);
	}
	gsn_free(y);
	gsn_free(bound);
}

static void check_expert_paths(struct expert_case *test, const float *y, uint32_t threads)
{
	struct gsn_moe_counters counters = test->counters;
	const struct gsn_cpu_path *path;

	for (size_t i = 0; (path = gsn_cpu_path_at(i)); i++) {
		threads = threads % MAX_THREADS + 1;
		expert_case_run(test, path, pools[threads]);
		check_bits(test->y, y, expert_case_y_count(test), path->name);
		ck_assert_mem_eq(&test->counters, &counters, sizeof counters);
	}
}

static void check_expert_alone(struct expert_case *test, const float *y, uint32_t token)
{
	const struct gsn_host_moe host = {pools[3], gsn_cpu_path_best()};
	struct gsn_moe_experts args = expert_case_args(test);
	uint64_t pair = (uint64_t)token * test->top_k;
	gpusnap_error err;

	args.tokens = 1;
	args.x += (uint64_t)token * test->hidden * sizeof(float);
	args.ids += pair * sizeof(int32_t);
	args.weights += pair * sizeof(float);
	ck_ok(gsn_host_moe_experts(&host, &args, &err));
	check_bits(test->y, y + pair * test->hidden, (uint64_t)test->top_k * test->hidden, "alone");
}

/* Arguments of a rank that holds the local experts from `first` on. */
static struct gsn_moe_experts rank_args(
	struct expert_case *test, int32_t *mask, uint32_t first, uint32_t count)
{
	struct gsn_moe_experts args = expert_case_args(test);
	uint64_t scale = expert_case_scale_width(test);

	for (uint32_t i = 0; i < test->mask_length; i++) {
		uint32_t local = (uint32_t)local_id(test, (int32_t)i);

		mask[i] = test->mask[i] && local >= first && local < first + count;
	}
	args.mask = (gpusnap_address)(uintptr_t)mask;
	args.local_experts = count;
	args.w13 += first * expert_case_w13_bytes(test);
	args.w2 += first * expert_case_w2_bytes(test);
	if (test->block_n) {
		args.w13_scale += first * expert_case_w13_scales(test) * scale;
		args.w2_scale += first * expert_case_w2_scales(test) * scale;
	}
	if (test->biased) {
		uint64_t width = expert_case_bias_width(test);

		args.w13_bias += (uint64_t)first * 2 * test->intermediate * width;
		args.w2_bias += (uint64_t)first * test->hidden * width;
	}
	return args;
}

static void check_ranks(struct expert_case *test, const float *y, uint32_t world)
{
	const struct gsn_host_moe host = {pools[2], gsn_cpu_path_best()};
	uint64_t count = expert_case_y_count(test);
	float *sum = gsn_alloc(count, sizeof *sum);
	int32_t mask[8];
	gpusnap_error err;

	ck_assert_ptr_nonnull(sum);
	for (uint32_t rank = 0; rank < world; rank++) {
		uint32_t first = test->local_experts * rank / world;
		uint32_t end = test->local_experts * (rank + 1) / world;
		struct gsn_moe_experts args = rank_args(test, mask, first, end - first);

		if (end == first)
			continue;
		ck_ok(gsn_host_moe_experts(&host, &args, &err));
		for (uint64_t i = 0; i < count; i++)
			sum[i] = gsn_canonical(sum[i] + test->y[i]);
	}
	check_bits(sum, y, count, "sum of ranks");
	gsn_free(sum);
}

static void check_experts(struct expert_case *test, uint64_t *random, uint32_t round)
{
	float *y;

	expert_case_run(test, gsn_cpu_path_at(0), pools[1]);
	ck_assert_uint_eq(test->counters.faults, 0);
	ck_assert_uint_eq(
		test->counters.local + test->counters.remote, (uint64_t)test->tokens * test->top_k);
	check_pair(test, between(random, 0, test->tokens * test->top_k - 1));
	y = copy_of(test->y, expert_case_y_count(test));
	check_expert_paths(test, y, round);
	check_expert_alone(test, y, between(random, 0, test->tokens - 1));
	check_ranks(test, y, between(random, 2, 4));
	gsn_free(y);
}

START_TEST(experts_are_right_and_depend_on_nothing_but_their_inputs)
{
	uint64_t random = random_seed(2);
	int cases = case_count();

	open_pools();
	for (int i = 0; i < cases; i++) {
		struct expert_case test;

		draw_experts(&test, &random);
		expert_case_make(&test, random_u64(&random));
		if (i % 2)
			make_holes(&test, &random);
		check_experts(&test, &random, (uint32_t)i);
		expert_case_free(&test);
	}
	close_pools();
	printf("%d random experts' layers\n", cases);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		routings_are_right_and_depend_on_nothing_but_their_inputs,
		experts_are_right_and_depend_on_nothing_but_their_inputs,
	};

	return RUN_SUITE("moe_bits", tests);
}
