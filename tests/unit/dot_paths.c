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

enum { MAX_K = 700, MAX_ORDERED = 768, MAX_BLOCKS = MAX_K / 16 + 1, MAX_ROWS = 5 };
enum { MAX_OUT = MAX_ROWS * GSN_DOT_TOKENS };

static const char *const format_names[GSN_DOT_FORMATS] = {"F32", "F16", "BF16", "F8_E4M3", "F4"};
static const size_t format_bits[GSN_DOT_FORMATS] = {32, 16, 16, 8, 4};

static bool is_scaled(enum gsn_dot_format format)
{
	return format == GSN_DOT_F8_E4M3 || format == GSN_DOT_F4;
}

/* Rows of F4 have an even number of elements. */
static uint32_t length_of(enum gsn_dot_format format, uint32_t k)
{
	return format == GSN_DOT_F4 ? k + k % 2 : k;
}

struct operands {
	_Alignas(4) uint8_t weights[MAX_K * 4 * MAX_ROWS];
	float x[GSN_DOT_TOKENS][MAX_K];
	float scales[MAX_BLOCKS * MAX_ROWS];
	uint8_t codes[MAX_BLOCKS * MAX_ROWS]; /* scales as E8M0 */
};

/* Weights of any size, but neither NaN nor infinite. */
static void fill_finite_weights(struct operands *op, enum gsn_dot_format format, uint64_t *random)
{
	for (size_t i = 0; i < (size_t)MAX_K * MAX_ROWS; i++) {
		uint32_t bits = (uint32_t)random_u64(random);
		float value = random_unit(random);

		if (format == GSN_DOT_F32) {
			memcpy(op->weights + 4 * i, &value, 4);
		} else if (is_scaled(format)) {
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
	for (uint32_t i = 0; i < MAX_BLOCKS * MAX_ROWS; i++) {
		op->scales[i] = 0.01f + fabsf(random_unit(random));
		op->codes[i] = (uint8_t)(117 + random_below(random, 20));
	}
}

/* Inputs as the path wants them, each ending where `end` says, if it does. */
static void order_inputs(
	const uint8_t *order, uint32_t k, const float *const *x, float *end, const float **ordered)
{
	static float memory[GSN_DOT_TOKENS][MAX_ORDERED];

	for (uint32_t t = 0; t < GSN_DOT_TOKENS; t++) {
		float *out = end ? end - gsn_dot_ordered_length(k) : memory[t];

		gsn_dot_order(order, x[t], k, out);
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
		const uint8_t *order = path->order[format];
		const float *inputs[GSN_DOT_TOKENS];
		char text[64];

		if (order)
			order_inputs(order, rows->k, x, end, inputs);
		(void)snprintf(
			text, sizeof text, "%s, %s, %s", what, path->name, format_names[format]);
		for (uint32_t tokens = 1; tokens <= GSN_DOT_TOKENS; tokens++) {
			float got[MAX_OUT];

			path->dot[format](rows, order ? inputs : x, tokens, got);
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
			struct gsn_dot_rows row = {.weights = op.weights,
				.k = length_of((enum gsn_dot_format)format, k),
				.count = 1 + k % MAX_ROWS};

			check_paths(&row, (enum gsn_dot_format)format, x, NULL, "finite");
		}
	}
}
END_TEST

/* F32 and E8M0 scales, shared by all rows and one row of them for each. */
static void check_scales(
	const struct operands *op, struct gsn_dot_rows rows, enum gsn_dot_format format)
{
	const float *x[GSN_DOT_TOKENS];

	token_pointers(op, x);
	for (int i = 0; i < 4; i++) {
		rows.scale_type = i % 2 ? GSN_DOT_SCALE_E8M0 : GSN_DOT_SCALE_F32;
		rows.scales = i % 2 ? (const void *)op->codes : op->scales;
		rows.scale_stride = i / 2 ? (rows.k + rows.block_k - 1) / rows.block_k : 0;
		check_paths(&rows, format, x, NULL, i % 2 ? "E8M0 scales" : "F32 scales");
	}
}

START_TEST(paths_give_the_same_bits_for_every_scale_block)
{
	const uint32_t blocks[] = {16, 32, 48, 64, 80, 96, 112, 128, 160, 256, 1024};
	const enum gsn_dot_format formats[] = {GSN_DOT_F8_E4M3, GSN_DOT_F4};
	uint64_t random = random_seed(2);
	static struct operands op;

	for (size_t i = 0; i < 2 * sizeof blocks / sizeof blocks[0]; i++) {
		enum gsn_dot_format format = formats[i % 2];

		if (format == GSN_DOT_F4 && blocks[i / 2] % 32)
			continue;
		fill(&op, format, &random);
		for (uint32_t k = 1; k <= MAX_K; k += 13) {
			struct gsn_dot_rows rows = {.weights = op.weights,
				.k = length_of(format, k),
				.block_k = blocks[i / 2],
				.count = 1 + k % MAX_ROWS};

			check_scales(&op, rows, format);
		}
	}
}
END_TEST

/* Codes 0, a subnormal, and 255, which is NaN, among others. */
START_TEST(paths_give_the_same_bits_for_every_e8m0_scale)
{
	uint64_t random = random_seed(6);
	static struct operands op;

	fill(&op, GSN_DOT_F4, &random);
	for (uint32_t code = 0; code < 256; code++) {
		struct gsn_dot_rows rows = {
			.weights = op.weights, .k = 32 + 2 * code, .block_k = 32, .count = 2};

		memset(op.codes, 127, sizeof op.codes);
		op.codes[random_below(&random, (rows.k + 31) / 32)] = (uint8_t)code;
		check_scales(&op, rows, GSN_DOT_F4);
		check_scales(&op, rows, GSN_DOT_F8_E4M3);
	}
}
END_TEST

/* A row of E4M3 codes that are all normal numbers, as those of scaled weights mostly are. */
static void fill_normal_codes(struct operands *op, uint64_t *random)
{
	fill(op, GSN_DOT_F8_E4M3, random);
	for (size_t i = 0; i < MAX_K; i++) {
		uint64_t magnitude = 0x08 + random_below(random, 0x7f - 0x08);

		op->weights[i] = (uint8_t)(magnitude | random_below(random, 2) << 7);
	}
}

/* Normal or not, among normal ones: paths may decode a run of those in another way. */
START_TEST(paths_give_the_same_bits_for_every_e4m3_code_among_normal_ones)
{
	uint64_t random = random_seed(7);
	static struct operands op;
	const float *x[GSN_DOT_TOKENS];

	token_pointers(&op, x);
	for (uint32_t code = 0; code < 256; code++) {
		struct gsn_dot_rows row = {.weights = op.weights, .k = 256, .count = 1};

		fill_normal_codes(&op, &random);
		check_paths(&row, GSN_DOT_F8_E4M3, x, NULL, "normal codes");
		for (size_t i = 0; i < 32; i++) {
			uint8_t *at = &op.weights[8 * i + random_below(&random, 8)];
			uint8_t before = *at;

			*at = (uint8_t)code;
			check_paths(&row, GSN_DOT_F8_E4M3, x, NULL, "one other code");
			*at = before;
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
		uint32_t k = length_of(
			format, 1 + (uint32_t)random_below(&random, round % 3 ? 40 : MAX_K - 1));
		struct gsn_dot_rows row = {
			.weights = op.weights, .k = k, .block_k = 32, .count = MAX_ROWS};

		fill(&op, format, &random);
		for (uint32_t i = 0; i < k; i++) {
			size_t at = random_below(&random, k);
			size_t row_at = at + k * random_below(&random, MAX_ROWS);
			uint32_t bits = (uint32_t)random_u64(&random);

			memcpy(op.weights + row_at * format_bits[format] / 8, &bits,
				(format_bits[format] + 7) / 8);
			bits = (uint32_t)random_u64(&random);
			memcpy(&op.x[i % GSN_DOT_TOKENS][at], &bits, 4);
			memcpy(&op.scales[at / 32], &bits, round % 7 == 0 ? 4 : 0);
		}
		row.scales = is_scaled(format) && round % 2 ? op.scales : NULL;
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
			struct gsn_dot_rows row = {.weights = op.weights,
				.scales = op.scales,
				.k = k,
				.block_k = block,
				.count = 1};
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
		for (uint32_t i = 1; i <= 300; i++) {
			uint32_t k = length_of((enum gsn_dot_format)format, i);
			bool codes = i % 2;
			uint32_t blocks = (k + 31) / 32;
			struct gsn_dot_rows row = {
				.weights = row_end - format_bits[format] * k * 2 / 8,
				.scales = codes ? (const void *)((uint8_t *)scale_end - blocks)
						: scale_end - blocks,
				.scale_type = codes ? GSN_DOT_SCALE_E8M0 : GSN_DOT_SCALE_F32,
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

static void check_activations(struct gsn_activation activation, const float *gate, const float *up)
{
	const struct gsn_cpu_path *path;
	float expected[67], got[67];

	gsn_cpu_path_at(0)->activate(activation, gate, up, 67, expected);
	for (size_t i = 1; (path = gsn_cpu_path_at(i)); i++) {
		path->activate(activation, gate, up, 67, got);
		for (int j = 0; j < 67; j++)
			ck_assert_msg(gsn_float_bits(gsn_canonical(got[j])) ==
					      gsn_float_bits(gsn_canonical(expected[j])),
				"%s: activation %u of %a", path->name, activation.kind,
				(double)gate[j]);
	}
}

START_TEST(activations_have_the_same_bits_on_every_path)
{
	uint64_t random = random_seed(5);
	float gate[67], up[67];

	for (int round = 0; round < 600; round++) {
		for (int i = 0; i < 67; i++) {
			uint32_t bits = (uint32_t)random_u64(&random);

			gate[i] = round % 2 ? 30.0f * random_unit(&random)
					    : gsn_float_from_bits(bits);
			up[i] = 10.0f * random_unit(&random);
		}
		check_activations((struct gsn_activation){(uint32_t)(round / 2 % 2) + 1,
					  round / 4 % 2 ? 7.0f : INFINITY},
			gate, up);
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
	ck_assert_int_eq(gsn_cpu_path_find("avx512_vbmi") != NULL,
		avx512 && kernel_lists("avx512vbmi") && kernel_lists("gfni"));
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
		paths_give_the_same_bits_for_every_e8m0_scale,
		paths_give_the_same_bits_for_every_e4m3_code_among_normal_ones,
		paths_give_the_same_bits_for_any_weights_and_inputs,
		a_bad_scale_spoils_its_own_block_only,
		no_path_reads_behind_the_row,
		activations_have_the_same_bits_on_every_path,
		paths_are_found_by_their_names_only,
#if defined(__x86_64__)
		paths_are_those_that_the_kernel_allows,
#endif
	};

	return RUN_SUITE("dot_paths", tests);
}
