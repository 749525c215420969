/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DOT_256_H
#define GSN_DOT_256_H
/*
 * Dot products on vectors of 256 bits: a lane's 8 accumulators are one vector. A call makes passes
 * over groups of lanes, so many lanes at once as the 16 registers hold accumulators of all tokens,
 * 8. The second pass finds the row in the first-level cache.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/dot.h"

enum { GSN_256_SUMS = GSN_DOT_LANES * GSN_DOT_TOKENS };

/* Some lanes of a row for some tokens. Numbers are constants wherever a pass is made. */
struct gsn_256_pass {
	enum gsn_dot_format format;
	uint32_t first; /* lanes first .. first + lanes - 1 */
	size_t lanes, tokens;
	const struct gsn_dot_row *row;
	const float *const *x;
};

/* Accumulators: lane[lane of the pass * tokens + token]. */
struct gsn_256_sums {
	__m256 lane[GSN_256_SUMS];
};

GSN_INLINE uint32_t gsn_256_element_bits(enum gsn_dot_format format)
{
	return format == GSN_DOT_F32	   ? 32
	       : format == GSN_DOT_F8_E4M3 ? 8
	       : format == GSN_DOT_F4	   ? 4
					   : 16;
}

GSN_INLINE uint32_t gsn_256_chunk_elements(enum gsn_dot_format format)
{
	return format == GSN_DOT_F8_E4M3 ? GSN_DOT_CHUNK_F8
	       : format == GSN_DOT_F4	 ? GSN_DOT_CHUNK_F4
					 : GSN_DOT_CHUNK;
}

GSN_INLINE const uint8_t *gsn_256_weights_at(const struct gsn_256_pass *pass, uint32_t k)
{
	return (const uint8_t *)pass->row->weights +
	       (size_t)k * gsn_256_element_bits(pass->format) / 8;
}

GSN_INLINE __m256 gsn_256_decode_8(enum gsn_dot_format format, const uint8_t *p)
{
	if (format == GSN_DOT_F32)
		return _mm256_loadu_ps((const float *)(const void *)p);
	if (format == GSN_DOT_F16)
		return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
	return _mm256_castsi256_ps(
		_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
}

/*
 * 16 E4M3 codes: each to the upper byte of a word, in the order that unpacking puts right; sign
 * kept, magnitude moved down, as the upper half of a float that is value * 2^-120. NaN codes come
 * out as 480. (By way of F16 there would be no subnormal floats to multiply, which are slow, but
 * weights that were scaled to the format's range have hardly any, and then this is faster.)
 */
GSN_INLINE void gsn_256_decode_16_e4m3(const uint8_t *p, __m256 *first, __m256 *second)
{
	const __m256i spread = _mm256_setr_epi8(-1, 0, -1, 1, -1, 2, -1, 3, -1, 8, -1, 9, -1, 10,
		-1, 11, -1, 4, -1, 5, -1, 6, -1, 7, -1, 12, -1, 13, -1, 14, -1, 15);
	const __m256i fields = _mm256_set1_epi16((short)0x87f0);
	const __m256 unit = _mm256_set1_ps(0x1p120f);
	const __m256i zero = _mm256_setzero_si256();
	__m256i words = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));

	words = _mm256_shuffle_epi8(words, spread);
	words = _mm256_and_si256(_mm256_srai_epi16(words, 4), fields);
	*first = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, words)), unit);
	*second = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, words)), unit);
}

/* Elements 4 i + part of a chunk of 32 E2M1 codes, in `words` element by element of i. */
GSN_INLINE __m256 gsn_256_decode_f4(__m256i words, int part)
{
	const __m256 sizes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
	const __m256 sign = _mm256_set1_ps(-0.0f);
	__m256i codes = _mm256_srli_epi32(words, 4 * part);
	__m256 signs = _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)), sign);

	return _mm256_or_ps(_mm256_permutevar8x32_ps(sizes, codes), signs);
}

/*
 * A chunk of E2M1 codes of all tokens. Inputs are in the order of the AVX2 path: of each four
 * of the chunk's 32 first elements the first, then all second ones, and so on.
 */
