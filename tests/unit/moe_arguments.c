/* SPDX-License-Identifier: Apache-2.0 */
/* What the MoE kernels refuse, and that a refused call writes nothing. */
#include "kernels/moe_args.h"

#include <math.h>
#include <string.h>

#include <gpusnap/moe.h>

#include "kernels/host_moe.h"
#include "tests/support/suite.h"

static const struct gsn_moe_route good_route = {.tokens = 1,
	.hidden = 8,
	.experts = 4,
	.top_k = 2,
	.score = GPUSNAP_SCORE_SOFTMAX,
	.router_dtype = GPUSNAP_BF16,
	.x = 0x1000,
	.router = 0x2002,
	.logits = 0x3000,
	.ids = 0x4000,
	.weights = 0x5000,
	.counters = 0x6000};

static const struct gsn_moe_experts good_experts = {.tokens = 1,
	.hidden = 8,
	.intermediate = 8,
	.top_k = 2,
	.local_experts = 2,
	.activation = GPUSNAP_ACTIVATION_SILU,
	.weight_dtype = GPUSNAP_F8_E4M3,
	.block_n = 8,
	.block_k = 16,
	.x = 0x1000,
	.ids = 0x2000,
	.weights = 0x3000,
	.mask = 0x4000,
	.mask_length = 4,
	.w13 = 0x5001,
	.w13_scale = 0x6000,
	.w2 = 0x7001,
	.w2_scale = 0x8000,
	.scale_dtype = GPUSNAP_F32,
	.scratch = 0x9000,
	.y = 0xa000,
	.counters = 0xb000};

/* Set one field of a copy of good arguments and check what is said of it. */
#define REFUSED(type, check, good, field, value, status, text)                                     \
	do {                                                                                       \
		type args = (good);                                                                \
                                                                                                   \
		args.field = (value);                                                              \
		ck_fails(check(&args, &err), (status), (text));                                    \
	} while (0)
#define ROUTE_REFUSED(field, value, status, text)                                                  \
	REFUSED(struct gsn_moe_route, gsn_moe_route_check, good_route, field, value, status, text)
#define EXPERTS_REFUSED(field, value, status, text)                                                \
	REFUSED(struct gsn_moe_experts, gsn_moe_experts_check, good_experts, field, value, status, \
		text)

START_TEST(route_refuses_what_it_cannot_do)
{
	gpusnap_error err;

	ck_ok(gsn_moe_route_check(&good_route, &err));
	ROUTE_REFUSED(tokens, 0, GPUSNAP_E_INVALID, "'tokens' is 0");
	ROUTE_REFUSED(hidden, 0, GPUSNAP_E_INVALID, "'hidden' is 0");
	ROUTE_REFUSED(hidden, UINT32_MAX, GPUSNAP_E_LIMIT, "'hidden' is 4294967295");
	ROUTE_REFUSED(top_k, 5, GPUSNAP_E_INVALID, "top_k 5 is more than the 4 experts");
	ROUTE_REFUSED(tokens, 1u << 30, GPUSNAP_E_LIMIT, "1073741824 tokens of 2 experts");
	ROUTE_REFUSED(score, 7, GPUSNAP_E_UNSUPPORTED, "score 7");
	ROUTE_REFUSED(router_dtype, GPUSNAP_F8_E4M3, GPUSNAP_E_UNSUPPORTED, "type F8_E4M3");
	ROUTE_REFUSED(router_dtype, GPUSNAP_I32, GPUSNAP_E_UNSUPPORTED, "type I32");
	ROUTE_REFUSED(x, 0, GPUSNAP_E_INVALID, "address of 'x' is 0");
	ROUTE_REFUSED(router, 0x2001, GPUSNAP_E_INVALID, "'router', 0x2001, is no multiple");
	ROUTE_REFUSED(counters, 0x6004, GPUSNAP_E_INVALID, "'counters', 0x6004");
	ROUTE_REFUSED(selection_bias, 0x7000, GPUSNAP_E_UNSUPPORTED, "selection bias, groups or");
	ROUTE_REFUSED(groups, 2, GPUSNAP_E_UNSUPPORTED, "selection bias, groups or");
	ROUTE_REFUSED(hash, 0x7000, GPUSNAP_E_UNSUPPORTED, "a hash table with a softmax");
	ROUTE_REFUSED(score, GPUSNAP_SCORE_SQRT_SOFTPLUS, GPUSNAP_E_INVALID, "'keys' is 0");
	ROUTE_REFUSED(router_bias, 0x7000, GPUSNAP_E_UNSUPPORTED, "'router bias' is of type BOOL");
	ROUTE_REFUSED(vocabulary, 9, GPUSNAP_E_INVALID, "a vocabulary of 9 without a hash table");
}
END_TEST

