/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host_matrix.h"

#include <assert.h>

#include "formats/base/bytes.h"

static enum gsn_dot_format dot_format(gpusnap_dtype dtype)
{
	switch (dtype) {
	case GPUSNAP_F32:
		return GSN_DOT_F32;
	case GPUSNAP_F16:
		return GSN_DOT_F16;
	case GPUSNAP_BF16:
		return GSN_DOT_BF16;
	default:
		assert(dtype == GPUSNAP_F8_E4M3);
		return GSN_DOT_F8_E4M3;
	}
}

struct gsn_host_matrix gsn_host_matrix_of(const struct gsn_cpu_path *path, gpusnap_dtype dtype,
	gpusnap_address weights, uint32_t parts, uint32_t rows, uint32_t columns)
{
	return (struct gsn_host_matrix){
		.dot = path->dot[dot_format(dtype)],
		.weights = gsn_host_pointer(weights),
		.row_bytes = (uint64_t)columns * gpusnap_dtype_bits(dtype) / 8,
		.parts = parts,
		.rows = rows,
		.columns = columns,
	};
}

void gsn_host_matrix_scale(
	struct gsn_host_matrix *matrix, gpusnap_address scales, uint32_t block_n, uint32_t block_k)
{
	if (!scales)
		return;
	matrix->scales = gsn_host_pointer(scales);
	matrix->block_n = block_n;
	matrix->block_k = block_k;
	matrix->scale_rows = gsn_ceil_div(matrix->rows, block_n);
	matrix->scale_columns = gsn_ceil_div(matrix->columns, block_k);
}

void gsn_host_matrix_dot(const struct gsn_host_matrix *matrix, uint32_t expert, uint32_t part,
	uint32_t row, const float *const *x, uint32_t count, float *out)
{
	uint64_t matrix_index = (uint64_t)expert * matrix->parts + part;
	struct gsn_dot_row dot_row = {
		.weights =
			matrix->weights + (matrix_index * matrix->rows + row) * matrix->row_bytes,
		.k = matrix->columns,
	};

	if (matrix->scales) {
		uint64_t scale_row = matrix_index * matrix->scale_rows + row / matrix->block_n;

		dot_row.scales = matrix->scales + scale_row * matrix->scale_columns;
		dot_row.block_k = matrix->block_k;
	}
	matrix->dot(&dot_row, x, count, out);
}
