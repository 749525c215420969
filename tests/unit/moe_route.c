/* SPDX-License-Identifier: Apache-2.0 */
/* The host's router, and what runs over whole tokens: combine, RMS norm, localise. */
#include <math.h>
#include <string.h>

#include <gpusnap/moe.h>

#include "kernels/host_moe.h"
#include "kernels/moe_math.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { MAX_TOKENS = 9, MAX_EXPERTS = 80, MAX_HIDDEN = 300 };

static struct routing {
	uint32_t tokens, hidden, experts, top_k, renormalise;
	float x[MAX_TOKENS * MAX_HIDDEN];
	float router[MAX_EXPERTS * MAX_HIDDEN];
	float logits[MAX_TOKENS * MAX_EXPERTS];
	float weights[MAX_TOKENS * MAX_EXPERTS];
	int32_t ids[MAX_TOKENS * MAX_EXPERTS];
	struct gsn_moe_counters counters;
} routing, other;

static gpusnap_address address(const void *memory)
{
	return (gpusnap_address)(uintptr_t)memory;
}

static void route(struct routing *r, const struct gsn_cpu_path *path, uint32_t threads)
{
	const struct gsn_moe_route args = {.tokens = r->tokens,
		.hidden = r->hidden,
		.experts = r->experts,
		.top_k = r->top_k,
		.score = GPUSNAP_SCORE_SOFTMAX,
		.renormalise = r->renormalise,
		.router_dtype = GPUSNAP_F32,
		.x = address(r->x),
		.router = address(r->router),
		.logits = address(r->logits),
		.ids = address(r->ids),
		.weights = address(r->weights),
		.counters = address(&r->counters)};
	struct gsn_host_moe host = {.path = path};
	gpusnap_error err;

	memset(r->logits, 0xff, sizeof r->logits);
	memset(r->ids, 0xff, sizeof r->ids);
	memset(r->weights, 0xff, sizeof r->weights);
	memset(&r->counters, 0, sizeof r->counters);
	ck_ok(gsn_pool_create(threads, &host.pool, &err));
	ck_ok(gsn_host_moe_route(&host, &args, &err));
	gsn_pool_destroy(host.pool);
}

/* hidden = 1 and x = 1 make the router's column the logits. */
static void set_logits(struct routing *r, const float *logits, uint32_t experts, uint32_t top_k)
{
	r->tokens = 1;
	r->hidden = 1;
	r->experts = experts;
	r->top_k = top_k;
	r->renormalise = 1;
	r->x[0] = 1.0f;
	memcpy(r->router, logits, experts * sizeof *logits);
	route(r, gsn_cpu_path_best(), 1);
}

static void draw_routing(struct routing *r, uint64_t *random)
{
	r->tokens = 1 + (uint32_t)random_below(random, MAX_TOKENS);
	r->hidden = 1 + (uint32_t)random_below(random, MAX_HIDDEN);
	r->experts = 1 + (uint32_t)random_below(random, MAX_EXPERTS);
	r->top_k = random_below(random, 5) == 0 ? r->experts
						: 1 + (uint32_t)random_below(random, r->experts);
	r->renormalise = (uint32_t)random_below(random, 2);
	for (uint32_t i = 0; i < r->tokens * r->hidden; i++)
		r->x[i] = random_unit(random);
	for (uint32_t i = 0; i < r->experts * r->hidden; i++)
		r->router[i] = random_unit(random);
}

static void check_logits(const struct routing *r, size_t token)
{
	for (uint32_t e = 0; e < r->experts; e++) {
		double sum = 0.0, size = 0.0;

		for (uint32_t i = 0; i < r->hidden; i++) {
			double product = (double)r->router[e * r->hidden + i] *
					 (double)r->x[token * r->hidden + i];

			sum += product;
			size += fabs(product);
		}
		ck_assert_double_le(fabs((double)r->logits[token * r->experts + e] - sum),
			4.0 * sqrt(r->hidden) * 0x1p-24 * size);
	}
}

/* The ids are the best by (logit descending, id ascending): exact, given the logits. */
static void check_ids(const struct routing *r, const float *logits, const int32_t *ids)
{
	bool chosen[MAX_EXPERTS] = {false};

	for (uint32_t slot = 0; slot < r->top_k; slot++) {
		int32_t best = -1;

		for (uint32_t e = 0; e < r->experts; e++)
			if (!chosen[e] && (best < 0 || logits[e] > logits[best]))
				best = (int32_t)e;
		ck_assert_int_eq(ids[slot], best);
		chosen[best] = true;
	}
}

