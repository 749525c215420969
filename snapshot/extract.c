/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extracting one entry of a snapshot: its bytes pass through a window of whole leaves, and none
 * leaves the window before its leaf has been proved. What a file or a pipe gets ahead of them is a
 * safetensors header, or nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/commit.h"
#include "snapshot/io_options.h"
#include "snapshot/reader.h"

/* Leaves of the window: one write of 1 MiB at a time. */
enum { WINDOW_LEAVES = 16, WINDOW_BYTES = WINDOW_LEAVES * (int)GPUSNAP_LEAF_BYTES };

/* Bytes of data; offsets in tensors' headers are of these, so 8 keeps every element aligned. */
enum { HEADER_ALIGNMENT = 8 };

struct extract {
	gpusnap_snapshot *snapshot;
	const gpusnap_snapshot_entry *entry;
	gpusnap_extract_options options;
	gpusnap_io_options io;
	const char *target; /* for messages */
	int fd;
	uint8_t *header;
	uint64_t header_bytes;
	uint8_t *window;
	uint64_t filled;	      /* bytes in the window */
	uint64_t written;	      /* of the entry */
	struct gsn_segment *segments; /* by leaf, since the output is */
	size_t segment_count;
	struct gsn_reader reader;
};

/* ---- which entry ---- */

/* A name that is no entry may still be known to the plan: say then why it has no bytes. */
static gpusnap_status fail_absent(
	const gpusnap_snapshot *snapshot, const char *name, gpusnap_error *err)
{
	const gpusnap_plan *plan = gpusnap_snapshot_plan(snapshot);
	const char *path = gpusnap_snapshot_path(snapshot);

	for (uint32_t i = 0; i < plan->view_count; i++) {
		const gpusnap_plan_view *view = &plan->views[i];

		if (strcmp(view->name, name) == 0)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"'%s': '%s' is a view of buffer '%s'; extract that", path, name,
				view->buffer);
	}
	for (uint32_t i = 0; i < plan->buffer_count; i++)
		if (strcmp(plan->buffers[i].name, name) == 0)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"'%s': by its region's policy the bytes of buffer '%s' were not "
				"saved",
				path, name);
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"'%s': no buffer or raw range '%s'; gpusnap ls lists them", path, name);
}

/* ---- where to ---- */

static gpusnap_status put(
	const struct extract *x, const uint8_t *bytes, uint64_t length, gpusnap_error *err)
{
	uint64_t done = 0;

	while (done < length) {
		ssize_t moved = write(x->fd, bytes + done, (size_t)(length - done));

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved < 0)
			return gsn_fail_os(err, gsn_status_from_errno(errno), errno,
				"'%s': write: %s", x->target, strerror(errno));
		if (moved == 0)
			return gsn_fail_os(err, GPUSNAP_E_IO, EIO,
				"'%s': write: took none of %" PRIu64 " bytes", x->target,
				length - done);
		done += (uint64_t)moved;
	}
	return GPUSNAP_OK;
}

static gpusnap_status build_header(struct extract *x, gpusnap_error *err)
{
	const gpusnap_snapshot_entry *entry = x->entry;
	const gpusnap_tensor tensor = {
		.name = entry->name,
		.name_length = strlen(entry->name),
		.dtype = entry->dtype,
		.rank = entry->rank,
		.shape = entry->shape,
		.end = entry->bytes,
	};

	if (x->options.raw)
		return GPUSNAP_OK;
	return gpusnap_header_build(
		&tensor, 1, NULL, 0, HEADER_ALIGNMENT, &x->header, &x->header_bytes, err);
}

/* ---- the window ---- */

static gpusnap_status fail_leaf(const struct extract *x, uint64_t leaf, gpusnap_error *err)
{
	struct gsn_location at = gsn_snapshot_locate(
		x->snapshot, gsn_snapshot_leaf_place(x->snapshot, x->entry, leaf));

	return gsn_fail_at(err, GPUSNAP_E_CORRUPT, at.offset,
		"'%s': buffer '%s', leaf %" PRIu64 " (file offset %" PRIu64
		") does not match its digest, read twice",
		at.path, x->entry->name, leaf, at.offset);
}

/* A leaf that differs is read once more, since the fault may have been the transfer's. */
static gpusnap_status prove_leaf(
	const struct extract *x, uint64_t leaf, uint8_t *bytes, uint64_t length, gpusnap_error *err)
{
	gpusnap_digest expected = gpusnap_snapshot_leaves(x->snapshot)[x->entry->first_leaf + leaf];
	gpusnap_status status;

	if (gpusnap_digest_equal(gpusnap_digest_of(bytes, (size_t)length), expected))
		return GPUSNAP_OK;
	status = gsn_snapshot_reread(x->snapshot,
		gsn_snapshot_leaf_place(x->snapshot, x->entry, leaf), bytes, length, err);
	if (status)
		return status;
	if (gpusnap_digest_equal(gpusnap_digest_of(bytes, (size_t)length), expected))
		return GPUSNAP_OK;
	return fail_leaf(x, leaf, err);
}

/* Prove what the window holds, then write it. */
static gpusnap_status flush_window(struct extract *x, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint64_t at = 0; !status && at < x->filled; at += GPUSNAP_LEAF_BYTES)
		status = prove_leaf(x, (x->written + at) / GPUSNAP_LEAF_BYTES, x->window + at,
			gsn_min(GPUSNAP_LEAF_BYTES, x->filled - at), err);
	if (!status)
		status = put(x, x->window, x->filled, err);
	x->written += x->filled;
	x->filled = 0;
	return status;
}