START_TEST(hash_routing_refuses_what_it_cannot_do)
{
	struct gsn_moe_route good = good_route;
	gpusnap_error err;

	good.score = GPUSNAP_SCORE_SQRT_SOFTPLUS;
	good.hash_dtype = GPUSNAP_I64;
	good.hash = 0x7000;
	good.token_ids = 0x8000;
	good.vocabulary = 100;
	ck_ok(gsn_moe_route_check(&good, &err));
	REFUSED(struct gsn_moe_route, gsn_moe_route_check, good, hash_dtype, GPUSNAP_U32,
		GPUSNAP_E_UNSUPPORTED, "'hash' is of type U32");
	REFUSED(struct gsn_moe_route, gsn_moe_route_check, good, hash, 0x7004, GPUSNAP_E_INVALID,
		"'hash', 0x7004, is no multiple");
	REFUSED(struct gsn_moe_route, gsn_moe_route_check, good, token_ids, 0, GPUSNAP_E_INVALID,
		"'token_ids' is 0");
	REFUSED(struct gsn_moe_route, gsn_moe_route_check, good, vocabulary, 0, GPUSNAP_E_INVALID,
		"'vocabulary' is 0");
	REFUSED(struct gsn_moe_route, gsn_moe_route_check, good, groups, 2, GPUSNAP_E_INVALID,
		"which leaves no choice");
	REFUSED(struct gsn_moe_route, gsn_moe_route_check, good, selection_bias, 0x9000,
		GPUSNAP_E_INVALID, "which leaves no choice");
}
END_TEST

START_TEST(experts_refuse_what_they_cannot_do)
{
	gpusnap_error err;

	ck_ok(gsn_moe_experts_check(&good_experts, &err));
	EXPERTS_REFUSED(intermediate, 0, GPUSNAP_E_INVALID, "'intermediate' is 0");
	EXPERTS_REFUSED(local_experts, 0, GPUSNAP_E_INVALID, "'local_experts' is 0");
	EXPERTS_REFUSED(mask_length, 0, GPUSNAP_E_INVALID, "'mask_length' is 0");
	EXPERTS_REFUSED(activation, 9, GPUSNAP_E_UNSUPPORTED, "activation 9");
	EXPERTS_REFUSED(weight_dtype, GPUSNAP_F8_E5M2, GPUSNAP_E_UNSUPPORTED, "type F8_E5M2");
	EXPERTS_REFUSED(weight_dtype, GPUSNAP_BF16, GPUSNAP_E_UNSUPPORTED, "weights are BF16");
	EXPERTS_REFUSED(block_k, 24, GPUSNAP_E_UNSUPPORTED, "blocks of 24 columns");
	EXPERTS_REFUSED(block_k, 0, GPUSNAP_E_INVALID, "blocks of 8 x 0");
	EXPERTS_REFUSED(block_n, 0, GPUSNAP_E_INVALID, "blocks of 0 x 16");
	EXPERTS_REFUSED(w13_scale, 0, GPUSNAP_E_INVALID, "'w13_scale' is 0");
	EXPERTS_REFUSED(w2_scale, 0, GPUSNAP_E_INVALID, "'w2_scale' is 0");
	EXPERTS_REFUSED(mask, 0, GPUSNAP_E_INVALID, "'mask' is 0");
	EXPERTS_REFUSED(y, 0xa002, GPUSNAP_E_INVALID, "'y', 0xa002");
	EXPERTS_REFUSED(scale_dtype, GPUSNAP_BF16, GPUSNAP_E_UNSUPPORTED, "of type BF16; F32, F8_");
	EXPERTS_REFUSED(limit, -1.0f, GPUSNAP_E_INVALID, "limited to -1");
	EXPERTS_REFUSED(limit, NAN, GPUSNAP_E_INVALID, "limited to nan");
	EXPERTS_REFUSED(limit, INFINITY, GPUSNAP_E_INVALID, "limited to inf");
	EXPERTS_REFUSED(weight_before_w2, 2, GPUSNAP_E_INVALID, "'weight_before_w2' is 2");
	EXPERTS_REFUSED(w13_bias, 0x1000, GPUSNAP_E_UNSUPPORTED, "'w13 bias' is of type BOOL");
	EXPERTS_REFUSED(w2_bias, 0x1000, GPUSNAP_E_UNSUPPORTED, "'w2 bias' is of type BOOL");
	EXPERTS_REFUSED(weight_dtype, GPUSNAP_F4, GPUSNAP_E_UNSUPPORTED, "a multiple of 32");
}
END_TEST

