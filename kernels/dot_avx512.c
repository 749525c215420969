/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU path for AVX-512 (F, BW, DQ, VL): all formats; E4M3 codes are shifted into place. */
#include "kernels/dot_avx512.h"

/*
 * F32, F16, BF16: a vector holds the accumulators of two lanes, 2j and 2j + 1, and 16 elements are
 * a chunk of each. All lanes of four tokens are 16 of the 32 registers.
 */
enum { PAIRS = GSN_DOT_LANES / 2, WIDTH = 16, ROUND = GSN_DOT_LANES * GSN_DOT_CHUNK };

/* Accumulators of one token, by pair of lanes. */
struct sums {
	__m512 pair[PAIRS];
};

/* The tree of arithmetic.md: within the lanes, then over the lanes. */
GSN_INLINE float reduce(const struct sums *sums)
{
	__m256 quads[2];

	for (size_t i = 0; i < 2; i++) {
		__m512 a = sums->pair[2 * i], b = sums->pair[2 * i + 1];
		__m256 lanes_01 =
			_mm256_hadd_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
		__m256 lanes_23 =
			_mm256_hadd_ps(_mm512_castps512_ps256(b), _mm512_extractf32x8_ps(b, 1));

		quads[i] = _mm256_hadd_ps(lanes_01, lanes_23);
	}
	__m128 low =
		_mm_add_ps(_mm256_castps256_ps128(quads[0]), _mm256_extractf128_ps(quads[0], 1));
	__m128 high =
		_mm_add_ps(_mm256_castps256_ps128(quads[1]), _mm256_extractf128_ps(quads[1], 1));
	__m128 pairs = _mm_hadd_ps(low, high);
	__m128 fours = _mm_hadd_ps(pairs, pairs);

	return gsn_canonical(_mm_cvtss_f32(_mm_add_ss(fours, _mm_movehdup_ps(fours))));
}

GSN_INLINE void clear(struct sums *sums, size_t tokens)
{
#pragma GCC unroll 4
	for (size_t t = 0; t < tokens; t++)
#pragma GCC unroll 4
		for (int j = 0; j < PAIRS; j++)
			sums[t].pair[j] = _mm512_setzero_ps();
}

GSN_INLINE void finish(const struct sums *sums, size_t tokens, float *out)
{
#pragma GCC unroll 4
	for (size_t t = 0; t < tokens; t++)
		out[t] = reduce(&sums[t]);
}

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
		__mmask16 mask = (__mmask16)gsn_low_bits(row->k > k ? row->k - k : 0, WIDTH);
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

/* Position of element e of chunk c: even 0..7, even 8..15, odd 0..7, odd 8..15 of four chunks. */
#define POSITION(c, e) ((e) % 2 * 32 + (e) / 8 * 16 + (c)*4 + (e) % 8 / 2)
#define FOUR(c, e)     POSITION(c, e), POSITION(c, (e) + 1), POSITION(c, (e) + 2), POSITION(c, (e) + 3)
#define CHUNK(c)       FOUR(c, 0), FOUR(c, 4), FOUR(c, 8), FOUR(c, 12)
const uint8_t gsn_f8_order_avx512[GSN_DOT_GROUP] = {CHUNK(0), CHUNK(1), CHUNK(2), CHUNK(3)};
#undef POSITION
#undef FOUR
#undef CHUNK

/*
 * Sign kept, magnitude moved down, as the upper half of a float that is value * 2^-120; NaN codes
 * come out as 480. See dot_avx2.c about subnormals.
 */
GSN_INLINE struct gsn_f8_words shift_64(__m512i codes)
{
	const __m512i fields = _mm512_set1_epi16((short)0x87f0);
	const __m512i zero = _mm512_setzero_si512();
	__m512i low = _mm512_srai_epi16(_mm512_unpacklo_epi8(zero, codes), 4);
	__m512i high = _mm512_srai_epi16(_mm512_unpackhi_epi8(zero, codes), 4);

	return (struct gsn_f8_words){
		{_mm512_and_si512(low, fields), _mm512_and_si512(high, fields)}};
}

/* The number of tokens is a constant in each of these. */
GSN_INLINE void dot_row(enum gsn_dot_format format, const struct gsn_dot_row *row,
	const float *const *x, uint32_t tokens, float *out)
{
	if (tokens == 1)
		dot_plain(format, row, x, out, 1);
	else if (tokens == 2)
		dot_plain(format, row, x, out, 2);
	else if (tokens == 3)
		dot_plain(format, row, x, out, 3);
	else
		dot_plain(format, row, x, out, 4);
}

#define DEFINE_DOT(name, format, element_bytes)                                                    \
	void name(const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens,         \
		float *out)                                                                        \
	{                                                                                          \
		for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {                \
			struct gsn_dot_row row = gsn_dot_row_at(rows, r, (element_bytes));         \
                                                                                                   \
			dot_row(format, &row, x, tokens, out);                                     \
		}                                                                                  \
	}
DEFINE_DOT(gsn_dot_avx512_f32, GSN_DOT_F32, 4)
DEFINE_DOT(gsn_dot_avx512_f16, GSN_DOT_F16, 2)
DEFINE_DOT(gsn_dot_avx512_bf16, GSN_DOT_BF16, 2)
#undef DEFINE_DOT

static bool has_nan_code(const struct gsn_dot_row *row)
{
	const __m512i magnitude = _mm512_set1_epi8(0x7f);
	__m512i largest = _mm512_setzero_si512();

	for (size_t k = 0; k < row->k; k += 64)
		largest = _mm512_max_epu8(
			largest, _mm512_and_si512(gsn_load_codes(row, k), magnitude));
	return _mm512_cmpeq_epi8_mask(largest, magnitude) != 0;
}

/* A NaN weight makes every dot product with its row NaN, so looking for one is enough. */
static void dot_f8_e4m3(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out)
{
	gsn_f8_dot_tokens((struct gsn_f8_decoder){shift_64, true}, rows, x, tokens, out);
	for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {
		struct gsn_dot_row row = gsn_dot_row_at(rows, r, 1);

		if (has_nan_code(&row))
			for (uint32_t t = 0; t < tokens; t++)
				out[t] = gsn_float_from_bits(GSN_NAN_BITS);
	}
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
