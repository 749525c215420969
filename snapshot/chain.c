/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking a chain and laying its files over each other. Each delta is held against its parent leaf
 * by leaf: what it does not hold must have the digest there that it has in the delta's own table,
 * so that a parent which is not the one it was made from cannot pass. Of all links but the first
 * no more stays in memory than where their leaves are.
 */
#include "snapshot/chain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "snapshot/io_options.h"

static uint32_t depth_of(const gpusnap_snapshot *snapshot)
{
	return snapshot->plan->delta ? snapshot->plan->delta->depth : 0;
}

/* ---- a delta against its parent ---- */

static bool same_type(const gpusnap_snapshot_entry *x, const gpusnap_snapshot_entry *y)
{
	return x->dtype == y->dtype && x->rank == y->rank && x->bytes == y->bytes &&
	       memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0;
}

/* Leaves [first, end) of an entry, which the child does not hold. */
static gpusnap_status match_leaves(const gpusnap_snapshot *child, const gpusnap_snapshot *parent,
	const gpusnap_snapshot_entry *mine, const gpusnap_snapshot_entry *theirs, uint64_t first,
	uint64_t end, gpusnap_error *err)
{
	for (uint64_t i = first; i < end; i++)
		if (!gpusnap_digest_equal(child->leaves[mine->first_leaf + i],
			    parent->leaves[theirs->first_leaf + i]))
			return gsn_fail(err, GPUSNAP_E_CORRUPT,
				"'%s': buffer '%.64s' leaf %" PRIu64
				" is to come from parent '%s', which holds another there; use the "
				"parent that this delta was made from",
				child->path, mine->name, i, parent->path);
	return GPUSNAP_OK;
}

static gpusnap_status match_entry(const gpusnap_snapshot *child, const gpusnap_snapshot *parent,
	size_t index, gpusnap_error *err)
{
	const gpusnap_snapshot_entry *mine = &child->entries[index];
	const gpusnap_snapshot_entry *theirs = gpusnap_snapshot_entry_find(parent, mine->name);
	const gpusnap_delta_entry *delta = &child->plan->delta->entries[index];
	gpusnap_status status = GPUSNAP_OK;
	uint64_t at = 0;

	if (!theirs || !same_type(mine, theirs))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'%s': buffer '%.64s' is not in parent '%s' with that type and size",
			child->path, mine->name, parent->path);
	for (uint32_t i = 0; !status && i < delta->run_count; i++) {
		status =
			match_leaves(child, parent, mine, theirs, at, delta->changed[i].first, err);
		at = delta->changed[i].first + delta->changed[i].count;
	}
	return status ? status
		      : match_leaves(child, parent, mine, theirs, at, mine->leaf_count, err);
}

static gpusnap_status match_parent(
	const gpusnap_snapshot *child, const gpusnap_snapshot *parent, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	if (depth_of(parent) + 1 != depth_of(child))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'%s': depth is %u, that of its parent '%s' is %u, expected %u",
			child->path, depth_of(child), parent->path, depth_of(parent),
			depth_of(child) - 1);
	if (child->entry_count != parent->entry_count)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "'%s' has %zu entries, its parent '%s' %zu",
			child->path, child->entry_count, parent->path, parent->entry_count);
	for (size_t i = 0; !status && i < child->entry_count; i++)
		status = match_entry(child, parent, i, err);
	return status;
}

/* ---- walking ---- */

static void add_link(gpusnap_snapshot *snapshot, gpusnap_snapshot *link)
{
	uint32_t at = snapshot->link_count++;
	uint64_t end = at ? snapshot->bases[at - 1] + snapshot->links[at - 1]->file_bytes : 0;

	/* No block of a reader touches two files. */
	snapshot->bases[at] = at ? gsn_align_up(end, GSN_IO_BLOCK_MAX) + GSN_IO_BLOCK_MAX : 0;
	snapshot->links[at] = link;
}

static gpusnap_status walk(gpusnap_snapshot *snapshot, const gpusnap_snapshot_open_options *options,
	gpusnap_error *err)
{
	gpusnap_snapshot *child = snapshot;

	add_link(snapshot, snapshot);
	/* Depths fall by one from link to link, so that this ends. */
	while (child->plan->delta) {
		gpusnap_snapshot *parent;
		gpusnap_status status = gsn_parent_find(snapshot, child, options, &parent, err);

		if (status)
			return status;
		add_link(snapshot, parent);
		status = match_parent(child, parent, err);
		if (status)
			return status;
		if (child != snapshot)
			gsn_snapshot_drop_leaves(child);
		child = parent;
	}
	return GPUSNAP_OK;
}

/* ---- parts ---- */

