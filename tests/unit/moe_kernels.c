/* SPDX-License-Identifier: Apache-2.0 */
/* The experts of a layer on the host: right within the error of float32, and always the same bits.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <gpusnap/digest.h>
#include <gpusnap/mask.h>
#include <gpusnap/moe.h>

#include "formats/base/alloc.h"
#include "kernels/moe_math.h"
#include "tests/support/expert_case.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { RANDOM_CASES = 320, MAX_THREADS = 4 };

static struct gsn_pool *pools[MAX_THREADS + 1]; /* by threads */

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

static const struct gsn_cpu_path *portable(void)
{
	return gsn_cpu_path_at(0);
}

static uint32_t between(uint64_t *random, uint32_t low, uint32_t high)
{
	return low + (uint32_t)random_below(random, high - low + 1);
}

/* Rows shorter than a chunk, than a round, and longer; mostly odd. */
static uint32_t draw_length(uint64_t *random)
{
	switch (random_below(random, 4)) {
	case 0:
		return between(random, 1, 8);
	case 1:
		return between(random, 9, 70);
	case 2:
		return 16 * between(random, 1, 9);
	default:
		return between(random, 71, 200);
	}
}

static void draw_sizes(struct expert_case *test, uint64_t *random)
{
	const gpusnap_dtype dtypes[] = {
		GPUSNAP_BF16, GPUSNAP_F8_E4M3, GPUSNAP_F16, GPUSNAP_F32, GPUSNAP_F8_E4M3};
	const uint32_t columns[] = {16, 32, 48, 64, 128};

	memset(test, 0, sizeof *test);
	test->dtype = dtypes[random_below(random, 5)];
	test->hidden = draw_length(random);
	test->intermediate = draw_length(random);
	test->tokens = between(random, 1, test->hidden > 70 ? 2 : 6);
	test->mask_length = between(random, 1, 8);
	test->local_experts = test->mask_length;
	test->top_k = random_below(random, 4) == 0
			      ? test->mask_length
			      : between(random, 1, test->mask_length < 3 ? test->mask_length : 3);
	if (test->dtype == GPUSNAP_F8_E4M3 && random_below(random, 4)) {
		test->block_n = between(random, 1, 40);
		test->block_k = columns[random_below(random, 5)];
	}
}

/* Drop some experts from the mask; weights of those that stay come first. */
static void make_holes(struct expert_case *test, uint64_t *random)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < test->mask_length; i++) {
		test->mask[i] = random_below(random, 3) != 0;
		kept += (uint32_t)test->mask[i];
	}
	test->local_experts = kept ? kept : 1;
}

static int64_t local_id(const struct expert_case *test, int32_t id)
{
	int64_t local = 0;

	for (int32_t i = 0; i < id; i++)
		local += test->mask[i];
	return local;
}

static void check_pair(const struct expert_case *test, uint32_t pair, double *y, double *bound)
{
	const float *got = test->y + (size_t)pair * test->hidden;
	int32_t id = test->ids[pair];

	if (!test->mask[id]) {
		for (uint32_t i = 0; i < test->hidden; i++)
			ck_assert_uint_eq(gsn_float_bits(got[i]), 0);
		return;
	}
	expert_case_reference(test, pair, (uint32_t)local_id(test, id), y, bound);
	for (uint32_t i = 0; i < test->hidden; i++)
		ck_assert_msg(fabs((double)got[i] - y[i]) <= bound[i],
			"pair %u, row %u of %u x %u, %s: %.9g, not %.9g +- %.3g", pair, i,
			test->hidden, test->intermediate, gpusnap_dtype_name(test->dtype),
			(double)got[i], y[i], bound[i]);
}

static void check_against_float64(const struct expert_case *test)
{
	double *y = gsn_alloc(test->hidden, sizeof *y);
	double *bound = gsn_alloc(test->hidden, sizeof *bound);
	uint32_t pairs = test->tokens * test->top_k;
	uint64_t local = 0;

	for (uint32_t pair = 0; pair < pairs; pair++) {
		check_pair(test, pair, y, bound);
		local += (uint64_t)test->mask[test->ids[pair]];
	}
	ck_assert_uint_eq(test->counters.local, local);
	ck_assert_uint_eq(test->counters.remote, pairs - local);
	ck_assert_uint_eq(test->counters.faults, 0);
	gsn_free(y);
	gsn_free(bound);
}

