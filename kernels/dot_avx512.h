/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DOT_AVX512_H
#define GSN_DOT_AVX512_H
/*
 * What the two AVX-512 paths share: rows of E4M3, which they decode in different ways.
 *
 * Codes come 64 at a time, half a round, four chunks: each chunk is 128 bits of a vector. Decoding
 * interleaves two bytes for each code, which leaves words 0..7 of the four chunks in one vector,
 * words 8..15 in another; words are upper halves of floats. Of both vectors the even words, then
 * the odd words are taken. So inputs are kept in the order even 0..7, even 8..15, odd 0..7, odd
 * 8..15 of four chunks (gsn_f8_order_avx512); doing it for every row would cost as much as the
 * arithmetic. An accumulator vector holds the even or the odd accumulators of four lanes.
 */
#include <immintrin.h>

#include "kernels/dot.h"

enum { GSN_F8_ROUND = GSN_DOT_LANES * GSN_DOT_CHUNK_F8, GSN_F8_HALF = GSN_F8_ROUND / 2 };

/* 64 decoded codes: words 0..7, then 8..15 of each chunk. */
struct gsn_f8_words {
	__m512i side[2];
};

/* A decoded round. */
struct gsn_f8_round {
	struct gsn_f8_words half[2];
};

/* Accumulators of one token: [half of a round][even, odd]. */
struct gsn_f8_sums {
	__m512 part[2][2];
};

/* How a path decodes. Constants at each use, so that all of it is inlined. */
struct gsn_f8_decoder {
	struct gsn_f8_words (*decode)(__m512i codes);
	struct gsn_f8_round (*decode_round)(const uint8_t *codes);
	bool small; /* words are 2^-120 of their values */
};

struct gsn_f8_job {
	struct gsn_f8_decoder decoder;
	const struct gsn_dot_row *row;
	const float *const *x;
	size_t tokens;
};

/* Lowest `count` bits; all of them from `width` on. */
GSN_INLINE uint64_t gsn_low_bits(size_t count, unsigned width)
{
	return count >= width ? UINT64_MAX >> (64 - width) : (UINT64_C(1) << count) - 1;
}

/* As many codes of 64 as the row still has, zeros behind them. */
GSN_INLINE __m512i gsn_load_codes(const struct gsn_dot_row *row, size_t k)
{
	const uint8_t *codes = row->weights;

	return _mm512_maskz_loadu_epi8(gsn_low_bits(row->k > k ? row->k - k : 0, 64), codes + k);
}

GSN_INLINE __m512 gsn_f8_expand(__m512i words, size_t odd, bool small)
{
	__m512i bits = odd ? _mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000))
			   : _mm512_slli_epi32(words, 16);
	__m512 values = _mm512_castsi512_ps(bits);

	return small ? _mm512_mul_ps(values, _mm512_set1_ps(0x1p120f)) : values;
}

/* Half a round from element k on; `scales` has that of each chunk. */
GSN_INLINE void gsn_f8_add_half(const struct gsn_f8_job *job, const struct gsn_f8_words *words,
	size_t k, size_t half, __m512 scales, struct gsn_f8_sums *sums)
{
#pragma GCC unroll 2
	for (size_t odd = 0; odd < 2; odd++) {
		__m512 low = gsn_f8_expand(words->side[0], odd, job->decoder.small);
		__m512 high = gsn_f8_expand(words->side[1], odd, job->decoder.small);

#pragma GCC unroll 4
		for (size_t t = 0; t < job->tokens; t++) {
			const float *x = job->x[t] + k + odd * GSN_F8_HALF / 2;
			__m512 *sum = &sums[t].part[half][odd];
			__m512 product = _mm512_mul_ps(low, _mm512_loadu_ps(x));

			product = _mm512_fmadd_ps(high, _mm512_loadu_ps(x + 16), product);
			*sum = _mm512_fmadd_ps(product, scales, *sum);
		}
	}
}

/* Scales of four chunks from k on, each 4 times; 0 for a chunk behind the row's end. */
GSN_INLINE __m512 gsn_chunk_scales(const struct gsn_dot_row *row, size_t k, size_t chunk)
{
	const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
	float scales[4] = {0.0f, 0.0f, 0.0f, 0.0f};

	for (size_t i = 0; i < 4 && k < row->k; i++, k += chunk)
		scales[i] = gsn_dot_scale_at(row, (uint32_t)k);
	return _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(_mm_loadu_ps(scales)));
}

/* A round that is not whole, or has more than one scale. */
GSN_INLINE void gsn_f8_add_ragged_round(
	const struct gsn_f8_job *job, size_t k, struct gsn_f8_sums *sums)
{
#pragma GCC unroll 2
	for (size_t half = 0; half < 2; half++, k += GSN_F8_HALF) {
		if (k < job->row->k) {
			struct gsn_f8_words words =
				job->decoder.decode(gsn_load_codes(job->row, k));

			gsn_f8_add_half(job, &words, k, half,
				gsn_chunk_scales(job->row, k, GSN_DOT_CHUNK_F8), sums);
		}
	}
}

