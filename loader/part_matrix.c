/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/part_matrix.h"

#include "formats/base/bytes.h"

/* Elements that the dimensions from `first` on span. */
static uint64_t elements_from(const gpusnap_tensor *tensor, uint32_t first)
{
	uint64_t count = 1;

	for (uint32_t d = first; d < tensor->rank; d++)
		count *= tensor->shape[d];
	return count;
}

struct gsn_part_matrix gsn_part_matrix_of(const struct gsn_checkpoint_tensor *tensor,
	enum gsn_layout layout, uint32_t parts, uint32_t expert, uint32_t part)
{
	const gpusnap_tensor *t = tensor->tensor;
	uint64_t bits = gpusnap_dtype_bits(t->dtype);
	struct gsn_part_matrix m = {
		.shard = tensor->shard,
		.unit = gsn_max(bits / 8, 1),
		.storage = t->end - t->begin,
	};
	uint64_t inner = elements_from(t, layout == GSN_LAYOUT_MATRIX ? 1 : 2) * bits / 8;
	uint64_t before = 0;

	if (layout == GSN_LAYOUT_TRANSPOSED) {
		m.row_stride = parts * m.unit;
		m.column_stride = inner;
		before = part * m.unit;
	} else {
		m.row_stride = (layout == GSN_LAYOUT_STACKED ? parts : 1) * inner;
		m.column_stride = m.unit;
		before = layout == GSN_LAYOUT_STACKED ? part * inner : 0;
	}
	if (layout != GSN_LAYOUT_MATRIX)
		before += expert * (elements_from(t, 1) * bits / 8);
	m.source = tensor->offset + before;
	return m;
}

static struct gsn_view transposed_view(const struct gsn_part_matrix *matrix, uint64_t source,
	const struct gsn_slice *rows, const struct gsn_slice *columns)
{
	return (struct gsn_view){
		.kind = GSN_VIEW_TRANSPOSE,
		.shard = matrix->shard,
		.source = source,
		.count = {1, rows->have, columns->have},
		.stride = {0, matrix->row_stride, matrix->column_stride},
		.run = matrix->unit,
		.pitch = columns->padded * matrix->unit,
		.claim = rows->have * columns->padded * matrix->unit,
	};
}

/* Runs stay apart, each with its padding, also where they follow each other in the file. */
static struct gsn_view padded_view(const struct gsn_part_matrix *matrix, uint64_t source,
	const struct gsn_slice *rows, const struct gsn_slice *columns)
{
	return (struct gsn_view){
		.kind = GSN_VIEW_COPY,
		.shard = matrix->shard,
		.source = source,
		.count = {1, 1, rows->have},
		.stride = {0, 0, matrix->row_stride},
		.run = columns->have * matrix->unit,
	};
}

struct gsn_view gsn_part_matrix_view(const struct gsn_part_matrix *matrix,
	const struct gsn_slice *rows, const struct gsn_slice *columns, uint32_t fill)
{
	uint64_t pad = (columns->padded - columns->have) * matrix->unit;
	uint64_t source = matrix->source + rows->first * matrix->row_stride +
			  columns->first * matrix->column_stride;
	struct gsn_view view;

	if (rows->have == 0 || columns->have == 0)
		return (struct gsn_view){.kind = GSN_VIEW_COPY};
	if (matrix->column_stride != matrix->unit)
		view = transposed_view(matrix, source, rows, columns);
	else if (pad == 0)
		view = gsn_view_rows(matrix->shard, source, rows->have,
			columns->have * matrix->unit, matrix->row_stride);
	else
		view = padded_view(matrix, source, rows, columns);
	view.pad = pad;
	view.fill = fill;
	view.storage = matrix->storage;
	return view;
}