static float *copy_of_y(const struct expert_case *test)
{
	float *copy = gsn_alloc(expert_case_y_count(test), sizeof *copy);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, test->y, expert_case_y_count(test) * sizeof *copy);
	return copy;
}

static void check_bits(const float *got, const float *expected, uint64_t count, const char *what)
{
	for (uint64_t i = 0; i < count; i++)
		ck_assert_msg(gsn_float_bits(got[i]) == gsn_float_bits(expected[i]),
			"%s: value %lu is %a, not %a", what, (unsigned long)i, (double)got[i],
			(double)expected[i]);
}

/* All paths, each with another number of threads, give what y holds now. */
static void check_all_paths(struct expert_case *test, uint32_t threads)
{
	const struct gsn_cpu_path *path;
	float *expected = copy_of_y(test);
	struct gsn_moe_counters counters = test->counters;

	for (size_t i = 0; (path = gsn_cpu_path_at(i)); i++) {
		threads = threads % MAX_THREADS + 1;
		expert_case_run(test, path, pools[threads]);
		check_bits(test->y, expected, expert_case_y_count(test), path->name);
		ck_assert_mem_eq(&test->counters, &counters, sizeof counters);
	}
	gsn_free(expected);
}

START_TEST(experts_agree_with_float64_and_all_paths_and_threads_with_each_other)
{
	uint64_t random = random_seed(1);

	open_pools();
	for (uint32_t i = 0; i < RANDOM_CASES; i++) {
		struct expert_case test;

		draw_sizes(&test, &random);
		expert_case_make(&test, random_u64(&random));
		if (i % 2)
			make_holes(&test, &random);
		expert_case_run(&test, portable(), pools[1]);
		check_against_float64(&test);
		check_all_paths(&test, i);
		expert_case_free(&test);
	}
	close_pools();
}
END_TEST

/* A layer like real ones, scaled down: whole rounds and blocks, more tokens than a tile has. */
static void make_layer(struct expert_case *test, gpusnap_dtype dtype, uint32_t tokens)
{
	*test = (struct expert_case){.tokens = tokens,
		.hidden = 256,
		.intermediate = 128,
		.top_k = 4,
		.mask_length = 8,
		.local_experts = 8,
		.dtype = dtype};
	if (dtype == GPUSNAP_F8_E4M3)
		test->block_n = test->block_k = 128;
	expert_case_make(test, 7);
}

/* One token alone: its x, ids, weights and y are parts of the batch's. */
static void run_token(struct expert_case *test, uint32_t token, const struct gsn_host_moe *host)
{
	struct gsn_moe_experts args = expert_case_args(test);
	uint64_t pair = (uint64_t)token * test->top_k;
	gpusnap_error err;

	args.tokens = 1;
	args.x += (uint64_t)token * test->hidden * sizeof(float);
	args.ids += pair * sizeof(int32_t);
	args.weights += pair * sizeof(float);
	args.y += pair * test->hidden * sizeof(float);
	ck_ok(gsn_host_moe_experts(host, &args, &err));
}

START_TEST(a_token_gives_the_same_bits_alone_and_in_a_batch_of_64)
{
	const gpusnap_dtype dtypes[] = {GPUSNAP_BF16, GPUSNAP_F8_E4M3, GPUSNAP_F32};

	open_pools();
	for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
		const struct gsn_host_moe host = {pools[2], gsn_cpu_path_best()};
		struct expert_case test;
		float *batch;

		make_layer(&test, dtypes[d], 64);
		expert_case_run(&test, host.path, pools[2]);
		batch = copy_of_y(&test);
		memset(test.y, 0xff, expert_case_y_count(&test) * sizeof *test.y);
		for (uint32_t token = 0; token < test.tokens; token++)
			run_token(&test, token, &host);
		check_bits(test.y, batch, expert_case_y_count(&test), "alone");
		gsn_free(batch);
		expert_case_free(&test);
	}
	close_pools();
}
END_TEST

/*
 * Probe records in snapshots hold digests of such outputs: another value here makes every snapshot
 * that is out there fail its validation.
 */