START_TEST(f4_rows_are_whole_bytes)
{
	struct gsn_moe_experts args = good_experts;
	gpusnap_error err;

	args.weight_dtype = GPUSNAP_F4;
	args.scale_dtype = GPUSNAP_F8_E8M0;
	args.block_n = 1;
	args.block_k = 32;
	args.w13_scale = 0x6001;
	ck_ok(gsn_moe_experts_check(&args, &err));
	args.intermediate = 9;
	ck_fails(gsn_moe_experts_check(&args, &err), GPUSNAP_E_INVALID, "rows of 8 and 9 F4");
}
END_TEST

START_TEST(scales_may_be_absent_from_f8)
{
	struct gsn_moe_experts args = good_experts;
	gpusnap_error err;

	args.block_n = args.block_k = 0;
	args.w13_scale = args.w2_scale = 0;
	ck_ok(gsn_moe_experts_check(&args, &err));
}
END_TEST

START_TEST(the_other_launches_refuse_what_they_cannot_do)
{
	const struct gsn_moe_combine combine = {
		.tokens = 1, .hidden = 8, .top_k = 0, .y = 16, .out = 16, .counters = 16};
	const struct gsn_rms_norm norm = {.tokens = 1,
		.hidden = 8,
		.weight_dtype = GPUSNAP_U8,
		.x = 16,
		.weight = 16,
		.out = 16};
	const struct gsn_moe_localise localise = {
		.pairs = 1, .first = INT32_MAX, .local = 1, .ids = 16, .out = 16};
	gpusnap_error err;

	ck_fails(gsn_moe_combine_check(&combine, &err), GPUSNAP_E_INVALID, "'top_k' is 0");
	ck_fails(gsn_rms_norm_check(&norm, &err), GPUSNAP_E_UNSUPPORTED, "type U8");
	ck_fails(gsn_moe_localise_check(&localise, &err), GPUSNAP_E_LIMIT, "from 2147483647 on");
}
END_TEST

/* The addresses are no memory: a call that went on would crash. */
START_TEST(a_refused_call_touches_nothing)
{
	struct gsn_host_moe host = {.path = gsn_cpu_path_best()};
	struct gsn_moe_experts experts = good_experts;
	struct gsn_moe_route route = good_route;
	const struct gsn_moe_combine combine = {0};
	const struct gsn_moe_localise localise = {0};
	const struct gsn_rms_norm norm = {0};
	gpusnap_error err;

	ck_ok(gsn_pool_create(2, &host.pool, &err));
	experts.block_k = 8;
	route.score = 0;
	ck_fails(gsn_host_moe_experts(&host, &experts, &err), GPUSNAP_E_UNSUPPORTED, "MoE experts");
	ck_fails(gsn_host_moe_route(&host, &route, &err), GPUSNAP_E_UNSUPPORTED, "MoE route");
	ck_fails(gsn_host_moe_combine(&host, &combine, &err), GPUSNAP_E_INVALID, "MoE combine");
	ck_fails(gsn_host_moe_localise(&host, &localise, &err), GPUSNAP_E_INVALID, "MoE localise");
	ck_fails(gsn_host_rms_norm(&host, &norm, &err), GPUSNAP_E_INVALID, "RMS norm");
	gsn_pool_destroy(host.pool);
}
END_TEST

START_TEST(scratch_that_overflows_is_said)
{
	struct gsn_moe_experts args = good_experts;

	args.tokens = args.top_k = args.intermediate = UINT32_MAX;
	ck_assert(gsn_host_moe_scratch_bytes(&args) == UINT64_MAX);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		route_refuses_what_it_cannot_do,
		experts_refuse_what_they_cannot_do,
		hash_routing_refuses_what_it_cannot_do,
		f4_rows_are_whole_bytes,
		scales_may_be_absent_from_f8,
		the_other_launches_refuse_what_they_cannot_do,
		a_refused_call_touches_nothing,
		scratch_that_overflows_is_said,
	};

	return RUN_SUITE("moe_args", tests);
}
