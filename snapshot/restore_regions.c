/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline of a restore: blocks are read from the file, copied to the device on one stream, and
 * what has arrived whole is digested there on another, so that reading, copying and proving
 * overlap; memory that the host addresses is filled without it (host_refill.h). At the end every
 * leaf's live digest is held against the file's table.
 */
#include "snapshot/restore.h"

#include <inttypes.h>
#include <stdlib.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "kernels/device_calls.h"
#include "snapshot/host_refill.h"
#include "snapshot/io_options.h"
#include "snapshot/ranges.h"
#include "snapshot/reader.h"
#include "snapshot/residency.h"

/* Blocks whose copies may be under way while the next is awaited. */
enum { HELD = 3 };

struct held_block {
	uint32_t slot;
	struct gsn_event *copied;
};

struct refill {
	gpusnap_registry *registry;
	const struct gsn_device_ops *ops;
	const gpusnap_snapshot *snapshot;
	struct gsn_segment *segments; /* by place, with live addresses */
	size_t segment_count;
	gpusnap_digest *live; /* as long as the file's leaf table; the segments' leaves are used */
	struct gsn_reader reader;
	struct gsn_stream *copying;
	struct gsn_stream *digesting;
	struct gsn_cursor to_copy, to_digest;
	struct held_block held[HELD]; /* a ring, oldest at held_first */
	uint32_t held_first, held_count;
	struct gsn_leaf_range *batch; /* leaves that one block completes */
	size_t batch_capacity;
};

/* ---- what to restore ---- */

static bool is_among(
	const struct gsn_region *region, struct gsn_region *const *regions, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (regions[i] == region)
			return true;
	return false;
}

static gpusnap_status add_range(struct refill *r, const struct gsn_range *range, gpusnap_error *err)
{
	const char *name = gsn_range_name(range);
	const gpusnap_snapshot_entry *entry = gpusnap_snapshot_entry_find(r->snapshot, name);
	const size_t *first;

	if (!entry || entry->bytes != range->bytes)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"'%s': %" PRIu64 " bytes of region %u '%s' here, %" PRIu64
			" in snapshot '%s'",
			name, range->bytes, range->region->id, range->region->tag,
			entry ? entry->bytes : 0, gpusnap_snapshot_path(r->snapshot));
	first = &r->snapshot->first_part[entry - r->snapshot->entries];
	for (size_t i = first[0]; i < first[1]; i++) {
		struct gsn_segment *segment = &r->segments[r->segment_count++];

		*segment = gsn_snapshot_segment(r->snapshot, i);
		segment->region = range->region->id;
		segment->address = gsn_range_address(range) + segment->start;
	}
	return GPUSNAP_OK;
}

static gpusnap_status collect_segments(struct refill *r, struct gsn_region *const *regions,
	size_t region_count, gpusnap_error *err)
{
	struct gsn_range *ranges;
	size_t count;
	gpusnap_status status = gsn_registry_ranges(r->registry, &ranges, &count, err);

	if (status)
		return status;
	/* No entry comes twice, since names are unique. */
	r->segments = gsn_alloc(r->snapshot->part_count, sizeof *r->segments);
	if (!r->segments)
		status = gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu segments",
			r->snapshot->part_count);
	for (size_t i = 0; !status && i < count; i++)
		if (ranges[i].policy == GPUSNAP_POLICY_KEEP && ranges[i].bytes > 0 &&
			is_among(ranges[i].region, regions, region_count))
			status = add_range(r, &ranges[i], err);
	gsn_free(ranges);
	if (!status)
		qsort(r->segments, r->segment_count, sizeof *r->segments, gsn_compare_places);
	return status;
}

/* ---- opening and closing ---- */

static gpusnap_status make_table(struct refill *r, gpusnap_error *err)
{
	uint64_t leaf_count = gpusnap_snapshot_seal(r->snapshot)->leaf_count;

	r->live = gsn_alloc((size_t)leaf_count, sizeof *r->live);
	if (!r->live)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %" PRIu64 " leaf digests", leaf_count);
	return GPUSNAP_OK;
}

static gpusnap_status refill_open(
	struct refill *r, const gpusnap_io_options *io, gpusnap_error *err)
{
	gpusnap_device *device = r->registry->device;
	gpusnap_status status = gsn_reader_open(&r->reader, r->snapshot, &r->registry->staging,
		r->segments, r->segment_count, HELD, io, err);

	if (!status)
		status = r->ops->stream_create(device->context, &r->copying, err);
	if (!status)
		status = r->ops->stream_create(device->context, &r->digesting, err);
	for (int i = 0; i < HELD && !status; i++)
		status = r->ops->event_create(device->context, &r->held[i].copied, err);
	r->to_copy = r->to_digest = (struct gsn_cursor){r->segments, r->segment_count, 0, 0};
	return status;
}

/* Streams first: their work reads the staging ring and writes the digests. */
static void refill_close(struct refill *r)
{
	r->ops->stream_destroy(r->digesting);
	r->ops->stream_destroy(r->copying);
	for (int i = 0; i < HELD; i++)
		r->ops->event_destroy(r->held[i].copied);
	gsn_reader_close(&r->reader);
	gsn_free(r->segments);
	gsn_free(r->live);
	gsn_free(r->batch);
}