START_TEST(bits_are_those_that_snapshots_have_recorded)
{
	static const struct {
		gpusnap_dtype dtype;
		const char *digest;
	} recorded[] = {
		{GPUSNAP_BF16, "d05baa095f7d4e08c4b9ac8269e072ba"},
		{GPUSNAP_F16, "067aa316dc78a42f4659fc5d1e55278c"},
		{GPUSNAP_F32, "6bc61cf0ae732d8a98106182c00056e7"},
		{GPUSNAP_F8_E4M3, "20eba385f4aecb8b10ac21bd85fac81a"},
	};

	open_pools();
	for (size_t i = 0; i < sizeof recorded / sizeof recorded[0]; i++) {
		char text[GPUSNAP_DIGEST_TEXT];
		gpusnap_digest digest;
		struct expert_case test;

		make_layer(&test, recorded[i].dtype, 5);
		expert_case_run(&test, gsn_cpu_path_best(), pools[2]);
		digest = gpusnap_digest_of(test.y, expert_case_y_count(&test) * sizeof *test.y);
		ck_assert_str_eq(gpusnap_digest_format(digest, text), recorded[i].digest);
		expert_case_free(&test);
	}
	close_pools();
}
END_TEST

/* What one rank of `world` computes, added to `sum`. */
static void add_rank(
	struct expert_case *test, uint32_t rank, uint32_t world, float *sum, gpusnap_mask_kind kind)
{
	const struct gsn_host_moe host = {pools[3], gsn_cpu_path_best()};
	struct gsn_moe_experts args = expert_case_args(test);
	gpusnap_mask_type type = {.kind = kind, .experts = test->mask_length, .world = world};
	int32_t mask[16], ids[256];
	gpusnap_error err;

	type.rank = rank;
	gpusnap_expert_block(type.experts, rank, world, &type.first, &type.local);
	ck_assert_uint_le(gpusnap_mask_length(&type), 16);
	gpusnap_mask_fill(&type, mask);
	args.mask = (gpusnap_address)(uintptr_t)mask;
	args.mask_length = gpusnap_mask_length(&type); /* a deepep mask may be longer than E */
	ck_assert_uint_le(gsn_host_moe_scratch_bytes(&args), test->scratch_bytes);
	args.local_experts = type.local;
	args.w13 += type.first * expert_case_w13_bytes(test);
	args.w2 += type.first * expert_case_w2_bytes(test);
	if (kind == GPUSNAP_MASK_DEEPEP) {
		const struct gsn_moe_localise localise = {.pairs = test->tokens * test->top_k,
			.first = type.first,
			.local = type.local,
			.ids = args.ids,
			.out = (gpusnap_address)(uintptr_t)ids};

		ck_ok(gsn_host_moe_localise(&host, &localise, &err));
		args.ids = localise.out;
	}
	ck_ok(gsn_host_moe_experts(&host, &args, &err));
	for (uint64_t i = 0; i < expert_case_y_count(test); i++)
		sum[i] = gsn_canonical(sum[i] + test->y[i]);
}

START_TEST(ranks_summed_slot_by_slot_give_the_bits_of_one_rank)
{
	const gpusnap_mask_kind kinds[] = {GPUSNAP_MASK_STANDARD, GPUSNAP_MASK_DEEPEP};

	open_pools();
	for (uint32_t world = 1; world <= 5; world++) {
		for (size_t k = 0; k < 2; k++) {
			struct expert_case test;
			float *whole, *sum;
			uint64_t count;

			make_layer(&test, GPUSNAP_BF16, 5);
			test.scratch = gsn_grow(
				test.scratch, test.scratch_bytes, test.scratch_bytes + 64, 1);
			test.scratch_bytes += 64;
			/* A row of zeros times a negative weight: -0 must not show. */
			test.weights[3] = -0.75f;
			memset(test.w2 + (uint64_t)test.ids[3] * expert_case_w2_bytes(&test), 0,
				(size_t)test.intermediate * expert_case_width(&test));
			count = expert_case_y_count(&test);
			expert_case_run(&test, portable(), pools[1]);
			whole = copy_of_y(&test);
			memset(&test.counters, 0, sizeof test.counters);
			sum = gsn_alloc(count, sizeof *sum);
			for (uint32_t rank = 0; rank < world; rank++)
				add_rank(&test, rank, world, sum, kinds[k]);
			check_bits(sum, whole, count, "sum of ranks");
			ck_assert_uint_eq(test.counters.local, 20);
			ck_assert_uint_eq(test.counters.remote, UINT64_C(20) * (world - 1));
			ck_assert_uint_eq(test.counters.faults, 0);
			gsn_free(whole);
			gsn_free(sum);
			expert_case_free(&test);
		}
	}
	close_pools();
}
END_TEST

static void check_zero_row(const struct expert_case *test, uint32_t pair)
{
	for (uint32_t i = 0; i < test->hidden; i++)
		ck_assert_uint_eq(gsn_float_bits(test->y[(size_t)pair * test->hidden + i]), 0);
}

