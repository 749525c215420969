/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading ahead. Blocks are asked for in the order of the segments and given out in that order; a
 * slot is free, then asked for, then given out, then free again.
 */
#include "snapshot/reader.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "snapshot/io_options.h"

struct gsn_read_slot {
	uint64_t begin, end; /* places */
	const struct gsn_reader_source *source;
	bool arrived;
	gpusnap_status status;
	int os_errno;
	uint64_t done;
};

static uint64_t sum_bytes(const struct gsn_segment *segments, size_t count)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += segments[i].bytes;
	return bytes;
}

static gpusnap_status open_ring(
	struct gsn_reader *reader, const struct gsn_reader_file *file, gpusnap_error *err)
{
	uint64_t bytes = gsn_staging_bytes(&reader->staging);
	gpusnap_status status;

	if (file->engine)
		status = gsn_ring_open_engine(file->engine, &reader->io, file->fd,
			reader->staging.memory, bytes, &reader->ring, &reader->report, err);
	else
		status = gsn_ring_open(&reader->io, file->fd, reader->staging.memory, bytes,
			&reader->ring, &reader->report, err);
	if (!status)
		gsn_io_report_add(&reader->report, file->choice);
	return status;
}

static const struct gsn_reader_source *find_source(const struct gsn_reader *reader, uint64_t place)
{
	uint32_t i = reader->source_count - 1;

	while (i > 0 && place < reader->sources[i].base)
		i--;
	return &reader->sources[i];
}

/*
 * From the first byte of the segments to the last, file by file; and as each further file begins
 * and ends inside blocks of its own, two blocks more.
 */
static uint64_t span_bytes(const struct gsn_reader *reader, const struct gsn_segment *segments,
	size_t count, uint64_t block_bytes)
{
	uint64_t first[GSN_LINKS_MAX], end[GSN_LINKS_MAX] = {0}, bytes = 0, files = 0;

	for (size_t i = 0; i < count; i++) {
		size_t at =
			(size_t)(find_source(reader, segments[i].file_offset) - reader->sources);

		if (!segments[i].bytes)
			continue;
		first[at] = end[at] ? gsn_min(first[at], segments[i].file_offset)
				    : segments[i].file_offset;
		end[at] = gsn_max(end[at], segments[i].file_offset + segments[i].bytes);
	}
	for (uint32_t i = 0; i < reader->source_count; i++) {
		bytes += end[i] ? end[i] - first[i] : 0;
		files += end[i] > 0;
	}
	return files > 1 ? bytes + 2 * (files - 1) * block_bytes : bytes;
}

/* Memory and the ring know no file: say which one they were for. */
static gpusnap_status name_file(const char *path, gpusnap_status status, gpusnap_error *err)
{
	if (status)
		gsn_error_prefix(err, "'%s'", path);
	return status;
}

static gpusnap_status take_memory(struct gsn_reader *reader, struct gsn_staging_source *source,
	uint32_t held, uint64_t span, gpusnap_error *err)
{
	gpusnap_status status =
		gsn_staging_open(&reader->staging, source, &reader->io, held + 1, span, err);

	if (status)
		return status;
	reader->slots = gsn_alloc(reader->staging.slot_count, sizeof *reader->slots);
	reader->order = gsn_alloc(reader->staging.slot_count, sizeof *reader->order);
	if (!reader->slots || !reader->order)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a reader");
	return GPUSNAP_OK;
}

static gpusnap_status open_buffers(struct gsn_reader *reader, const struct gsn_reader_file *probe,
	struct gsn_staging_source *source, const struct gsn_segment *segments, size_t count,
	uint32_t held, const gpusnap_io_options *io, gpusnap_error *err)
{
	uint64_t span = span_bytes(reader, segments, count, io->block_bytes);
	gpusnap_status status;

	reader->io = *io;
	reader->planning = (struct gsn_cursor){.segments = segments, .count = count};
	reader->bytes_total = sum_bytes(segments, count);
	status = take_memory(reader, source, held, span, err);
	if (!status)
		status = open_ring(reader, probe, err);
	return name_file(probe->path, status, err);
}

