/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU path for AVX2, FMA and F16C. A lane's 8 accumulators are one vector, and 8 vectors are
 * what fits into the registers: all lanes of one token, or half of the lanes of two tokens in each
 * of two passes, where the second pass finds the row in the first-level cache.
 */
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "kernels/dot.h"
#include "kernels/moe_math.h"

#define INLINE static inline __attribute__((always_inline))

/* Some lanes of a row for some tokens. Numbers are constants wherever a pass is made. */
struct pass {
	enum gsn_dot_format format;
	uint32_t first; /* lanes first .. first + lanes - 1 */
	size_t lanes, tokens;
	const struct gsn_dot_row *row;
	const float *const *x;
};

/* Accumulators: lane[lane of the pass * tokens + token]. */
struct sums {
	__m256 lane[GSN_DOT_LANES];
};

INLINE uint32_t element_bytes(enum gsn_dot_format format)
{
	return format == GSN_DOT_F32 ? 4 : format == GSN_DOT_F8_E4M3 ? 1 : 2;
}

INLINE uint32_t chunk_elements(enum gsn_dot_format format)
{
	return format == GSN_DOT_F8_E4M3 ? GSN_DOT_CHUNK_F8 : GSN_DOT_CHUNK;
}

INLINE const uint8_t *weights_at(const struct pass *pass, uint32_t k)
{
	return (const uint8_t *)pass->row->weights + (size_t)k * element_bytes(pass->format);
}

INLINE __m256 decode_8(enum gsn_dot_format format, const uint8_t *p)
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
INLINE void decode_16_e4m3(const uint8_t *p, __m256 *first, __m256 *second)
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

/* One chunk of all tokens; its inputs begin at x[t] + k. */
INLINE void add_chunk(const struct pass *pass, const uint8_t *p, const float *const *x, uint32_t k,
	float scale, __m256 *sum)
{
	__m256 w, w2;

	if (pass->format != GSN_DOT_F8_E4M3) {
		w = decode_8(pass->format, p);
#pragma GCC unroll 2
		for (size_t t = 0; t < pass->tokens; t++)
			sum[t] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x[t] + k), sum[t]);
		return;
	}
	decode_16_e4m3(p, &w, &w2);
#pragma GCC unroll 2
	for (size_t t = 0; t < pass->tokens; t++) {
		__m256 product = _mm256_mul_ps(w, _mm256_loadu_ps(x[t] + k));

		product = _mm256_fmadd_ps(w2, _mm256_loadu_ps(x[t] + k + 8), product);
		sum[t] = _mm256_fmadd_ps(product, _mm256_set1_ps(scale), sum[t]);
	}
}

INLINE float scale_at(const struct pass *pass, uint32_t k)
{
	const struct gsn_dot_row *row = pass->row;

	return pass->format == GSN_DOT_F8_E4M3 && row->scales ? row->scales[k / row->block_k]
							      : 1.0f;
}

/* The row's last chunk where it is not whole: zeros behind its end. */
INLINE void add_partial_chunk(const struct pass *pass, uint32_t k, __m256 *sum)
{
	float inputs[GSN_DOT_TOKENS][GSN_DOT_CHUNK_F8] = {{0}};
	uint8_t codes[GSN_DOT_CHUNK_F8 * sizeof(float)] = {0};
	const float *padded[GSN_DOT_TOKENS];
	uint32_t left = pass->row->k - k;

	memcpy(codes, weights_at(pass, k), (size_t)left * element_bytes(pass->format));
	for (size_t t = 0; t < pass->tokens; t++) {
		memcpy(inputs[t], pass->x[t] + k, left * sizeof(float));
		padded[t] = inputs[t];
	}
	add_chunk(pass, codes, padded, 0, scale_at(pass, k), sum);
}

/* A round of all lanes of the pass, each chunk with its own scale, as far as the row goes. */
INLINE void add_ragged_round(const struct pass *pass, uint32_t k, struct sums *sums)
{
	const uint32_t chunk = chunk_elements(pass->format);

#pragma GCC unroll 8
	for (size_t lane = 0; lane < pass->lanes; lane++, k += chunk) {
		__m256 *sum = sums->lane + lane * pass->tokens;

		if (k + chunk <= pass->row->k)
			add_chunk(pass, weights_at(pass, k), pass->x, k, scale_at(pass, k), sum);
		else if (k < pass->row->k)
			add_partial_chunk(pass, k, sum);
	}
}

/* A round of whole chunks under one scale. */
INLINE void add_round(const struct pass *pass, uint32_t k, float scale, struct sums *sums)
{
	const uint32_t chunk = chunk_elements(pass->format);

#pragma GCC unroll 8
	for (size_t lane = 0; lane < pass->lanes; lane++, k += chunk)
		add_chunk(pass, weights_at(pass, k), pass->x, k, scale,
			sums->lane + lane * pass->tokens);
}