static void check_weights(
	const struct routing *r, const float *logits, const int32_t *ids, const float *weights)
{
	double sum = 0.0;

	for (uint32_t e = 0; e < r->experts; e++)
		sum += exp((double)logits[e] - (double)logits[ids[0]]);
	if (r->renormalise) {
		sum = 0.0;
		for (uint32_t slot = 0; slot < r->top_k; slot++)
			sum += exp((double)logits[ids[slot]] - (double)logits[ids[0]]);
	}
	for (uint32_t slot = 0; slot < r->top_k; slot++) {
		double exact = exp((double)logits[ids[slot]] - (double)logits[ids[0]]) / sum;

		/* The difference of two logits is rounded at their size, e^x at 2 ulp. */
		ck_assert_double_le(fabs((double)weights[slot] - exact),
			exact * 0x1p-24 * (20.0 + 2.0 * fabs((double)logits[ids[0]])));
	}
}

START_TEST(routing_agrees_with_float64_and_all_paths_with_each_other)
{
	uint64_t random = random_seed(1);
	const struct gsn_cpu_path *path;

	for (uint32_t i = 0; i < 300; i++) {
		draw_routing(&routing, &random);
		route(&routing, gsn_cpu_path_at(0), 1);
		ck_assert_uint_eq(routing.counters.faults, 0);
		for (size_t t = 0; t < routing.tokens; t++) {
			const float *logits = routing.logits + t * routing.experts;
			const int32_t *ids = routing.ids + t * routing.top_k;

			check_logits(&routing, t);
			check_ids(&routing, logits, ids);
			check_weights(&routing, logits, ids, routing.weights + t * routing.top_k);
		}
		for (size_t p = 1; (path = gsn_cpu_path_at(p)); p++) {
			other = routing;
			route(&other, path, 1 + (i + (uint32_t)p) % 4);
			ck_assert_mem_eq(&other, &routing, sizeof other);
		}
	}
}
END_TEST

START_TEST(equal_logits_go_to_the_lower_id)
{
	const float logits[6] = {1.0f, 3.0f, 2.0f, 3.0f, 2.0f, 3.0f};
	const int32_t expected[6] = {1, 3, 5, 2, 4, 0};

	set_logits(&routing, logits, 6, 6);
	ck_assert_mem_eq(routing.ids, expected, sizeof expected);
	ck_assert(routing.weights[0] == routing.weights[1] &&
		  routing.weights[1] == routing.weights[2]);
}
END_TEST

START_TEST(one_expert_has_all_the_weight)
{
	const float logit = -50.0f;

	set_logits(&routing, &logit, 1, 1);
	ck_assert_int_eq(routing.ids[0], 0);
	ck_assert(routing.weights[0] == 1.0f);
}
END_TEST

START_TEST(logits_far_below_the_best_underflow_to_zero_weight)
{
	const float logits[3] = {200.0f, -300.0f, 199.0f};

	set_logits(&routing, logits, 3, 3);
	ck_assert_int_eq(routing.ids[2], 1);
	ck_assert(routing.weights[2] == 0.0f);
	ck_assert_double_le(fabs((double)routing.weights[0] - 1.0 / (1.0 + exp(-1.0))), 1e-6);
	ck_assert_uint_eq(routing.counters.faults, 0);
}
END_TEST

START_TEST(nan_logits_raise_the_fault_and_ids_stay_unique)
{
	const float logits[5] = {NAN, 1.0f, -INFINITY, NAN, 2.0f};
	const int32_t expected[5] = {4, 1, 0, 2, 3}; /* a NaN counts as the smallest */

	set_logits(&routing, logits, 5, 5);
	ck_assert_mem_eq(routing.ids, expected, sizeof expected);
	ck_assert(routing.counters.faults & GSN_MOE_FAULT_NAN_LOGIT);
	for (int slot = 0; slot < 5; slot++)
		ck_assert_uint_eq(gsn_float_bits(routing.weights[slot]), GSN_NAN_BITS);
}
END_TEST