GSN_INLINE void gsn_256_add_f4_chunk(const struct gsn_256_pass *pass, const uint8_t *p,
	const float *const *x, uint32_t k, float scale, __m256 *sum)
{
	const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
	__m256 product[GSN_DOT_TOKENS];

#pragma GCC unroll 4
	for (size_t part = 0; part < 4; part++) {
		__m256 w = gsn_256_decode_f4(words, (int)part);

#pragma GCC unroll 4
		for (size_t t = 0; t < pass->tokens; t++) {
			__m256 v = _mm256_loadu_ps(x[t] + k + 8 * part);

			product[t] = part ? _mm256_fmadd_ps(w, v, product[t]) : _mm256_mul_ps(w, v);
		}
	}
#pragma GCC unroll 4
	for (size_t t = 0; t < pass->tokens; t++)
		sum[t] = _mm256_fmadd_ps(product[t], _mm256_set1_ps(scale), sum[t]);
}

/* One chunk of all tokens; its inputs begin at x[t] + k. */
GSN_INLINE void gsn_256_add_chunk(const struct gsn_256_pass *pass, const uint8_t *p,
	const float *const *x, uint32_t k, float scale, __m256 *sum)
{
	__m256 w, w2;

	if (pass->format == GSN_DOT_F4) {
		gsn_256_add_f4_chunk(pass, p, x, k, scale, sum);
		return;
	}
	if (pass->format != GSN_DOT_F8_E4M3) {
		w = gsn_256_decode_8(pass->format, p);
#pragma GCC unroll 4
		for (size_t t = 0; t < pass->tokens; t++)
			sum[t] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x[t] + k), sum[t]);
		return;
	}
	gsn_256_decode_16_e4m3(p, &w, &w2);
#pragma GCC unroll 4
	for (size_t t = 0; t < pass->tokens; t++) {
		__m256 product = _mm256_mul_ps(w, _mm256_loadu_ps(x[t] + k));

		product = _mm256_fmadd_ps(w2, _mm256_loadu_ps(x[t] + k + 8), product);
		sum[t] = _mm256_fmadd_ps(product, _mm256_set1_ps(scale), sum[t]);
	}
}

GSN_INLINE bool gsn_256_is_scaled(const struct gsn_256_pass *pass)
{
	return (pass->format == GSN_DOT_F8_E4M3 || pass->format == GSN_DOT_F4) && pass->row->scales;
}

GSN_INLINE float gsn_256_scale_at(const struct gsn_256_pass *pass, uint32_t k)
{
	return gsn_256_is_scaled(pass) ? gsn_dot_scale_at(pass->row, k) : 1.0f;
}

/* The row's last chunk where it is not whole: zeros behind its end. */
GSN_INLINE void gsn_256_add_partial_chunk(const struct gsn_256_pass *pass, uint32_t k, __m256 *sum)
{
	float inputs[GSN_DOT_TOKENS][GSN_DOT_CHUNK_F4] = {{0}};
	uint8_t codes[GSN_DOT_CHUNK * sizeof(float)] = {0};
	const float *padded[GSN_DOT_TOKENS];
	uint32_t left = pass->row->k - k;
	/* Ordered inputs have zeros of their own behind the row's end. */
	uint32_t there = pass->format == GSN_DOT_F4 ? GSN_DOT_CHUNK_F4 : left;

	memcpy(codes, gsn_256_weights_at(pass, k),
		(size_t)left * gsn_256_element_bits(pass->format) / 8);
	for (size_t t = 0; t < pass->tokens; t++) {
		memcpy(inputs[t], pass->x[t] + k, there * sizeof(float));
		padded[t] = inputs[t];
	}
	gsn_256_add_chunk(pass, codes, padded, 0, gsn_256_scale_at(pass, k), sum);
}

/* A round of all lanes of the pass, each chunk with its own scale, as far as the row goes. */
GSN_INLINE void gsn_256_add_ragged_round(
	const struct gsn_256_pass *pass, uint32_t k, struct gsn_256_sums *sums)
{
	const uint32_t chunk = gsn_256_chunk_elements(pass->format);

#pragma GCC unroll 8
	for (size_t lane = 0; lane < pass->lanes; lane++, k += chunk) {
		__m256 *sum = sums->lane + lane * pass->tokens;

		if (k + chunk <= pass->row->k)
			gsn_256_add_chunk(pass, gsn_256_weights_at(pass, k), pass->x, k,
				gsn_256_scale_at(pass, k), sum);
		else if (k < pass->row->k)
			gsn_256_add_partial_chunk(pass, k, sum);
	}
}

