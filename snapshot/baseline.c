/* SPDX-License-Identifier: Apache-2.0 */
/* Baselines: names and leaf digests that live state is held against, apart from any file. */
#include "snapshot/baseline.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/live_digest.h"
#include "snapshot/snapshot_file.h"

struct gpusnap_baseline {
	gpusnap_digest root;
	gpusnap_json *records; /* object or NULL */
	size_t count;
	struct gsn_segment *entries; /* by name; address and region are 0 */
	char *names;		     /* all of them, one behind the other */
	gpusnap_digest *leaves;
};

static int compare_entries(const void *a, const void *b)
{
	return strcmp(((const struct gsn_segment *)a)->name, ((const struct gsn_segment *)b)->name);
}

/* The values are shared, the object is not: the registry's own may get other values later. */
static gpusnap_json *copy_records(gpusnap_json *records)
{
	gpusnap_json *copy = gpusnap_json_pack("{}");

	for (void *at = gpusnap_json_first(records); copy && at;
		at = gpusnap_json_next(records, at)) {
		if (gpusnap_json_set(
			    copy, gpusnap_json_key(at), gpusnap_json_ref(gpusnap_json_value(at)))) {
			gpusnap_json_free(copy);
			return NULL;
		}
	}
	return copy;
}

static size_t names_bytes(const struct gsn_baseline_source *source)
{
	size_t bytes = 0;

	for (size_t i = 0; i < source->count; i++)
		bytes += strlen(source->segments[i].name) + 1;
	return bytes;
}

static void copy_entries(gpusnap_baseline *baseline, const struct gsn_baseline_source *source)
{
	char *name = baseline->names;

	for (size_t i = 0; i < source->count; i++) {
		const struct gsn_segment *segment = &source->segments[i];
		size_t length = strlen(segment->name) + 1;

		memcpy(name, segment->name, length);
		baseline->entries[i] = (struct gsn_segment){
			.name = name,
			.bytes = segment->bytes,
			.file_offset = segment->file_offset,
			.first_leaf = segment->first_leaf,
		};
		name += length;
	}
	qsort(baseline->entries, source->count, sizeof *baseline->entries, compare_entries);
}

gpusnap_status gsn_baseline_make(
	const struct gsn_baseline_source *source, gpusnap_baseline **out, gpusnap_error *err)
{
	gpusnap_baseline *baseline = gsn_alloc(1, sizeof *baseline);

	if (!baseline)
		goto no_memory;
	baseline->root = source->root;
	baseline->count = source->count;
	baseline->entries = gsn_alloc(source->count, sizeof *baseline->entries);
	baseline->names = gsn_alloc(names_bytes(source), 1);
	baseline->leaves = gsn_alloc((size_t)source->leaf_count, sizeof *baseline->leaves);
	if (source->records)
		baseline->records = copy_records(source->records);
	if (!baseline->entries || !baseline->names || !baseline->leaves ||
		(source->records && !baseline->records))
		goto no_memory;
	copy_entries(baseline, source);
	if (source->leaf_count)
		memcpy(baseline->leaves, source->leaves,
			(size_t)source->leaf_count * sizeof *baseline->leaves);
	*out = baseline;
	return GPUSNAP_OK;

no_memory:
	gpusnap_baseline_free(baseline);
	return gsn_fail(
		err, GPUSNAP_E_NOMEM, "no memory for a baseline of %zu buffers", source->count);
}

void gpusnap_baseline_free(gpusnap_baseline *baseline)
{
	if (!baseline)
		return;
	gpusnap_json_free(baseline->records);
	gsn_free(baseline->entries);
	gsn_free(baseline->names);
	gsn_free(baseline->leaves);
	gsn_free(baseline);
}

/* ---- sources ---- */

gpusnap_status gpusnap_baseline_from_snapshot(
	const gpusnap_snapshot *snapshot, gpusnap_baseline **out, gpusnap_error *err)
{
	size_t count = gpusnap_snapshot_entry_count(snapshot);
	struct gsn_segment *segments = gsn_alloc(count, sizeof *segments);
	struct gsn_baseline_source source = {
		.segments = segments,
		.count = count,
		.leaves = gpusnap_snapshot_leaves(snapshot),
		.leaf_count = gpusnap_snapshot_seal(snapshot)->leaf_count,
		.root = gpusnap_snapshot_seal(snapshot)->root,
		.records = gpusnap_snapshot_plan(snapshot)->records,
	};
	gpusnap_status status;

	if (!segments)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for a baseline of %zu buffers", count);
	for (size_t i = 0; i < count; i++)
		segments[i] = (struct gsn_segment){
			.name = snapshot->entries[i].name,
			.bytes = snapshot->entries[i].bytes,
			.file_offset = snapshot->entries[i].file_offset,
			.first_leaf = snapshot->entries[i].first_leaf,
		};
	status = gsn_baseline_make(&source, out, err);
	gsn_free(segments);
	return status;
}