START_TEST(only_nan_logits_still_give_all_ids)
{
	const float logits[4] = {NAN, NAN, NAN, NAN};
	const int32_t expected[4] = {0, 1, 2, 3};

	set_logits(&routing, logits, 4, 4);
	ck_assert_mem_eq(routing.ids, expected, sizeof expected);
	ck_assert_uint_eq(routing.counters.faults, GSN_MOE_FAULT_NAN_LOGIT);
}
END_TEST

START_TEST(infinite_logits_raise_the_fault)
{
	const float logits[3] = {1.0f, INFINITY, 0.0f};

	set_logits(&routing, logits, 3, 2);
	ck_assert_int_eq(routing.ids[0], 1);
	ck_assert_int_eq(routing.ids[1], 0);
	ck_assert_uint_eq(routing.counters.faults, GSN_MOE_FAULT_NONFINITE);
}
END_TEST

/* ---- sigmoid ---- */

static struct sigmoid_case {
	uint32_t groups, top_groups, renormalise;
	float scale;
	float bias[MAX_EXPERTS], keys[MAX_EXPERTS];
} sigmoid;

/* One token; the router's column is the logits. */
static gpusnap_status route_sigmoid(
	const float *logits, uint32_t experts, uint32_t top_k, gpusnap_error *err)
{
	const float one = 1.0f;
	const struct gsn_moe_route args = {.tokens = 1,
		.hidden = 1,
		.experts = experts,
		.top_k = top_k,
		.score = GPUSNAP_SCORE_SIGMOID,
		.renormalise = sigmoid.renormalise,
		.router_dtype = GPUSNAP_F32,
		.x = address(&one),
		.router = address(logits),
		.logits = address(routing.logits),
		.ids = address(routing.ids),
		.weights = address(routing.weights),
		.counters = address(&routing.counters),
		.selection_bias = address(sigmoid.bias),
		.selection_bias_dtype = GPUSNAP_F32,
		.groups = sigmoid.groups,
		.top_groups = sigmoid.top_groups,
		.scale = sigmoid.scale,
		.keys = address(sigmoid.keys)};
	struct gsn_host_moe host = {.path = gsn_cpu_path_best()};
	gpusnap_status st = gsn_pool_create(1, &host.pool, err);

	if (st)
		return st;
	memset(&routing.counters, 0, sizeof routing.counters);
	st = gsn_host_moe_route(&host, &args, err);
	gsn_pool_destroy(host.pool);
	return st;
}

static double exact_sigmoid(float x)
{
	return 1.0 / (1.0 + exp(-(double)x));
}

START_TEST(bias_chooses_and_does_not_weigh)
{
	const float logits[4] = {2.0f, -1.0f, 0.5f, -3.0f};
	gpusnap_error err;
	double sum;

	sigmoid = (struct sigmoid_case){.renormalise = 1, .scale = 2.5f};
	sigmoid.bias[3] = 1.0f;
	sigmoid.bias[0] = -1.0f;
	ck_ok(route_sigmoid(logits, 4, 2, &err));
	ck_assert_int_eq(routing.ids[0], 3);
	ck_assert_int_eq(routing.ids[1], 2);
	sum = exact_sigmoid(-3.0f) + exact_sigmoid(0.5f);
	ck_assert_double_le(
		fabs((double)routing.weights[0] - 2.5 * exact_sigmoid(-3.0f) / sum), 1e-7);
	ck_assert_double_le(
		fabs((double)routing.weights[1] - 2.5 * exact_sigmoid(0.5f) / sum), 3e-7);
	sigmoid.renormalise = 0;
	sigmoid.scale = 0.0f;
	ck_ok(route_sigmoid(logits, 4, 2, &err));
	ck_assert_double_le(fabs((double)routing.weights[0] - exact_sigmoid(-3.0f)), 1e-8);
	ck_assert_uint_eq(routing.counters.faults, 0);
}
END_TEST

/* All keys are negative: an expert of a dropped group must not win with 0. */
START_TEST(dropped_groups_are_out_whatever_the_bias)
{
	const float logits[8] = {0, 0, 3.0f, -4.0f, 1.0f, 1.0f, -5.0f, 2.0f};
	const int32_t expected[4] = {4, 5, 0, 1};
	gpusnap_error err;

	sigmoid = (struct sigmoid_case){.groups = 4, .top_groups = 2, .renormalise = 1};
	for (int i = 0; i < 8; i++)
		sigmoid.bias[i] = -2.0f;
	ck_ok(route_sigmoid(logits, 8, 4, &err));
	ck_assert_mem_eq(routing.ids, expected, sizeof expected); /* sums 1.0, 0.97, 1.46, 0.89 */
	ck_assert_uint_eq(routing.counters.faults, 0);
}
END_TEST

