/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_TENSOR_VIEW_H
#define GSN_TENSOR_VIEW_H
/*
 * A view: the slice of one checkpoint tensor that fills one contiguous range of a region, and how
 * to get there: copied, spread over a finer grid of scale blocks, or taken from memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/dtype.h>

#define GSN_VIEW_DIMS 3u

enum gsn_view_kind {
	GSN_VIEW_COPY,	    /* bytes as they are in the file */
	GSN_VIEW_SCALE,	    /* block scales, each repeated: E8M0 as they are, F32 and BF16 to F32 */
	GSN_VIEW_TRANSPOSE, /* elements of a matrix whose columns follow each other in the file */
	GSN_VIEW_MEMORY,    /* bytes of the plan itself; nothing is read */
	GSN_VIEW_FILL,	    /* padding; nothing is read */
};

/*
 * Scales of blocks that a rank's slice cuts: source block (r, c) covers ratio_n x ratio_k blocks
 * of the target, the first row and column of which begin phase_n, phase_k blocks inside it.
 */
struct gsn_scale_map {
	gpusnap_dtype dtype; /* of the source */
	uint32_t ratio_n, ratio_k;
	uint32_t phase_n, phase_k;
};

/*
 * count[0] x count[1] x count[2] runs of `run` bytes: run (i, j, k) is at
 * source + i * stride[0] + j * stride[1] + k * stride[2] in the file; at the target they follow
 * each other, each with `pad` bytes of padding after it. GSN_VIEW_SCALE and GSN_VIEW_TRANSPOSE:
 * count[1] rows of count[2] elements of `run` bytes, strides of the source; the padding follows
 * each row.
 *
 * A transposed view is cut into columns, or every piece would span the whole matrix. They fill
 * rows that are `pitch` apart; the first piece claims the target bytes of all of them.
 */
struct gsn_view {
	enum gsn_view_kind kind;
	uint32_t shard;
	uint32_t buffer;  /* index of the buffer that it fills */
	uint64_t source;  /* file offset of the first byte */
	uint64_t storage; /* bytes of the tensor that it is a slice of */
	uint64_t target;  /* byte offset in the buffer; in the region once laid out */
	uint64_t count[GSN_VIEW_DIMS];
	uint64_t stride[GSN_VIEW_DIMS];
	uint64_t run;
	uint64_t pad;
	uint32_t fill;	       /* four bytes that padding repeats, lowest first */
	uint64_t pitch, claim; /* GSN_VIEW_TRANSPOSE */
	struct gsn_scale_map scale;
	const uint8_t *memory; /* GSN_VIEW_MEMORY */
};

/* Contiguous bytes of a tensor. */
struct gsn_view gsn_view_bytes(uint32_t shard, uint64_t source, uint64_t bytes);
/* `rows` runs of `run` bytes, `stride` apart; contiguous when stride == run. */
struct gsn_view gsn_view_rows(
	uint32_t shard, uint64_t source, uint64_t rows, uint64_t run, uint64_t stride);
/* Padding alone. */
struct gsn_view gsn_view_padding(uint32_t fill, uint64_t bytes);

/* Bytes that it writes at the target. */
uint64_t gsn_view_target_bytes(const struct gsn_view *view);
/* Bytes of the target, from view->target on, that it asks a window for. */
uint64_t gsn_view_claim(const struct gsn_view *view);
/* Does it need bytes of a file. */
bool gsn_view_is_read(const struct gsn_view *view);
/* Bytes of the file from the first to the last one that it needs. */
uint64_t gsn_view_span(const struct gsn_view *view);
/* Bytes of the file that it uses: the span without its gaps. */
uint64_t gsn_view_needed(const struct gsn_view *view);
/* The bytes lie in the file as they lie at the target. */
bool gsn_view_is_contiguous(const struct gsn_view *view);

/* Bounds that the pieces of a view keep, as far as a single run allows. */
struct gsn_view_limits {
	uint64_t target_bytes; /* of a piece; at least 4 */
	uint64_t span_bytes;   /* of the file; at least 8 */
	uint64_t strip_bytes; /* of a window: of what the first piece of a transposed view claims */
};

typedef bool (*gsn_view_fn)(void *user, const struct gsn_view *piece); /* false stops */
/*
 * Cut a view into pieces within the limits, in target order. A strided view whose gaps are as wide
 * as a page and which would be read over twice is cut into its runs. False when `each` stopped.
 */
bool gsn_view_cut(const struct gsn_view *view, const struct gsn_view_limits *limits,
	gsn_view_fn each, void *user);

/* Gaps narrower than this are read in any case: storage and page cache work in pages. */
#define GSN_PAGE_BYTES 4096u

#endif