static gpusnap_status fill_window(
	struct extract *x, const uint8_t *bytes, uint64_t length, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	while (!status && length) {
		uint64_t part = gsn_min(length, WINDOW_BYTES - x->filled);

		memcpy(x->window + x->filled, bytes, (size_t)part);
		x->filled += part;
		bytes += part;
		length -= part;
		if (x->filled == WINDOW_BYTES)
			status = flush_window(x, err);
	}
	return status;
}

/* As in the reader's plan: what comes next may stand before this block, in another file even. */
static gpusnap_status take_block(struct extract *x, struct gsn_cursor *taking,
	const struct gsn_block *block, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;
	uint64_t at = block->begin, next;
	struct gsn_piece piece;

	while (!status && gsn_cursor_peek(taking, &next) && next >= at &&
		gsn_cursor_next(taking, block->end, &piece)) {
		status = fill_window(x, block->memory + (next - block->begin), piece.bytes, err);
		at = next + piece.bytes;
	}
	return status;
}

static gpusnap_status copy_entry(struct extract *x, gpusnap_error *err)
{
	struct gsn_cursor taking = {x->segments, x->segment_count, 0, 0};
	gpusnap_status status;
	struct gsn_block block;
	bool more;

	for (;;) {
		status = gsn_reader_next(&x->reader, &block, &more, err);
		if (status)
			return status;
		if (!more)
			return flush_window(x, err);
		status = take_block(x, &taking, &block, err);
		if (status)
			return status;
		gsn_reader_release(&x->reader, block.slot);
	}
}

/* ---- the job ---- */

static gpusnap_status list_segments(struct extract *x, gpusnap_error *err)
{
	const size_t *first = &x->snapshot->first_part[x->entry - x->snapshot->entries];

	x->segment_count = first[1] - first[0];
	x->segments = gsn_alloc(x->segment_count, sizeof *x->segments);
	if (!x->segments)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu segments", x->segment_count);
	for (size_t i = 0; i < x->segment_count; i++)
		x->segments[i] = gsn_snapshot_segment(x->snapshot, first[0] + i);
	return GPUSNAP_OK;
}

static gpusnap_status extract_open(struct extract *x, gpusnap_snapshot *snapshot, const char *name,
	const gpusnap_extract_options *options, gpusnap_error *err)
{
	gpusnap_status status =
		gsn_options_copy(&x->options, sizeof x->options, options, "extract options", err);

	if (!status)
		status = gsn_io_options_resolve(&x->options.io, &x->io, err);
	if (status)
		return status;
	x->snapshot = snapshot;
	x->entry = gpusnap_snapshot_entry_find(snapshot, name);
	if (!x->entry)
		return fail_absent(snapshot, name, err);
	x->window = gsn_alloc(WINDOW_BYTES, 1);
	if (!x->window)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %d bytes of leaves",
			(int)WINDOW_BYTES);
	status = list_segments(x, err);
	if (!status)
		status = build_header(x, err);
	if (status)
		return status;
	return gsn_reader_open(
		&x->reader, snapshot, NULL, x->segments, x->segment_count, 0, &x->io, err);
}

static void extract_close(struct extract *x)
{
	gsn_reader_close(&x->reader);
	gpusnap_header_bytes_free(x->header);
	gsn_free(x->window);
	gsn_free(x->segments);
}

static gpusnap_status extract_to(struct extract *x, int fd, const char *target, gpusnap_error *err)
{
	gpusnap_status status;

	x->fd = fd;
	x->target = target;
	status = put(x, x->header, x->header_bytes, err);
	return status ? status : copy_entry(x, err);
}

static void fill_report(const struct extract *x, double start, gpusnap_extract_report *ret_report)
{
	*ret_report = (gpusnap_extract_report){
		.io = x->reader.report,
		.file_bytes = x->header_bytes + x->entry->bytes,
		.digest = x->entry->digest,
	};
	ret_report->io.bytes = x->entry->bytes;
	ret_report->io.seconds = gsn_clock_seconds() - start;
}

gpusnap_status gpusnap_snapshot_extract_fd(gpusnap_snapshot *snapshot, const char *name, int fd,
	const gpusnap_extract_options *options, gpusnap_extract_report *ret_report,
	gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	struct extract x = {.fd = -1, .reader = GSN_READER_INIT};
	gpusnap_status status = extract_open(&x, snapshot, name, options, err);

	if (!status)
		status = extract_to(&x, fd, "output", err);
	if (!status && ret_report)
		fill_report(&x, start, ret_report);
	extract_close(&x);
	return status;
}

gpusnap_status gpusnap_snapshot_extract(gpusnap_snapshot *snapshot, const char *name,
	const char *path, const gpusnap_extract_options *options,
	gpusnap_extract_report *ret_report, gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	struct extract x = {.fd = -1, .reader = GSN_READER_INIT};
	struct gsn_commit commit = GSN_COMMIT_INIT;
	gpusnap_status status = extract_open(&x, snapshot, name, options, err);

	if (!status)
		status = gsn_commit_begin(&commit, &gsn_fs_posix, path, x.options.replace,
			x.header_bytes + x.entry->bytes, err);
	if (!status)
		status = extract_to(&x, commit.fd, path, err);
	if (!status)
		status = gsn_commit_finish(&commit, x.header_bytes + x.entry->bytes, err);
	if (!status && ret_report)
		fill_report(&x, start, ret_report);
	gsn_commit_end(&commit);
	extract_close(&x);
	return status;
}
