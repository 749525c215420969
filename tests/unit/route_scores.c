/* SPDX-License-Identifier: Apache-2.0 */
/* The host's routers by hand: softmax over the chosen, sqrt softplus, hash tables, router biases.
 */
#include <math.h>
#include <string.h>

#include "kernels/moe_math.h"
#include "tests/support/random.h"
#include "tests/support/route_case.h"
#include "tests/support/suite.h"

static void run(struct route_case *test)
{
	struct gsn_pool *pool;
	gpusnap_error err;

	ck_ok(gsn_pool_create(1, &pool, &err));
	route_case_run(test, gsn_cpu_path_best(), pool);
	gsn_pool_destroy(pool);
}

/* One token, x = 1: the router's column is the logits but for the bias. */
static void make_column(struct route_case *test, const float *logits, uint32_t experts)
{
	uint64_t random = 1;

	test->tokens = test->tokens ? test->tokens : 1;
	test->hidden = 1;
	test->experts = experts;
	test->router_dtype = GPUSNAP_F32;
	test->router_bias_dtype = GPUSNAP_F32;
	route_case_make(test, &random);
	for (uint32_t i = 0; i < test->tokens; i++)
		test->x[i] = 1.0f;
	memcpy(test->router, logits, experts * sizeof *logits);
}

static void check_near(float got, double exact)
{
	ck_assert_double_le(fabs((double)got - exact), 4e-7 * fabs(exact));
}

START_TEST(softmax_over_the_chosen_counts_the_router_bias)
{
	const float logits[5] = {1.0f, 2.0f, 3.0f, 4.0f, 4.0f};
	const float bias[5] = {4.5f, 0.0f, 0.0f, -4.0f, 0.0f};
	struct route_case test = {
		.score = GPUSNAP_SCORE_SOFTMAX_CHOSEN, .top_k = 3, .router_biased = true};
	double sum = 1.0 + exp(-1.5) + exp(-2.5);

	make_column(&test, logits, 5);
	memcpy(test.router_bias, bias, sizeof bias);
	run(&test);
	ck_assert(test.logits[0] == 5.5f && test.logits[3] == 0.0f && test.logits[4] == 4.0f);
	ck_assert_int_eq(test.ids[0], 0);
	ck_assert_int_eq(test.ids[1], 4);
	ck_assert_int_eq(test.ids[2], 2);
	check_near(test.weights[0], 1.0 / sum);
	check_near(test.weights[1], exp(-1.5) / sum);
	check_near(test.weights[2], exp(-2.5) / sum);
	ck_assert_uint_eq(test.counters.faults, 0);
	route_case_free(&test);
}
END_TEST

/* Others may be anything: they are not in the sum. */
START_TEST(softmax_over_the_chosen_knows_only_the_chosen)
{
	const float logits[4] = {NAN, 1.0f, -3.0f, 1.0f};
	struct route_case test = {.score = GPUSNAP_SCORE_SOFTMAX_CHOSEN, .top_k = 2};

	make_column(&test, logits, 4);
	run(&test);
	ck_assert_int_eq(test.ids[0], 1);
	ck_assert_int_eq(test.ids[1], 3);
	ck_assert(test.weights[0] == 0.5f && test.weights[1] == 0.5f);
	ck_assert_uint_eq(test.counters.faults, GSN_MOE_FAULT_NAN_LOGIT);
	route_case_free(&test);
}
END_TEST

START_TEST(sqrt_softplus_chooses_with_the_bias_and_weighs_without)
{
	const float logits[4] = {2.0f, -1.0f, 0.5f, -30.0f};
	const float bias[4] = {-1.0f, 0.0f, 0.0f, 2.0f};
	struct route_case test = {.score = GPUSNAP_SCORE_SQRT_SOFTPLUS,
		.top_k = 2,
		.renormalise = true,
		.scale = 1.5f,
		.selection_biased = true,
		.selection_bias_dtype = GPUSNAP_F32};
	double small = sqrt(log1p(exp(-30.0))), large = sqrt(log1p(exp(0.5)));

	make_column(&test, logits, 4);
	memcpy(test.selection_bias, bias, sizeof bias);
	run(&test);
	ck_assert_int_eq(test.ids[0], 3);
	ck_assert_int_eq(test.ids[1], 2);
	check_near(test.weights[0], 1.5 * small / (small + large));
	check_near(test.weights[1], 1.5 * large / (small + large));
	ck_assert_uint_eq(test.counters.faults, 0);
	route_case_free(&test);
}
END_TEST

static void make_hash_case(struct route_case *test, const float *logits)
{
	const int32_t table[6] = {2, 0, 3, 3, 1, 2};

	*test = (struct route_case){.tokens = 3,
		.score = GPUSNAP_SCORE_SQRT_SOFTPLUS,
		.top_k = 2,
		.renormalise = true,
		.vocabulary = 3,
		.hash_dtype = GPUSNAP_I32};
	make_column(test, logits, 4);
	memcpy(test->hash, table, sizeof table);
	for (int32_t i = 0; i < 3; i++)
		test->token_ids[i] = 2 - i;
}

