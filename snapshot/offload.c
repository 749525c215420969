/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offload: secure the kept bytes in arenas or against a snapshot, then unmap. Nothing is given
 * back before everything is secure; when an unmap fails, the regions before it are resumed.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/arena.h"
#include "snapshot/backing.h"
#include "snapshot/region_memory.h"
#include "snapshot/resume.h"
#include "snapshot/selection.h"

struct offload {
	gpusnap_registry *registry;
	gpusnap_backing backing;
	struct gsn_selection selection;
	gpusnap_digest *leaves; /* live digests of selection.kept; pinned */
	uint64_t leaves_bytes;
	struct gsn_stream *copying;
	bool to_snapshot;
	gpusnap_snapshot **snapshots; /* a region's backing, until the region takes it */
	char **names;		      /* and that backing's name */
	gpusnap_offload_report report;
};

static gpusnap_status open_offload(struct offload *o, gpusnap_error *err)
{
	const struct gsn_selection *selection = &o->selection;
	const gpusnap_device *device = o->registry->device;
	uint64_t leaves =
		gsn_ranges_leaf_count(selection->kept, selection->first_kept[selection->count]);
	void *memory = NULL;
	gpusnap_status s = GPUSNAP_OK;

	if (leaves > 0)
		s = gsn_staging_source_take(&o->registry->staging, leaves * sizeof *o->leaves,
			&memory, &o->leaves_bytes, err);
	if (s)
		return s;
	o->leaves = memory;
	o->snapshots = gsn_alloc(selection->count, sizeof(void *));
	o->names = gsn_alloc(selection->count, sizeof(void *));
	if (!o->snapshots || !o->names)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory to offload %zu regions", selection->count);
	return device->ops->stream_create(device->context, &o->copying, err);
}

static void close_offload(struct offload *o)
{
	const struct gsn_device_ops *ops = o->registry->device->ops;

	/* After a failure work may still be under way that reads or writes these. */
	ops->stream_destroy(o->copying);
	(void)ops->stream_sync(o->registry->stream, NULL);
	for (size_t i = 0; o->snapshots && i < o->selection.count; i++)
		gpusnap_snapshot_close(o->snapshots[i]);
	for (size_t i = 0; o->names && i < o->selection.count; i++)
		gsn_free(o->names[i]);
	gsn_free(o->snapshots);
	gsn_free(o->names);
	gsn_staging_source_give(&o->registry->staging, o->leaves, o->leaves_bytes);
}

/* ---- secure: arenas ---- */

/* The region's arena, a new one where none was made for these very ranges. */
static gpusnap_status ready_arena(struct offload *o, size_t i, gpusnap_error *err)
{
	struct gsn_region *region = o->selection.regions[i];
	const struct gsn_range *kept = gsn_selection_kept(&o->selection, i);
	size_t count = gsn_selection_kept_count(&o->selection, i);
	gpusnap_status s;

	if (region->arena && gsn_arena_fits(region->arena, kept, count))
		return GPUSNAP_OK;
	gsn_arena_free(region->arena);
	region->arena = NULL;
	s = gsn_arena_new(o->registry->device, kept, count, &region->arena, err);
	return s ? s : gsn_arena_pin_ahead(region->arena, err);
}

static gpusnap_status copy_run(struct offload *o, const struct gsn_region *region,
	const struct gsn_leaf_run *run, gpusnap_error *err)
{
	struct gsn_arena *arena = region->arena;

	/* Until the copy is known to be done the arena does not hold these leaves. */
	memset(gsn_arena_run_leaves(arena, run), 0, run->count * sizeof(gpusnap_digest));
	o->report.copied_bytes += gsn_arena_run_bytes(arena, run);
	return gsn_arena_copy(arena, run, o->copying, GSN_DEVICE_TO_HOST, region->address, err);
}

/* A leaf that the arena does not hold is changed, whatever its live digest will be. */
static inline bool is_changed(const gpusnap_digest *held, const gpusnap_digest *live)
{
	static const gpusnap_digest none;

	return gsn_same_leaf(held, &none) || !gsn_same_leaf(held, live);
}