gpusnap_status gsn_reader_open_file(struct gsn_reader *reader, const struct gsn_reader_file *file,
	struct gsn_staging_source *source, const struct gsn_segment *segments, size_t count,
	uint32_t held, const gpusnap_io_options *io, gpusnap_error *err)
{
	reader->sources[0] = (struct gsn_reader_source){.path = file->path, .fd = file->fd};
	reader->source_count = 1;
	reader->borrowed = true;
	return open_buffers(reader, file, source, segments, count, held, io, err);
}

/* Files that no segment lies in stay closed, but for the first, which may be needed as a probe. */
static gpusnap_status open_sources(struct gsn_reader *reader, const gpusnap_snapshot *snapshot,
	const bool needed[GSN_LINKS_MAX], gpusnap_io_direct wanted,
	struct gsn_direct_choice *ret_choice, gpusnap_error *err)
{
	struct gsn_direct_choice choice;
	gpusnap_status status = GPUSNAP_OK;

	for (uint32_t i = 0; !status && i < snapshot->link_count; i++) {
		struct gsn_reader_source *source = &reader->sources[i];

		*source = (struct gsn_reader_source){
			.path = snapshot->links[i]->path, .base = snapshot->bases[i], .fd = -1};
		reader->source_count++;
		if (i == 0 || needed[i])
			status = gsn_snapshot_reopen(
				snapshot->links[i], wanted, &source->fd, &choice, err);
		if (i == 0 && !status)
			*ret_choice = choice;
	}
	return status;
}

gpusnap_status gsn_reader_open(struct gsn_reader *reader, const gpusnap_snapshot *snapshot,
	struct gsn_staging_source *source, const struct gsn_segment *segments, size_t count,
	uint32_t held, const gpusnap_io_options *io, gpusnap_error *err)
{
	struct gsn_direct_choice choice = {0};
	bool needed[GSN_LINKS_MAX];
	gpusnap_status status;

	gsn_snapshot_mark_links(snapshot, segments, count, needed);
	status = open_sources(reader, snapshot, needed, io->direct, &choice, err);
	if (status)
		return status;
	return open_buffers(reader,
		&(struct gsn_reader_file){
			.path = snapshot->path, .fd = reader->sources[0].fd, .choice = &choice},
		source, segments, count, held, io, err);
}

void gsn_reader_close(struct gsn_reader *reader)
{
	if (gsn_ring_close(reader->ring))
		gsn_staging_close(&reader->staging);
	else
		gsn_staging_abandon(&reader->staging);
	for (uint32_t i = 0; !reader->borrowed && i < reader->source_count; i++)
		if (reader->sources[i].fd >= 0)
			(void)close(reader->sources[i].fd);
	gsn_free(reader->slots);
	gsn_free(reader->order);
	*reader = (struct gsn_reader)GSN_READER_INIT;
}

/*
 * What to read next: from the first byte still wanted to the last one in the same block of the
 * file. A gap inside is read with the rest.
 */
static bool plan_block(struct gsn_reader *reader, struct gsn_read_slot *ret_block)
{
	struct gsn_piece piece;
	uint64_t first, next, block_end;

	if (!gsn_cursor_peek(&reader->planning, &first))
		return false;
	*ret_block = (struct gsn_read_slot){
		.begin = gsn_align_down(first, GSN_DIRECT_ALIGN),
		.source = find_source(reader, first),
	};
	block_end = (first / reader->io.block_bytes + 1) * reader->io.block_bytes;
	next = first;
	while (next >= first && gsn_cursor_next(&reader->planning, block_end, &piece)) {
		ret_block->end = first = gsn_piece_file_offset(&piece) + piece.bytes;
		if (!gsn_cursor_peek(&reader->planning, &next))
			break;
	}
	return true;
}