/* The whole rounds of a row, [0, end). */
GSN_INLINE void gsn_f8_add_rounds(
	const struct gsn_f8_job *job, size_t end, struct gsn_f8_sums *sums)
{
	const struct gsn_dot_row *row = job->row;
	const uint8_t *codes = row->weights;

	for (size_t k = 0; k < end; k += GSN_F8_ROUND) {
		struct gsn_f8_round round = job->decoder.decode_round(codes + k);
		__m512 scale = _mm512_set1_ps(gsn_dot_scale_at(row, (uint32_t)k));

		gsn_dot_fetch_ahead(codes + k);
		gsn_dot_fetch_ahead(codes + k + GSN_F8_HALF);
		gsn_f8_add_half(job, &round.half[0], k, 0, scale, sums);
		gsn_f8_add_half(job, &round.half[1], k + GSN_F8_HALF, 1, scale, sums);
	}
}

/*
 * The tree of arithmetic.md. Even plus odd accumulators are A0+A1, A2+A3, ... of four lanes; added
 * side by side twice they are the sums of lanes 0, 2, 4, 6 and of 1, 3, 5, 7.
 */
GSN_INLINE float gsn_f8_reduce(const struct gsn_f8_sums *sums)
{
	__m512 low = _mm512_add_ps(sums->part[0][0], sums->part[0][1]);
	__m512 high = _mm512_add_ps(sums->part[1][0], sums->part[1][1]);
	__m256 fours = _mm256_hadd_ps(
		_mm256_hadd_ps(_mm512_castps512_ps256(low), _mm512_extractf32x8_ps(low, 1)),
		_mm256_hadd_ps(_mm512_castps512_ps256(high), _mm512_extractf32x8_ps(high, 1)));
	__m128 pairs = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
	__m128 halves = _mm_hadd_ps(pairs, pairs);

	return gsn_canonical(_mm_cvtss_f32(_mm_add_ss(halves, _mm_movehdup_ps(halves))));
}

/* Elements of a row that are whole rounds under one scale each. */
GSN_INLINE size_t gsn_f8_whole(const struct gsn_dot_rows *rows)
{
	if (rows->scales && rows->block_k % GSN_F8_ROUND != 0)
		return 0;
	return rows->k - rows->k % GSN_F8_ROUND;
}

GSN_INLINE void gsn_f8_dot(struct gsn_f8_decoder decoder, const struct gsn_dot_rows *rows,
	const float *const *x, size_t tokens, float *out)
{
	const size_t whole = gsn_f8_whole(rows);

	for (size_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {
		const struct gsn_dot_row row = gsn_dot_row_at(rows, r, 8);
		const struct gsn_f8_job job = {decoder, &row, x, tokens};
		struct gsn_f8_sums sums[GSN_DOT_TOKENS];

#pragma GCC unroll 4
		for (size_t t = 0; t < tokens; t++)
#pragma GCC unroll 4
			for (size_t i = 0; i < 4; i++)
				sums[t].part[i / 2][i % 2] = _mm512_setzero_ps();
		gsn_f8_add_rounds(&job, whole, sums);
		for (size_t k = whole; k < row.k; k += GSN_F8_ROUND)
			gsn_f8_add_ragged_round(&job, k, sums);
#pragma GCC unroll 4
		for (size_t t = 0; t < tokens; t++)
			out[t] = gsn_f8_reduce(&sums[t]);
	}
}

/* The number of tokens is a constant in each of these. */
GSN_INLINE void gsn_f8_dot_tokens(struct gsn_f8_decoder decoder, const struct gsn_dot_rows *rows,
	const float *const *x, uint32_t tokens, float *out)
{
	if (tokens == 1)
		gsn_f8_dot(decoder, rows, x, 1, out);
	else if (tokens == 2)
		gsn_f8_dot(decoder, rows, x, 2, out);
	else if (tokens == 3)
		gsn_f8_dot(decoder, rows, x, 3, out);
	else
		gsn_f8_dot(decoder, rows, x, 4, out);
}

extern const uint8_t gsn_f8_order_avx512[GSN_DOT_GROUP], gsn_f4_order_avx512[GSN_DOT_GROUP];

void gsn_dot_avx512_f32(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out);
void gsn_dot_avx512_f16(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out);
void gsn_dot_avx512_bf16(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out);
void gsn_dot_avx512_f4(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out);
void gsn_activate_avx512(struct gsn_activation activation, const float *gate, const float *up,
	uint32_t count, float *h);
bool gsn_cpu_has_avx512(void);

#endif
