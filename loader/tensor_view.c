/* SPDX-License-Identifier: Apache-2.0 */
/* Geometry of views: sizes, spans, and the cutting into pieces. */
#include "loader/tensor_view.h"

#include "formats/base/bytes.h"

#define OVERREAD_MAX 2u /* bytes read for a byte used, where gaps are wide enough to skip */

struct gsn_view gsn_view_bytes(uint32_t shard, uint64_t source, uint64_t bytes)
{
	return gsn_view_rows(shard, source, 1, bytes, bytes);
}

struct gsn_view gsn_view_rows(
	uint32_t shard, uint64_t source, uint64_t rows, uint64_t run, uint64_t stride)
{
	bool folds = stride == run;

	return (struct gsn_view){
		.kind = GSN_VIEW_COPY,
		.shard = shard,
		.source = source,
		.count = {1, 1, folds ? 1 : rows},
		.stride = {0, 0, stride},
		.run = folds ? rows * run : run,
	};
}

struct gsn_view gsn_view_padding(uint32_t fill, uint64_t bytes)
{
	return (struct gsn_view){
		.kind = GSN_VIEW_FILL, .count = {1, 1, 1}, .run = bytes, .fill = fill};
}

uint64_t gsn_view_target_bytes(const struct gsn_view *view)
{
	if (view->kind == GSN_VIEW_COPY)
		return view->count[0] * view->count[1] * view->count[2] * (view->run + view->pad);
	if (!gsn_view_is_read(view))
		return view->run;
	return view->count[1] * (view->count[2] * view->run + view->pad);
}

uint64_t gsn_view_claim(const struct gsn_view *view)
{
	return view->kind == GSN_VIEW_TRANSPOSE ? view->claim : gsn_view_target_bytes(view);
}

bool gsn_view_is_read(const struct gsn_view *view)
{
	return view->kind != GSN_VIEW_MEMORY && view->kind != GSN_VIEW_FILL;
}

/* Source blocks that `count` target blocks touch. */
static uint64_t blocks_touched(uint64_t phase, uint64_t count, uint64_t ratio)
{
	return (phase + count - 1) / ratio + 1;
}

static uint64_t scale_span(const struct gsn_view *view)
{
	const struct gsn_scale_map *map = &view->scale;
	uint64_t rows = blocks_touched(map->phase_n, view->count[1], map->ratio_n);
	uint64_t columns = blocks_touched(map->phase_k, view->count[2], map->ratio_k);

	return (rows - 1) * view->stride[1] + columns * gpusnap_dtype_bits(map->dtype) / 8;
}

uint64_t gsn_view_span(const struct gsn_view *view)
{
	uint64_t span = view->run;

	if (!gsn_view_is_read(view) || gsn_view_target_bytes(view) == 0)
		return 0;
	if (view->kind == GSN_VIEW_SCALE)
		return scale_span(view);
	for (uint32_t d = 0; d < GSN_VIEW_DIMS; d++)
		span += (view->count[d] - 1) * view->stride[d];
	return span;
}

uint64_t gsn_view_needed(const struct gsn_view *view)
{
	const struct gsn_scale_map *map = &view->scale;

	if (!gsn_view_is_read(view) || gsn_view_target_bytes(view) == 0)
		return 0;
	if (view->kind == GSN_VIEW_SCALE)
		return blocks_touched(map->phase_n, view->count[1], map->ratio_n) *
		       blocks_touched(map->phase_k, view->count[2], map->ratio_k) *
		       (gpusnap_dtype_bits(map->dtype) / 8);
	return view->count[0] * view->count[1] * view->count[2] * view->run;
}

bool gsn_view_is_contiguous(const struct gsn_view *view)
{
	return view->kind == GSN_VIEW_COPY && view->pad == 0 &&
	       gsn_view_span(view) == gsn_view_target_bytes(view);
}

/* ---- cutting ---- */

