/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU path in plain C: the definition of the arithmetic in its shortest form, for machines
 * without a faster path and as the reference of the others.
 */
#include <string.h>

#include "kernels/dot.h"

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

static void decode_f4(const void *weights, size_t first, uint32_t count, float *out)
{
	for (uint32_t i = 0; i < count; i++) {
		uint8_t pair = ((const uint8_t *)weights)[(first + i) / 2];

		out[i] = gsn_decode_f4_e2m1((first + i) % 2 ? pair >> 4 : pair);
	}
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
static void add_f8_chunk(float *a, const float *w, const float *x, float scale)
{
	for (int i = 0; i < GSN_DOT_ACCUMULATORS; i++) {
		float p = w[i] * x[i];

		p = fmaf(w[i + 8], x[i + 8], p);
		a[i] = fmaf(p, scale, a[i]);
	}
}

/* 32 elements on 8 accumulators: of each, four consecutive ones. */
static void add_f4_chunk(float *a, const float *w, const float *x, float scale)
{
	for (int i = 0; i < GSN_DOT_ACCUMULATORS; i++, w += 4, x += 4) {
		float p = w[0] * x[0];

		p = fmaf(w[1], x[1], p);
		p = fmaf(w[2], x[2], p);
		p = fmaf(w[3], x[3], p);
		a[i] = fmaf(p, scale, a[i]);
	}
}

/* A format whose chunks are scaled. */
struct scaled_format {
	uint32_t chunk;
	decode_fn decode;
	void (*add_chunk)(float *a, const float *w, const float *x, float scale);
};

static const struct scaled_format f8_e4m3 = {GSN_DOT_CHUNK_F8, decode_f8_e4m3, add_f8_chunk};
static const struct scaled_format f4 = {GSN_DOT_CHUNK_F4, decode_f4, add_f4_chunk};

static float dot_scaled(
	const struct gsn_dot_row *row, const struct scaled_format *format, const float *x)
{
	struct accumulators sum = {0};

	for (uint32_t k = 0, lane = 0; k < row->k; lane = (lane + 1) % GSN_DOT_LANES) {
		uint32_t left = row->k - k;
		uint32_t count = left < format->chunk ? left : format->chunk;
		float w[GSN_DOT_CHUNK_F4] = {0}, padded[GSN_DOT_CHUNK_F4] = {0};

		format->decode(row->weights, k, count, w);
		memcpy(padded, x + k, count * sizeof *padded);
		format->add_chunk(sum.a[lane], w, padded, gsn_dot_scale_at(row, k));
		k += count;
	}
	return reduce(&sum);
}

#define DEFINE_DOT(name, element_bits, result)                                                     \
	static void name(const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens,  \
		float *out)                                                                        \
	{                                                                                          \
		for (uint32_t r = 0; r < rows->count; r++, out += GSN_DOT_TOKENS) {                \
			struct gsn_dot_row row = gsn_dot_row_at(rows, r, (element_bits));          \
                                                                                                   \
			for (uint32_t t = 0; t < tokens; t++)                                      \
				out[t] = (result);                                                 \
		}                                                                                  \
	}
DEFINE_DOT(dot_f32, 32, dot_plain(&row, decode_f32, x[t]))
DEFINE_DOT(dot_f16, 16, dot_plain(&row, decode_f16, x[t]))
DEFINE_DOT(dot_bf16, 16, dot_plain(&row, decode_bf16, x[t]))
DEFINE_DOT(dot_f8_e4m3, 8, dot_scaled(&row, &f8_e4m3, x[t]))
DEFINE_DOT(dot_f4, 4, dot_scaled(&row, &f4, x[t]))
#undef DEFINE_DOT

static void activate(struct gsn_activation activation, const float *gate, const float *up,
	uint32_t count, float *h)
{
	gsn_dot_activate(activation, gate, up, count, h);
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
		[GSN_DOT_F8_E4M3] = dot_f8_e4m3,
		[GSN_DOT_F4] = dot_f4},
	.activate = activate,
};