START_TEST(equal_groups_and_keys_go_to_the_lower_index)
{
	const float logits[8] = {0, 0, 0, 0, 0, 0, 0, 0};
	const int32_t expected[3] = {0, 1, 2};
	gpusnap_error err;

	sigmoid = (struct sigmoid_case){.groups = 4, .top_groups = 2};
	ck_ok(route_sigmoid(logits, 8, 3, &err));
	ck_assert_mem_eq(routing.ids, expected, sizeof expected);
	ck_assert(routing.weights[0] == 0.5f && routing.weights[2] == 0.5f);
}
END_TEST

START_TEST(weights_of_vanishing_sigmoids_are_zero_and_no_fault)
{
	const float logits[2] = {-200.0f, -200.0f};
	gpusnap_error err;

	sigmoid = (struct sigmoid_case){.renormalise = 1};
	ck_ok(route_sigmoid(logits, 2, 2, &err));
	ck_assert(routing.weights[0] == 0.0f && routing.weights[1] == 0.0f);
	ck_assert_uint_eq(routing.counters.faults, 0);
}
END_TEST

START_TEST(a_bias_that_is_no_number_raises_the_fault)
{
	const float logits[3] = {1.0f, 2.0f, 3.0f};
	const int32_t expected[3] = {1, 0, 2};
	gpusnap_error err;

	sigmoid = (struct sigmoid_case){.renormalise = 1};
	sigmoid.bias[2] = NAN;
	ck_ok(route_sigmoid(logits, 3, 3, &err));
	ck_assert_mem_eq(routing.ids, expected, sizeof expected);
	ck_assert_uint_eq(routing.counters.faults, GSN_MOE_FAULT_NAN_LOGIT);
}
END_TEST

START_TEST(impossible_groups_and_scales_are_refused)
{
	const float logits[8] = {0};
	gpusnap_error err;

	sigmoid = (struct sigmoid_case){.groups = 3, .top_groups = 1};
	ck_fails(route_sigmoid(logits, 8, 2, &err), GPUSNAP_E_INVALID, "3 groups of 8 experts");
	sigmoid = (struct sigmoid_case){.groups = 4, .top_groups = 1};
	ck_fails(route_sigmoid(logits, 8, 3, &err), GPUSNAP_E_INVALID,
		"top_k 3 from the best 1 of 4 groups of 2");
	sigmoid = (struct sigmoid_case){.scale = NAN};
	ck_fails(route_sigmoid(logits, 8, 2, &err), GPUSNAP_E_INVALID, "scaled by nan");
}
END_TEST

/* ---- combine, norm, localise ---- */

START_TEST(the_shared_experts_row_is_added_last)
{
	float y[1][2] = {{1e8f, 1.0f}}, shared[1] = {-1e8f}, out[1];
	struct gsn_moe_counters counters = {0};
	const struct gsn_moe_combine args = {.tokens = 1,
		.hidden = 1,
		.top_k = 2,
		.y = address(y),
		.out = address(out),
		.counters = address(&counters),
		.shared = address(shared)};
	struct gsn_host_moe host = {.path = gsn_cpu_path_best()};
	gpusnap_error err;

	ck_ok(gsn_pool_create(1, &host.pool, &err));
	ck_ok(gsn_host_moe_combine(&host, &args, &err));
	ck_assert(out[0] == 0.0f); /* (1e8 + 1) - 1e8 in float */
	shared[0] = NAN;
	ck_ok(gsn_host_moe_combine(&host, &args, &err));
	ck_assert_uint_eq(counters.faults, GSN_MOE_FAULT_NONFINITE);
	gsn_pool_destroy(host.pool);
}
END_TEST

