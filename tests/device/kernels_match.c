/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts, what runs over whole tokens, and digests of any device against the host's: the same bits
 * over random shapes, alignments and masks, and over the shapes of real layers. The device's name
 * is the argument, "host" by default; a device that is not there is a skip.
 */
#include <math.h>

#include <gpusnap/moe.h>

#include "tests/device/bits_match.h"
#include "tests/support/expert_case.h"

enum { MOST_DIGEST_BYTES = 4 << 20 };

/* ---- experts ---- */

/* The same arguments over copies on the device. */
static struct gsn_moe_experts args_on_device(struct bench *b, struct expert_case *test)
{
	struct gsn_moe_experts args = expert_case_args(test);
	uint64_t pairs = (uint64_t)test->tokens * test->top_k;
	uint64_t experts = test->local_experts;
	uint32_t width = expert_case_width(test);

	args.x = upload(b, test->x, (uint64_t)test->tokens * test->hidden * 4, some_shift(b, 4));
	args.ids = upload(b, test->ids, pairs * 4, some_shift(b, 4));
	args.weights = upload(b, test->weights, pairs * 4, some_shift(b, 4));
	args.mask = upload(b, test->mask, (uint64_t)test->mask_length * 4, some_shift(b, 4));
	args.w13 =
		upload(b, test->w13, experts * expert_case_w13_bytes(test), some_shift(b, width));
	args.w2 = upload(b, test->w2, experts * expert_case_w2_bytes(test), some_shift(b, width));
	if (test->block_n) {
		uint32_t scale = expert_case_scale_width(test);

		args.w13_scale = upload(b, test->w13_scale,
			experts * expert_case_w13_scales(test) * scale, some_shift(b, scale));
		args.w2_scale = upload(b, test->w2_scale,
			experts * expert_case_w2_scales(test) * scale, some_shift(b, scale));
	}
	if (test->biased) {
		uint32_t bias = expert_case_bias_width(test);

		args.w13_bias = upload(b, test->w13_bias, experts * 2 * test->intermediate * bias,
			some_shift(b, bias));
		args.w2_bias = upload(
			b, test->w2_bias, experts * test->hidden * bias, some_shift(b, bias));
	}
	args.scratch = take(b, b->f.ops->moe_scratch_bytes(&args), some_shift(b, 4));
	args.y = take(b, expert_case_y_count(test) * 4, some_shift(b, 4));
	args.counters = new_counters(b);
	return args;
}

static void check_experts(struct bench *b, struct expert_case *test)
{
	struct gsn_moe_experts args;
	gpusnap_error err;
	char what[160];

	b->used = 0;
	args = args_on_device(b, test);
	expert_case_run(test, b->host.path, b->host.pool);
	ck_ok(b->f.ops->moe_experts(b->stream, &args, &err));
	ck_ok(b->f.ops->stream_sync(b->stream, &err));
	(void)snprintf(what, sizeof what,
		"y of %u tokens, top %u of %u, %u x %u, %s, block %u x %u", test->tokens,
		test->top_k, test->local_experts, test->hidden, test->intermediate,
		gpusnap_dtype_name(test->dtype), test->block_n, test->block_k);
	check_words(b, args.y, test->y, expert_case_y_count(test), what);
	check_counters(b, args.counters, &test->counters);
}

static void draw_scales(struct bench *b, struct expert_case *test)
{
	const uint32_t columns[] = {32, 64, 128, 96, 16};

	if (random_below(&b->random, 4) == 0)
		return;
	test->block_n = random_below(&b->random, 2) ? 1 : between(b, 1, 40);
	test->block_k = columns[random_below(&b->random, test->dtype == GPUSNAP_F4 ? 4 : 5)];
	test->e8m0 = random_below(&b->random, 2);
}

/* Gpt-oss and DeepSeek-V4 and everything in between. */
static void draw_activation(struct bench *b, struct expert_case *test)
{
	const gpusnap_dtype dtypes[] = {GPUSNAP_BF16, GPUSNAP_F16, GPUSNAP_F32};

	test->activation = (gpusnap_activation)between(b, 1, 2);
	test->limit = random_below(&b->random, 2) ? 7.0f : 0.0f;
	test->weight_before_w2 = random_below(&b->random, 2);
	test->biased = random_below(&b->random, 2);
	test->bias_dtype = dtypes[random_below(&b->random, 3)];
}

