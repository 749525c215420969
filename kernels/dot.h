/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DOT_H
#define GSN_DOT_H
/* What the files of the CPU paths share: the shape of the canonical dot product (arithmetic.md). */
#include <gpusnap/moe.h>

#include "kernels/cpu_path.h"
#include "kernels/moe_math.h"

#define GSN_INLINE static inline __attribute__((always_inline))

enum {
	GSN_DOT_LANES = 8,	  /* chunk c belongs to lane c % 8 */
	GSN_DOT_ACCUMULATORS = 8, /* of each lane */
	GSN_DOT_CHUNK = 8,	  /* consecutive elements that a lane takes */
	GSN_DOT_CHUNK_F8 = 16,
	GSN_DOT_CHUNK_F4 = 32,
	/*
	 * The processor's own prefetching ends with a page and falls behind the arithmetic: fetch
	 * this far ahead into the second-level cache, and from there into the first. Of a read's
	 * bandwidth BF16 reaches half without, 83 % with the first alone (one token, Sapphire
	 * Rapids).
	 */
	GSN_DOT_FAR_BYTES = 8192,
	GSN_DOT_NEAR_BYTES = 1024,
};

/* One of them. */
struct gsn_dot_row {
	const void *weights;
	const void *scales;
	enum gsn_dot_scale scale_type;
	uint32_t k;
	uint32_t block_k;
};

/* @param element_bits  of a weight: a constant at each call */
static inline struct gsn_dot_row gsn_dot_row_at(
	const struct gsn_dot_rows *rows, size_t index, size_t element_bits)
{
	const uint8_t *weights = rows->weights;
	const uint8_t *scales = rows->scales;
	size_t scale_bytes = rows->scale_type == GSN_DOT_SCALE_E8M0 ? 1 : sizeof(float);

	return (struct gsn_dot_row){weights + index * (rows->k * element_bits / 8),
		scales ? scales + index * rows->scale_stride * scale_bytes : NULL, rows->scale_type,
		rows->k, rows->block_k};
}

/* Scale of the chunk that begins at element k. */
GSN_INLINE float gsn_dot_scale_at(const struct gsn_dot_row *row, uint32_t k)
{
	if (!row->scales)
		return 1.0f;
	if (row->scale_type == GSN_DOT_SCALE_E8M0)
		return gsn_decode_f8_e8m0(((const uint8_t *)row->scales)[k / row->block_k]);
	return ((const float *)row->scales)[k / row->block_k];
}

/* Every path's activation: what its instruction set makes of these loops. */
GSN_INLINE void gsn_dot_activate(struct gsn_activation activation, const float *gate,
	const float *up, uint32_t count, float *h)
{
	if (activation.kind == GPUSNAP_ACTIVATION_SWIGLU_OAI)
		for (uint32_t i = 0; i < count; i++)
			h[i] = gsn_swiglu_oai(gate[i], up[i], activation.limit);
	else
		for (uint32_t i = 0; i < count; i++)
			h[i] = gsn_swiglu(gate[i], up[i], activation.limit);
}

/* May lie behind the matrix: a prefetch does not fault. */
static inline void gsn_dot_fetch_ahead(const void *weights)
{
	__builtin_prefetch((const uint8_t *)weights + GSN_DOT_FAR_BYTES, 0, 2);
	__builtin_prefetch((const uint8_t *)weights + GSN_DOT_NEAR_BYTES, 0, 3);
}

extern const struct gsn_cpu_path gsn_cpu_portable;
#if defined(__x86_64__)
extern const struct gsn_cpu_path gsn_cpu_avx2, gsn_cpu_avx512, gsn_cpu_avx512_vbmi;
#endif

#endif
