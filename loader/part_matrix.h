/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PART_MATRIX_H
#define GSN_PART_MATRIX_H
/*
 * The matrix of one expert's part, wherever a tensor's layout puts it. Rows and columns are the
 * parameter's, whichever of them follow each other in the file.
 */
#include <stdint.h>

#include "loader/checkpoint.h"
#include "loader/family.h"
#include "loader/rank_slice.h"
#include "loader/tensor_view.h"

struct gsn_part_matrix {
	uint32_t shard;
	uint64_t source; /* file offset of row 0, column 0 */
	uint64_t row_stride, column_stride;
	uint64_t unit;	  /* bytes of an element; of two where they are packed */
	uint64_t storage; /* of the whole tensor */
};

/* The tensor has the shape that its layout asks for; `parts` matrices an expert. */
struct gsn_part_matrix gsn_part_matrix_of(const struct gsn_checkpoint_tensor *tensor,
	enum gsn_layout layout, uint32_t parts, uint32_t expert, uint32_t part);
/*
 * Of `rows` and `columns`, counted in units, what the tensor has of them; columns are padded, rows
 * are not. No bytes where it has nothing.
 */
struct gsn_view gsn_part_matrix_view(const struct gsn_part_matrix *matrix,
	const struct gsn_slice *rows, const struct gsn_slice *columns, uint32_t fill);

#endif