static void draw_experts(struct bench *b, struct expert_case *test)
{
	const gpusnap_dtype dtypes[] = {GPUSNAP_BF16, GPUSNAP_F8_E4M3, GPUSNAP_F16, GPUSNAP_F32,
		GPUSNAP_F8_E4M3, GPUSNAP_F4, GPUSNAP_F4};

	memset(test, 0, sizeof *test);
	test->dtype = dtypes[random_below(&b->random, 7)];
	test->tokens = random_below(&b->random, 3) ? between(b, 1, 20) : 1;
	test->hidden = some_length(b);
	test->intermediate = some_length(b);
	if (test->dtype == GPUSNAP_F4) {
		test->hidden += test->hidden % 2;
		test->intermediate += test->intermediate % 2;
	}
	test->mask_length = between(b, 1, 12);
	test->local_experts = test->mask_length;
	test->top_k = between(b, 1, test->mask_length);
	draw_activation(b, test);
	if (test->dtype == GPUSNAP_F8_E4M3 || test->dtype == GPUSNAP_F4)
		draw_scales(b, test);
}

/* Drop experts from the mask, put in values that no mask has, ids that no mask knows. */
static void spoil_experts(struct bench *b, struct expert_case *test)
{
	const int32_t odd[] = {-1, 2, INT32_MAX, INT32_MIN};

	for (uint32_t i = 0; i < test->mask_length; i++)
		if (random_below(&b->random, 3) == 0)
			test->mask[i] = 0;
	if (random_below(&b->random, 3) == 0)
		test->mask[between(b, 0, test->mask_length - 1)] = odd[random_below(&b->random, 4)];
	if (random_below(&b->random, 3) == 0)
		test->ids[between(b, 0, test->tokens * test->top_k - 1)] =
			odd[random_below(&b->random, 4)];
}

START_TEST(experts_of_random_shapes_give_the_hosts_bits)
{
	struct bench b = open_bench(UINT64_C(256) << 20, 101);

	for (int i = 0; i < cases(); i++) {
		struct expert_case test;

		draw_experts(&b, &test);
		expert_case_make(&test, random_u64(&b.random));
		if (i % 2)
			spoil_experts(&b, &test);
		check_experts(&b, &test);
		expert_case_free(&test);
	}
	close_bench(&b);
}
END_TEST

/* Any bits for weights: NaN codes, infinities, subnormals. */
START_TEST(experts_of_random_bits_give_the_hosts_bits_and_faults)
{
	struct bench b = open_bench(UINT64_C(256) << 20, 102);

	for (int i = 0; i < (cases() + 3) / 4; i++) {
		struct expert_case test;

		draw_experts(&b, &test);
		expert_case_make(&test, random_u64(&b.random));
		random_fill(&b.random, test.w13, test.local_experts * expert_case_w13_bytes(&test));
		random_fill(&b.random, test.w2, test.local_experts * expert_case_w2_bytes(&test));
		check_experts(&b, &test);
		expert_case_free(&test);
	}
	close_bench(&b);
}
END_TEST

/* Like those of Qwen3, gpt-oss (a third of it, BF16 and MXFP4), DeepSeek-V3 and -V4. */
static const struct expert_case real_layers[] = {
	{.hidden = 2048,
		.intermediate = 768,
		.top_k = 8,
		.mask_length = 24,
		.dtype = GPUSNAP_F8_E4M3,
		.block_n = 128,
		.block_k = 128},
	{.hidden = 2880, .intermediate = 2880, .top_k = 4, .mask_length = 5, .dtype = GPUSNAP_BF16},
	{.hidden = 2880,
		.intermediate = 2880,
		.top_k = 4,
		.mask_length = 5,
		.dtype = GPUSNAP_F4,
		.block_n = 1,
		.block_k = 32,
		.e8m0 = true,
		.biased = true,
		.bias_dtype = GPUSNAP_BF16,
		.activation = GPUSNAP_ACTIVATION_SWIGLU_OAI,
		.limit = 7.0f},
	{.hidden = 4096,
		.intermediate = 1408,
		.top_k = 2,
		.mask_length = 3,
		.dtype = GPUSNAP_F8_E4M3,
		.block_n = 128,
		.block_k = 128},
	{.hidden = 4096,
		.intermediate = 512,
		.top_k = 2,
		.mask_length = 3,
		.dtype = GPUSNAP_F4,
		.block_n = 1,
		.block_k = 32,
		.e8m0 = true,
		.limit = 10.0f,
		.weight_before_w2 = true},
};