/* ---- one block ---- */

/*
 * Memory is poisoned right before it is written and not in a pass of its own, which on a host would
 * cost as much as the copy. A copy that does not happen leaves poison either way.
 */
static gpusnap_status copy_block(
	struct refill *r, const struct gsn_block *block, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;
	struct gsn_run run;

	while (!status && gsn_cursor_next_run(&r->to_copy, block->end, &run)) {
		status = r->ops->fill(r->copying, run.address, GSN_POISON_BYTE, run.bytes, err);
		if (!status)
			status = r->ops->copy(r->copying, GSN_HOST_TO_DEVICE, run.address,
				gsn_host_address(block->memory + (run.file_offset - block->begin)),
				run.bytes, err);
	}
	return status;
}

static gpusnap_status add_to_batch(
	struct refill *r, size_t index, const struct gsn_leaf_range *range, gpusnap_error *err)
{
	if (index == r->batch_capacity) {
		size_t capacity = index ? 2 * index : 64;
		struct gsn_leaf_range *grown =
			gsn_grow(r->batch, index, capacity, sizeof *r->batch);

		if (!grown)
			return gsn_fail(
				err, GPUSNAP_E_NOMEM, "no memory to digest %zu ranges", capacity);
		r->batch = grown;
		r->batch_capacity = capacity;
	}
	r->batch[index] = *range;
	return GPUSNAP_OK;
}

/* The leaves that this piece is the last part of; one that it leaves open waits for the next. */
static bool completed_leaves(
	const struct refill *r, const struct gsn_piece *piece, struct gsn_leaf_range *ret_range)
{
	const struct gsn_segment *segment = piece->segment;
	uint64_t begin = gsn_align_down(piece->offset, GPUSNAP_LEAF_BYTES);
	uint64_t end = piece->offset + piece->bytes;

	if (end < segment->bytes)
		end = gsn_align_down(end, GPUSNAP_LEAF_BYTES);
	*ret_range = (struct gsn_leaf_range){
		.address = segment->address + begin,
		.bytes = end - begin,
		.out = &r->live[segment->first_leaf + begin / GPUSNAP_LEAF_BYTES],
	};
	return end > begin;
}

static gpusnap_status digest_block(struct refill *r, uint64_t block_end, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;
	struct gsn_leaf_range range;
	struct gsn_piece piece;
	size_t count = 0;

	while (!status && gsn_cursor_next(&r->to_digest, block_end, &piece))
		if (completed_leaves(r, &piece, &range))
			status = add_to_batch(r, count++, &range, err);
	if (!status && count > 0)
		status = r->ops->digest(r->digesting, r->batch, count, err);
	return status;
}

static gpusnap_status release_oldest(struct refill *r, gpusnap_error *err)
{
	const struct held_block *oldest = &r->held[r->held_first];
	gpusnap_status status = r->ops->event_sync(oldest->copied, err);

	gsn_reader_release(&r->reader, oldest->slot);
	r->held_first = (r->held_first + 1) % HELD;
	r->held_count--;
	return status;
}

static gpusnap_status take_block(
	struct refill *r, const struct gsn_block *block, gpusnap_error *err)
{
	struct held_block *held = &r->held[(r->held_first + r->held_count) % HELD];
	gpusnap_status status = copy_block(r, block, err);

	held->slot = block->slot;
	r->held_count++;
	if (!status)
		status = r->ops->event_record(held->copied, r->copying, err);
	if (!status)
		status = r->ops->stream_wait(r->digesting, held->copied, err);
	if (!status)
		status = digest_block(r, block->end, err);
	if (!status && r->held_count == HELD)
		status = release_oldest(r, err);
	return status;
}

static gpusnap_status take_blocks(struct refill *r, gpusnap_error *err)
{
	struct gsn_block block;
	gpusnap_status status;
	bool more = true;

	for (;;) {
		status = gsn_reader_next(&r->reader, &block, &more, err);
		if (status || !more)
			break;
		status = take_block(r, &block, err);
		if (status)
			return status;
	}
	if (!status)
		status = r->ops->stream_sync(r->copying, err);
	if (!status)
		status = r->ops->stream_sync(r->digesting, err);
	return status;
}

/* ---- proof ---- */

/* A leaf that is wrong on the device: its place in memory and in the file. */
struct leaf {
	const struct gsn_segment *segment;
	uint64_t index;	 /* in the buffer */
	uint64_t offset; /* in the segment */
	uint64_t bytes;
};

static gpusnap_status fail_leaf(
	const struct refill *r, const struct leaf *leaf, bool file_is_right, gpusnap_error *err)
{
	struct gsn_location at =
		gsn_snapshot_locate(r->snapshot, leaf->segment->file_offset + leaf->offset);

	if (file_is_right)
		return gsn_fail(err, GPUSNAP_E_DEVICE,
			"buffer '%s' leaf %" PRIu64 ": the bytes in '%s' match their digest, but "
			"not after two copies to %s address 0x%" PRIx64 ": check the memory",
			leaf->segment->name, leaf->index, at.path, r->registry->device->name,
			leaf->segment->address + leaf->offset);
	return gsn_fail_at(err, GPUSNAP_E_CORRUPT, at.offset,
		"'%s': buffer '%s' leaf %" PRIu64 " (%" PRIu64 " bytes at file offset %" PRIu64
		") does not match its digest, read twice; the file is damaged, use another",
		at.path, leaf->segment->name, leaf->index, leaf->bytes, at.offset);
}