static bool is_wasteful(const struct gsn_view *view)
{
	uint64_t span = gsn_view_span(view);

	if (view->kind != GSN_VIEW_COPY || view->count[2] < 2)
		return false;
	return span > OVERREAD_MAX * gsn_view_target_bytes(view) &&
	       view->stride[2] - view->run >= GSN_PAGE_BYTES;
}

static bool fits(const struct gsn_view *view, const struct gsn_view_limits *limits)
{
	return gsn_view_target_bytes(view) <= limits->target_bytes &&
	       gsn_view_span(view) <= limits->span_bytes && !is_wasteful(view);
}

/* Target bytes of an entry of dimension `d`; the dimensions outside it have one entry. */
static uint64_t entry_bytes(const struct gsn_view *view, uint32_t d)
{
	struct gsn_view entry = *view;

	entry.count[d] = 1;
	if (view->kind == GSN_VIEW_SCALE && d == 2)
		entry.pad = 0;
	return gsn_view_target_bytes(&entry);
}

/* A row of scales that is cut has its padding after the last of them. */
static uint64_t row_padding(const struct gsn_view *view, uint32_t d, uint64_t end)
{
	return view->kind == GSN_VIEW_SCALE && d == 2 && end < view->count[2] ? 0 : view->pad;
}

/* Entries [first, first + count) of dimension `d`; the dimensions outside it have one entry. */
static struct gsn_view slice(
	const struct gsn_view *view, uint32_t d, uint64_t first, uint64_t count)
{
	struct gsn_view part = *view;
	uint64_t skipped = first; /* entries of the source */

	part.pad = row_padding(view, d, first + count);
	part.target += first * entry_bytes(view, d);
	part.count[d] = count;
	if (view->kind == GSN_VIEW_SCALE && d == 1) {
		uint64_t phase = view->scale.phase_n + first;

		skipped = phase / view->scale.ratio_n;
		part.scale.phase_n = (uint32_t)(phase % view->scale.ratio_n);
	} else if (view->kind == GSN_VIEW_SCALE && d == 2) {
		uint64_t phase = view->scale.phase_k + first;

		skipped = phase / view->scale.ratio_k;
		part.scale.phase_k = (uint32_t)(phase % view->scale.ratio_k);
	}
	part.source += skipped * view->stride[d];
	return part;
}

