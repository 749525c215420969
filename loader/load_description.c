/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap_load_describe(): the plan of a load as JSON; its members are listed in loading.md. */
#include <string.h>

#include <gpusnap/loader.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "loader/compact.h"
#include "loader/load_input.h"
#include "loader/load_plan.h"
#include "loader/load_stage.h"
#include "snapshot/io_options.h"

struct description {
	const struct gsn_load_input *input;
	struct gsn_plan_limits limits;
	bool details;
	gpusnap_json *json;   /* the result */
	gpusnap_json **views; /* lists of the buffers' views, borrowed from the result; or NULL */
};

/* Set a member, or note that memory ran out: pack answers NULL then, and set refuses it. */
static bool set(gpusnap_json *object, const char *key, gpusnap_json *value)
{
	return gpusnap_json_set(object, key, value) == GPUSNAP_OK;
}

static bool append(gpusnap_json *list, gpusnap_json *value)
{
	return gpusnap_json_append(list, value) == GPUSNAP_OK;
}

static gpusnap_status no_memory(gpusnap_error *err)
{
	return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to describe the load");
}

/* ---- files ---- */

static gpusnap_json *describe_files(const struct gsn_checkpoint *checkpoint)
{
	gpusnap_json *list = gpusnap_json_pack("[]");
	bool ok = list;

	for (uint32_t i = 0; ok && i < checkpoint->shard_count; i++)
		ok = append(list, gpusnap_json_pack("{s:s,s:I}", "name", checkpoint->shards[i].name,
					  "bytes", (long long)checkpoint->shards[i].file.bytes));
	if (ok)
		return list;
	gpusnap_json_free(list);
	return NULL;
}

/* The tensor that the byte of the file belongs to. */
static const gpusnap_tensor *tensor_at(const struct gsn_shard *shard, uint64_t offset)
{
	uint64_t at = offset - gpusnap_header_data_offset(shard->header);
	size_t low = 0, high = gpusnap_header_tensor_count(shard->header);

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (gpusnap_header_tensor(shard->header, middle)->end <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return gpusnap_header_tensor(shard->header, low);
}

/* ---- buffers and views ---- */

static gpusnap_json *describe_shape(const struct gsn_buffer_plan *buffer)
{
	gpusnap_json *list = gpusnap_json_pack("[]");
	bool ok = list;

	for (uint32_t i = 0; ok && i < buffer->rank; i++)
		ok = append(list, gpusnap_json_pack("I", (long long)buffer->shape[i]));
	if (ok)
		return list;
	gpusnap_json_free(list);
	return NULL;
}

static bool describe_buffer(
	struct description *d, gpusnap_json *list, uint32_t index, uint64_t views)
{
	const struct gsn_buffer_plan *buffer = &d->input->state.buffers[index];
	gpusnap_json *json =
		gpusnap_json_pack("{s:s,s:s,s:s,s:o,s:I,s:I,s:I}", "name", buffer->name, "role",
			gpusnap_role_name(buffer->role), "dtype", gpusnap_dtype_name(buffer->dtype),
			"shape", describe_shape(buffer), "offset", (long long)buffer->offset,
			"bytes", (long long)buffer->bytes, "views", (long long)views);

	if (!json || !append(list, json))
		return false;
	if (!d->details)
		return true;
	d->views[index] = gpusnap_json_pack("[]");
	return set(json, "view_list", d->views[index]);
}

static gpusnap_status describe_buffers(struct description *d, gpusnap_error *err)
{
	const struct gsn_rank_state *state = &d->input->state;
	uint64_t *views = gsn_alloc(state->buffer_count, sizeof *views);
	gpusnap_json *list = gpusnap_json_pack("[]");
	bool ok = views && set(d->json, "buffers", list);

	for (size_t i = 0; ok && i < state->view_count; i++)
		views[state->views[i].buffer] += gsn_view_is_read(&state->views[i]);
	for (uint32_t i = 0; ok && i < state->buffer_count; i++)
		ok = describe_buffer(d, list, i, views[i]);
	gsn_free(views);
	return ok ? GPUSNAP_OK : no_memory(err);
}

static const char *storage_word(const struct gsn_view *view)
{
	if (!gsn_view_is_contiguous(view))
		return "strided";
	return gsn_view_needs_compaction(view) ? "oversized" : "whole";
}

static gpusnap_json *describe_view(const struct description *d, const struct gsn_view *view)
{
	const struct gsn_shard *shard;
	const struct gsn_buffer_plan *buffer = &d->input->state.buffers[view->buffer];

	if (!gsn_view_is_read(view))
		return gpusnap_json_pack("{s:s,s:I,s:I}", "storage",
			view->kind == GSN_VIEW_FILL ? "padding" : "memory", "target",
			(long long)(view->target - buffer->offset), "bytes",
			(long long)gsn_view_target_bytes(view));
	shard = &d->input->checkpoint.shards[view->shard];
	return gpusnap_json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:b}", "tensor",
		tensor_at(shard, view->source)->name, "file", shard->name, "storage",
		storage_word(view), "offset", (long long)view->source, "needed",
		(long long)gsn_view_needed(view), "target",
		(long long)(view->target - buffer->offset), "bytes",
		(long long)gsn_view_target_bytes(view), "compacted",
		gsn_compact_applies(d->limits.compact, view));
}