START_TEST(experts_of_real_layers_give_the_hosts_bits_at_every_batch)
{
	static const uint32_t batches[] = {1, 2, 3, 8, 33};
	struct bench b = open_bench(UINT64_C(1) << 30, 103);

	for (size_t i = 0; i < sizeof real_layers / sizeof real_layers[0]; i++) {
		for (size_t t = 0; t < sizeof batches / sizeof batches[0]; t++) {
			struct expert_case test = real_layers[i];

			test.tokens = batches[t];
			test.local_experts = test.mask_length;
			expert_case_make(&test, random_u64(&b.random));
			check_experts(&b, &test);
			expert_case_free(&test);
		}
	}
	close_bench(&b);
}
END_TEST

/* ---- tokens ---- */

/* Floats of a type. */
static uint8_t *elements_of(struct bench *b, gpusnap_dtype dtype, uint64_t count)
{
	uint32_t width = gpusnap_dtype_bits(dtype) / 8;
	uint8_t *values = host_memory(count * width);

	for (uint64_t i = 0; i < count; i++) {
		float value = random_unit(&b->random);
		uint32_t bits = (uint32_t)random_u64(&b->random) & 0xbbff;

		memcpy(values + i * width, width == 4 ? (const void *)&value : (const void *)&bits,
			width);
	}
	return values;
}

static float *floats(struct bench *b, uint64_t count)
{
	float *values = (float *)(void *)host_memory(count * sizeof *values);

	for (uint64_t i = 0; i < count; i++)
		values[i] = random_unit(&b->random);
	return values;
}

START_TEST(sums_over_slots_give_the_hosts_bits_and_faults)
{
	struct bench b = open_bench(UINT64_C(64) << 20, 105);
	gpusnap_error err;

	for (int i = 0; i < (cases() + 3) / 4; i++) {
		struct gsn_moe_combine args = {.tokens = between(&b, 1, 40),
			.hidden = some_length(&b),
			.top_k = between(&b, 1, 9)};
		uint64_t count = (uint64_t)args.tokens * args.hidden;
		float *y = floats(&b, count * args.top_k);
		float *shared = floats(&b, count);
		float *out = (float *)(void *)host_memory(count * 4);
		struct gsn_moe_counters counters = {0};
		struct gsn_moe_combine host = args;

		if (i % 5 == 0)
			y[random_below(&b.random, count * args.top_k)] = -HUGE_VALF;
		b.used = 0;
		host.y = gsn_host_address(y);
		host.out = gsn_host_address(out);
		host.counters = gsn_host_address(&counters);
		host.shared = i % 2 ? gsn_host_address(shared) : 0;
		ck_ok(gsn_host_moe_combine(&b.host, &host, &err));
		args.y = upload(&b, y, count * args.top_k * 4, some_shift(&b, 4));
		if (host.shared)
			args.shared = upload(&b, shared, count * 4, some_shift(&b, 4));
		args.out = take(&b, count * 4, some_shift(&b, 4));
		args.counters = new_counters(&b);
		ck_ok(b.f.ops->moe_combine(b.stream, &args, &err));
		ck_ok(b.f.ops->stream_sync(b.stream, &err));
		check_words(&b, args.out, out, count, "out");
		check_counters(&b, args.counters, &counters);
		free(y);
		free(shared);
		free(out);
	}
	close_bench(&b);
}
END_TEST

