/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU path for AVX-512 (F, BW, DQ, VL): all formats; E4M3 codes are shifted into place. */
#include "kernels/dot_avx512.h"

/* F32, F16, BF16: 16 elements are a chunk of each lane of a pair. */

GSN_INLINE __m512 decode_16(enum gsn_dot_format format, const void *weights, size_t first)
{
	const uint16_t *halves = weights;

	if (format == GSN_DOT_F32)
		return _mm512_loadu_ps((const float *)weights + first);
	if (format == GSN_DOT_F16)
		return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(halves + first)));
	return _mm512_castsi512_ps(_mm512_slli_epi32(
		_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(halves + first))), 16));
}

/* As many elements as the mask says, zeros behind them. */
GSN_INLINE __m512 decode_some(
	enum gsn_dot_format format, const void *weights, size_t first, __mmask16 mask)
{
	const uint16_t *halves = weights;

	if (format == GSN_DOT_F32)
		return _mm512_maskz_loadu_ps(mask, (const float *)weights + first);
	if (format == GSN_DOT_F16)
		return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, halves + first));
	return _mm512_castsi512_ps(_mm512_slli_epi32(
		_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, halves + first)), 16));
}

/* The last round, where it is not whole. */
GSN_INLINE void add_plain_tail(enum gsn_dot_format format, const struct gsn_dot_row *row,
	const float *const *x, size_t k, struct sums *sums, size_t tokens)
{
#pragma GCC unroll 4
	for (size_t j = 0; j < PAIRS; j++, k += WIDTH) {
		__mmask16 mask = (__mmask16)low_bits(row->k > k ? row->k - k : 0, WIDTH);
		__m512 w = decode_some(format, row->weights, k, mask);

#pragma GCC unroll 4
		for (size_t t = 0; t < tokens; t++)
			sums[t].pair[j] = _mm512_fmadd_ps(
				w, _mm512_maskz_loadu_ps(mask, x[t] + k), sums[t].pair[j]);
	}
}

GSN_INLINE void dot_plain(enum gsn_dot_format format, const struct gsn_dot_row *row,
	const float *const *x, float *out, size_t tokens)
{
	struct sums sums[GSN_DOT_TOKENS];
	size_t k;

	clear(sums, tokens);
	for (k = 0; k + ROUND <= row->k; k += ROUND) {
#pragma GCC unroll 4
		for (size_t j = 0; j < PAIRS; j++) {
			__m512 w = decode_16(format, row->weights, k + j * WIDTH);

#pragma GCC unroll 4
			for (size_t t = 0; t < tokens; t++)
				sums[t].pair[j] = _mm512_fmadd_ps(
					w, _mm512_loadu_ps(x[t] + k + j * WIDTH), sums[t].pair[j]);
		}
	}
	if (k < row->k)
		add_plain_tail(format, row, x, k, sums, tokens);
	finish(sums, tokens, out);
}

/* Units of 8 inputs of four chunks: the chunks' first halves side by side, then the second. */
#define EIGHT(unit)                                                                                \
	8 * (unit), 8 * (unit) + 1, 8 * (unit) + 2, 8 * (unit) + 3, 8 * (unit) + 4,                \
		8 * (unit) + 5, 8 * (unit) + 6, 8 * (unit) + 7
const uint8_t gsn_f8_order_avx512[GSN_DOT_GROUP] = {
	EIGHT(0), EIGHT(2), EIGHT(1), EIGHT(3), EIGHT(4), EIGHT(6), EIGHT(5), EIGHT(7)};

/*
 * Sign kept, magnitude moved down, as the upper half of a float that is value * 2^-120; NaN codes
 * come out as 480. See dot_avx2.c about subnormals.
 */
GSN_INLINE struct decoded shift_64(__m512i codes)
{
	/* Where unpacking twice within 128 bits wants the codes, in units of four. */
	const __m512i order =
		_mm512_setr_epi32(0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15);
	const __m512i fields = _mm512_set1_epi16((short)0x87f0);
	const __m512i zero = _mm512_setzero_si512();
	const __m512 unit = _mm512_set1_ps(0x1p120f);
	__m512i ordered = _mm512_permutexvar_epi32(order, codes);
	__m512i first = _mm512_srai_epi16(_mm512_unpacklo_epi8(zero, ordered), 4);
	__m512i second = _mm512_srai_epi16(_mm512_unpackhi_epi8(zero, ordered), 4);
	struct decoded w;

	first = _mm512_and_si512(first, fields);
	second = _mm512_and_si512(second, fields);
	w.half[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, first));
	w.half[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, first));
	w.half[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, second));
	w.half[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, second));
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		w.half[i] = _mm512_mul_ps(w.half[i], unit);
	return w;
}

#define DEFINE_PLAIN(name, format)                                                                 \
	void name(                                                                                 \
		const struct gsn_dot_row *row, const float *const *x, uint32_t tokens, float *out) \
	{                                                                                          \
		GSN_DOT_BY_TOKENS(dot_plain, format, row, x, tokens, out)                          \
	}
DEFINE_PLAIN(gsn_dot_avx512_f32, GSN_DOT_F32)
DEFINE_PLAIN(gsn_dot_avx512_f16, GSN_DOT_F16)
DEFINE_PLAIN(gsn_dot_avx512_bf16, GSN_DOT_BF16)
#undef DEFINE_PLAIN

static bool has_nan_code(const struct gsn_dot_row *row)
{
	const __m512i magnitude = _mm512_set1_epi8(0x7f);
	__m512i largest = _mm512_setzero_si512();

	for (size_t k = 0; k < row->k; k += 64)
		largest = _mm512_max_epu8(largest, _mm512_and_si512(load_codes(row, k), magnitude));
	return _mm512_cmpeq_epi8_mask(largest, magnitude) != 0;
}

/* A NaN weight makes every dot product with its row NaN, so looking for one is enough. */
static void dot_f8_e4m3(
	const struct gsn_dot_row *row, const float *const *x, uint32_t tokens, float *out)
{
	if (!has_nan_code(row)) {
		GSN_DOT_BY_TOKENS(dot_f8, shift_64, row, x, tokens, out)
		return;
	}
	for (size_t t = 0; t < tokens; t++)
		out[t] = gsn_float_from_bits(GSN_NAN_BITS);
}

void gsn_silu_mul_avx512(const float *gate, const float *up, uint32_t count, float *h)
{
	for (uint32_t i = 0; i < count; i++)
		h[i] = gsn_silu_mul(gate[i], up[i]);
}

/* The probe covers the operating system's part too. */
bool gsn_cpu_has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct gsn_cpu_path gsn_cpu_avx512 = {
	.name = "avx512",
	.supported = gsn_cpu_has_avx512,
	.dot = {[GSN_DOT_F32] = gsn_dot_avx512_f32,
		[GSN_DOT_F16] = gsn_dot_avx512_f16,
		[GSN_DOT_BF16] = gsn_dot_avx512_bf16,
		[GSN_DOT_F8_E4M3] = dot_f8_e4m3},
	.f8_order = gsn_f8_order_avx512,
	.silu_mul = gsn_silu_mul_avx512,
};