static gpusnap_status describe_views(struct description *d, gpusnap_error *err)
{
	const struct gsn_rank_state *state = &d->input->state;
	uint64_t whole = 0, oversized = 0, strided = 0, compacted = 0;

	for (size_t i = 0; i < state->view_count; i++) {
		const struct gsn_view *view = &state->views[i];

		if (d->details && !append(d->views[view->buffer], describe_view(d, view)))
			return no_memory(err);
		if (!gsn_view_is_read(view))
			continue;
		if (!gsn_view_is_contiguous(view))
			strided++;
		else if (gsn_view_needs_compaction(view))
			oversized++;
		else
			whole++;
		compacted += gsn_compact_applies(d->limits.compact, view);
	}
	if (set(d->json, "views",
		    gpusnap_json_pack("{s:I,s:I,s:I,s:I,s:I}", "count", (long long)state->slices,
			    "whole", (long long)whole, "oversized", (long long)oversized, "strided",
			    (long long)strided, "compacted", (long long)compacted)))
		return GPUSNAP_OK;
	return no_memory(err);
}

/* ---- copies and runs ---- */

struct totals {
	uint64_t copies, runs, read;
};

static gpusnap_json *describe_window(const struct description *d, const struct gsn_window *window)
{
	gpusnap_json *runs = gpusnap_json_pack("[]");
	bool ok = runs;

	for (size_t i = 0; ok && i < window->read_count; i++) {
		const struct gsn_read *read = &window->reads[i];

		ok = append(
			runs, gpusnap_json_pack("{s:s,s:I,s:I,s:I,s:b}", "file",
				      d->input->checkpoint.shards[read->shard].name, "offset",
				      (long long)read->offset, "bytes", (long long)read->bytes,
				      "pieces", (long long)read->count, "direct", read->direct));
	}
	if (!ok) {
		gpusnap_json_free(runs);
		return NULL;
	}
	return gpusnap_json_pack("{s:I,s:I,s:o}", "target", (long long)window->target, "bytes",
		(long long)window->bytes, "runs", runs);
}

/* `list` takes the windows; NULL: count only. */
static gpusnap_status walk_windows(const struct description *d,
	const struct gsn_plan_limits *limits, gpusnap_json *list, struct totals *totals,
	gpusnap_error *err)
{
	const struct gsn_rank_state *state = &d->input->state;
	struct gsn_window window = {0};
	struct gsn_load_plan plan;
	gpusnap_status st;

	gsn_load_plan_init(&plan, state->views, state->view_count, limits);
	while ((st = gsn_load_plan_next(&plan, &window, err)) == GPUSNAP_OK && window.bytes) {
		totals->copies++;
		totals->runs += window.read_count;
		for (size_t i = 0; i < window.read_count; i++)
			totals->read += window.reads[i].bytes;
		if (list && !append(list, describe_window(d, &window))) {
			st = no_memory(err);
			break;
		}
	}
	gsn_window_release(&window);
	gsn_load_plan_release(&plan);
	return st;
}

