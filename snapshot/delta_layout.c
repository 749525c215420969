/* SPDX-License-Identifier: Apache-2.0 */
/* What a delta holds: runs of changed leaves, all of an entry one behind the other. */
#include "snapshot/delta_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

enum { NAME_BYTES = 32 };

/* An entry with changed leaves, which are a tensor. */
struct held {
	uint32_t entry;
	uint64_t bytes;
	char name[NAME_BYTES];
};

struct delta_layout {
	struct gsn_layout *layout;
	const struct gsn_delta_parent *parent;
	gpusnap_plan_delta delta; /* names are the layout's */
	struct held *held;	  /* in file order */
	size_t held_count;
	size_t run_count;
	gpusnap_tensor *tensors;
};

/* ---- which leaves ---- */

/* The leaf table of the parent, at an entry that is the `index`-th here. */
static const gpusnap_digest *parent_leaves(const struct delta_layout *d, size_t index)
{
	const gpusnap_snapshot *parent = d->parent->snapshot;
	const gpusnap_snapshot_entry *entry =
		gpusnap_snapshot_entry_find(parent, d->layout->entries[index].name);

	return parent->leaves + entry->first_leaf;
}

/*
 * The next run of changed leaves from `at` on, over gaps of up to `gap` unchanged ones; false when
 * none is left.
 */
static bool next_run(const gpusnap_digest *here, const gpusnap_digest *there, uint64_t count,
	uint64_t gap, uint64_t at, gpusnap_delta_run *ret_run)
{
	uint64_t last;

	while (at < count && gpusnap_digest_equal(here[at], there[at]))
		at++;
	if (at == count)
		return false;
	last = at;
	for (uint64_t i = at + 1; i < count && i - last <= gap + 1; i++)
		if (!gpusnap_digest_equal(here[i], there[i]))
			last = i;
	*ret_run = (gpusnap_delta_run){.first = at, .count = last + 1 - at};
	return true;
}

static uint64_t count_runs(const struct delta_layout *d, size_t index, uint64_t gap)
{
	const struct gsn_segment *entry = &d->layout->entries[index];
	const gpusnap_digest *here = d->layout->leaves + entry->first_leaf;
	const gpusnap_digest *there = parent_leaves(d, index);
	gpusnap_delta_run run = {0};
	uint64_t count = 0;

	while (next_run(
		here, there, gpusnap_leaf_count(entry->bytes), gap, run.first + run.count, &run))
		count++;
	return count;
}

static uint64_t count_all_runs(const struct delta_layout *d, uint64_t gap)
{
	uint64_t count = 0;

	for (size_t i = 0; i < d->layout->entry_count; i++)
		count += count_runs(d, i, gap);
	return count;
}

/* Where there would be more runs than a plan may have, those with small gaps become one. */
static gpusnap_status choose_gap(
	const struct delta_layout *d, uint64_t *ret_gap, gpusnap_error *err)
{
	uint64_t most = d->parent->runs_max;
	uint64_t gap = 0;

	while (count_all_runs(d, gap) > most) {
		/* One run an entry is the least that there can be. */
		if (gap > d->layout->leaf_count)
			return gsn_fail(err, GPUSNAP_E_LIMIT,
				"more than %" PRIu64
				" entries have changed, which a delta cannot hold; save in full",
				most);
		gap = 2 * gap + 1;
	}
	*ret_gap = gap;
	return GPUSNAP_OK;
}

static char *entry_name(const struct gsn_layout *layout, size_t index)
{
	struct gsn_range *range = &layout->ranges[layout->kept[index] - layout->ranges];

	return range->buffer ? range->buffer->name : range->name;
}

static gpusnap_status list_runs(
	struct delta_layout *d, size_t index, uint64_t gap, gpusnap_error *err)
{
	const struct gsn_segment *segment = &d->layout->entries[index];
	gpusnap_delta_entry *entry = &d->delta.entries[index];
	const gpusnap_digest *here = d->layout->leaves + segment->first_leaf;
	const gpusnap_digest *there = parent_leaves(d, index);
	gpusnap_delta_run run = {0};

	entry->name = entry_name(d->layout, index);
	entry->bytes = segment->bytes;
	entry->run_count = (uint32_t)count_runs(d, index, gap);
	entry->changed = gsn_alloc(entry->run_count, sizeof *entry->changed);
	if (!entry->changed)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %u runs of leaves", entry->run_count);
	for (uint32_t i = 0; i < entry->run_count; i++) {
		(void)next_run(here, there, gpusnap_leaf_count(segment->bytes), gap,
			run.first + run.count, &run);
		entry->changed[i] = run;
	}
	d->run_count += entry->run_count;
	d->held_count += entry->run_count > 0;
	return GPUSNAP_OK;
}