/* Parts of one link's state while they are made from those of its parent. */
struct overlay {
	const gpusnap_snapshot *child;
	struct gsn_part *parts;
	size_t count;
	size_t *first_part;
};

static void add_part(struct overlay *o, struct gsn_part part)
{
	o->parts[o->count++] = part;
}

/* The parent's parts of leaves [first, end); `at` walks them. */
static void add_inherited(
	struct overlay *o, uint32_t entry, const struct gsn_part **at, uint64_t first, uint64_t end)
{
	while (first < end) {
		const struct gsn_part *part = *at;
		uint64_t part_end = part->first_leaf + part->leaf_count;
		uint64_t stop = gsn_min(end, part_end);

		if (part_end > first) {
			add_part(o, (struct gsn_part){
					    .link = part->link + 1,
					    .entry = entry,
					    .first_leaf = first,
					    .leaf_count = stop - first,
					    .file_offset =
						    part->file_offset +
						    (first - part->first_leaf) * GPUSNAP_LEAF_BYTES,
				    });
			first = stop;
		}
		if (part_end <= first)
			(*at)++;
	}
}

static uint64_t held_offset(const gpusnap_snapshot *snapshot, size_t entry)
{
	char name[48];
	const gpusnap_tensor *tensor;

	(void)snprintf(name, sizeof name, GPUSNAP_DELTA_FORMAT, (unsigned long long)entry);
	tensor = gpusnap_header_find(snapshot->header, name);
	return tensor ? snapshot->seal.header_bytes + tensor->begin : 0;
}

static void overlay_entry(struct overlay *o, uint32_t index, const struct gsn_part *inherited)
{
	const gpusnap_delta_entry *delta = &o->child->plan->delta->entries[index];
	uint64_t offset = held_offset(o->child, index);
	uint64_t at = 0;

	o->first_part[index] = o->count;
	if (!gpusnap_leaf_count(delta->bytes))
		add_part(o, (struct gsn_part){.entry = index});
	for (uint32_t i = 0; i < delta->run_count; i++) {
		const gpusnap_delta_run *run = &delta->changed[i];

		add_inherited(o, index, &inherited, at, run->first);
		add_part(o, (struct gsn_part){
				    .entry = index,
				    .first_leaf = run->first,
				    .leaf_count = run->count,
				    .file_offset = offset,
			    });
		offset += run->count * GPUSNAP_LEAF_BYTES;
		at = run->first + run->count;
	}
	add_inherited(o, index, &inherited, at, gpusnap_leaf_count(delta->bytes));
}

static uint64_t run_count(const gpusnap_plan_delta *delta)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < delta->entry_count; i++)
		count += delta->entries[i].run_count;
	return count;
}

static gpusnap_status no_memory(const gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the parts of %zu entries",
		snapshot->entry_count);
}

/* A full snapshot: each entry in one part. */
static gpusnap_status lay_full(gpusnap_snapshot *full, gpusnap_error *err)
{
	full->parts = gsn_alloc(full->entry_count, sizeof *full->parts);
	full->first_part = gsn_alloc(full->entry_count + 1, sizeof *full->first_part);
	if (!full->parts || !full->first_part)
		return no_memory(full, err);
	for (size_t i = 0; i < full->entry_count; i++) {
		full->first_part[i] = i;
		full->parts[i] = (struct gsn_part){
			.entry = (uint32_t)i,
			.leaf_count = full->entries[i].leaf_count,
			.file_offset = full->entries[i].file_offset,
		};
	}
	full->first_part[full->entry_count] = full->part_count = full->entry_count;
	return GPUSNAP_OK;
}

/* Each changed run splits one part in two at most, and is one itself. */
static gpusnap_status lay_over(
	gpusnap_snapshot *child, const gpusnap_snapshot *parent, gpusnap_error *err)
{
	size_t most = parent->part_count + 2 * (size_t)run_count(child->plan->delta);
	struct overlay o = {.child = child};

	o.parts = child->parts = gsn_alloc(most, sizeof *child->parts);
	o.first_part = child->first_part =
		gsn_alloc(child->entry_count + 1, sizeof *child->first_part);
	if (!o.parts || !o.first_part)
		return no_memory(child, err);
	for (size_t i = 0; i < child->entry_count; i++) {
		const gpusnap_snapshot_entry *theirs =
			gpusnap_snapshot_entry_find(parent, child->entries[i].name);

		overlay_entry(&o, (uint32_t)i,
			&parent->parts[parent->first_part[theirs - parent->entries]]);
	}
	o.first_part[child->entry_count] = child->part_count = o.count;
	return GPUSNAP_OK;
}

