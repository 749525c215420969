/* SPDX-License-Identifier: Apache-2.0 */
/* Golden deltas: a chain, and what a reader must refuse. */
#include "formats/base/alloc.h"
#include "tests/compat/golden_files.h"
#include "tests/support/delta_make.h"

/* The state of golden_leaves() at three moments, and what each has over the one before. */
struct moments {
	gpusnap_plan *plan;
	struct gsnap_file full[3];
};

static struct moments three_moments(void)
{
	struct moments m = {.plan = golden_leaves()};

	for (int i = 0; i < 3; i++)
		m.full[i] = make_file(m.plan, NULL);
	/* "even", then "longer" with its short last leaf; a later change stays. */
	m.full[1].bytes[m.full[1].header_bytes + 100] ^= 1;
	m.full[2].bytes[m.full[2].header_bytes + 100] ^= 1;
	m.full[2].bytes[m.full[2].header_bytes + 65536 + 65536 + 999] ^= 1;
	seal_file(&m.full[1], m.plan);
	seal_file(&m.full[2], m.plan);
	return m;
}

static void free_moments(struct moments *m)
{
	for (int i = 0; i < 3; i++)
		free_file(&m->full[i]);
	gpusnap_plan_free(m->plan);
}

/* Each delta is another save: it has an identifier of its own. */
static gpusnap_plan *delta_plan(
	const struct moments *m, int before, int after, const char *parent, uint32_t depth)
{
	gpusnap_plan *plan = golden_leaves();

	plan->uuid[15] = (uint8_t)after;
	plan->delta = make_changes(&m->full[before], &m->full[after], parent, depth);
	return plan;
}

/* Write the delta of `plan` and free it; the root that it got. */
static gpusnap_digest write_delta(const char *name, gpusnap_plan *plan,
	const struct gsnap_file *after, gpusnap_digest parent_root)
{
	struct gsnap_file file = make_delta(plan, after, parent_root);
	gpusnap_digest root = root_of(&file);

	golden_write(name, file.bytes, file.length);
	free_file(&file);
	gpusnap_plan_free(plan);
	return root;
}

/* leaves.gsnap, a delta of it, and a delta of that; and one in which nothing changed. */
void golden_good_deltas(void)
{
	struct moments m = three_moments();
	gpusnap_digest base = root_of(&m.full[0]), first;

	first = write_delta(
		"good/delta_1", delta_plan(&m, 0, 1, "leaves.gsnap", 1), &m.full[1], base);
	(void)write_delta(
		"good/delta_2", delta_plan(&m, 1, 2, "delta_1.gsnap", 2), &m.full[2], first);
	(void)write_delta(
		"good/delta_unchanged", delta_plan(&m, 0, 0, "leaves.gsnap", 1), &m.full[0], base);
	free_moments(&m);
}

/* ---- bad files: deltas ---- */

/* A delta of the first moment with something changed before it is written. */
static void lie_in_delta(const char *name, void (*change)(gpusnap_plan_delta *))
{
	struct moments m = three_moments();
	gpusnap_plan *plan = delta_plan(&m, 0, 2, "parent.gsnap", 1);

	change(plan->delta);
	(void)write_delta(name, plan, &m.full[2], root_of(&m.full[0]));
	free_moments(&m);
}

/* Entry 0 is "even" of one leaf, entry 1 "longer" of two. */
static void set_overlap(gpusnap_plan_delta *delta)
{
	gpusnap_delta_run *runs = gsn_grow(delta->entries[1].changed, 1, 2, sizeof *runs);

	golden_must(runs != NULL, "no memory");
	if (!runs)
		return;
	runs[0] = (gpusnap_delta_run){.first = 0, .count = 2};
	runs[1] = (gpusnap_delta_run){.first = 1, .count = 1};
	delta->entries[1].changed = runs;
	delta->entries[1].run_count = 2;
}

static void set_beyond(gpusnap_plan_delta *delta)
{
	delta->entries[0].changed[0].count = 2;
}

static void set_no_leaf(gpusnap_plan_delta *delta)
{
	delta->entries[0].changed[0].count = 0;
}

static void set_depth_0(gpusnap_plan_delta *delta)
{
	delta->depth = 0;
}

static void set_depth_9(gpusnap_plan_delta *delta)
{
	delta->depth = 9;
}

static void set_path(gpusnap_plan_delta *delta)
{
	gsn_free(delta->parent);
	delta->parent = gsn_strdup("../parent.gsnap");
}

static void set_order(gpusnap_plan_delta *delta)
{
	gpusnap_delta_entry first = delta->entries[0];

	delta->entries[0] = delta->entries[1];
	delta->entries[1] = first;
}

static void set_missing_entry(gpusnap_plan_delta *delta)
{
	for (uint32_t i = 2; i < delta->entry_count; i++) {
		gsn_free(delta->entries[i].name);
		gsn_free(delta->entries[i].changed);
	}
	delta->entry_count = 2;
}

static void set_size(gpusnap_plan_delta *delta)
{
	delta->entries[1].bytes += 8;
}

static void make_delta_lies(void)
{
	lie_in_delta("bad/format__delta_overlapping_runs", set_overlap);
	lie_in_delta("bad/format__delta_beyond_the_leaves", set_beyond);
	lie_in_delta("bad/format__delta_run_of_no_leaf", set_no_leaf);
	lie_in_delta("bad/format__delta_depth_0", set_depth_0);
	lie_in_delta("bad/limit__delta_depth_9", set_depth_9);
	lie_in_delta("bad/format__delta_parent_in_a_folder", set_path);
	lie_in_delta("bad/format__delta_order", set_order);
	lie_in_delta("bad/format__delta_missing_entry", set_missing_entry);
	lie_in_delta("bad/format__delta_size", set_size);
}

/* Whole deltas that name a file of this folder, or none, as their parent, which it is not. */
static void make_orphans(void)
{
	struct moments m = three_moments();
	gpusnap_digest base = root_of(&m.full[0]);

	(void)write_delta("bad/io__delta_missing_parent",
		delta_plan(&m, 0, 1, "is_not_here.gsnap", 1), &m.full[1], base);
	(void)write_delta("bad/mismatch__delta_of_another_root",
		delta_plan(&m, 0, 1, "corrupt__data.gsnap", 1), &m.full[1], base);
	(void)write_delta("bad/corrupt__delta_of_a_damaged_parent",
		delta_plan(&m, 0, 1, "corrupt__leaves.gsnap", 1), &m.full[1], base);
	(void)write_delta("bad/format__delta_cycle",
		delta_plan(&m, 0, 1, "format__delta_cycle.gsnap", 1), &m.full[1], base);
	free_moments(&m);
}

/* A delta without changes of bad/corrupt__data, whose root is right and whose data is not read. */
static void disagree(const char *name, uint32_t depth, bool other_leaf)
{
	gpusnap_plan *plan = golden_two_regions();
	struct gsnap_file file = make_file(plan, NULL);
	gpusnap_digest root = root_of(&file);

	plan->delta = make_changes(&file, &file, "corrupt__data.gsnap", depth);
	if (other_leaf)
		file.bytes[file.leaves_at] ^= 1;
	(void)write_delta(name, plan, &file, root);
	free_file(&file);
}

void golden_bad_deltas(void)
{
	make_delta_lies();
	make_orphans();
	disagree("bad/format__delta_depth_of_the_parent", 3, false);
	disagree("bad/corrupt__delta_leaf_of_another_parent", 1, true);
}
