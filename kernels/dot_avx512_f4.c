/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of E2M1 codes for the AVX-512 paths. 128 codes, half a round, four chunks, are 16 words of
 * eight codes: a word shifted by four bits for each code before it is the index of a permute that
 * knows all 16 values. That gives vectors of every eighth element, so inputs are kept in that order
 * (gsn_f4_order_avx512). Words are a lane's accumulators in pairs: one takes the word's lower four
 * codes, one the upper four. Vectors of either kind add up as those of E4M3 do.
 */
#include <string.h>

#include "kernels/dot_avx512.h"

enum {
	HALF = GSN_DOT_LANES * GSN_DOT_CHUNK_F4 / 2,
	ROUND = 2 * HALF,
	SIDE = 4, /* codes of a word that one accumulator takes */
};

/* Position of element e of 128: element 0 of all words, element 1, ... */
#define POSITION(e)   ((e) % 8 * 16 + (e) / 8)
#define FOUR(e)	      POSITION(e), POSITION((e) + 1), POSITION((e) + 2), POSITION((e) + 3)
#define SIXTEEN(e)    FOUR(e), FOUR((e) + 4), FOUR((e) + 8), FOUR((e) + 12)
#define SIXTY_FOUR(e) SIXTEEN(e), SIXTEEN((e) + 16), SIXTEEN((e) + 32), SIXTEEN((e) + 48)
const uint8_t gsn_f4_order_avx512[GSN_DOT_GROUP] = {SIXTY_FOUR(0), SIXTY_FOUR(64)};
#undef POSITION
#undef FOUR
#undef SIXTEEN
#undef SIXTY_FOUR

struct job {
	const struct gsn_dot_row *row;
	const float *const *x;
	size_t tokens;
};

/* Values of code `part` of each word. */
GSN_INLINE __m512 look_up(__m512i words, size_t part)
{
	const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
		-0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);

	return _mm512_permutexvar_ps(_mm512_srli_epi32(words, (unsigned)(4 * part)), values);
}

/* Half a round from element k on; `scales` has that of each chunk. */
GSN_INLINE void add_half(const struct job *job, __m512i words, size_t k, size_t half, __m512 scales,
	struct gsn_f8_sums *sums)
{
#pragma GCC unroll 2
	for (size_t side = 0; side < 2; side++) {
		__m512 product[GSN_DOT_TOKENS];

#pragma GCC unroll 4
		for (size_t i = 0; i < SIDE; i++) {
			__m512 w = look_up(words, side * SIDE + i);

#pragma GCC unroll 4
			for (size_t t = 0; t < job->tokens; t++) {
				__m512 v = _mm512_loadu_ps(job->x[t] + k + 16 * (side * SIDE + i));

				product[t] =
					i ? _mm512_fmadd_ps(w, v, product[t]) : _mm512_mul_ps(w, v);
			}
		}
#pragma GCC unroll 4
		for (size_t t = 0; t < job->tokens; t++) {
			__m512 *sum = &sums[t].part[half][side];

			*sum = _mm512_fmadd_ps(product[t], scales, *sum);
		}
	}
}

/*
 * Scales of the four chunks of a whole half. The usual ones, a scale for each chunk, are spread by
 * a shuffle; the NaN of E8M0, which comes out as infinity, is looked for row by row.
 */
GSN_INLINE __m512 scales_of_half(const struct gsn_dot_row *row, size_t k)
{
	const __m512i chunks = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
	const __m512i low_byte = _mm512_set1_epi32((int)0xffffff00);

	if (!row->scales)
		return _mm512_set1_ps(1.0f);
	if (row->block_k != GSN_DOT_CHUNK_F4)
		return gsn_chunk_scales(row, k, GSN_DOT_CHUNK_F4);
	if (row->scale_type == GSN_DOT_SCALE_E8M0) {
		const uint8_t *codes = (const uint8_t *)row->scales + k / GSN_DOT_CHUNK_F4;
		__m512i bits;
		int four;

		memcpy(&four, codes, sizeof four);
		bits = _mm512_shuffle_epi8(
			_mm512_set1_epi32(four), _mm512_or_si512(chunks, low_byte));
		return _mm512_castsi512_ps(_mm512_max_epu32(
			_mm512_slli_epi32(bits, 23), _mm512_set1_epi32(0x00400000)));
	}
	return _mm512_permutexvar_ps(
		chunks, _mm512_castps128_ps512(
				_mm_loadu_ps((const float *)row->scales + k / GSN_DOT_CHUNK_F4)));
}

GSN_INLINE void add_row(const struct job *job, struct gsn_f8_sums *sums)
{
	const struct gsn_dot_row *row = job->row;
	const uint8_t *codes = row->weights;
	size_t half = 0, k = 0;

	for (; k + ROUND <= row->k; k += ROUND) {
		gsn_dot_fetch_ahead(codes + k / 2);
		gsn_dot_fetch_ahead(codes + k / 2 + HALF / 2);
		add_half(
			job, _mm512_loadu_si512(codes + k / 2), k, 0, scales_of_half(row, k), sums);
		add_half(job, _mm512_loadu_si512(codes + k / 2 + HALF / 2), k + HALF, 1,
			scales_of_half(row, k + HALF), sums);
	}
#pragma GCC unroll 2
	for (; half < 2; half++, k += HALF) {
		if (k < row->k) {
			uint64_t there = gsn_low_bits((row->k - k) / 2, 64);

			add_half(job, _mm512_maskz_loadu_epi8(there, codes + k / 2), k, half,
				gsn_chunk_scales(row, k, GSN_DOT_CHUNK_F4), sums);
		}
	}
}

static bool has_nan_scale(const struct gsn_dot_row *row)
{
	const uint8_t *codes = row->scales;
	size_t count;

	if (!row->scales || row->scale_type != GSN_DOT_SCALE_E8M0)
		return false;
	count = (row->k + row->block_k - 1) / row->block_k;
	for (size_t i = 0; i < count; i += 64) {
		__m512i some = _mm512_maskz_loadu_epi8(gsn_low_bits(count - i, 64), codes + i);

		if (_mm512_cmpeq_epi8_mask(some, _mm512_set1_epi8((char)0xff)))
			return true;
	}
	return false;
}

GSN_INLINE void dot_rows(
	const struct gsn_dot_rows *rows, const float *const *x, size_t tokens, float *out)
{
	for (size_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {
		const struct gsn_dot_row row = gsn_dot_row_at(rows, r, 4);
		const struct job job = {&row, x, tokens};
		struct gsn_f8_sums sums[GSN_DOT_TOKENS];
		bool nan = has_nan_scale(&row);

#pragma GCC unroll 4
		for (size_t t = 0; t < tokens; t++)
#pragma GCC unroll 4
			for (size_t i = 0; i < 4; i++)
				sums[t].part[i / 2][i % 2] = _mm512_setzero_ps();
		add_row(&job, sums);
#pragma GCC unroll 4
		for (size_t t = 0; t < tokens; t++)
			out[t] = nan ? gsn_float_from_bits(GSN_NAN_BITS) : gsn_f8_reduce(&sums[t]);
	}
}

void gsn_dot_avx512_f4(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out)
{
	if (tokens == 1)
		dot_rows(rows, x, 1, out);
	else if (tokens == 2)
		dot_rows(rows, x, 2, out);
	else if (tokens == 3)
		dot_rows(rows, x, 3, out);
	else
		dot_rows(rows, x, 4, out);
}
