/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_MATRIX_H
#define GSN_HOST_MATRIX_H
/*
 * A stack of weight matrices in host memory, [experts, parts, rows, columns] with their block
 * scales, and dot products of its rows.
 */
#include <gpusnap/device.h>
#include <gpusnap/dtype.h>

#include "kernels/cpu_path.h"

struct gsn_host_matrix {
	gsn_dot_fn dot;
	const uint8_t *order; /* of the inputs; NULL: as they are */
	const uint8_t *weights;
	const uint8_t *scales;
	uint64_t row_bytes;
	uint32_t parts; /* 2: gate rows, then up rows */
	uint32_t rows;	/* of one part */
	uint32_t columns;
	uint32_t block_n, block_k;
	uint64_t scale_rows, scale_columns; /* of one part */
	enum gsn_dot_scale scale_type;
	uint32_t scale_bytes;
};

/* Rows of one part of one expert's matrix. */
struct gsn_host_rows {
	uint32_t expert, part;
	uint32_t first, count;
};

static inline void *gsn_host_pointer(gpusnap_address address)
{
	return (void *)(uintptr_t)address;
}

/* One of an array of BF16, F16 or F32. */
float gsn_host_element(gpusnap_address values, gpusnap_dtype dtype, uint64_t index);

/* The dtype must be one that gsn_moe_*_check() lets through. */
struct gsn_host_matrix gsn_host_matrix_of(const struct gsn_cpu_path *path, gpusnap_dtype dtype,
	gpusnap_address weights, uint32_t parts, uint32_t rows, uint32_t columns);
/* Add scales, one per block_n x block_k; blocks of a part begin at its first row. 0: none. */
void gsn_host_matrix_scale(struct gsn_host_matrix *matrix, gpusnap_address scales,
	gpusnap_dtype dtype, uint32_t block_n, uint32_t block_k);
/* out[r * GSN_DOT_TOKENS + t] = row first + r . x[t] for r < count, t < tokens <= GSN_DOT_TOKENS.
 */
void gsn_host_matrix_dot(const struct gsn_host_matrix *matrix, struct gsn_host_rows rows,
	const float *const *x, uint32_t tokens, float *out);

#endif