static double score(float logit)
{
	return sqrt(log1p(exp((double)logit)));
}

START_TEST(hash_tables_give_the_experts_and_scores_the_weights)
{
	const float logits[4] = {2.0f, -1.0f, 0.5f, 1.0f};
	const int32_t expected[6] = {1, 2, 3, 3, 2, 0};
	struct route_case test;

	make_hash_case(&test, logits);
	run(&test);
	ck_assert_mem_eq(test.ids, expected, sizeof expected);
	check_near(test.weights[0], score(-1.0f) / (score(-1.0f) + score(0.5f)));
	check_near(test.weights[2], 0.5);
	check_near(test.weights[3], 0.5);
	check_near(test.weights[5], score(2.0f) / (score(0.5f) + score(2.0f)));
	ck_assert_uint_eq(test.counters.faults, 0);
	route_case_free(&test);
}
END_TEST

START_TEST(token_ids_outside_the_table_are_a_fault)
{
	const int32_t bad[] = {-1, 3, INT32_MAX, INT32_MIN};
	const float logits[4] = {2.0f, -1.0f, 0.5f, 1.0f};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct route_case test;

		make_hash_case(&test, logits);
		test.token_ids[1] = bad[i];
		run(&test);
		ck_assert_int_eq(test.ids[2], 0);
		ck_assert_int_eq(test.ids[3], 0);
		ck_assert(test.weights[2] == 0.0f && test.weights[3] == 0.0f);
		ck_assert_int_eq(test.ids[1], 2);
		ck_assert_uint_eq(test.counters.faults, GSN_MOE_FAULT_HASH);
		route_case_free(&test);
	}
}
END_TEST

START_TEST(experts_that_do_not_exist_in_the_table_are_a_fault)
{
	const int64_t bad[] = {-1, 4, INT64_C(0x100000002), INT64_MIN};
	const float logits[4] = {NAN, -1.0f, 0.5f, 1.0f};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const int64_t table[2] = {bad[i], 3};
		struct route_case test = {.score = GPUSNAP_SCORE_SIGMOID,
			.top_k = 2,
			.renormalise = true,
			.vocabulary = 1,
			.hash_dtype = GPUSNAP_I64};

		make_column(&test, logits, 4);
		memcpy(test.hash, table, sizeof table);
		test.token_ids[0] = 0;
		run(&test);
		ck_assert_int_eq(test.ids[0], 0);
		ck_assert_int_eq(test.ids[1], 3);
		ck_assert(test.weights[0] == 0.0f && test.weights[1] == 1.0f);
		ck_assert_uint_eq(
			test.counters.faults, GSN_MOE_FAULT_HASH | GSN_MOE_FAULT_NAN_LOGIT);
		route_case_free(&test);
	}
}
END_TEST

/* A table of zeros, as a lost one reads, is a valid one: digests find it, not the router. */
START_TEST(a_table_of_zeros_sends_all_to_expert_0)
{
	const float logits[4] = {2.0f, -1.0f, 0.5f, 1.0f};
	struct route_case test;

	make_hash_case(&test, logits);
	memset(test.hash, 0, route_case_hash_bytes(&test));
	run(&test);
	for (uint32_t i = 0; i < 6; i++) {
		ck_assert_int_eq(test.ids[i], 0);
		ck_assert(test.weights[i] == 0.5f);
	}
	ck_assert_uint_eq(test.counters.faults, 0);
	route_case_free(&test);
}
END_TEST

START_TEST(a_router_bias_that_is_no_number_raises_the_fault)
{
	const float logits[3] = {1.0f, 2.0f, 3.0f};
	struct route_case test = {
		.score = GPUSNAP_SCORE_SOFTMAX, .top_k = 2, .router_biased = true};
	const float bias[3] = {0.0f, 0.0f, NAN};

	make_column(&test, logits, 3);
	memcpy(test.router_bias, bias, sizeof bias);
	run(&test);
	ck_assert_int_eq(test.ids[0], 1);
	ck_assert_uint_eq(gsn_float_bits(test.logits[2]), GSN_NAN_BITS);
	ck_assert_uint_eq(gsn_float_bits(test.weights[0]), GSN_NAN_BITS);
	ck_assert_uint_eq(test.counters.faults, GSN_MOE_FAULT_NAN_LOGIT);
	route_case_free(&test);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		softmax_over_the_chosen_counts_the_router_bias,
		softmax_over_the_chosen_knows_only_the_chosen,
		sqrt_softplus_chooses_with_the_bias_and_weighs_without,
		hash_tables_give_the_experts_and_scores_the_weights,
		token_ids_outside_the_table_are_a_fault,
		experts_that_do_not_exist_in_the_table_are_a_fault,
		a_table_of_zeros_sends_all_to_expert_0,
		a_router_bias_that_is_no_number_raises_the_fault,
	};

	return RUN_SUITE("route_scores", tests);
}