static gpusnap_status repeat_through(struct refill *r, uint8_t *memory, const struct leaf *leaf,
	const gpusnap_digest *expected, gpusnap_error *err)
{
	const gpusnap_device *device = r->registry->device;
	struct gsn_leaf_range range = {
		.address = leaf->segment->address + leaf->offset, .bytes = leaf->bytes};
	gpusnap_digest staged, live;
	gpusnap_status status = gsn_snapshot_reread(
		r->snapshot, leaf->segment->file_offset + leaf->offset, memory, leaf->bytes, err);

	range.out = &live;
	if (status)
		return status;
	staged = gpusnap_digest_of(memory, (size_t)leaf->bytes);
	status = gsn_device_copy_sync(device, GSN_HOST_TO_DEVICE, range.address,
		gsn_host_address(memory), leaf->bytes, err);
	if (!status)
		status = gsn_device_digest_sync(device, &range, 1, err);
	if (!status && !gpusnap_digest_equal(live, *expected))
		status = fail_leaf(r, leaf, gpusnap_digest_equal(staged, *expected), err);
	return status;
}

/* Once more from the file to the device: a fault on the way may have been a passing one. */
static gpusnap_status repeat_leaf(struct refill *r, const struct leaf *leaf,
	const gpusnap_digest *expected, gpusnap_error *err)
{
	uint8_t *memory = gsn_alloc(1, GPUSNAP_LEAF_BYTES);
	gpusnap_status status;

	if (!memory)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to read a leaf again");
	status = repeat_through(r, memory, leaf, expected, err);
	gsn_free(memory);
	return status;
}

static gpusnap_status prove_segment(
	struct refill *r, const struct gsn_segment *segment, gpusnap_error *err)
{
	const gpusnap_digest *expected = gpusnap_snapshot_leaves(r->snapshot) + segment->first_leaf;
	const gpusnap_digest *live = r->live + segment->first_leaf;
	uint64_t count = gpusnap_leaf_count(segment->bytes);
	gpusnap_status status = GPUSNAP_OK;

	for (uint64_t i = 0; !status && i < count; i++) {
		struct leaf leaf = {
			.segment = segment,
			.index = gsn_segment_leaf(segment) + i,
			.offset = i * GPUSNAP_LEAF_BYTES,
			.bytes = gsn_min(
				GPUSNAP_LEAF_BYTES, segment->bytes - i * GPUSNAP_LEAF_BYTES),
		};

		if (!gpusnap_digest_equal(live[i], expected[i]))
			status = repeat_leaf(r, &leaf, &expected[i], err);
	}
	return status;
}

static gpusnap_status prove(struct refill *r, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; !status && i < r->segment_count; i++)
		status = prove_segment(r, &r->segments[i], err);
	return status;
}

static uint64_t sum_bytes(const struct refill *r)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < r->segment_count; i++)
		bytes += r->segments[i].bytes;
	return bytes;
}

static gpusnap_status fill(struct refill *r, const gpusnap_io_options *io,
	gpusnap_io_report *ret_report, gpusnap_error *err)
{
	const struct gsn_host_refill job = {
		.snapshot = r->snapshot,
		.segments = r->segments,
		.segment_count = r->segment_count,
		.live = r->live,
		.staging = &r->registry->staging,
		.io = io,
	};
	gpusnap_status status;

	if (r->ops->caps & GSN_CAP_HOST_ADDRESSABLE)
		return gsn_host_refill(&job, ret_report, err);
	status = refill_open(r, io, err);
	if (!status)
		status = take_blocks(r, err);
	*ret_report = r->reader.report;
	return status;
}

gpusnap_status gsn_restore_regions(gpusnap_registry *registry, gpusnap_snapshot *snapshot,
	struct gsn_region *const *regions, size_t count, const gpusnap_io_options *io,
	gpusnap_io_report *ret_report, gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	struct refill r = {
		.registry = registry,
		.ops = registry->device->ops,
		.snapshot = snapshot,
		.reader = GSN_READER_INIT,
	};
	gpusnap_io_options resolved;
	gpusnap_io_report report;
	gpusnap_status status = gsn_io_options_resolve(io, &resolved, err);

	if (!status)
		status = collect_segments(&r, regions, count, err);
	if (!status)
		status = make_table(&r, err);
	if (!status)
		status = fill(&r, &resolved, &report, err);
	if (!status)
		status = prove(&r, err);
	if (!status && ret_report) {
		*ret_report = report;
		ret_report->bytes = sum_bytes(&r);
		ret_report->seconds = gsn_clock_seconds() - start;
	}
	refill_close(&r);
	return status;
}
