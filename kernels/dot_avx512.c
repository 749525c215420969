/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU path for AVX-512 (F, BW, DQ, VL): all formats; E4M3 codes are shifted into place. */
#include "kernels/dot_avx512.h"
#include "kernels/dot_256.h"

/* Position of element e of chunk c: even 0..7, even 8..15, odd 0..7, odd 8..15 of four chunks. */
#define POSITION(c, e) ((c) / 4 * 64 + (e) % 2 * 32 + (e) / 8 * 16 + (c) % 4 * 4 + (e) % 8 / 2)
#define FOUR(c, e)     POSITION(c, e), POSITION(c, (e) + 1), POSITION(c, (e) + 2), POSITION(c, (e) + 3)
#define CHUNK(c)       FOUR(c, 0), FOUR(c, 4), FOUR(c, 8), FOUR(c, 12)
const uint8_t gsn_f8_order_avx512[GSN_DOT_GROUP] = {
	CHUNK(0), CHUNK(1), CHUNK(2), CHUNK(3), CHUNK(4), CHUNK(5), CHUNK(6), CHUNK(7)};
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

GSN_INLINE struct gsn_f8_round shift_round(const uint8_t *codes)
{
	return (struct gsn_f8_round){{shift_64(_mm512_loadu_si512(codes)),
		shift_64(_mm512_loadu_si512(codes + GSN_F8_HALF))}};
}

/* Vectors of two lanes each: a round of the formats whose chunks are 8 elements. */
enum { PAIRS = GSN_DOT_LANES / 2, PAIR = 2 * GSN_DOT_CHUNK, ROUND = PAIRS * PAIR };

/* The accumulators of a row: lanes 0 and 1, 2 and 3, ... of each token. */
struct pair_sums {
	__m512 pair[PAIRS][GSN_DOT_TOKENS];
};

GSN_INLINE __m512 decode_16(enum gsn_dot_format format, const uint8_t *p)
{
	if (format == GSN_DOT_F32)
		return _mm512_loadu_ps(p);
	if (format == GSN_DOT_F16)
		return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
	return _mm512_castsi512_ps(
		_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

/* The row's whole rounds, [0, end). */
GSN_INLINE void add_rounds(const struct gsn_256_pass *pass, uint32_t end, struct pair_sums *sums)
{
#pragma GCC unroll 4
	for (size_t i = 0; i < PAIRS; i++)
#pragma GCC unroll 4
		for (size_t t = 0; t < pass->tokens; t++)
			sums->pair[i][t] = _mm512_setzero_ps();
	for (uint32_t k = 0; k < end; k += ROUND) {
		gsn_256_fetch_round_ahead(pass, k);
#pragma GCC unroll 4
		for (uint32_t i = 0; i < PAIRS; i++) {
			uint32_t at = k + i * PAIR;
			__m512 w = decode_16(pass->format, gsn_256_weights_at(pass, at));

#pragma GCC unroll 4
			for (size_t t = 0; t < pass->tokens; t++)
				sums->pair[i][t] = _mm512_fmadd_ps(
					w, _mm512_loadu_ps(pass->x[t] + at), sums->pair[i][t]);
		}
	}
}

GSN_INLINE void split_pairs(const struct pair_sums *pairs, size_t tokens, struct gsn_256_sums *sums)
{
#pragma GCC unroll 4
	for (size_t i = 0; i < PAIRS; i++)
#pragma GCC unroll 4
		for (size_t t = 0; t < tokens; t++) {
			__m512 pair = pairs->pair[i][t];

			sums->lane[2 * i * tokens + t] = _mm512_castps512_ps256(pair);
			sums->lane[(2 * i + 1) * tokens + t] = _mm512_extractf32x8_ps(pair, 1);
		}
}

/* The number of tokens is a constant at each call. */
GSN_INLINE void dot_row(enum gsn_dot_format format, const struct gsn_dot_row *row,
	const float *const *x, size_t tokens, float *out)
{
	const struct gsn_256_pass pass = {format, 0, GSN_DOT_LANES, tokens, row, x};
	uint32_t whole = row->k - row->k % ROUND;
	struct pair_sums pairs;
	struct gsn_256_sums sums;

	add_rounds(&pass, whole, &pairs);
	split_pairs(&pairs, tokens, &sums);
	if (whole < row->k)
		gsn_256_add_ragged_round(&pass, whole, &sums);
#pragma GCC unroll 4
	for (size_t t = 0; t < tokens; t++)
		out[t] = gsn_256_sum_8(gsn_256_sum_4_lanes(sums.lane + t, tokens),
			gsn_256_sum_4_lanes(sums.lane + 4 * tokens + t, tokens));
}

GSN_INLINE void dot_rows(enum gsn_dot_format format, const struct gsn_dot_rows *rows,
	const float *const *x, size_t tokens, float *out)
{
	for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {
		struct gsn_dot_row row = gsn_dot_row_at(rows, r, gsn_256_element_bits(format));

		dot_row(format, &row, x, tokens, out);
	}
}

#define DEFINE_DOT(name, format)                                                                   \
	void name(const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens,         \
		float *out)                                                                        \
	{                                                                                          \
		if (tokens == 1)                                                                   \
			dot_rows(format, rows, x, 1, out);                                         \
		else if (tokens == 2)                                                              \
			dot_rows(format, rows, x, 2, out);                                         \
		else if (tokens == 3)                                                              \
			dot_rows(format, rows, x, 3, out);                                         \
		else                                                                               \
			dot_rows(format, rows, x, 4, out);                                         \
	}
DEFINE_DOT(gsn_dot_avx512_f32, GSN_DOT_F32)
DEFINE_DOT(gsn_dot_avx512_f16, GSN_DOT_F16)
DEFINE_DOT(gsn_dot_avx512_bf16, GSN_DOT_BF16)
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
	gsn_f8_dot_tokens(
		(struct gsn_f8_decoder){shift_64, shift_round, true}, rows, x, tokens, out);
	for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {
		struct gsn_dot_row row = gsn_dot_row_at(rows, r, 8);

		if (has_nan_code(&row))
			for (uint32_t t = 0; t < tokens; t++)
				out[t] = gsn_float_from_bits(GSN_NAN_BITS);
	}
}

void gsn_activate_avx512(struct gsn_activation activation, const float *gate, const float *up,
	uint32_t count, float *h)
{
	gsn_dot_activate(activation, gate, up, count, h);
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
		[GSN_DOT_F8_E4M3] = dot_f8_e4m3,
		[GSN_DOT_F4] = gsn_dot_avx512_f4},
	.order = {[GSN_DOT_F8_E4M3] = gsn_f8_order_avx512, [GSN_DOT_F4] = gsn_f4_order_avx512},
	.activate = gsn_activate_avx512,
};