/* XXH3-128 over (name with its NUL, buffer digest) of all kept ranges in registry order. */
static gpusnap_status live_root(
	const struct gsn_live *live, gpusnap_digest *ret_root, gpusnap_error *err)
{
	gpusnap_digest_stream *stream = gpusnap_digest_stream_new();

	if (!stream)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a digest");
	gpusnap_digest_stream_restart(stream);
	for (size_t i = 0; i < live->count; i++) {
		const struct gsn_segment *segment = &live->segments[i];
		gpusnap_digest digest = gpusnap_digest_of_buffer(
			segment->bytes, live->leaves + segment->first_leaf);

		gpusnap_digest_stream_update(stream, segment->name, strlen(segment->name) + 1);
		gpusnap_digest_stream_update(stream, digest.bytes, sizeof digest.bytes);
	}
	*ret_root = gpusnap_digest_stream_finish(stream);
	gpusnap_digest_stream_free(stream);
	return GPUSNAP_OK;
}

static gpusnap_status make_from_live(const gpusnap_registry *registry, const struct gsn_live *live,
	gpusnap_baseline **out, gpusnap_error *err)
{
	struct gsn_baseline_source source = {
		.segments = live->segments,
		.count = live->count,
		.leaves = live->leaves,
		.leaf_count = live->leaf_count,
		.records = registry->records,
	};
	gpusnap_status status = live_root(live, &source.root, err);

	return status ? status : gsn_baseline_make(&source, out, err);
}

gpusnap_status gpusnap_baseline_from_live(
	gpusnap_registry *registry, gpusnap_baseline **out, gpusnap_error *err)
{
	struct gsn_live live = GSN_LIVE_INIT;
	gpusnap_status status = gsn_job_begin(registry, "baseline", err);

	if (status)
		return status;
	status = gsn_live_digest(&live, registry, err);
	if (!status)
		status = make_from_live(registry, &live, out, err);
	gsn_live_release(&live);
	gsn_job_end(registry);
	return status;
}

/* ---- use ---- */

gpusnap_digest gpusnap_baseline_root(const gpusnap_baseline *baseline)
{
	return baseline->root;
}

gpusnap_json *gpusnap_baseline_record(const gpusnap_baseline *baseline, const char *name)
{
	gpusnap_json *value = gpusnap_json_get(baseline->records, name);

	return value ? gpusnap_json_ref(value) : NULL;
}

size_t gsn_baseline_count(const gpusnap_baseline *baseline)
{
	return baseline->count;
}

const struct gsn_segment *gsn_baseline_find(const gpusnap_baseline *baseline, const char *name)
{
	const struct gsn_segment key = {.name = name};

	return bsearch(&key, baseline->entries, baseline->count, sizeof *baseline->entries,
		compare_entries);
}

const gpusnap_digest *gpusnap_baseline_leaves(
	const gpusnap_baseline *baseline, const char *name, uint64_t *ret_leaf_count)
{
	const struct gsn_segment *entry = gsn_baseline_find(baseline, name);

	if (!entry)
		return NULL;
	if (ret_leaf_count)
		*ret_leaf_count = gpusnap_leaf_count(entry->bytes);
	return baseline->leaves + entry->first_leaf;
}

/* ---- the registry's own ---- */

const gpusnap_baseline *gpusnap_registry_baseline(const gpusnap_registry *registry)
{
	const gpusnap_baseline *baseline;

	gsn_registry_lock(registry);
	baseline = registry->baseline;
	gsn_registry_unlock(registry);
	return baseline;
}

void gpusnap_registry_set_baseline(gpusnap_registry *registry, gpusnap_baseline *baseline)
{
	gpusnap_baseline *before;

	gsn_registry_lock(registry);
	before = registry->baseline;
	registry->baseline = baseline;
	/* Save and restore say afterwards which file it stands for; any other stands for none. */
	gsn_origin_release(&registry->origin);
	gsn_registry_unlock(registry);
	if (before != baseline)
		gpusnap_baseline_free(before);
}
