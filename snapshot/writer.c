/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline of a save. The file is one run of blocks; a block is started (a staging slot is
 * taken and its device bytes are being copied), then finished (its copy awaited, digested, host
 * parts laid over it, its write submitted), then done (its slot is free again).
 */
#include "snapshot/writer.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/device_calls.h"
#include "snapshot/io_options.h"
#include "snapshot/leaf_hash.h"
#include "snapshot/staging.h"

/* Blocks whose copies run ahead of the one that is being finished. */
enum { AHEAD = 3 };

struct started_block {
	uint32_t slot;
	struct gsn_event *copied;
};

struct writer {
	const struct gsn_write_job *job;
	const struct gsn_device_ops *ops;
	struct gsn_layout *layout;
	gpusnap_io_options io;
	gpusnap_io_report report;
	struct gsn_staging staging;
	struct gsn_ring *ring;
	struct gsn_stream *stream;
	struct gsn_leaf_hash hash;
	struct gsn_cursor copying, hashing;
	struct started_block blocks[AHEAD]; /* block k stands at k % AHEAD */
	uint64_t block_count;
	uint64_t started, finished;
	bool sealed;
	gpusnap_seal seal;
	uint8_t seal_bytes[GPUSNAP_SEAL_BYTES];
};

static uint64_t block_begin(const struct writer *w, uint64_t block)
{
	return block * w->io.block_bytes;
}

static uint64_t block_end(const struct writer *w, uint64_t block)
{
	return gsn_min(w->layout->file_bytes, (block + 1) * w->io.block_bytes);
}

/* ---- opening and closing ---- */

static gpusnap_status open_ring(struct writer *w, gpusnap_error *err)
{
	const struct gsn_ring_engine *engine = w->job->fs->engine;
	uint64_t bytes = gsn_staging_bytes(&w->staging);

	if (engine)
		return gsn_ring_open_engine(engine, &w->io, w->job->fd, w->staging.memory, bytes,
			&w->ring, &w->report, err);
	return gsn_ring_open(
		&w->io, w->job->fd, w->staging.memory, bytes, &w->ring, &w->report, err);
}

static gpusnap_status writer_open(struct writer *w, gpusnap_error *err)
{
	gpusnap_device *device = w->job->device;
	struct gsn_cursor start = {w->layout->segments, w->layout->segment_count, 0, 0};
	gpusnap_status status = gsn_staging_open(
		&w->staging, w->job->staging, &w->io, AHEAD, w->layout->file_bytes, err);

	if (!status)
		status = gsn_leaf_hash_open(&w->hash, err);
	if (!status)
		status = w->ops->stream_create(device->context, &w->stream, err);
	for (int i = 0; i < AHEAD && !status; i++)
		status = w->ops->event_create(device->context, &w->blocks[i].copied, err);
	if (!status)
		status = open_ring(w, err);
	w->copying = w->hashing = start;
	w->block_count = gsn_ceil_div(w->layout->file_bytes, w->io.block_bytes);
	return status;
}

/* The ring and the stream wait for what they have in hand before its memory goes. */
static void writer_close(struct writer *w)
{
	bool drained = gsn_ring_close(w->ring);

	w->ops->stream_destroy(w->stream);
	for (int i = 0; i < AHEAD; i++)
		w->ops->event_destroy(w->blocks[i].copied);
	gsn_leaf_hash_close(&w->hash);
	if (drained)
		gsn_staging_close(&w->staging);
	else
		gsn_staging_abandon(&w->staging);
}

/* ---- started ---- */

static gpusnap_status start_block(struct writer *w, uint32_t slot, gpusnap_error *err)
{
	struct started_block *block = &w->blocks[w->started % AHEAD];
	uint64_t begin = block_begin(w, w->started);
	uint64_t end = block_end(w, w->started);
	uint64_t memory = gsn_host_address(gsn_staging_slot(&w->staging, slot));
	gpusnap_status status = GPUSNAP_OK;
	struct gsn_run run;

	block->slot = slot;
	while (!status && gsn_cursor_next_run(&w->copying, end, &run))
		status = w->ops->copy(w->stream, GSN_DEVICE_TO_HOST,
			memory + (run.file_offset - begin), run.address, run.bytes, err);
	if (!status)
		status = w->ops->event_record(block->copied, w->stream, err);
	w->started++;
	return status;
}

/* ---- done ---- */

static gpusnap_status reap(struct writer *w, gpusnap_error *err)
{
	struct gsn_ring_completion completion;
	gpusnap_status status = gsn_ring_wait(w->ring, &completion, err);

	if (status)
		return status;
	gsn_staging_give(&w->staging, (uint32_t)(uintptr_t)completion.tag);
	if (completion.status)
		return gsn_fail_os(err, completion.status, completion.os_errno, "write: %s",
			strerror(completion.os_errno));
	return GPUSNAP_OK;
}

/* Start as many blocks as may run ahead; wait for a slot only when nothing else can be done. */
static gpusnap_status start_blocks(struct writer *w, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	while (!status && w->started < w->block_count && w->started < w->finished + AHEAD) {
		uint32_t slot;

		if (gsn_staging_take(&w->staging, &slot))
			status = start_block(w, slot, err);
		else if (w->started == w->finished)
			status = reap(w, err);
		else
			break;
	}
	return status;
}

