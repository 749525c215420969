/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting views into windows, and merging a window's file ranges into reads. */
#include "loader/load_plan.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

void gsn_load_plan_init(struct gsn_load_plan *plan, const struct gsn_view *views, size_t view_count,
	const struct gsn_plan_limits *limits)
{
	*plan = (struct gsn_load_plan){
		.limits = *limits,
		.views = views,
		.view_count = view_count,
	};
}

void gsn_load_plan_release(struct gsn_load_plan *plan)
{
	gsn_free(plan->cuts);
	memset(plan, 0, sizeof *plan);
}

void gsn_window_release(struct gsn_window *window)
{
	gsn_free(window->pieces);
	gsn_free(window->reads);
	memset(window, 0, sizeof *window);
}

/* Make room for one more item. */
static bool reserve_one(void **items, size_t count, size_t *room, size_t size)
{
	size_t wanted = *room ? 2 * *room : 64;
	void *grown;

	if (count < *room)
		return true;
	grown = gsn_grow(*items, *room, wanted, size);
	if (!grown)
		return false;
	*items = grown;
	*room = wanted;
	return true;
}

/* ---- pieces ---- */

static bool keep_cut(void *user, const struct gsn_view *piece)
{
	struct gsn_load_plan *plan = user;

	if (!reserve_one(
		    (void **)&plan->cuts, plan->cut_count, &plan->cut_room, sizeof *plan->cuts))
		return false;
	plan->cuts[plan->cut_count++] = *piece;
	return true;
}

/* Cut the next view that has bytes; false in *ret_more when all are used up. */
static gpusnap_status refill_cuts(struct gsn_load_plan *plan, bool *ret_more, gpusnap_error *err)
{
	const struct gsn_view_limits limits = {
		gsn_min(plan->limits.slot_bytes, plan->limits.read_bytes), plan->limits.read_bytes,
		plan->limits.slot_bytes};

	while (plan->next_cut == plan->cut_count && plan->next_view < plan->view_count) {
		plan->next_cut = plan->cut_count = 0;
		if (!gsn_view_cut(&plan->views[plan->next_view++], &limits, keep_cut, plan))
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the copy plan");
	}
	*ret_more = plan->next_cut < plan->cut_count;
	return GPUSNAP_OK;
}

static bool joins_window(const struct gsn_load_plan *plan, const struct gsn_window *window,
	const struct gsn_view *piece)
{
	if (window->bytes == 0 || gsn_view_claim(piece) == 0)
		return true;
	if (plan->limits.compact == GPUSNAP_COMPACT_NEVER && plan->next_cut == 0)
		return false; /* the next view is the next copy */
	return piece->target == window->target + window->bytes &&
	       window->bytes + gsn_view_claim(piece) <= plan->limits.slot_bytes;
}

static gpusnap_status fill_window(
	struct gsn_load_plan *plan, struct gsn_window *window, gpusnap_error *err)
{
	bool more;
	gpusnap_status st;

	while ((st = refill_cuts(plan, &more, err)) == GPUSNAP_OK && more) {
		const struct gsn_view *piece = &plan->cuts[plan->next_cut];

		if (!joins_window(plan, window, piece))
			break;
		if (!reserve_one((void **)&window->pieces, window->piece_count, &window->piece_room,
			    sizeof *window->pieces))
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the copy plan");
		if (window->bytes == 0)
			window->target = piece->target;
		window->bytes += gsn_view_claim(piece);
		window->pieces[window->piece_count++] = *piece;
		plan->next_cut++;
	}
	return st;
}

/* ---- reads ---- */

static int compare_sources(const void *a, const void *b)
{
	const struct gsn_view *x = a, *y = b;
	bool read_x = gsn_view_is_read(x), read_y = gsn_view_is_read(y);

	if (read_x != read_y)
		return read_x ? -1 : 1;
	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	return x->target < y->target ? -1 : x->target > y->target;
}

/* A read in the making. */
struct run {
	struct gsn_read read;
	uint64_t needed; /* bytes that pieces use */
	uint64_t spans;	 /* bytes that pieces would read one by one */
};

/* Gaps within a page are read in any case; wider ones may make a tenth of the read. */
static bool joins_run(
	const struct gsn_load_plan *plan, const struct run *run, const struct gsn_view *piece)
{
	uint64_t span = gsn_view_span(piece);
	uint64_t end = run->read.offset + run->read.bytes;
	uint64_t bytes = gsn_max(end, piece->source + span) - run->read.offset;

	if (run->read.count == 0 || piece->shard != run->read.shard ||
		bytes > plan->limits.read_bytes)
		return false;
	return piece->source < end + GSN_PAGE_BYTES || bytes * 10 <= (run->spans + span) * 11;
}

static bool is_direct(
	const struct gsn_load_plan *plan, const struct gsn_window *window, const struct run *run)
{
	const struct gsn_view *first = &window->pieces[run->read.first];

	if (plan->limits.compact == GPUSNAP_COMPACT_ALWAYS)
		return false;
	for (uint32_t i = 0; i < run->read.count; i++)
		if (!gsn_view_is_contiguous(&first[i]) ||
			first[i].target - first[0].target != first[i].source - first[0].source)
			return false;
	return run->needed == run->read.bytes;
}

static bool close_run(const struct gsn_load_plan *plan, struct gsn_window *window, struct run *run)
{
	if (run->read.count == 0)
		return true;
	if (!reserve_one((void **)&window->reads, window->read_count, &window->read_room,
		    sizeof *window->reads))
		return false;
	run->read.direct = is_direct(plan, window, run);
	window->reads[window->read_count++] = run->read;
	*run = (struct run){0};
	return true;
}

static void extend_run(struct run *run, const struct gsn_view *piece, uint32_t index)
{
	if (run->read.count == 0) {
		run->read.shard = piece->shard;
		run->read.first = index;
		run->read.offset = piece->source;
	}
	run->read.bytes =
		gsn_max(run->read.bytes, piece->source + gsn_view_span(piece) - run->read.offset);
	run->read.count++;
	run->needed += gsn_view_target_bytes(piece);
	run->spans += gsn_view_span(piece);
}

static gpusnap_status merge_reads(
	const struct gsn_load_plan *plan, struct gsn_window *window, gpusnap_error *err)
{
	struct run run = {0};
	bool ok = true;

	for (uint32_t i = 0; ok && i < window->piece_count; i++) {
		const struct gsn_view *piece = &window->pieces[i];

		if (!gsn_view_is_read(piece))
			break;
		if (!joins_run(plan, &run, piece))
			ok = close_run(plan, window, &run);
		extend_run(&run, piece, i);
	}
	if (ok && close_run(plan, window, &run))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the copy plan");
}

gpusnap_status gsn_load_plan_next(
	struct gsn_load_plan *plan, struct gsn_window *window, gpusnap_error *err)
{
	gpusnap_status st;

	window->bytes = 0;
	window->piece_count = window->read_count = 0;
	st = fill_window(plan, window, err);
	if (st)
		return st;
	if (window->piece_count)
		qsort(window->pieces, window->piece_count, sizeof *window->pieces, compare_sources);
	return merge_reads(plan, window, err);
}
