/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routers of any device against the host's: the same bits over all scores, types, biases,
 * groups and hash tables. The device's name is the argument, "host" by default; a device that is
 * not there is a skip.
 */
#include <math.h>

#include "tests/device/bits_match.h"
#include "tests/support/route_case.h"

/* The same arguments over copies on the device. */
static struct gsn_moe_route route_on_device(struct bench *b, struct route_case *test)
{
	struct gsn_moe_route args = route_case_args(test);
	uint32_t width = gpusnap_dtype_bits(test->router_dtype) / 8;
	uint64_t experts = test->experts;

	args.x = upload(b, test->x, (uint64_t)test->tokens * test->hidden * 4, some_shift(b, 4));
	args.router = upload(b, test->router, experts * test->hidden * width, some_shift(b, width));
	if (test->selection_biased) {
		width = gpusnap_dtype_bits(test->selection_bias_dtype) / 8;
		args.selection_bias =
			upload(b, test->selection_bias, experts * width, some_shift(b, width));
	}
	if (test->router_biased) {
		width = gpusnap_dtype_bits(test->router_bias_dtype) / 8;
		args.router_bias =
			upload(b, test->router_bias, experts * width, some_shift(b, width));
	}
	if (test->vocabulary) {
		args.hash = upload(b, test->hash, route_case_hash_bytes(test),
			some_shift(b, gpusnap_dtype_bits(test->hash_dtype) / 8));
		args.token_ids =
			upload(b, test->token_ids, (uint64_t)test->tokens * 4, some_shift(b, 4));
	}
	args.logits = take(b, route_case_logit_count(test) * 4, 0);
	args.keys = take(b, route_case_logit_count(test) * 4, 0);
	args.ids = take(b, route_case_pair_count(test) * 4, 0);
	args.weights = take(b, route_case_pair_count(test) * 4, 0);
	args.counters = new_counters(b);
	return args;
}

static void check_route(struct bench *b, struct route_case *test)
{
	struct gsn_moe_route args;
	gpusnap_error err;
	char what[120];

	b->used = 0;
	args = route_on_device(b, test);
	route_case_run(test, b->host.path, b->host.pool);
	ck_ok(b->f.ops->moe_route(b->stream, &args, &err));
	ck_ok(b->f.ops->stream_sync(b->stream, &err));
	(void)snprintf(what, sizeof what, "score %d, top %u of %u, %u groups, vocabulary %u",
		(int)test->score, test->top_k, test->experts, test->groups, test->vocabulary);
	check_words(b, args.logits, test->logits, route_case_logit_count(test), what);
	check_words(b, args.ids, test->ids, route_case_pair_count(test), what);
	check_words(b, args.weights, test->weights, route_case_pair_count(test), what);
	check_counters(b, args.counters, &test->counters);
}

/* Equal logits, NaN and infinities among them, and entries of hash tables that are no experts. */
static void spoil_routing(struct bench *b, struct route_case *test)
{
	uint64_t row = (uint64_t)test->hidden * gpusnap_dtype_bits(test->router_dtype) / 8;
	uint64_t count = (uint64_t)test->tokens * test->hidden;

	if (random_below(&b->random, 2))
		memcpy(test->router + row * between(b, 0, test->experts - 1),
			test->router + row * between(b, 0, test->experts - 1), row);
	if (random_below(&b->random, 3) == 0)
		memset(test->router + row * between(b, 0, test->experts - 1), 0x7f, row);
	if (random_below(&b->random, 4) == 0)
		test->x[random_below(&b->random, count)] = HUGE_VALF;
	if (random_below(&b->random, 6) == 0)
		memset(test->x, 0xff, count * sizeof *test->x);
	if (test->vocabulary) {
		test->token_ids[between(b, 0, test->tokens - 1)] = (int32_t)test->vocabulary;
		test->hash[random_below(&b->random, route_case_hash_bytes(test))] ^= 0xff;
	}
}

START_TEST(routes_give_the_hosts_bits)
{
	struct bench b = open_bench(UINT64_C(64) << 20, 104);

	for (int i = 0; i < 2 * cases(); i++) {
		struct route_case test = {.tokens = between(&b, 1, 20), .hidden = some_length(&b)};

		route_case_draw(&test, 300, &b.random);
		if (i % 5 == 0 && !test.groups)
			test.top_k = between(&b, 1, test.experts < 40 ? test.experts : 40);
		route_case_make(&test, &b.random);
		if (i % 4 == 3)
			spoil_routing(&b, &test);
		check_route(&b, &test);
		route_case_free(&test);
	}
	close_bench(&b);
}
END_TEST

/* As many groups as there may be, more than a warp has lanes. */
START_TEST(routes_among_64_groups_give_the_hosts_bits)
{
	struct bench b = open_bench(UINT64_C(16) << 20, 109);

	for (uint32_t groups = 28; groups <= GSN_MOE_GROUPS_MAX; groups += 4) {
		struct route_case test = {.tokens = 7,
			.hidden = 64,
			.experts = 4 * groups,
			.top_k = 8,
			.score = groups % 8 ? GPUSNAP_SCORE_SIGMOID : GPUSNAP_SCORE_SQRT_SOFTPLUS,
			.router_dtype = GPUSNAP_BF16,
			.selection_biased = true,
			.selection_bias_dtype = GPUSNAP_F32,
			.groups = groups,
			.top_groups = groups / 3};

		route_case_make(&test, &b.random);
		check_route(&b, &test);
		route_case_free(&test);
	}
	close_bench(&b);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		routes_give_the_hosts_bits,
		routes_among_64_groups_give_the_hosts_bits,
	};

	if (argc > 1)
		device_name = argv[1];
	if (!device_is_there(device_name))
		return 77;
	return RUN_SUITE("routes_match", tests);
}
