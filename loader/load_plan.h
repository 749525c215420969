/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LOAD_PLAN_H
#define GSN_LOAD_PLAN_H
/*
 * The copy plan: views, in the order of their targets, become windows. A window is one run of
 * adjacent target bytes that fits the staging slot and goes to the device in one copy; the file
 * ranges that it needs are sorted and neighbours merged. Windows are made one at a time, so the
 * plan's memory does not grow with the model.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/loader.h>

#include "loader/tensor_view.h"

struct gsn_plan_limits {
	uint64_t slot_bytes; /* of a window */
	uint64_t read_bytes; /* of one read */
	gpusnap_compact compact;
};

struct gsn_read {
	uint32_t shard;
	uint32_t first, count; /* pieces */
	uint64_t offset, bytes;
	/*
	 * The file's bytes are the target's bytes from pieces[first].target on: reading them
	 * there is all the compaction that they need.
	 */
	bool direct;
};

struct gsn_window {
	uint64_t target, bytes;
	size_t piece_count, piece_room;
	struct gsn_view *pieces; /* by file and offset; those that need no read are last */
	size_t read_count, read_room;
	struct gsn_read *reads;
};

struct gsn_load_plan {
	struct gsn_plan_limits limits;
	const struct gsn_view *views; /* by target; borrowed */
	size_t view_count, next_view;
	struct gsn_view *cuts; /* pieces of the view that is being used up */
	size_t cut_count, cut_room, next_cut;
};

/* `views` must outlive the plan and be sorted by target. */
void gsn_load_plan_init(struct gsn_load_plan *plan, const struct gsn_view *views, size_t view_count,
	const struct gsn_plan_limits *limits);
/* The next window; bytes 0 when there is none left. `window` is zeroed before its first use. */
gpusnap_status gsn_load_plan_next(
	struct gsn_load_plan *plan, struct gsn_window *window, gpusnap_error *err);
void gsn_load_plan_release(struct gsn_load_plan *plan);
void gsn_window_release(struct gsn_window *window);

#endif