/* ---- finished ---- */

static void hash_block(struct writer *w, const uint8_t *memory, uint64_t begin, uint64_t end)
{
	struct gsn_piece piece;

	while (gsn_cursor_next(&w->hashing, end, &piece))
		gsn_leaf_hash_feed(&w->hash, &piece,
			memory + (gsn_piece_file_offset(&piece) - begin), w->layout->leaves);
}

static void make_seal(struct writer *w)
{
	const struct gsn_layout *layout = w->layout;

	w->seal = (gpusnap_seal){
		.version = GPUSNAP_FORMAT_VERSION,
		.required_features =
			gpusnap_digest_is_zero(layout->parent_root) ? 0 : GPUSNAP_FEATURE_DELTA,
		.parent_root = layout->parent_root,
		.header = gpusnap_digest_of(layout->header, (size_t)layout->header_bytes),
		.leaves = gpusnap_digest_of(
			layout->leaves, (size_t)layout->leaf_count * GPUSNAP_DIGEST_BYTES),
		.file_bytes = layout->file_bytes,
		.header_bytes = layout->header_bytes,
		.leaf_count = layout->leaf_count,
	};
	memcpy(w->seal.uuid, layout->uuid, sizeof w->seal.uuid);
	gpusnap_seal_encode(&w->seal, w->seal_bytes);
	w->sealed = true;
}

/* Lay the part of `bytes` that falls into the block over it; `offset` is its place in the file. */
static void overlay(uint8_t *memory, uint64_t begin, uint64_t end, const void *bytes,
	uint64_t offset, uint64_t length)
{
	uint64_t from = gsn_max(begin, offset);
	uint64_t to = gsn_min(end, offset + length);

	if (from < to)
		memcpy(memory + (from - begin), (const uint8_t *)bytes + (from - offset),
			(size_t)(to - from));
}

static void lay_host_parts(struct writer *w, uint8_t *memory, uint64_t begin, uint64_t end)
{
	const struct gsn_layout *layout = w->layout;

	overlay(memory, begin, end, layout->header, 0, layout->header_bytes);
	overlay(memory, begin, end, layout->leaves, layout->leaves_offset,
		layout->leaf_count * GPUSNAP_DIGEST_BYTES);
	overlay(memory, begin, end, w->seal_bytes, layout->seal_offset, GPUSNAP_SEAL_BYTES);
}

static gpusnap_status write_block(
	struct writer *w, uint32_t slot, uint64_t begin, uint64_t end, gpusnap_error *err)
{
	uint8_t *memory = gsn_staging_slot(&w->staging, slot);
	uint64_t length = gsn_align_up(end - begin, GSN_DIRECT_ALIGN);
	struct gsn_ring_request request = {
		.op = GSN_RING_WRITE,
		.fd = w->job->fd,
		.memory = memory,
		.length = length,
		.offset = begin,
		.tag = (void *)(uintptr_t)slot,
	};
	gpusnap_status status = GPUSNAP_OK;

	memset(memory + (end - begin), 0, (size_t)(length - (end - begin)));
	if (gsn_ring_in_flight(w->ring) >= w->io.depth)
		status = reap(w, err);
	return status ? status : gsn_ring_submit(w->ring, &request, err);
}

static gpusnap_status finish_block(struct writer *w, gpusnap_error *err)
{
	const struct started_block *block = &w->blocks[w->finished % AHEAD];
	uint64_t begin = block_begin(w, w->finished);
	uint64_t end = block_end(w, w->finished);
	uint8_t *memory = gsn_staging_slot(&w->staging, block->slot);
	uint64_t rest;
	gpusnap_status status = w->ops->event_sync(block->copied, err);

	if (status)
		return status;
	hash_block(w, memory, begin, end);
	if (!w->sealed && !gsn_cursor_peek(&w->hashing, &rest))
		make_seal(w);
	lay_host_parts(w, memory, begin, end);
	status = write_block(w, block->slot, begin, end, err);
	w->finished++;
	if (!status)
		status = gsn_io_progress(&w->io, end, w->layout->file_bytes, err);
	return status;
}

static gpusnap_status write_blocks(struct writer *w, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	while (!status && w->finished < w->block_count) {
		status = start_blocks(w, err);
		if (!status)
			status = finish_block(w, err);
	}
	while (!status && gsn_ring_in_flight(w->ring))
		status = reap(w, err);
	return status;
}

gpusnap_status gsn_write_file(const struct gsn_write_job *job, gpusnap_seal *ret_seal,
	gpusnap_io_report *ret_report, gpusnap_error *err)
{
	struct writer w = {
		.job = job,
		.ops = job->device->ops,
		.layout = job->layout,
		.io = *job->io,
		.staging = GSN_STAGING_INIT,
		.hash = GSN_LEAF_HASH_INIT,
	};
	gpusnap_status status = writer_open(&w, err);

	if (!status)
		status = write_blocks(&w, err);
	writer_close(&w);
	if (status)
		return status;
	*ret_seal = w.seal;
	*ret_report = w.report;
	return GPUSNAP_OK;
}