static gpusnap_status copy_changed(struct offload *o, const struct gsn_region *region,
	size_t extent, const gpusnap_digest *live, gpusnap_error *err)
{
	struct gsn_leaf_run run = {.extent = extent};
	const gpusnap_digest *held = gsn_arena_run_leaves(region->arena, &run);
	uint64_t count = gpusnap_leaf_count(region->arena->extents[extent].bytes);
	uint64_t at = 0;

	while (at < count) {
		gpusnap_status s;

		run.first = at;
		while (at < count && is_changed(&held[at], &live[at]))
			at++;
		run.count = at - run.first;
		if (run.count == 0) {
			at++;
			continue;
		}
		s = copy_run(o, region, &run, err);
		if (s)
			return s;
	}
	return GPUSNAP_OK;
}

/* True when some arena may hold a leaf, so that live digests are needed before copying. */
static bool may_save_copies(const struct gsn_selection *selection)
{
	for (size_t i = 0; i < selection->count; i++) {
		const struct gsn_arena *arena = selection->regions[i]->arena;

		for (uint64_t leaf = 0; arena && leaf < arena->leaf_count; leaf++)
			if (!gpusnap_digest_is_zero(arena->leaves[leaf]))
				return true;
	}
	return false;
}

static gpusnap_status copy_to_arenas(struct offload *o, gpusnap_error *err)
{
	const gpusnap_digest *live = o->leaves;

	for (size_t i = 0; i < o->selection.count; i++) {
		const struct gsn_region *region = o->selection.regions[i];

		for (size_t k = 0; k < region->arena->extent_count; k++) {
			gpusnap_status s = copy_changed(o, region, k, live, err);

			if (s)
				return s;
			live += gpusnap_leaf_count(region->arena->extents[k].bytes);
		}
	}
	return o->registry->device->ops->stream_sync(o->copying, err);
}

static void note_leaves(struct offload *o)
{
	const gpusnap_digest *live = o->leaves;

	for (size_t i = 0; i < o->selection.count; i++) {
		struct gsn_arena *arena = o->selection.regions[i]->arena;

		memcpy(arena->leaves, live, arena->leaf_count * sizeof *live);
		live += arena->leaf_count;
	}
}

static void end_pinning(const struct offload *o)
{
	for (size_t i = 0; i < o->selection.count; i++)
		if (o->selection.regions[i]->arena)
			gsn_arena_pin_end(o->selection.regions[i]->arena);
}

/* The first time, copies need not wait for the digests: both run at once. */
static gpusnap_status secure_in_arenas(struct offload *o, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = o->registry->device->ops;
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < o->selection.count; i++)
		s = ready_arena(o, i, err);
	if (!s && may_save_copies(&o->selection))
		s = ops->stream_sync(o->registry->stream, err);
	if (!s)
		s = copy_to_arenas(o, err);
	end_pinning(o);
	if (!s)
		s = ops->stream_sync(o->registry->stream, err);
	if (!s && o->report.copied_bytes > 0)
		note_leaves(o);
	return s;
}

/* ---- secure: snapshot ---- */

static gpusnap_status secure_in_snapshot(struct offload *o, gpusnap_error *err)
{
	gpusnap_status s = o->registry->device->ops->stream_sync(o->registry->stream, err);

	if (!s)
		s = gsn_backing_open(o->registry, &o->selection, o->leaves, o->snapshots, err);
	o->to_snapshot = s == GPUSNAP_OK;
	return s;
}

static bool prefers_snapshot(const struct offload *o)
{
	if (o->backing == GPUSNAP_BACKING_AUTO)
		return (o->registry->device->ops->caps & GSN_CAP_HOST_ADDRESSABLE) != 0;
	return o->backing == GPUSNAP_BACKING_SNAPSHOT;
}

static gpusnap_status secure(struct offload *o, gpusnap_error *err)
{
	const struct gsn_selection *selection = &o->selection;
	size_t count = selection->first_kept[selection->count];
	gpusnap_error unfit;
	gpusnap_status s = gsn_ranges_digest_async(
		o->registry, o->registry->stream, selection->kept, count, o->leaves, err);

	if (s)
		return s;
	if (prefers_snapshot(o)) {
		s = secure_in_snapshot(o, &unfit);
		if (s == GPUSNAP_OK)
			return s;
		if (o->backing == GPUSNAP_BACKING_SNAPSHOT) {
			if (err)
				*err = unfit;
			return s;
		}
	}
	return secure_in_arenas(o, err);
}

/* ---- give memory back ---- */