GSN_INLINE void gsn_256_fetch_round_ahead(const struct gsn_256_pass *pass, uint32_t k)
{
	const size_t bytes = (size_t)GSN_DOT_LANES * gsn_256_chunk_elements(pass->format) *
			     gsn_256_element_bits(pass->format) / 8;

#pragma GCC unroll 4
	for (size_t at = 0; at < bytes; at += 64)
		gsn_dot_fetch_ahead(gsn_256_weights_at(pass, k) + at);
}

/* A round of whole chunks under one scale. */
GSN_INLINE void gsn_256_add_round(
	const struct gsn_256_pass *pass, uint32_t k, float scale, struct gsn_256_sums *sums)
{
	const uint32_t chunk = gsn_256_chunk_elements(pass->format);

	if (pass->first == 0)
		gsn_256_fetch_round_ahead(pass, k);
#pragma GCC unroll 8
	for (size_t lane = 0; lane < pass->lanes; lane++, k += chunk)
		gsn_256_add_chunk(pass, gsn_256_weights_at(pass, k), pass->x, k, scale,
			sums->lane + lane * pass->tokens);
}

GSN_INLINE void gsn_256_run_pass(const struct gsn_256_pass *pass, struct gsn_256_sums *sums)
{
	const uint32_t chunk = gsn_256_chunk_elements(pass->format);
	const uint32_t round = GSN_DOT_LANES * chunk;
	const struct gsn_dot_row *row = pass->row;
	uint32_t whole = row->k - row->k % round;
	uint32_t offset = pass->first * chunk;

#pragma GCC unroll 24
	for (size_t i = 0; i < pass->lanes * pass->tokens; i++)
		sums->lane[i] = _mm256_setzero_ps();
	if (gsn_256_is_scaled(pass) && row->block_k % round != 0)
		whole = 0;
	for (uint32_t k = 0; k < whole; k += round)
		gsn_256_add_round(pass, k + offset, gsn_256_scale_at(pass, k), sums);
	for (uint32_t k = whole; k + offset < row->k; k += round)
		gsn_256_add_ragged_round(pass, k + offset, sums);
}

/* Sums of four lanes, `stride` vectors apart: ((A0+A1)+(A2+A3))+((A4+A5)+(A6+A7)) of each. */
GSN_INLINE __m128 gsn_256_sum_4_lanes(const __m256 *lane, size_t stride)
{
	__m256 pairs_01 = _mm256_hadd_ps(lane[0], lane[stride]);
	__m256 pairs_23 = _mm256_hadd_ps(lane[2 * stride], lane[3 * stride]);
	__m256 fours = _mm256_hadd_ps(pairs_01, pairs_23);

	return _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
}

/* The same tree over the sums of lanes 0..3 and 4..7. */
GSN_INLINE float gsn_256_sum_8(__m128 first, __m128 second)
{
	__m128 pairs = _mm_hadd_ps(first, second);
	__m128 fours = _mm_hadd_ps(pairs, pairs);

	return gsn_canonical(_mm_cvtss_f32(_mm_add_ss(fours, _mm_movehdup_ps(fours))));
}

/* out[t] for t < tokens, in passes of `lanes` lanes, 4 or 8; both are constants at each call. */
GSN_INLINE void gsn_256_dot(struct gsn_256_pass pass, float *out)
{
	struct gsn_256_sums sums;
	__m128 quads[2][GSN_DOT_TOKENS];

#pragma GCC unroll 2
	for (; pass.first < GSN_DOT_LANES; pass.first += (uint32_t)pass.lanes) {
		gsn_256_run_pass(&pass, &sums);
#pragma GCC unroll 2
		for (size_t lane = 0; lane < pass.lanes; lane += 4)
#pragma GCC unroll 4
			for (size_t t = 0; t < pass.tokens; t++)
				quads[(pass.first + lane) / 4][t] = gsn_256_sum_4_lanes(
					sums.lane + lane * pass.tokens + t, pass.tokens);
	}
#pragma GCC unroll 4
	for (size_t t = 0; t < pass.tokens; t++)
		out[t] = gsn_256_sum_8(quads[0][t], quads[1][t]);
}

#endif
