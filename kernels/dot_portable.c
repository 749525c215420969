/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU path in plain C: the definition of the arithmetic in its shortest form, for machines
 * without a faster path and as the reference of the others.
 */
#include <string.h>

#include "kernels/dot.h"
#include "kernels/moe_math.h"

struct accumulators {
	float a[GSN_DOT_LANES][GSN_DOT_ACCUMULATORS];
};

/* Decode `count` weights from element `first` on. */
typedef void (*decode_fn)(const void *weights, size_t first, uint32_t count, float *out);

static void decode_f32(const void *weights, size_t first, uint32_t count, float *out)
{
	memcpy(out, (const float *)weights + first, count * sizeof *out);
}

static void decode_f16(const void *weights, size_t first, uint32_t count, float *out)
{
	for (uint32_t i = 0; i < count; i++)
		out[i] = gsn_decode_f16(((const uint16_t *)weights)[first + i]);
}

static void decode_bf16(const void *weights, size_t first, uint32_t count, float *out)
{
	for (uint32_t i = 0; i < count; i++)
		out[i] = gsn_decode_bf16(((const uint16_t *)weights)[first + i]);
}

static void decode_f8_e4m3(const void *weights, size_t first, uint32_t count, float *out)
{
	for (uint32_t i = 0; i < count; i++)
		out[i] = gsn_decode_f8_e4m3(((const uint8_t *)weights)[first + i]);
}

static float sum_of_8(const float *v)
{
	return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

static float reduce(const struct accumulators *sum)
{
	float lanes[GSN_DOT_LANES];

	for (int lane = 0; lane < GSN_DOT_LANES; lane++)
		lanes[lane] = sum_of_8(sum->a[lane]);
	return gsn_canonical(sum_of_8(lanes));
}

static void add_chunk(float *a, const float *w, const float *x, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		a[i] = fmaf(w[i], x[i], a[i]);
}

static float dot_plain(const struct gsn_dot_row *row, decode_fn decode, const float *x)
{
	struct accumulators sum = {0};
	float w[GSN_DOT_CHUNK];

	for (uint32_t k = 0, lane = 0; k < row->k; lane = (lane + 1) % GSN_DOT_LANES) {
		uint32_t left = row->k - k;
		uint32_t count = left < GSN_DOT_CHUNK ? left : GSN_DOT_CHUNK;

		decode(row->weights, k, count, w);
		add_chunk(sum.a[lane], w, x + k, count);
		k += count;
	}
	return reduce(&sum);
}

/* 16 elements on 8 accumulators: pairs i, i + 8 are summed before the scale comes in. */
static void add_scaled_chunk(float *a, const float *w, const float *x, float scale)
{
	for (int i = 0; i < GSN_DOT_ACCUMULATORS; i++) {
		float p = w[i] * x[i];

		p = fmaf(w[i + 8], x[i + 8], p);
		a[i] = fmaf(p, scale, a[i]);
	}
}

static float dot_scaled(const struct gsn_dot_row *row, const float *x)
{
	struct accumulators sum = {0};

	for (uint32_t k = 0, lane = 0; k < row->k; lane = (lane + 1) % GSN_DOT_LANES) {
		uint32_t left = row->k - k;
		uint32_t count = left < GSN_DOT_CHUNK_F8 ? left : GSN_DOT_CHUNK_F8;
		float w[GSN_DOT_CHUNK_F8] = {0}, padded[GSN_DOT_CHUNK_F8] = {0};

		decode_f8_e4m3(row->weights, k, count, w);
		memcpy(padded, x + k, count * sizeof *padded);
		add_scaled_chunk(
			sum.a[lane], w, padded, row->scales ? row->scales[k / row->block_k] : 1.0f);
		k += count;
	}
	return reduce(&sum);
}

#define DEFINE_DOT(name, element_bytes, result)                                                    \
	static void name(const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens,  \
		float *out)                                                                        \
	{                                                                                          \
		for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {                \
			struct gsn_dot_row row = gsn_dot_row_at(rows, r, (element_bytes));         \
                                                                                                   \
			for (uint32_t t = 0; t < tokens; t++)                                      \
				out[t] = (result);                                                 \
		}                                                                                  \
	}
DEFINE_DOT(dot_f32, sizeof(float), dot_plain(&row, decode_f32, x[t]))
DEFINE_DOT(dot_f16, sizeof(uint16_t), dot_plain(&row, decode_f16, x[t]))
DEFINE_DOT(dot_bf16, sizeof(uint16_t), dot_plain(&row, decode_bf16, x[t]))
DEFINE_DOT(dot_f8_e4m3, sizeof(uint8_t), dot_scaled(&row, x[t]))
#undef DEFINE_DOT

static void silu_mul(const float *gate, const float *up, uint32_t count, float *h)
{
	for (uint32_t i = 0; i < count; i++)
		h[i] = gsn_silu_mul(gate[i], up[i]);
}

static bool supported(void)
{
	return true;
}

const struct gsn_cpu_path gsn_cpu_portable = {
	.name = "portable",
	.supported = supported,
	.dot = {[GSN_DOT_F32] = dot_f32,
		[GSN_DOT_F16] = dot_f16,
		[GSN_DOT_BF16] = dot_bf16,
		[GSN_DOT_F8_E4M3] = dot_f8_e4m3},
	.silu_mul = silu_mul,
};