static gpusnap_status name_backings(struct offload *o, gpusnap_error *err)
{
	for (size_t i = 0; i < o->selection.count; i++) {
		if (gsn_selection_kept_count(&o->selection, i) == 0)
			o->names[i] = gsn_strdup("none");
		else if (o->to_snapshot)
			o->names[i] = gsn_printf("snapshot %s", o->registry->origin.path);
		else
			o->names[i] = gsn_strdup("arena");
		if (!o->names[i])
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a backing's name");
	}
	return GPUSNAP_OK;
}

/* Unmapped in part it is offloaded as well: what is left of it is not whole. */
static gpusnap_status unmap_region(struct offload *o, size_t i, gpusnap_error *err)
{
	struct gsn_region *region = o->selection.regions[i];
	gpusnap_status s = gsn_region_memory_unmap(o->registry, region, err);

	if (s)
		gsn_error_prefix(err, "region %u '%s'", region->id, region->tag);
	if (region->mapped_bytes == region->reserved_bytes)
		return s;
	region->state = GPUSNAP_REGION_OFFLOADED;
	region->backing = o->snapshots[i];
	region->backing_name = o->names[i];
	o->snapshots[i] = NULL;
	o->names[i] = NULL;
	return s;
}

/* An offload that fails half way is undone: the first `count` regions come back. */
static void undo(struct offload *o, size_t count, gpusnap_error *err)
{
	struct gsn_selection unmapped = o->selection;
	gpusnap_error why;

	unmapped.count = count;
	if (count > 0 && gsn_resume_regions(o->registry, &unmapped, NULL, NULL, &why))
		gsn_error_prefix(err, "%zu regions stay offloaded (%s) after", count, why.message);
}

static gpusnap_status unmap_all(struct offload *o, gpusnap_error *err)
{
	const gpusnap_device *device = o->registry->device;
	gpusnap_device_properties before, after;
	gpusnap_status s = device->ops->query(device->context, &before, err);
	size_t done = 0;

	while (!s && done < o->selection.count) {
		s = unmap_region(o, done, err);
		done += o->selection.regions[done]->state == GPUSNAP_REGION_OFFLOADED;
	}
	if (!s)
		s = device->ops->query(device->context, &after, err);
	if (s) {
		undo(o, done, err);
		return s;
	}
	if (after.free_bytes > before.free_bytes)
		o->report.freed_bytes = after.free_bytes - before.free_bytes;
	return GPUSNAP_OK;
}

/* A snapshot holds the bytes now: the host memory of an earlier arena is given back as well. */
static void drop_arenas(const struct gsn_selection *selection)
{
	for (size_t i = 0; i < selection->count; i++) {
		gsn_arena_free(selection->regions[i]->arena);
		selection->regions[i]->arena = NULL;
	}
}

static void fill_report(struct offload *o)
{
	o->report.regions = (uint32_t)o->selection.count;
	o->report.bytes = o->selection.bytes;
	(void)snprintf(o->report.backing, sizeof o->report.backing, "%s%s",
		o->to_snapshot ? "snapshot " : "arena",
		o->to_snapshot ? o->registry->origin.path : "");
}

static gpusnap_status offload(struct offload *o, gpusnap_error *err)
{
	gpusnap_status s = open_offload(o, err);

	if (!s)
		s = gsn_job_quiesce(o->registry, err);
	if (!s)
		s = secure(o, err);
	if (!s)
		s = name_backings(o, err);
	if (!s)
		s = unmap_all(o, err);
	if (s)
		return s;
	if (o->to_snapshot)
		drop_arenas(&o->selection);
	fill_report(o);
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_offload(gpusnap_registry *registry, const gpusnap_offload_options *options,
	gpusnap_offload_report *ret_report, gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	gpusnap_offload_options known;
	struct offload o = {.registry = registry};
	gpusnap_status s = gsn_options_copy(&known, sizeof known, options, "offload options", err);

	if (!s && (unsigned)known.backing > GPUSNAP_BACKING_SNAPSHOT)
		s = gsn_fail(err, GPUSNAP_E_INVALID, "backing %d is none of auto, arena, snapshot",
			(int)known.backing);
	if (!s)
		s = gsn_job_begin(registry, "offload", err);
	if (s)
		return s;
	o.backing = known.backing;
	s = gsn_selection_init(registry, &known, GSN_SELECT_OFFLOAD, &o.selection, err);
	if (!s)
		s = offload(&o, err);
	close_offload(&o);
	gsn_selection_release(&o.selection);
	if (!s && ret_report) {
		*ret_report = o.report;
		ret_report->seconds = gsn_clock_seconds() - start;
	}
	gsn_job_end(registry);
	return s;
}
