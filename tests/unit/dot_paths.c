/* SPDX-License-Identifier: Apache-2.0 */
/* Every CPU path gives the bits of the portable one, and reads nothing outside its row. */
#include "kernels/cpu_path.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/moe_math.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { MAX_K = 700, MAX_ORDERED = 704, MAX_BLOCKS = MAX_K / 16 + 1, MAX_ROWS = 5 };
enum { MAX_OUT = MAX_ROWS * GSN_DOT_TOKENS };

static const char *const format_names[GSN_DOT_FORMATS] = {"F32", "F16", "BF16", "F8_E4M3"};
static const size_t format_bytes[GSN_DOT_FORMATS] = {4, 2, 2, 1};

struct operands {
	_Alignas(4) uint8_t weights[MAX_K * 4 * MAX_ROWS];
	float x[GSN_DOT_TOKENS][MAX_K];
	float scales[MAX_BLOCKS];
};

/* Weights of any size, but neither NaN nor infinite. */
static void fill_finite_weights(struct operands *op, enum gsn_dot_format format, uint64_t *random)
{
	for (size_t i = 0; i < (size_t)MAX_K * MAX_ROWS; i++) {
		uint32_t bits = (uint32_t)random_u64(random);
		float value = random_unit(random);

		if (format == GSN_DOT_F32) {
			memcpy(op->weights + 4 * i, &value, 4);
		} else if (format == GSN_DOT_F8_E4M3) {
			op->weights[i] = (uint8_t)((bits & 0x7f) == 0x7f ? bits - 1 : bits);
		} else {
			uint16_t half = (uint16_t)(bits & 0xbfff); /* an exponent bit is clear */

			memcpy(op->weights + 2 * i, &half, 2);
		}
	}
}

static void fill(struct operands *op, enum gsn_dot_format format, uint64_t *random)
{
	fill_finite_weights(op, format, random);
	for (uint32_t t = 0; t < GSN_DOT_TOKENS; t++)
		for (uint32_t i = 0; i < MAX_K; i++)
			op->x[t][i] = ldexpf(random_unit(random), (int)random_below(random, 8));
	for (uint32_t i = 0; i < MAX_BLOCKS; i++)
		op->scales[i] = 0.01f + fabsf(random_unit(random));
}

/* Inputs as the path wants them, each ending where `end` says, if it does. */
static void order_inputs(const struct gsn_cpu_path *path, uint32_t k, const float *const *x,
	float *end, const float **ordered)
{
	static float memory[GSN_DOT_TOKENS][MAX_ORDERED];

	for (uint32_t t = 0; t < GSN_DOT_TOKENS; t++) {
		float *out = end ? end - gsn_dot_ordered_length(k) : memory[t];

		gsn_dot_order(path->f8_order, x[t], k, out);
		ordered[t] = out;
	}
}

static void check_equal(const struct gsn_dot_rows *rows, uint32_t tokens, const float *got,
	const float *expected, const char *what)
{
	for (uint32_t i = 0; i < rows->count * GSN_DOT_TOKENS; i++)
		ck_assert_msg(i % GSN_DOT_TOKENS >= tokens ||
				      gsn_float_bits(got[i]) == gsn_float_bits(expected[i]),
			"%s, k %u, block %u, row %u of %u, token %u of %u: %a, not %a", what,
			rows->k, rows->block_k, i / GSN_DOT_TOKENS, rows->count, i % GSN_DOT_TOKENS,
			tokens, (double)got[i], (double)expected[i]);
}

/* `end`: end of the memory that ordered inputs are put in, or NULL. */
static void check_paths(const struct gsn_dot_rows *rows, enum gsn_dot_format format,
	const float *const *x, float *end, const char *what)
{
	const struct gsn_cpu_path *path;
	float expected[MAX_OUT];

	gsn_cpu_path_at(0)->dot[format](rows, x, GSN_DOT_TOKENS, expected);
	for (size_t i = 1; (path = gsn_cpu_path_at(i)); i++) {
		bool ordered = format == GSN_DOT_F8_E4M3 && path->f8_order;
		const float *inputs[GSN_DOT_TOKENS];
		char text[64];

		if (ordered)
			order_inputs(path, rows->k, x, end, inputs);
		(void)snprintf(
			text, sizeof text, "%s, %s, %s", what, path->name, format_names[format]);
		for (uint32_t tokens = 1; tokens <= GSN_DOT_TOKENS; tokens++) {
			float got[MAX_OUT];

			path->dot[format](rows, ordered ? inputs : x, tokens, got);
			check_equal(rows, tokens, got, expected, text);
		}
	}
}

static void token_pointers(const struct operands *op, const float **x)
{
	for (uint32_t t = 0; t < GSN_DOT_TOKENS; t++)
		x[t] = op->x[t];
}