START_TEST(combine_adds_in_slot_order)
{
	float y[2][4][1] = {
		{{1e8f}, {1.0f}, {-1e8f}, {1.0f}}, {{-0.0f}, {-0.0f}, {-0.0f}, {-0.0f}}};
	float out[2];
	struct gsn_moe_counters counters = {0};
	const struct gsn_moe_combine args = {.tokens = 2,
		.hidden = 1,
		.top_k = 4,
		.y = address(y),
		.out = address(out),
		.counters = address(&counters)};
	struct gsn_host_moe host = {.path = gsn_cpu_path_best()};
	gpusnap_error err;

	ck_ok(gsn_pool_create(2, &host.pool, &err));
	ck_ok(gsn_host_moe_combine(&host, &args, &err));
	ck_assert(out[0] == 1.0f); /* ((1e8 + 1) - 1e8) + 1 in float */
	ck_assert_uint_eq(gsn_float_bits(out[1]), 0);
	ck_assert_uint_eq(counters.faults, 0);
	y[1][2][0] = INFINITY;
	ck_ok(gsn_host_moe_combine(&host, &args, &err));
	ck_assert_uint_eq(counters.faults, GSN_MOE_FAULT_NONFINITE);
	gsn_pool_destroy(host.pool);
}
END_TEST

START_TEST(combine_adds_every_column_of_every_token)
{
	enum { TOKENS = 3, SLOTS = 3, WIDTH = 150 };
	static float y[TOKENS * SLOTS * WIDTH], shared[TOKENS * WIDTH], out[TOKENS * WIDTH];
	struct gsn_moe_counters counters = {0};
	struct gsn_moe_combine args = {.tokens = TOKENS,
		.top_k = SLOTS,
		.y = address(y),
		.out = address(out),
		.counters = address(&counters)};
	struct gsn_host_moe host = {.path = gsn_cpu_path_best()};
	uint64_t random = random_seed(3);
	gpusnap_error err;

	ck_ok(gsn_pool_create(2, &host.pool, &err));
	for (args.hidden = 1; args.hidden <= WIDTH; args.hidden++) {
		const float *row = y;

		args.shared = args.hidden % 2 ? address(shared) : 0;
		for (uint32_t i = 0; i < TOKENS * SLOTS * WIDTH; i++)
			y[i] = random_unit(&random);
		for (uint32_t i = 0; i < TOKENS * WIDTH; i++)
			shared[i] = random_unit(&random);
		ck_ok(gsn_host_moe_combine(&host, &args, &err));
		for (uint32_t t = 0; t < TOKENS; t++, row += (size_t)SLOTS * args.hidden)
			for (uint32_t i = 0; i < args.hidden; i++) {
				float sum = row[i] + row[args.hidden + i];

				sum += row[2 * args.hidden + i];
				sum += args.shared ? shared[t * args.hidden + i] : 0.0f;
				ck_assert(out[t * args.hidden + i] == sum);
			}
	}
	ck_assert_uint_eq(counters.faults, 0);
	gsn_pool_destroy(host.pool);
}
END_TEST

static float norm_weight(const uint8_t *weights, gpusnap_dtype dtype, uint32_t i)
{
	uint16_t half;
	float wide;

	memcpy(&half, weights + 2 * (size_t)i, 2);
	memcpy(&wide, weights + 4 * (size_t)i, 4);
	return dtype == GPUSNAP_F32    ? wide
	       : dtype == GPUSNAP_BF16 ? gsn_decode_bf16(half)
				       : gsn_decode_f16(half);
}

static void check_norm(
	const struct gsn_rms_norm *args, const float *x, const uint8_t *weights, const float *out)
{
	for (uint32_t t = 0; t < args->tokens; t++) {
		double squares = 0.0, factor;

		for (uint32_t i = 0; i < args->hidden; i++)
			squares += pow((double)x[t * args->hidden + i], 2.0);
		factor = 1.0 / sqrt(squares / args->hidden + (double)args->epsilon);
		for (uint32_t i = 0; i < args->hidden; i++) {
			double exact = (double)x[t * args->hidden + i] * factor *
				       (double)norm_weight(weights, args->weight_dtype, i);

			ck_assert_double_le(fabs((double)out[t * args->hidden + i] - exact),
				(2.0 * sqrt(args->hidden) + 6.0) * 0x1p-24 * fabs(exact) +
					0x1p-149);
		}
	}
}