static gpusnap_status describe_copies(struct description *d, gpusnap_error *err)
{
	struct gsn_plan_limits never = d->limits;
	struct totals before = {0}, after = {0};
	gpusnap_load_report report = {0};
	gpusnap_json *list = NULL;
	gpusnap_status st;

	never.compact = GPUSNAP_COMPACT_NEVER;
	st = walk_windows(d, &never, NULL, &before, err);
	if (!st && d->details) {
		list = gpusnap_json_pack("[]");
		if (!set(d->json, "copy_list", list))
			st = no_memory(err);
	}
	if (!st)
		st = walk_windows(d, &d->limits, list, &after, err);
	if (st)
		return st;
	gsn_load_input_report(d->input, &report);
	if (set(d->json, "copies",
		    gpusnap_json_pack("{s:I,s:I}", "before", (long long)before.copies, "after",
			    (long long)after.copies)) &&
		set(d->json, "runs", gpusnap_json_pack("I", (long long)after.runs)) &&
		set(d->json, "bytes",
			gpusnap_json_pack("{s:I,s:I,s:I,s:I}", "needed",
				(long long)report.bytes_needed, "read", (long long)after.read,
				"copied", (long long)report.bytes, "padding",
				(long long)report.padding)))
		return GPUSNAP_OK;
	return no_memory(err);
}

/* ---- the whole ---- */

static gpusnap_status describe(struct description *d, gpusnap_error *err)
{
	static const char *const words[] = {"auto", "always", "never"};
	const struct gsn_load_input *input = d->input;
	const struct gsn_rank *rank = &input->rank;
	gpusnap_load_report report = {0};
	gpusnap_status st;

	gsn_load_input_report(input, &report);
	d->json = gpusnap_json_pack("{s:s,s:o,s:s,s:s?,s:[I,I],s:[I,I],s:s,s:I,s:I,s:I}",
		"directory", input->source.directory, "files", describe_files(&input->checkpoint),
		"model_type", input->config.model_type, "note", report.note, "tp",
		(long long)rank->tp_rank, (long long)rank->tp_size, "ep", (long long)rank->ep_rank,
		(long long)rank->ep_size, "compact", words[d->limits.compact], "tensors",
		(long long)report.tensors, "unexpected", (long long)input->state.unexpected_count,
		"predictions", (long long)report.predictions);
	d->views = d->details ? gsn_alloc(input->state.buffer_count, sizeof(gpusnap_json *)) : NULL;
	if (!d->json || (d->details && !d->views))
		return no_memory(err);
	st = describe_buffers(d, err);
	if (!st)
		st = describe_views(d, err);
	return st ? st : describe_copies(d, err);
}

gpusnap_status gpusnap_load_describe(const char *path, const gpusnap_load_options *options,
	bool details, gpusnap_json **ret_json, gpusnap_error *err)
{
	struct gsn_load_input input = {0};
	struct description d = {.input = &input, .details = details};
	gpusnap_io_options io;
	gpusnap_status st = gsn_load_input_resolve(&input, options, err);

	if (!st)
		st = gsn_io_options_resolve(&input.options.io, &io, err);
	if (!st)
		st = gsn_load_input_open(&input, path, err);
	if (!st) {
		d.limits = gsn_load_limits(input.state.bytes, &io, input.options.compact);
		st = describe(&d, err);
	}
	gsn_free((void *)d.views);
	gsn_load_input_close(&input);
	if (st)
		gpusnap_json_free(d.json);
	else
		*ret_json = d.json;
	return st;
}