START_TEST(paths_give_the_same_bits_for_every_length)
{
	uint64_t random = random_seed(1);
	static struct operands op;
	const float *x[GSN_DOT_TOKENS];

	token_pointers(&op, x);
	for (int format = 0; format < GSN_DOT_FORMATS; format++) {
		fill(&op, (enum gsn_dot_format)format, &random);
		for (uint32_t k = 1; k <= MAX_K; k += k < 280 ? 1 : 17) {
			struct gsn_dot_rows row = {
				.weights = op.weights, .k = k, .count = 1 + k % MAX_ROWS};

			check_paths(&row, (enum gsn_dot_format)format, x, NULL, "finite");
		}
	}
}
END_TEST

START_TEST(paths_give_the_same_bits_for_every_scale_block)
{
	const uint32_t blocks[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 256, 1024};
	uint64_t random = random_seed(2);
	static struct operands op;
	const float *x[GSN_DOT_TOKENS];

	token_pointers(&op, x);
	fill(&op, GSN_DOT_F8_E4M3, &random);
	for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
		for (uint32_t k = 1; k <= MAX_K; k += 13) {
			struct gsn_dot_rows row = {
				op.weights, op.scales, k, blocks[b], 1 + k % MAX_ROWS};

			check_paths(&row, GSN_DOT_F8_E4M3, x, NULL, "scaled");
		}
	}
}
END_TEST

/* Any bit pattern: infinities, NaNs with payload, subnormals, values whose products overflow. */
START_TEST(paths_give_the_same_bits_for_any_weights_and_inputs)
{
	uint64_t random = random_seed(3);
	static struct operands op;
	const float *x[GSN_DOT_TOKENS];

	token_pointers(&op, x);
	for (int round = 0; round < 400; round++) {
		enum gsn_dot_format format = (enum gsn_dot_format)(round % GSN_DOT_FORMATS);
		uint32_t k = 1 + (uint32_t)random_below(&random, round % 3 ? 40 : MAX_K);
		struct gsn_dot_rows row = {
			.weights = op.weights, .k = k, .block_k = 16, .count = MAX_ROWS};

		fill(&op, format, &random);
		for (uint32_t i = 0; i < k; i++) {
			size_t at = random_below(&random, k);
			size_t row_at = at + k * random_below(&random, MAX_ROWS);
			uint32_t bits = (uint32_t)random_u64(&random);

			memcpy(op.weights + row_at * format_bytes[format], &bits,
				format_bytes[format]);
			bits = (uint32_t)random_u64(&random);
			memcpy(&op.x[i % GSN_DOT_TOKENS][at], &bits, 4);
			memcpy(&op.scales[at / 16], &bits, round % 5 == 0 ? 4 : 0);
		}
		row.scales = format == GSN_DOT_F8_E4M3 && round % 2 ? op.scales : NULL;
		check_paths(&row, format, x, NULL, "any bits");
	}
}
END_TEST

/* A scale counts for its own block only, also where it is infinite and the row ends in it. */
START_TEST(a_bad_scale_spoils_its_own_block_only)
{
	uint64_t random = random_seed(4);
	static struct operands op;
	const float *x[GSN_DOT_TOKENS];

	token_pointers(&op, x);
	fill(&op, GSN_DOT_F8_E4M3, &random);
	memset(op.weights, 0x38, sizeof op.weights); /* 1.0 */
	for (uint32_t block = 16; block <= 128; block *= 2) {
		for (uint32_t k = 1; k <= 400; k += 3) {
			struct gsn_dot_rows row = {op.weights, op.scales, k, block, 1};
			uint32_t last = (k - 1) / block;
			float saved = op.scales[last], out[MAX_OUT];

			op.scales[last] = INFINITY;
			op.scales[last + 1] = NAN;
			check_paths(&row, GSN_DOT_F8_E4M3, x, NULL, "infinite scale");
			gsn_cpu_path_at(0)->dot[GSN_DOT_F8_E4M3](&row, x, 1, out);
			ck_assert(!gsn_is_finite(out[0]));
			op.scales[last] = saved;
			gsn_cpu_path_at(0)->dot[GSN_DOT_F8_E4M3](&row, x, 1, out);
			ck_assert(gsn_is_finite(out[0]));
			op.scales[last + 1] = 1.0f;
		}
	}
}
END_TEST

static void *guarded_end(size_t *ret_bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages =
		mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(pages, MAP_FAILED);
	ck_assert_int_eq(mprotect(pages + 2 * page, page, PROT_NONE), 0);
	*ret_bytes = 2 * page;
	return pages + 2 * page;
}