static gpusnap_status ask_for_block(struct gsn_reader *reader, uint32_t slot, gpusnap_error *err)
{
	struct gsn_read_slot *block = &reader->slots[slot];
	uint32_t place = (reader->order_first + reader->order_count) % reader->staging.slot_count;
	struct gsn_ring_request request = {
		.op = GSN_RING_READ,
		.fd = block->source->fd,
		.memory = gsn_staging_slot(&reader->staging, slot),
		.length = gsn_align_up(block->end - block->begin, GSN_DIRECT_ALIGN),
		.offset = block->begin - block->source->base,
		.tag = block,
	};

	reader->order[place] = slot;
	reader->order_count++;
	return name_file(block->source->path, gsn_ring_submit(reader->ring, &request, err), err);
}

static gpusnap_status read_ahead(struct gsn_reader *reader, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	while (!status && gsn_ring_in_flight(reader->ring) < reader->io.depth &&
		reader->staging.free_count) {
		struct gsn_read_slot block;
		uint32_t slot;

		if (!plan_block(reader, &block))
			break;
		(void)gsn_staging_take(&reader->staging, &slot);
		reader->slots[slot] = block;
		status = ask_for_block(reader, slot, err);
	}
	return status;
}

static gpusnap_status reap(struct gsn_reader *reader, gpusnap_error *err)
{
	struct gsn_ring_completion completion;
	struct gsn_read_slot *block;
	gpusnap_status status = gsn_ring_wait(reader->ring, &completion, err);

	if (status)
		return name_file(reader->sources[0].path, status, err);
	block = completion.tag;
	block->arrived = true;
	block->status = completion.status;
	block->os_errno = completion.os_errno;
	block->done = completion.done;
	return GPUSNAP_OK;
}

static gpusnap_status check_block(const struct gsn_read_slot *block, gpusnap_error *err)
{
	unsigned long long offset = block->begin - block->source->base;
	const char *path = block->source->path;

	if (block->status) {
		gsn_error_set(err, block->status, block->os_errno, offset,
			"'%s': read of %llu bytes at %llu: %s", path,
			(unsigned long long)(block->end - block->begin), offset,
			strerror(block->os_errno));
		return block->status;
	}
	if (block->done < block->end - block->begin)
		return gsn_fail_at(err, GPUSNAP_E_CORRUPT, offset + block->done,
			"'%s': ends at or before byte %llu, within the data that it had when it "
			"was opened: truncated since",
			path, offset + block->done);
	return GPUSNAP_OK;
}

gpusnap_status gsn_reader_next(
	struct gsn_reader *reader, struct gsn_block *ret_block, bool *ret_more, gpusnap_error *err)
{
	gpusnap_status status = read_ahead(reader, err);
	struct gsn_read_slot *block;
	uint64_t rest;
	uint32_t slot;

	if (status)
		return status;
	*ret_more = reader->order_count > 0;
	if (!*ret_more) {
		bool planned = !gsn_cursor_peek(&reader->planning, &rest);

		/* Else the caller holds more blocks than it announced. */
		assert(planned);
		(void)planned;
		return GPUSNAP_OK;
	}
	slot = reader->order[reader->order_first];
	block = &reader->slots[slot];
	while (!status && !block->arrived) {
		status = reap(reader, err);
		if (!status)
			status = read_ahead(reader, err);
	}
	if (!status)
		status = check_block(block, err);
	if (status)
		return status;
	reader->order_first = (reader->order_first + 1) % reader->staging.slot_count;
	reader->order_count--;
	*ret_block = (struct gsn_block){
		.begin = block->begin,
		.end = block->end,
		.memory = gsn_staging_slot(&reader->staging, slot),
		.slot = slot,
	};
	reader->bytes_done += block->end - block->begin;
	return gsn_io_progress(&reader->io, gsn_min(reader->bytes_done, reader->bytes_total),
		reader->bytes_total, err);
}

void gsn_reader_release(struct gsn_reader *reader, uint32_t slot)
{
	gsn_staging_give(&reader->staging, slot);
}