START_TEST(rms_norm_agrees_with_float64_and_all_paths_with_each_other)
{
	static float x[3 * MAX_HIDDEN], out[3 * MAX_HIDDEN], first[3 * MAX_HIDDEN];
	static uint8_t weights[4 * MAX_HIDDEN];
	const gpusnap_dtype dtypes[] = {GPUSNAP_F32, GPUSNAP_BF16, GPUSNAP_F16};
	uint64_t random = random_seed(2);
	struct gsn_host_moe host;
	gpusnap_error err;

	ck_ok(gsn_pool_create(2, &host.pool, &err));
	for (uint32_t round = 0; round < 100; round++) {
		struct gsn_rms_norm args = {.tokens = 3,
			.hidden = 1 + (uint32_t)random_below(&random, MAX_HIDDEN),
			.epsilon = 1e-6f,
			.weight_dtype = dtypes[round % 3],
			.x = address(x),
			.weight = address(weights),
			.out = address(out)};

		for (uint32_t i = 0; i < 3 * args.hidden; i++)
			x[i] = 10.0f * random_unit(&random);
		random_fill(&random, weights, sizeof weights);
		for (uint32_t i = 1; i < sizeof weights; i += 2)
			weights[i] &= 0xbf; /* no NaN */
		for (size_t p = 0; (host.path = gsn_cpu_path_at(p)); p++) {
			ck_ok(gsn_host_rms_norm(&host, &args, &err));
			if (p == 0)
				memcpy(first, out, sizeof out);
			ck_assert_mem_eq(out, first, sizeof *out * 3 * args.hidden);
		}
		check_norm(&args, x, weights, out);
	}
	gsn_pool_destroy(host.pool);
}
END_TEST

START_TEST(rms_norm_of_zeros_is_zero_and_may_be_done_in_place)
{
	float x[4] = {0.0f, -0.0f, 0.0f, 0.0f}, weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};
	const struct gsn_rms_norm args = {.tokens = 1,
		.hidden = 4,
		.epsilon = 1e-6f,
		.weight_dtype = GPUSNAP_F32,
		.x = address(x),
		.weight = address(weights),
		.out = address(x)};
	struct gsn_host_moe host = {.path = gsn_cpu_path_best()};
	const float expected[4] = {0.0f, 0.0f, 0.0f, 2.0f * 4.0f};
	gpusnap_error err;

	ck_ok(gsn_pool_create(1, &host.pool, &err));
	ck_ok(gsn_host_rms_norm(&host, &args, &err));
	ck_assert_mem_eq(x, (float[4]){0.0f}, sizeof x);
	x[3] = 1e6f;
	ck_ok(gsn_host_rms_norm(&host, &args, &err));
	ck_assert_double_le(fabs((double)x[3] - (double)expected[3]), 1e-5);
	gsn_pool_destroy(host.pool);
}
END_TEST

START_TEST(localise_sends_foreign_ids_to_the_sink)
{
	int32_t ids[6] = {4, 7, 3, 8, -1, INT32_MIN};
	const int32_t expected[6] = {0, 3, 4, 4, 4, 4};
	const struct gsn_moe_localise args = {
		.pairs = 6, .first = 4, .local = 4, .ids = address(ids), .out = address(ids)};
	const struct gsn_host_moe host = {NULL, gsn_cpu_path_best()};
	gpusnap_error err;

	ck_ok(gsn_host_moe_localise(&host, &args, &err));
	ck_assert_mem_eq(ids, expected, sizeof expected);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		routing_agrees_with_float64_and_all_paths_with_each_other,
		equal_logits_go_to_the_lower_id,
		one_expert_has_all_the_weight,
		logits_far_below_the_best_underflow_to_zero_weight,
		nan_logits_raise_the_fault_and_ids_stay_unique,
		only_nan_logits_still_give_all_ids,
		infinite_logits_raise_the_fault,
		bias_chooses_and_does_not_weigh,
		dropped_groups_are_out_whatever_the_bias,
		equal_groups_and_keys_go_to_the_lower_index,
		weights_of_vanishing_sigmoids_are_zero_and_no_fault,
		a_bias_that_is_no_number_raises_the_fault,
		impossible_groups_and_scales_are_refused,
		the_shared_experts_row_is_added_last,
		combine_adds_in_slot_order,
		combine_adds_every_column_of_every_token,
		rms_norm_agrees_with_float64_and_all_paths_with_each_other,
		rms_norm_of_zeros_is_zero_and_may_be_done_in_place,
		localise_sends_foreign_ids_to_the_sink,
	};

	return RUN_SUITE("moe_route", tests);
}