INLINE void run_pass(const struct pass *pass, struct sums *sums)
{
	const uint32_t chunk = chunk_elements(pass->format);
	const uint32_t round = GSN_DOT_LANES * chunk;
	const struct gsn_dot_row *row = pass->row;
	uint32_t whole = row->k - row->k % round;
	uint32_t offset = pass->first * chunk;

#pragma GCC unroll 8
	for (size_t i = 0; i < pass->lanes * pass->tokens; i++)
		sums->lane[i] = _mm256_setzero_ps();
	if (row->scales && row->block_k % round != 0)
		whole = 0;
	for (uint32_t k = 0; k < whole; k += round)
		add_round(pass, k + offset, scale_at(pass, k), sums);
	for (uint32_t k = whole; k + offset < row->k; k += round)
		add_ragged_round(pass, k + offset, sums);
}

/* Sums of four lanes, `stride` vectors apart: ((A0+A1)+(A2+A3))+((A4+A5)+(A6+A7)) of each. */
INLINE __m128 sum_4_lanes(const __m256 *lane, size_t stride)
{
	__m256 pairs_01 = _mm256_hadd_ps(lane[0], lane[stride]);
	__m256 pairs_23 = _mm256_hadd_ps(lane[2 * stride], lane[3 * stride]);
	__m256 fours = _mm256_hadd_ps(pairs_01, pairs_23);

	return _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
}

/* The same tree over the sums of lanes 0..3 and 4..7. */
INLINE float sum_8(__m128 first, __m128 second)
{
	__m128 pairs = _mm_hadd_ps(first, second);
	__m128 fours = _mm_hadd_ps(pairs, pairs);

	return gsn_canonical(_mm_cvtss_f32(_mm_add_ss(fours, _mm_movehdup_ps(fours))));
}

INLINE void dot_1(enum gsn_dot_format format, const struct gsn_dot_row *row, const float *const *x,
	float *out)
{
	const struct pass pass = {format, 0, GSN_DOT_LANES, 1, row, x};
	struct sums sums;

	run_pass(&pass, &sums);
	out[0] = sum_8(sum_4_lanes(sums.lane, 1), sum_4_lanes(sums.lane + 4, 1));
}

INLINE void dot_2(enum gsn_dot_format format, const struct gsn_dot_row *row, const float *const *x,
	float *out)
{
	const struct pass low = {format, 0, GSN_DOT_LANES / 2, 2, row, x};
	const struct pass high = {format, GSN_DOT_LANES / 2, GSN_DOT_LANES / 2, 2, row, x};
	struct sums sums;
	__m128 first, second;

	run_pass(&low, &sums);
	first = sum_4_lanes(sums.lane, 2);
	second = sum_4_lanes(sums.lane + 1, 2);
	run_pass(&high, &sums);
	out[0] = sum_8(first, sum_4_lanes(sums.lane, 2));
	out[1] = sum_8(second, sum_4_lanes(sums.lane + 1, 2));
}

INLINE void dot_row(enum gsn_dot_format format, const struct gsn_dot_row *row,
	const float *const *x, uint32_t tokens, float *out)
{
	for (; tokens >= 2; tokens -= 2, x += 2, out += 2)
		dot_2(format, row, x, out);
	if (tokens)
		dot_1(format, row, x, out);
}

#define DEFINE_DOT(name, format)                                                                   \
	static void name(const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens,  \
		float *out)                                                                        \
	{                                                                                          \
		for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {                \
			struct gsn_dot_row row = gsn_dot_row_at(rows, r, element_bytes(format));   \
                                                                                                   \
			dot_row(format, &row, x, tokens, out);                                     \
		}                                                                                  \
	}
DEFINE_DOT(dot_f32, GSN_DOT_F32)
DEFINE_DOT(dot_f16, GSN_DOT_F16)
DEFINE_DOT(dot_bf16, GSN_DOT_BF16)
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
		struct gsn_dot_row row = gsn_dot_row_at(rows, r, 1);

		dot_row(GSN_DOT_F8_E4M3, &row, x, tokens, out);
		if (has_nan_code(row.weights, row.k))
			for (uint32_t t = 0; t < tokens; t++)
				out[t] = gsn_float_from_bits(GSN_NAN_BITS);
	}
}

static void silu_mul(const float *gate, const float *up, uint32_t count, float *h)
{
	for (uint32_t i = 0; i < count; i++)
		h[i] = gsn_silu_mul(gate[i], up[i]);
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
		[GSN_DOT_F8_E4M3] = dot_f8_e4m3},
	.silu_mul = silu_mul,
};