/* The row, its scales and the inputs end where memory ends. */
START_TEST(no_path_reads_behind_the_row)
{
	size_t bytes;
	uint8_t *row_end = guarded_end(&bytes);
	float *x_end = guarded_end(&bytes);
	float *scale_end = guarded_end(&bytes);
	float *ordered_end = guarded_end(&bytes);

	for (int format = 0; format < GSN_DOT_FORMATS; format++) {
		for (uint32_t k = 1; k <= 300; k++) {
			struct gsn_dot_rows row = {
				.weights = row_end - format_bytes[format] * k * 2,
				.scales = scale_end - (k + 31) / 32,
				.k = k,
				.block_k = 32,
				.count = 2};
			const float *x[GSN_DOT_TOKENS];

			for (uint32_t t = 0; t < GSN_DOT_TOKENS; t++)
				x[t] = x_end - k;
			check_paths(&row, (enum gsn_dot_format)format, x, ordered_end,
				"at the end of memory");
		}
	}
	ck_assert_int_eq(munmap(row_end - bytes, bytes * 3 / 2), 0);
	ck_assert_int_eq(munmap((uint8_t *)x_end - bytes, bytes * 3 / 2), 0);
	ck_assert_int_eq(munmap((uint8_t *)scale_end - bytes, bytes * 3 / 2), 0);
	ck_assert_int_eq(munmap((uint8_t *)ordered_end - bytes, bytes * 3 / 2), 0);
}
END_TEST

START_TEST(silu_has_the_same_bits_on_every_path)
{
	uint64_t random = random_seed(5);
	float gate[67], up[67], expected[67], got[67];
	const struct gsn_cpu_path *path;

	for (int round = 0; round < 300; round++) {
		for (int i = 0; i < 67; i++) {
			uint32_t bits = (uint32_t)random_u64(&random);

			gate[i] = round % 2 ? 30.0f * random_unit(&random)
					    : gsn_float_from_bits(bits);
			up[i] = random_unit(&random);
		}
		gsn_cpu_path_at(0)->silu_mul(gate, up, 67, expected);
		for (size_t i = 1; (path = gsn_cpu_path_at(i)); i++) {
			path->silu_mul(gate, up, 67, got);
			for (int j = 0; j < 67; j++)
				ck_assert_msg(gsn_float_bits(gsn_canonical(got[j])) ==
						      gsn_float_bits(gsn_canonical(expected[j])),
					"%s: silu(%a)", path->name, (double)gate[j]);
		}
	}
}
END_TEST

#if defined(__x86_64__)
/* The kernel lists what it lets programs use. */
static bool kernel_lists(const char *flag)
{
	static char flags[8192];
	FILE *file = fopen("/proc/cpuinfo", "re");
	char word[32];

	ck_assert_ptr_nonnull(file);
	while (fgets(flags, sizeof flags, file) && strncmp(flags, "flags", 5) != 0)
		;
	(void)fclose(file);
	(void)snprintf(word, sizeof word, " %s ", flag);
	flags[strcspn(flags, "\n")] = ' ';
	return strstr(flags, word) != NULL;
}

START_TEST(paths_are_those_that_the_kernel_allows)
{
	bool avx2 = kernel_lists("avx2") && kernel_lists("fma") && kernel_lists("f16c");
	bool avx512 = kernel_lists("avx512f") && kernel_lists("avx512bw") &&
		      kernel_lists("avx512dq") && kernel_lists("avx512vl");

	ck_assert_int_eq(gsn_cpu_path_find("avx2") != NULL, avx2);
	ck_assert_int_eq(gsn_cpu_path_find("avx512") != NULL, avx512);
	ck_assert_int_eq(
		gsn_cpu_path_find("avx512_vbmi") != NULL, avx512 && kernel_lists("avx512vbmi"));
}
END_TEST
#endif

START_TEST(paths_are_found_by_their_names_only)
{
	const struct gsn_cpu_path *path;

	ck_assert_str_eq(gsn_cpu_path_at(0)->name, "portable");
	for (size_t i = 0; (path = gsn_cpu_path_at(i)); i++)
		ck_assert_ptr_eq(gsn_cpu_path_find(path->name), path);
	ck_assert_ptr_null(gsn_cpu_path_find("mmx"));
	ck_assert_ptr_nonnull(gsn_cpu_path_best());
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		paths_give_the_same_bits_for_every_length,
		paths_give_the_same_bits_for_every_scale_block,
		paths_give_the_same_bits_for_any_weights_and_inputs,
		a_bad_scale_spoils_its_own_block_only,
		no_path_reads_behind_the_row,
		silu_has_the_same_bits_on_every_path,
		paths_are_found_by_their_names_only,
#if defined(__x86_64__)
		paths_are_those_that_the_kernel_allows,
#endif
	};

	return RUN_SUITE("dot_paths", tests);
}