/* The most entries of dimension `d` from `first` on that make a piece; 0: one is too much. */
static uint64_t entries_that_fit(const struct gsn_view *view, uint32_t d, uint64_t first,
	const struct gsn_view_limits *limits)
{
	uint64_t low = 0, high = view->count[d] - first;

	while (low < high) {
		uint64_t middle = low + (high - low + 1) / 2;
		struct gsn_view part = slice(view, d, first, middle);

		if (fits(&part, limits))
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static bool cut_padding(const struct gsn_view *view, const struct gsn_view_limits *limits,
	gsn_view_fn each, void *user)
{
	/* The pattern of four bytes begins anew with every piece. */
	uint64_t step = limits->target_bytes & ~3ull;

	for (uint64_t done = 0; done < view->run; done += step) {
		struct gsn_view part = *view;

		part.run = gsn_min(step, view->run - done);
		part.target += done;
		if (!each(user, &part))
			return false;
	}
	return true;
}

static bool cut_padding_after(const struct gsn_view *view, uint64_t bytes,
	const struct gsn_view_limits *limits, gsn_view_fn each, void *user)
{
	struct gsn_view padding = gsn_view_padding(view->fill, view->pad);

	padding.buffer = view->buffer;
	padding.target = view->target + bytes;
	return cut_padding(&padding, limits, each, user);
}

/* One run, or one scale. */
static bool cut_run(const struct gsn_view *view, const struct gsn_view_limits *limits,
	gsn_view_fn each, void *user)
{
	uint64_t step = gsn_min(limits->target_bytes, limits->span_bytes);

	for (uint64_t done = 0; done < view->run; done += step) {
		struct gsn_view part = *view;

		part.run = gsn_min(step, view->run - done);
		part.pad = 0;
		part.target += done;
		part.source += done;
		if (view->kind == GSN_VIEW_MEMORY)
			part.memory += done;
		if (!each(user, &part))
			return false;
	}
	return cut_padding_after(view, view->run, limits, each, user);
}

static bool cut_from(const struct gsn_view *view, uint32_t d, const struct gsn_view_limits *limits,
	gsn_view_fn each, void *user)
{
	uint64_t count;

	if (fits(view, limits))
		return each(user, view);
	if (d == GSN_VIEW_DIMS)
		return cut_run(view, limits, each, user);
	for (uint64_t first = 0; first < view->count[d]; first += count) {
		uint64_t fitting = entries_that_fit(view, d, first, limits);
		struct gsn_view part;

		count = gsn_max(fitting, 1);
		part = slice(view, d, first, count);
		if (fitting ? !each(user, &part) : !cut_from(&part, d + 1, limits, each, user))
			return false;
	}
	return true;
}

/* ---- cutting transposed views ---- */

/* Rows that one window takes, so few that a column of them is one read. */
static uint64_t rows_of_strip(const struct gsn_view *view, const struct gsn_view_limits *limits)
{
	uint64_t by_target = limits->strip_bytes / view->pitch;
	uint64_t by_span = (limits->span_bytes - view->run) / view->stride[1] + 1;

	return gsn_min(view->count[1], gsn_max(gsn_min(by_target, by_span), 1));
}

static uint64_t columns_of_piece(const struct gsn_view *strip, const struct gsn_view_limits *limits)
{
	uint64_t column = (strip->count[1] - 1) * strip->stride[1] + strip->run;

	if (strip->stride[2] > OVERREAD_MAX * column && strip->stride[2] >= column + GSN_PAGE_BYTES)
		return 1;
	return (limits->span_bytes - column) / strip->stride[2] + 1;
}

static bool cut_strip(const struct gsn_view *strip, const struct gsn_view_limits *limits,
	gsn_view_fn each, void *user)
{
	uint64_t step = columns_of_piece(strip, limits);

	for (uint64_t first = 0; first < strip->count[2]; first += step) {
		struct gsn_view part = *strip;

		part.count[2] = gsn_min(step, strip->count[2] - first);
		part.source += first * strip->stride[2];
		part.target += first * strip->run;
		part.claim = first == 0 ? strip->count[1] * strip->pitch : 0;
		part.pad = first + step < strip->count[2] ? 0 : strip->pad;
		if (!each(user, &part))
			return false;
	}
	return true;
}

/* A row that no window takes whole: its elements, one by one if need be. */
static bool cut_row(const struct gsn_view *row, const struct gsn_view_limits *limits,
	gsn_view_fn each, void *user)
{
	struct gsn_view elements = *row;

	elements.kind = GSN_VIEW_COPY;
	elements.pad = 0;
	return cut_from(&elements, 2, limits, each, user) &&
	       cut_padding_after(row, row->count[2] * row->run, limits, each, user);
}

static bool cut_transposed(const struct gsn_view *view, const struct gsn_view_limits *limits,
	gsn_view_fn each, void *user)
{
	uint64_t step = rows_of_strip(view, limits);

	for (uint64_t first = 0; first < view->count[1]; first += step) {
		struct gsn_view strip = *view;

		strip.count[1] = gsn_min(step, view->count[1] - first);
		strip.source += first * view->stride[1];
		strip.target += first * view->pitch;
		if (view->pitch > limits->strip_bytes ? !cut_row(&strip, limits, each, user)
						      : !cut_strip(&strip, limits, each, user))
			return false;
	}
	return true;
}

bool gsn_view_cut(const struct gsn_view *view, const struct gsn_view_limits *limits,
	gsn_view_fn each, void *user)
{
	if (gsn_view_target_bytes(view) == 0)
		return true;
	if (view->kind == GSN_VIEW_TRANSPOSE)
		return cut_transposed(view, limits, each, user);
	if (view->kind == GSN_VIEW_FILL)
		return cut_padding(view, limits, each, user);
	return cut_from(view, 0, limits, each, user);
}