START_TEST(norms_give_the_hosts_bits)
{
	const gpusnap_dtype dtypes[] = {GPUSNAP_BF16, GPUSNAP_F16, GPUSNAP_F32};
	struct bench b = open_bench(UINT64_C(64) << 20, 106);
	gpusnap_error err;

	for (int i = 0; i < (cases() + 3) / 4; i++) {
		struct gsn_rms_norm args = {.tokens = between(&b, 1, 40),
			.hidden = some_length(&b),
			.epsilon = 1e-6f,
			.weight_dtype = dtypes[i % 3]};
		uint64_t count = (uint64_t)args.tokens * args.hidden;
		uint32_t width = gpusnap_dtype_bits(args.weight_dtype) / 8;
		uint8_t *weight = elements_of(&b, args.weight_dtype, args.hidden);
		float *x = floats(&b, count);
		float *out = (float *)(void *)host_memory(count * 4);
		struct gsn_rms_norm host = args;

		b.used = 0;
		host.x = gsn_host_address(x);
		host.weight = gsn_host_address(weight);
		host.out = gsn_host_address(out);
		ck_ok(gsn_host_rms_norm(&b.host, &host, &err));
		args.x = upload(&b, x, count * 4, some_shift(&b, 4));
		args.weight =
			upload(&b, weight, (uint64_t)args.hidden * width, some_shift(&b, width));
		args.out = i % 4 ? take(&b, count * 4, some_shift(&b, 4)) : args.x;
		ck_ok(b.f.ops->rms_norm(b.stream, &args, &err));
		ck_ok(b.f.ops->stream_sync(b.stream, &err));
		check_words(&b, args.out, out, count, "out");
		free(weight);
		free(x);
		free(out);
	}
	close_bench(&b);
}
END_TEST

START_TEST(ids_are_made_local_as_on_the_host)
{
	enum { PAIRS = 700 };
	struct bench b = open_bench(UINT64_C(1) << 20, 107);
	struct gsn_moe_localise args = {.pairs = PAIRS, .first = 32, .local = 16};
	int32_t ids[PAIRS], expected[PAIRS];
	struct gsn_moe_localise host = args;
	gpusnap_error err;

	for (int i = 0; i < PAIRS; i++)
		ids[i] = i % 50 == 0 ? INT32_MIN : (int32_t)between(&b, 0, 63);
	host.ids = gsn_host_address(ids);
	host.out = gsn_host_address(expected);
	ck_ok(gsn_host_moe_localise(&b.host, &host, &err));
	args.ids = args.out = upload(&b, ids, sizeof ids, 4);
	ck_ok(b.f.ops->moe_localise(b.stream, &args, &err));
	ck_ok(b.f.ops->stream_sync(b.stream, &err));
	check_words(&b, args.out, expected, PAIRS, "ids");
	close_bench(&b);
}
END_TEST

/* ---- digests ---- */

START_TEST(digests_of_random_ranges_are_the_librarys)
{
	struct bench b = open_bench(MOST_DIGEST_BYTES + 64, 108);
	uint8_t *data = host_memory(MOST_DIGEST_BYTES);
	gpusnap_digest digests[MOST_DIGEST_BYTES / GPUSNAP_LEAF_BYTES + 1];
	gpusnap_error err;

	random_fill(&b.random, data, MOST_DIGEST_BYTES);
	put(&b.f, b.memory, data, MOST_DIGEST_BYTES);
	for (int i = 0; i < cases(); i++) {
		uint64_t most = i % 3 ? 3 * GPUSNAP_LEAF_BYTES : MOST_DIGEST_BYTES;
		uint64_t bytes = 1 + random_below(&b.random, most);
		uint64_t at = random_below(&b.random, MOST_DIGEST_BYTES - bytes + 1);
		struct gsn_leaf_range range = {b.memory + at, bytes, digests};

		if (i % 2)
			range.address = b.memory + (at &= ~UINT64_C(15));
		ck_ok(gsn_device_digest_sync(b.f.device, &range, 1, &err));
		for (uint64_t leaf = 0; leaf < gpusnap_leaf_count(bytes); leaf++) {
			uint64_t begin = leaf * GPUSNAP_LEAF_BYTES;
			uint64_t length = gsn_min(GPUSNAP_LEAF_BYTES, bytes - begin);

			ck_assert_msg(gpusnap_digest_equal(digests[leaf],
					      gpusnap_digest_of(data + at + begin, length)),
				"leaf %" PRIu64 " of %" PRIu64 " bytes at %" PRIu64, leaf, bytes,
				at);
		}
	}
	free(data);
	close_bench(&b);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		experts_of_random_shapes_give_the_hosts_bits,
		experts_of_random_bits_give_the_hosts_bits_and_faults,
		experts_of_real_layers_give_the_hosts_bits_at_every_batch,
		sums_over_slots_give_the_hosts_bits_and_faults,
		norms_give_the_hosts_bits,
		ids_are_made_local_as_on_the_host,
		digests_of_random_ranges_are_the_librarys,
	};

	if (argc > 1)
		device_name = argv[1];
	if (!device_is_there(device_name))
		return 77;
	return RUN_SUITE("kernels_match", tests);
}
