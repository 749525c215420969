/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU path for AVX2, FMA and F16C: 16 registers, two tokens at a time. */
#include <cpuid.h>

#include "kernels/dot_256.h"

/* Position of element e of a chunk: see gsn_256_add_f4_chunk(). */
#define POSITION(chunk, e) ((chunk)*32 + (e) % 4 * 8 + (e) / 4)
#define FOUR(c, e)	   POSITION(c, e), POSITION(c, (e) + 1), POSITION(c, (e) + 2), POSITION(c, (e) + 3)
#define SIXTEEN(c, e)	   FOUR(c, e), FOUR(c, (e) + 4), FOUR(c, (e) + 8), FOUR(c, (e) + 12)
#define CHUNK(c)	   SIXTEEN(c, 0), SIXTEEN(c, 16)
static const uint8_t f4_order[GSN_DOT_GROUP] = {CHUNK(0), CHUNK(1), CHUNK(2), CHUNK(3)};
#undef POSITION
#undef FOUR
#undef SIXTEEN
#undef CHUNK

GSN_INLINE void dot_row(enum gsn_dot_format format, const struct gsn_dot_row *row,
	const float *const *x, uint32_t tokens, float *out)
{
	for (; tokens >= 2; tokens -= 2, x += 2, out += 2)
		gsn_256_dot((struct gsn_256_pass){format, 0, 4, 2, row, x}, out);
	if (tokens)
		gsn_256_dot((struct gsn_256_pass){format, 0, 8, 1, row, x}, out);
}

#define DEFINE_DOT(name, format)                                                                   \
	static void name(const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens,  \
		float *out)                                                                        \
	{                                                                                          \
		for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {                \
			struct gsn_dot_row row =                                                   \
				gsn_dot_row_at(rows, r, gsn_256_element_bits(format));             \
                                                                                                   \
			dot_row(format, &row, x, tokens, out);                                     \
		}                                                                                  \
	}
DEFINE_DOT(dot_f32, GSN_DOT_F32)
DEFINE_DOT(dot_f16, GSN_DOT_F16)
DEFINE_DOT(dot_bf16, GSN_DOT_BF16)
DEFINE_DOT(dot_f4, GSN_DOT_F4)
#undef DEFINE_DOT

static bool has_nan_code(const uint8_t *codes, uint32_t count)
{
	const __m256i magnitude = _mm256_set1_epi8(0x7f);
	__m256i largest = _mm256_setzero_si256();
	uint8_t tail[sizeof(__m256i)] = {0};
	uint32_t i;

	for (i = 0; i + sizeof(__m256i) <= count; i += sizeof(__m256i)) {
		__m256i v = _mm256_loadu_si256((const void *)(codes + i));

		largest = _mm256_max_epu8(largest, _mm256_and_si256(v, magnitude));
	}
	memcpy(tail, codes + i, count - i);
	largest = _mm256_max_epu8(
		largest, _mm256_and_si256(_mm256_loadu_si256((const void *)tail), magnitude));
	return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, magnitude)) != 0;
}

/* A NaN weight makes every dot product with its row NaN, so looking for one is enough. */
static void dot_f8_e4m3(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out)
{
	for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {
		struct gsn_dot_row row = gsn_dot_row_at(rows, r, 8);

		dot_row(GSN_DOT_F8_E4M3, &row, x, tokens, out);
		if (has_nan_code(row.weights, row.k))
			for (uint32_t t = 0; t < tokens; t++)
				out[t] = gsn_float_from_bits(GSN_NAN_BITS);
	}
}

static void activate(struct gsn_activation activation, const float *gate, const float *up,
	uint32_t count, float *h)
{
	gsn_dot_activate(activation, gate, up, count, h);
}

static bool supported(void)
{
	unsigned eax, ebx, ecx = 0, edx;

	/* The compiler's probe covers the operating system's part, but does not know F16C. */
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

const struct gsn_cpu_path gsn_cpu_avx2 = {
	.name = "avx2",
	.supported = supported,
	.dot = {[GSN_DOT_F32] = dot_f32,
		[GSN_DOT_F16] = dot_f16,
		[GSN_DOT_BF16] = dot_bf16,
		[GSN_DOT_F8_E4M3] = dot_f8_e4m3,
		[GSN_DOT_F4] = dot_f4},
	.order = {[GSN_DOT_F4] = f4_order},
	.activate = activate,
};