START_TEST(ids_outside_the_mask_are_a_fault_and_give_zero)
{
	const int32_t bad[] = {-1, 8, INT32_MAX, INT32_MIN};

	open_pools();
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct expert_case test;

		make_layer(&test, GPUSNAP_BF16, 2);
		test.ids[5] = bad[i];
		expert_case_run(&test, gsn_cpu_path_best(), pools[2]);
		ck_assert_uint_eq(test.counters.faults, GSN_MOE_FAULT_EXPERT_ID);
		ck_assert_uint_eq(test.counters.local, 7);
		ck_assert_uint_eq(test.counters.remote, 0);
		check_zero_row(&test, 5);
		expert_case_free(&test);
	}
	close_pools();
}
END_TEST

/* Values that are no zeros and ones shift the local ids behind them: see what is caught here. */
START_TEST(masks_that_lead_out_of_the_local_experts_are_a_fault)
{
	const int32_t bad[][8] = {
		{1, 1, 1, 1, 2, 1, 1, 1},  /* the last expert becomes 8 */
		{-1, 1, 1, 1, 1, 1, 1, 1}, /* an index map's "remote" */
		{INT32_MAX, 1, 1, 1, 1, 1, 1, 1},
		{INT32_MAX, INT32_MAX, 2, 1, 1, 1, 1, 1}, /* must not wrap to a valid id */
	};

	open_pools();
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct expert_case test;

		make_layer(&test, GPUSNAP_BF16, 8);
		memcpy(test.mask, bad[i], sizeof bad[i]);
		expert_case_run(&test, gsn_cpu_path_best(), pools[2]);
		ck_assert_uint_eq(test.counters.faults, GSN_MOE_FAULT_LOCAL_ID);
		for (uint32_t pair = 0; pair < 32; pair++)
			if (local_id(&test, test.ids[pair]) < 0 ||
				local_id(&test, test.ids[pair]) >= 8)
				check_zero_row(&test, pair);
		expert_case_free(&test);
	}
	close_pools();
}
END_TEST

START_TEST(a_mask_of_zeros_gives_zeros_and_counts_all_as_remote)
{
	struct expert_case test;

	open_pools();
	make_layer(&test, GPUSNAP_F8_E4M3, 3);
	memset(test.mask, 0, 8 * sizeof *test.mask);
	expert_case_run(&test, gsn_cpu_path_best(), pools[2]);
	for (uint32_t pair = 0; pair < 12; pair++)
		check_zero_row(&test, pair);
	ck_assert_uint_eq(test.counters.local, 0);
	ck_assert_uint_eq(test.counters.remote, 12);
	ck_assert_uint_eq(test.counters.faults, 0);
	expert_case_free(&test);
	close_pools();
}
END_TEST

/* Spoil one byte of one expert: exactly its pairs become NaN, on every path alike. */
static void check_spoiled(struct expert_case *test, uint32_t expert, bool row_only)
{
	expert_case_run(test, portable(), pools[1]);
	ck_assert_uint_eq(test->counters.faults, GSN_MOE_FAULT_NONFINITE);
	for (uint32_t pair = 0; pair < test->tokens * test->top_k; pair++) {
		uint32_t nans = 0;

		for (uint32_t i = 0; i < test->hidden; i++) {
			float y = test->y[(size_t)pair * test->hidden + i];

			nans += gsn_float_bits(y) == GSN_NAN_BITS;
			ck_assert(!isnan(y) || gsn_float_bits(y) == GSN_NAN_BITS);
		}
		ck_assert_uint_eq(nans, (uint32_t)test->ids[pair] != expert ? 0
					: row_only			    ? 1
									    : test->hidden);
	}
	check_all_paths(test, 1);
}

START_TEST(nan_codes_of_f8_are_never_sanitised)
{
	const uint8_t codes[] = {0x7f, 0xff};

	open_pools();
	for (size_t c = 0; c < 2; c++) {
		for (uint32_t where = 0; where < 3; where++) {
			struct expert_case test;
			uint64_t gate;

			make_layer(&test, GPUSNAP_F8_E4M3, 4);
			gate = expert_case_w13_bytes(&test);
			if (where == 0)
				test.w13[gate * 2 + 77] = codes[c];
			else if (where == 1)
				test.w13[gate * 2 + gate / 2 + UINT64_C(5) * 256 + 255] = codes[c];
			else
				test.w2[expert_case_w2_bytes(&test) * 2 + UINT64_C(9) * 128 + 64] =
					codes[c];
			check_spoiled(&test, 2, where == 2);
			expert_case_free(&test);
		}
	}
	close_pools();
}
END_TEST