static gpusnap_status list_entries(struct delta_layout *d, gpusnap_error *err)
{
	gpusnap_plan_delta *delta = &d->delta;
	gpusnap_status status;
	uint64_t gap = 0;

	if (d->layout->entry_count > GPUSNAP_DELTA_ENTRIES_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"a delta of %zu entries, at most %u; save in full", d->layout->entry_count,
			GPUSNAP_DELTA_ENTRIES_MAX);
	delta->entries = gsn_alloc(d->layout->entry_count, sizeof *delta->entries);
	if (!delta->entries)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu entries", d->layout->entry_count);
	delta->entry_count = (uint32_t)d->layout->entry_count;
	delta->depth = d->parent->depth;
	delta->parent = d->parent->name;
	status = choose_gap(d, &gap, err);
	for (size_t i = 0; !status && i < delta->entry_count; i++)
		status = list_runs(d, i, gap, err);
	return status;
}

/* ---- where they go ---- */

static int compare_held(const void *a, const void *b)
{
	const struct held *x = a;
	const struct held *y = b;
	uint64_t x_class = gsn_layout_alignment(x->bytes), y_class = gsn_layout_alignment(y->bytes);

	if (x_class != y_class)
		return x_class > y_class ? -1 : 1;
	return (x->entry > y->entry) - (x->entry < y->entry);
}

static void order_held(struct delta_layout *d)
{
	size_t count = 0;

	for (uint32_t i = 0; i < d->delta.entry_count; i++) {
		struct held *held = &d->held[count];

		if (!d->delta.entries[i].run_count)
			continue;
		held->entry = i;
		held->bytes = gpusnap_delta_bytes(&d->delta.entries[i]);
		(void)snprintf(
			held->name, sizeof held->name, GPUSNAP_DELTA_FORMAT, (unsigned long long)i);
		count++;
	}
	qsort(d->held, d->held_count, sizeof *d->held, compare_held);
}

static void add_segments(struct delta_layout *d, uint32_t index)
{
	struct gsn_layout *layout = d->layout;
	const struct gsn_segment *whole = &layout->entries[index];
	const gpusnap_delta_entry *entry = &d->delta.entries[index];

	for (uint32_t i = 0; i < entry->run_count; i++) {
		const gpusnap_delta_run *run = &entry->changed[i];
		struct gsn_segment *segment = &layout->segments[layout->segment_count++];

		*segment = *whole;
		segment->start = run->first * GPUSNAP_LEAF_BYTES;
		segment->address += segment->start;
		segment->bytes =
			gsn_min(run->count * GPUSNAP_LEAF_BYTES, whole->bytes - segment->start);
		segment->first_leaf += run->first;
		segment->file_offset = layout->data_bytes;
		layout->data_bytes += segment->bytes;
	}
}

static void place_held(struct delta_layout *d)
{
	for (size_t i = 0; i < d->held_count; i++) {
		struct held *held = &d->held[i];

		d->tensors[i] = (gpusnap_tensor){
			.name = held->name,
			.name_length = strlen(held->name),
			.dtype = GPUSNAP_U8,
			.rank = 1,
			.shape = &held->bytes,
			.begin = d->layout->data_bytes,
			.end = d->layout->data_bytes + held->bytes,
		};
		add_segments(d, held->entry);
	}
}

static gpusnap_status place(struct delta_layout *d, gpusnap_error *err)
{
	/* Entries lie nowhere in this file as a whole. */
	for (size_t i = 0; i < d->layout->entry_count; i++)
		d->layout->entries[i].file_offset = 0;
	d->held = gsn_alloc(d->held_count, sizeof *d->held);
	d->tensors = gsn_alloc(d->held_count + GSN_LAYOUT_END_TENSORS, sizeof *d->tensors);
	d->layout->segments = gsn_alloc(d->run_count, sizeof *d->layout->segments);
	if (!d->held || !d->tensors || !d->layout->segments)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu runs of leaves", d->run_count);
	order_held(d);
	place_held(d);
	return GPUSNAP_OK;
}

static void release(struct delta_layout *d)
{
	for (uint32_t i = 0; d->delta.entries && i < d->delta.entry_count; i++)
		gsn_free(d->delta.entries[i].changed);
	gsn_free(d->delta.entries);
	gsn_free(d->held);
	gsn_free(d->tensors);
}

gpusnap_status gsn_delta_layout(struct gsn_layout *layout, const gpusnap_registry *registry,
	const struct gsn_delta_parent *parent, gpusnap_error *err)
{
	struct delta_layout d = {.layout = layout, .parent = parent};
	gpusnap_status status = list_entries(&d, err);

	if (!status)
		status = place(&d, err);
	layout->parent_root = parent->snapshot->seal.root;
	if (!status)
		status =
			gsn_layout_finish(layout, registry, d.tensors, d.held_count, &d.delta, err);
	release(&d);
	return status;
}
