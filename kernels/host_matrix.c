/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host_matrix.h"

#include <assert.h>

#include "formats/base/bytes.h"
#include "kernels/moe_math.h"

float gsn_host_element(gpusnap_address values, gpusnap_dtype dtype, uint64_t index)
{
	const void *at = gsn_host_pointer(values);

	switch (dtype) {
	case GPUSNAP_BF16:
		return gsn_decode_bf16(((const uint16_t *)at)[index]);
	case GPUSNAP_F16:
		return gsn_decode_f16(((const uint16_t *)at)[index]);
	default:
		assert(dtype == GPUSNAP_F32);
		return ((const float *)at)[index];
	}
}

static enum gsn_dot_format dot_format(gpusnap_dtype dtype)
{
	switch (dtype) {
	case GPUSNAP_F32:
		return GSN_DOT_F32;
	case GPUSNAP_F16:
		return GSN_DOT_F16;
	case GPUSNAP_BF16:
		return GSN_DOT_BF16;
	case GPUSNAP_F4:
		return GSN_DOT_F4;
	default:
		assert(dtype == GPUSNAP_F8_E4M3);
		return GSN_DOT_F8_E4M3;
	}
}

struct gsn_host_matrix gsn_host_matrix_of(const struct gsn_cpu_path *path, gpusnap_dtype dtype,
	gpusnap_address weights, uint32_t parts, uint32_t rows, uint32_t columns)
{
	enum gsn_dot_format format = dot_format(dtype);

	return (struct gsn_host_matrix){
		.dot = path->dot[format],
		.order = path->order[format],
		.weights = gsn_host_pointer(weights),
		.row_bytes = (uint64_t)columns * gpusnap_dtype_bits(dtype) / 8,
		.parts = parts,
		.rows = rows,
		.columns = columns,
	};
}

void gsn_host_matrix_scale(struct gsn_host_matrix *matrix, gpusnap_address scales,
	gpusnap_dtype dtype, uint32_t block_n, uint32_t block_k)
{
	if (!scales)
		return;
	matrix->scales = gsn_host_pointer(scales);
	matrix->scale_type = dtype == GPUSNAP_F8_E8M0 ? GSN_DOT_SCALE_E8M0 : GSN_DOT_SCALE_F32;
	matrix->scale_bytes = gpusnap_dtype_bits(dtype) / 8;
	matrix->block_n = block_n;
	matrix->block_k = block_k;
	matrix->scale_rows = gsn_ceil_div(matrix->rows, block_n);
	matrix->scale_columns = gsn_ceil_div(matrix->columns, block_k);
}

/* Rows under one row of scales, or with one each, at most `count`. */
static uint32_t rows_of_scale(const struct gsn_host_matrix *matrix, uint32_t row, uint32_t count)
{
	if (!matrix->scales || matrix->block_n == 1)
		return count;
	return (uint32_t)gsn_min(count, matrix->block_n - row % matrix->block_n);
}

void gsn_host_matrix_dot(const struct gsn_host_matrix *matrix, struct gsn_host_rows rows,
	const float *const *x, uint32_t tokens, float *out)
{
	uint64_t index = (uint64_t)rows.expert * matrix->parts + rows.part;
	struct gsn_dot_rows dot_rows = {.k = matrix->columns,
		.block_k = matrix->block_k,
		.scale_type = matrix->scale_type,
		.scale_stride = matrix->block_n == 1 ? matrix->scale_columns : 0};
	uint32_t row = rows.first, end = rows.first + rows.count;

	for (; row < end; row += dot_rows.count) {
		dot_rows.count = rows_of_scale(matrix, row, end - row);
		dot_rows.weights =
			matrix->weights + (index * matrix->rows + row) * matrix->row_bytes;
		if (matrix->scales)
			dot_rows.scales = matrix->scales +
					  (index * matrix->scale_rows + row / matrix->block_n) *
						  matrix->scale_columns * matrix->scale_bytes;
		matrix->dot(&dot_rows, x, tokens, out);
		out += (size_t)dot_rows.count * GSN_DOT_TOKENS;
	}
}