START_TEST(nan_scales_and_infinite_weights_raise_the_fault)
{
	struct expert_case test;
	const uint16_t infinity = 0x7f80;

	open_pools();
	make_layer(&test, GPUSNAP_F8_E4M3, 4);
	((float *)(void *)test.w13_scale)[expert_case_w13_scales(&test) * 3] = NAN;
	check_spoiled(&test, 3, false);
	expert_case_free(&test);

	make_layer(&test, GPUSNAP_BF16, 4);
	memcpy(test.w2 + expert_case_w2_bytes(&test) * 6, &infinity, 2);
	expert_case_run(&test, portable(), pools[1]);
	ck_assert_uint_eq(test.counters.faults, GSN_MOE_FAULT_NONFINITE);
	check_all_paths(&test, 2);
	expert_case_free(&test);
	close_pools();
}
END_TEST

/* An engine may run with flushed subnormals or another rounding; bits and its modes stay. */
START_TEST(the_callers_floating_point_modes_change_nothing)
{
	struct expert_case test;
	float *expected;

	make_layer(&test, GPUSNAP_F32, 3);
	for (uint64_t i = 0; i < 8 * expert_case_w2_bytes(&test) / 4; i++)
		((float *)(void *)test.w2)[i] *= 0x1p-130f;
	open_pools();
	expert_case_run(&test, gsn_cpu_path_best(), pools[1]);
	expected = copy_of_y(&test);
	for (uint64_t i = 0; i < expert_case_y_count(&test); i++)
		ck_assert(expected[i] != 0.0f && fabsf(expected[i]) < 0x1p-110f);
	close_pools();
	ck_assert_int_eq(fesetround(FE_UPWARD), 0);
#if defined(__x86_64__)
	_mm_setcsr(_mm_getcsr() | 0x8040); /* flush results, take subnormal inputs as zero */
#endif
	open_pools(); /* threads inherit the modes */
	for (uint32_t threads = 1; threads <= MAX_THREADS; threads++) {
		expert_case_run(&test, gsn_cpu_path_best(), pools[threads]);
		ck_assert_int_eq(fegetround(), FE_UPWARD);
#if defined(__x86_64__)
		ck_assert_uint_eq(_mm_getcsr() & 0x8040, 0x8040);
#endif
		check_bits(test.y, expected, expert_case_y_count(&test), "other modes");
	}
	close_pools();
	ck_assert_int_eq(fesetenv(FE_DFL_ENV), 0);
	gsn_free(expected);
	expert_case_free(&test);
}
END_TEST

START_TEST(scratch_is_as_large_as_said)
{
	struct expert_case test;

	open_pools();
	for (int i = 0; i < 2; i++) {
		make_layer(&test, i ? GPUSNAP_F8_E4M3 : GPUSNAP_BF16, 5);
		test.intermediate = 120; /* not whole groups */
		expert_case_free(&test);
		expert_case_make(&test, 3);
		test.scratch =
			gsn_grow(test.scratch, test.scratch_bytes, test.scratch_bytes + 64, 1);
		memset(test.scratch + test.scratch_bytes, 0x5a, 64);
		expert_case_run(&test, gsn_cpu_path_best(), pools[2]);
		for (int j = 0; j < 64; j++)
			ck_assert_uint_eq(test.scratch[test.scratch_bytes + (uint64_t)j], 0x5a);
		expert_case_free(&test);
	}
	close_pools();
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		experts_agree_with_float64_and_all_paths_and_threads_with_each_other,
		a_token_gives_the_same_bits_alone_and_in_a_batch_of_64,
		bits_are_those_that_snapshots_have_recorded,
		ranks_summed_slot_by_slot_give_the_bits_of_one_rank,
		ids_outside_the_mask_are_a_fault_and_give_zero,
		masks_that_lead_out_of_the_local_experts_are_a_fault,
		a_mask_of_zeros_gives_zeros_and_counts_all_as_remote,
		nan_codes_of_f8_are_never_sanitised,
		nan_scales_and_infinite_weights_raise_the_fault,
		the_callers_floating_point_modes_change_nothing,
		scratch_is_as_large_as_said,
	};

	return RUN_SUITE("moe_kernels", tests);
}
