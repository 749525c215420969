/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_PLAN_RUN_H
#define GPUSNAP_TEST_PLAN_RUN_H
/*
 * A copy plan carried out in memory, one shard being an array: every promise that a plan makes
 * about its windows and reads is checked on the way.
 */
#include <string.h>

#include "loader/gather.h"
#include "loader/load_plan.h"
#include "tests/support/suite.h"

struct plan_totals {
	uint64_t windows, reads, direct_reads, pieces;
	uint64_t bytes_read;
};

/* The read's bytes alone, so that ASan sees whatever a piece takes beyond them. */
static inline void plan_run_read(const struct gsn_window *window, const struct gsn_read *read,
	const uint8_t *file, uint8_t *targets)
{
	uint8_t *buffer = malloc(read->bytes);

	ck_assert_ptr_nonnull(buffer);
	memcpy(buffer, file + read->offset, read->bytes);
	for (uint32_t i = 0; i < read->count; i++) {
		const struct gsn_view *view = &window->pieces[read->first + i];
		uint64_t skip = view->source - read->offset;

		ck_assert_uint_eq(view->shard, read->shard);
		ck_assert_uint_le(skip + gsn_view_span(view), read->bytes);
		if (read->direct)
			ck_assert(gsn_view_is_contiguous(view));
		else
			gsn_gather(view, buffer + skip, targets + view->target);
	}
	if (read->direct)
		memcpy(targets + window->pieces[read->first].target, buffer, read->bytes);
	free(buffer);
}

static inline void plan_run_window(const struct gsn_window *window,
	const struct gsn_plan_limits *limits, const uint8_t *const *shards, uint8_t *targets,
	struct plan_totals *totals)
{
	uint64_t bytes = 0, read_pieces = 0;

	ck_assert_uint_le(window->bytes, limits->slot_bytes);
	for (size_t i = 0; i < window->piece_count; i++) {
		const struct gsn_view *view = &window->pieces[i];

		ck_assert_uint_ge(view->target, window->target);
		ck_assert_uint_le(
			view->target + gsn_view_target_bytes(view), window->target + window->bytes);
		bytes += gsn_view_target_bytes(view);
		if (!gsn_view_is_read(view))
			gsn_gather(view, NULL, targets + view->target);
	}
	ck_assert_uint_eq(bytes, window->bytes);
	for (size_t i = 0; i < window->read_count; i++) {
		const struct gsn_read *read = &window->reads[i];

		ck_assert_uint_le(read->bytes, limits->read_bytes);
		ck_assert_uint_eq(read->first, read_pieces);
		plan_run_read(window, read, shards[read->shard], targets);
		read_pieces += read->count;
		totals->bytes_read += read->bytes;
		totals->direct_reads += read->direct;
	}
	for (size_t i = read_pieces; i < window->piece_count; i++)
		ck_assert(!gsn_view_is_read(&window->pieces[i]));
	totals->windows++;
	totals->reads += window->read_count;
	totals->pieces += window->piece_count;
}

/* Windows must follow each other and cover [0, bytes) of the targets. */
static inline struct plan_totals plan_run(const struct gsn_view *views, size_t view_count,
	const struct gsn_plan_limits *limits, const uint8_t *const *shards, uint8_t *targets,
	uint64_t bytes)
{
	struct plan_totals totals = {0};
	struct gsn_window window = {0};
	struct gsn_load_plan plan;
	uint64_t end = 0;
	gpusnap_error err;

	gsn_load_plan_init(&plan, views, view_count, limits);
	for (;;) {
		ck_ok(gsn_load_plan_next(&plan, &window, &err));
		if (window.bytes == 0)
			break;
		ck_assert_uint_eq(window.target, end);
		end += window.bytes;
		plan_run_window(&window, limits, shards, targets, &totals);
	}
	ck_assert_uint_eq(end, bytes);
	gsn_window_release(&window);
	gsn_load_plan_release(&plan);
	return totals;
}

#endif
