/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DOT_H
#define GSN_DOT_H
/* What the files of the CPU paths share: the shape of the canonical dot product (arithmetic.md). */
#include "kernels/cpu_path.h"

#define GSN_INLINE static inline __attribute__((always_inline))

enum {
	GSN_DOT_LANES = 8,	  /* chunk c belongs to lane c % 8 */
	GSN_DOT_ACCUMULATORS = 8, /* of each lane */
	GSN_DOT_CHUNK = 8,	  /* consecutive elements that a lane takes */
	GSN_DOT_CHUNK_F8 = 16,
	/*
	 * With more than one token a row takes so long that the processor's own prefetching falls
	 * behind: fetch this far ahead into the second-level cache. With one it would disturb it.
	 */
	GSN_DOT_AHEAD_BYTES = 8192,
};

/* One of them. */
struct gsn_dot_row {
	const void *weights;
	const float *scales;
	uint32_t k;
	uint32_t block_k;
};

static inline struct gsn_dot_row gsn_dot_row_at(
	const struct gsn_dot_rows *rows, size_t index, size_t element_bytes)
{
	const uint8_t *weights = rows->weights;

	return (struct gsn_dot_row){
		weights + index * rows->k * element_bytes, rows->scales, rows->k, rows->block_k};
}

/* May lie behind the matrix: a prefetch does not fault. */
static inline void gsn_dot_fetch_ahead(const void *weights)
{
	__builtin_prefetch((const uint8_t *)weights + GSN_DOT_AHEAD_BYTES, 0, 2);
}

extern const struct gsn_cpu_path gsn_cpu_portable;
#if defined(__x86_64__)
extern const struct gsn_cpu_path gsn_cpu_avx2, gsn_cpu_avx512, gsn_cpu_avx512_vbmi;
#endif

#endif