/* From the full snapshot at the end of the chain back to the first link. */
static gpusnap_status lay_parts(gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	uint32_t last = snapshot->link_count - 1;
	gpusnap_status status = lay_full(snapshot->links[last], err);

	for (uint32_t i = last; !status && i > 0; i--) {
		status = lay_over(snapshot->links[i - 1], snapshot->links[i], err);
		gsn_snapshot_drop_plan(snapshot->links[i]);
	}
	return status;
}

/* An entry that is here in one piece can be found by whoever reads the file alone. */
static void set_offsets(gpusnap_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->entry_count; i++) {
		size_t first = snapshot->first_part[i];
		const struct gsn_part *part = &snapshot->parts[first];
		bool whole = snapshot->first_part[i + 1] == first + 1 && part->link == 0;

		snapshot->entries[i].file_offset = whole ? part->file_offset : 0;
	}
}

gpusnap_status gsn_chain_open(gpusnap_snapshot *snapshot,
	const gpusnap_snapshot_open_options *options, gpusnap_error *err)
{
	gpusnap_status status = walk(snapshot, options, err);

	if (!status)
		status = lay_parts(snapshot, err);
	if (!status)
		set_offsets(snapshot);
	return status;
}

void gsn_chain_close(gpusnap_snapshot *snapshot)
{
	for (uint32_t i = 1; i < snapshot->link_count; i++)
		gpusnap_snapshot_close(snapshot->links[i]);
}

gpusnap_status gsn_chain_guard(const gpusnap_snapshot *snapshot, uint32_t first,
	const struct stat *target, const char *path, gpusnap_error *err)
{
	for (uint32_t i = first; i < snapshot->link_count; i++)
		if (snapshot->links[i]->device == target->st_dev &&
			snapshot->links[i]->inode == target->st_ino)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"'%s' is '%s', which deltas need as their parent; choose another "
				"name",
				path, snapshot->links[i]->path);
	return GPUSNAP_OK;
}

/* ---- places ---- */

struct gsn_segment gsn_snapshot_segment(const gpusnap_snapshot *snapshot, size_t index)
{
	const struct gsn_part *part = &snapshot->parts[index];
	const gpusnap_snapshot_entry *entry = &snapshot->entries[part->entry];
	uint64_t start = part->first_leaf * GPUSNAP_LEAF_BYTES;

	return (struct gsn_segment){
		.name = entry->name,
		.start = start,
		.bytes = gsn_min(part->leaf_count * GPUSNAP_LEAF_BYTES, entry->bytes - start),
		.file_offset = snapshot->bases[part->link] + part->file_offset,
		.first_leaf = entry->first_leaf + part->first_leaf,
	};
}

int gsn_compare_places(const void *a, const void *b)
{
	const struct gsn_segment *x = a;
	const struct gsn_segment *y = b;

	return (x->file_offset > y->file_offset) - (x->file_offset < y->file_offset);
}

gpusnap_status gsn_snapshot_segments(const gpusnap_snapshot *snapshot,
	struct gsn_segment **ret_segments, size_t *ret_count, gpusnap_error *err)
{
	struct gsn_segment *segments = gsn_alloc(snapshot->part_count, sizeof *segments);

	if (!segments)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu segments", snapshot->part_count);
	for (size_t i = 0; i < snapshot->part_count; i++)
		segments[i] = gsn_snapshot_segment(snapshot, i);
	qsort(segments, snapshot->part_count, sizeof *segments, gsn_compare_places);
	*ret_segments = segments;
	*ret_count = snapshot->part_count;
	return GPUSNAP_OK;
}

uint32_t gsn_snapshot_link_of(const gpusnap_snapshot *snapshot, uint64_t place)
{
	uint32_t link = snapshot->link_count - 1;

	while (link > 0 && place < snapshot->bases[link])
		link--;
	return link;
}

struct gsn_location gsn_snapshot_locate(const gpusnap_snapshot *snapshot, uint64_t place)
{
	uint32_t link = gsn_snapshot_link_of(snapshot, place);

	return (struct gsn_location){
		.path = snapshot->links[link]->path,
		.offset = place - snapshot->bases[link],
	};
}

uint64_t gsn_snapshot_leaf_place(
	const gpusnap_snapshot *snapshot, const gpusnap_snapshot_entry *entry, uint64_t leaf)
{
	size_t low = snapshot->first_part[entry - snapshot->entries];
	size_t high = snapshot->first_part[entry - snapshot->entries + 1];
	const struct gsn_part *part;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (snapshot->parts[middle].first_leaf <= leaf)
			low = middle;
		else
			high = middle;
	}
	part = &snapshot->parts[low];
	return snapshot->bases[part->link] + part->file_offset +
	       (leaf - part->first_leaf) * GPUSNAP_LEAF_BYTES;
}
