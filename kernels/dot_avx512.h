/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DOT_AVX512_H
#define GSN_DOT_AVX512_H
/*
 * What the two AVX-512 paths share. A vector holds the accumulators of two lanes, 2j and 2j + 1;
 * all lanes of four tokens are 16 of the 32 registers.
 *
 * E4M3 codes come 64 at a time, four chunks, and are decoded to four vectors: first and second
 * halves of chunks 0 and 1, then of 2 and 3. Inputs are kept in that order (gsn_f8_order_avx512),
 * since putting them in order for every row costs as much as the arithmetic. The paths differ in
 * how they decode.
 */
#include <immintrin.h>

#include "kernels/dot.h"
#include "kernels/moe_math.h"

#define GSN_INLINE static inline __attribute__((always_inline))

enum { PAIRS = GSN_DOT_LANES / 2, WIDTH = 16 };

/* Accumulators of one token, by pair of lanes. */
struct sums {
	__m512 pair[PAIRS];
};

/* Lowest `count` bits; all of them from `width` on. */
GSN_INLINE uint64_t low_bits(size_t count, unsigned width)
{
	return count >= width ? UINT64_MAX >> (64 - width) : (UINT64_C(1) << count) - 1;
}

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

/* Four vectors from 64 codes; see the top of the file. */
struct decoded {
	__m512 half[4];
};

/* Two chunks: products of the first halves, plus those of the second halves, times the scales. */
GSN_INLINE __m512 add_chunks(__m512 sum, const __m512 *w, const float *x, __m512 scale)
{
	__m512 product = _mm512_mul_ps(w[0], _mm512_loadu_ps(x));

	product = _mm512_fmadd_ps(w[1], _mm512_loadu_ps(x + WIDTH), product);
	return _mm512_fmadd_ps(product, scale, sum);
}

/* 64 codes of a whole round under one scale. */
GSN_INLINE void add_64(const struct decoded *w, const float *const *x, size_t k, __m512 scale,
	struct sums *sums, size_t half, size_t tokens)
{
#pragma GCC unroll 4
	for (size_t t = 0; t < tokens; t++) {
#pragma GCC unroll 2
		for (size_t j = 0; j < 2; j++) {
			__m512 *sum = &sums[t].pair[2 * half + j];

			*sum = add_chunks(*sum, w->half + 2 * j, x[t] + k + j * 32, scale);
		}
	}
}

/* Scales of the chunks at k and k + 16; 0 for a chunk behind the row's end. */
GSN_INLINE __m512 scales_at(const struct gsn_dot_row *row, size_t k)
{
	float scale[2] = {0.0f, 0.0f};

	for (size_t i = 0; i < 2 && k + i * GSN_DOT_CHUNK_F8 < row->k; i++)
		scale[i] =
			row->scales
				? row->scales[(uint32_t)(k + i * GSN_DOT_CHUNK_F8) / row->block_k]
				: 1.0f;
	return _mm512_insertf32x8(_mm512_set1_ps(scale[0]), _mm256_set1_ps(scale[1]), 1);
}

/* As many codes of 64 as the row still has, zeros behind them. */
GSN_INLINE __m512i load_codes(const struct gsn_dot_row *row, size_t k)
{
	const uint8_t *codes = row->weights;

	return _mm512_maskz_loadu_epi8(low_bits(row->k > k ? row->k - k : 0, 64), codes + k);
}

typedef struct decoded (*decode_fn)(__m512i codes);

enum { ROUND = GSN_DOT_LANES * GSN_DOT_CHUNK, F8_ROUND = GSN_DOT_LANES * GSN_DOT_CHUNK_F8 };

/*
 * Rounds of [0, end), a multiple of F8_ROUND and not 0. Codes are decoded one step ahead of their
 * use: the chain from load to sum is too long for the processor to overlap on its own.
 */
GSN_INLINE void add_rounds(decode_fn decode, const struct gsn_dot_row *row, const float *const *x,
	size_t end, struct sums *sums, size_t tokens)
{
	const uint8_t *codes = row->weights;
	struct decoded first = decode(_mm512_loadu_si512(codes));

	for (size_t k = 0; k < end; k += F8_ROUND) {
		__m512 scale = _mm512_set1_ps(
			row->scales ? row->scales[(uint32_t)k / row->block_k] : 1.0f);
		struct decoded second = decode(_mm512_loadu_si512(codes + k + 64));
		size_t next = k + F8_ROUND < end ? k + F8_ROUND : 0;

		add_64(&first, x, k, scale, sums, 0, tokens);
		first = decode(_mm512_loadu_si512(codes + next));
		add_64(&second, x, k + 64, scale, sums, 1, tokens);
	}
}

/* Half a round, each chunk with its own scale; codes and inputs behind the row's end are zeros. */
GSN_INLINE void add_ragged_64(decode_fn decode, const struct gsn_dot_row *row,
	const float *const *x, size_t k, size_t half, struct sums *sums, size_t tokens)
{
	const size_t first = k + half * 64;
	struct decoded w = decode(load_codes(row, first));

#pragma GCC unroll 2
	for (size_t j = 0; j < 2; j++) {
		const size_t at = first + j * 32;
		__m512 scales = scales_at(row, at);

#pragma GCC unroll 4
		for (size_t t = 0; t < tokens; t++) {
			__m512 *sum = &sums[t].pair[2 * half + j];

			*sum = add_chunks(*sum, w.half + 2 * j, x[t] + at, scales);
		}
	}
}

GSN_INLINE void dot_f8(decode_fn decode, const struct gsn_dot_row *row, const float *const *x,
	float *out, size_t tokens)
{
	size_t whole = row->scales && row->block_k % F8_ROUND ? 0 : row->k - row->k % F8_ROUND;
	struct sums sums[GSN_DOT_TOKENS];

	clear(sums, tokens);
	if (whole > 0)
		add_rounds(decode, row, x, whole, sums, tokens);
	for (size_t k = whole; k < row->k; k += F8_ROUND) {
#pragma GCC unroll 2
		for (size_t half = 0; half < 2; half++)
			if (k + half * 64 < row->k)
				add_ragged_64(decode, row, x, k, half, sums, tokens);
	}
	finish(sums, tokens, out);
}

extern const uint8_t gsn_f8_order_avx512[GSN_DOT_GROUP];

/* A kernel for each number of tokens, so that it is a constant in them. */
#define GSN_DOT_BY_TOKENS(kernel, how, row, x, tokens, out)                                        \
	switch (tokens) {                                                                          \
	case 1:                                                                                    \
		kernel(how, row, x, out, 1);                                                       \
		break;                                                                             \
	case 2:                                                                                    \
		kernel(how, row, x, out, 2);                                                       \
		break;                                                                             \
	case 3:                                                                                    \
		kernel(how, row, x, out, 3);                                                       \
		break;                                                                             \
	default:                                                                                   \
		kernel(how, row, x, out, 4);                                                       \
	}

void gsn_dot_avx512_f32(
	const struct gsn_dot_row *row, const float *const *x, uint32_t tokens, float *out);
void gsn_dot_avx512_f16(
	const struct gsn_dot_row *row, const float *const *x, uint32_t tokens, float *out);
void gsn_dot_avx512_bf16(
	const struct gsn_dot_row *row, const float *const *x, uint32_t tokens, float *out);
void gsn_silu_mul_avx512(const float *gate, const float *up, uint32_t count, float *h);
bool gsn_cpu_has_avx512(void);

#endif
