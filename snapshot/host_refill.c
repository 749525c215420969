/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/host_refill.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/host_place.h"
#include "kernels/pool.h"
#include "kernels/turns.h"
#include "snapshot/io_options.h"
#include "snapshot/reader.h"
#include "snapshot/span.h"

/*
 * A span fits into a core's second-level cache, with room for what is on its way to memory; smaller
 * ones cost more calls.
 */
#define SPAN_BYTES (UINT64_C(256) << 10)

enum {
	WINDOW_SPANS = 4096, /* 1 GiB: the threads wait for each other that seldom */
	THREADS_MAX = 64,
	RESIDENT_PERCENT = 99, /* from here on a thread hardly ever waits for a disk */
};

struct refill {
	const struct gsn_host_refill *job;
	uint64_t span_bytes;
	struct gsn_cursor planning;
	struct gsn_span *spans; /* a window of them */
	uint64_t span_count;
	const struct gsn_block *block; /* that the spans lie in; NULL: each thread reads its own */
	struct gsn_pool *pool;
	uint32_t threads;
	uint8_t *memory; /* of a span for each thread */
	struct gsn_turns turns;
	uint64_t bytes_done;
};

/* ---- one span, by a thread of the pool ---- */

static char *live_memory(const struct gsn_segment *segment, uint64_t offset)
{
	return (char *)(uintptr_t)(segment->address + offset);
}

/* Bytes [begin, end) of the segment, all of one leaf. */
static void place_part(struct refill *r, const struct gsn_segment *segment, uint64_t begin,
	uint64_t end, const uint8_t *from)
{
	uint64_t leaf = begin / GPUSNAP_LEAF_BYTES;
	uint64_t leaf_begin = leaf * GPUSNAP_LEAF_BYTES;
	uint64_t leaf_end = gsn_min(leaf_begin + GPUSNAP_LEAF_BYTES, segment->bytes);
	gpusnap_digest *digest = &r->job->live[segment->first_leaf + leaf];
	char *to = live_memory(segment, begin);

	if (begin == leaf_begin && end == leaf_end) {
		*digest = gsn_host_place(to, from, (size_t)(end - begin));
		return;
	}
	memcpy(to, from, (size_t)(end - begin));
	/* Cut by a block's end; what was before the cut has been placed before. */
	if (end == leaf_end)
		*digest = gpusnap_digest_of(
			live_memory(segment, leaf_begin), (size_t)(leaf_end - leaf_begin));
}

static void place_span(struct refill *r, const struct gsn_span *span, const uint8_t *memory)
{
	struct gsn_cursor cursor = span->from;
	struct gsn_piece piece;

	while (gsn_cursor_next(&cursor, span->end, &piece)) {
		const uint8_t *from = memory + (gsn_piece_file_offset(&piece) - span->begin);
		uint64_t end = piece.offset + piece.bytes;

		for (uint64_t at = piece.offset; at < end;) {
			uint64_t next = gsn_align_down(at, GPUSNAP_LEAF_BYTES) + GPUSNAP_LEAF_BYTES;

			next = gsn_min(next, end);
			place_part(r, piece.segment, at, next, from + (at - piece.offset));
			at = next;
		}
	}
}

static gpusnap_status fill_span(
	struct refill *r, uint8_t *memory, const struct gsn_span *span, gpusnap_error *err)
{
	gpusnap_status status;

	if (r->block) {
		place_span(r, span, r->block->memory + (span->begin - r->block->begin));
		return GPUSNAP_OK;
	}
	status = gsn_snapshot_read(
		r->job->snapshot, span->begin, memory, span->end - span->begin, err);
	if (!status)
		place_span(r, span, memory);
	return status;
}

static void span_task(void *argument, uint64_t task)
{
	struct refill *r = argument;
	uint8_t *memory = gsn_turns_take(&r->turns);
	gpusnap_error err;
	gpusnap_status status;

	if (!memory)
		return;
	status = fill_span(r, memory, &r->spans[task], &err);
	gsn_turns_give(&r->turns, memory, status, &err);
}

/* ---- windows ---- */

/* False when nothing is left before `limit`. */
static bool plan_window(struct refill *r, uint64_t limit)
{
	r->span_count = 0;
	while (r->span_count < WINDOW_SPANS && gsn_span_next(r->job->snapshot, &r->planning, limit,
						       r->span_bytes, &r->spans[r->span_count]))
		r->span_count++;
	return r->span_count > 0;
}

static gpusnap_status fill_window(struct refill *r, gpusnap_error *err)
{
	gsn_pool_run(r->pool, span_task, r, r->span_count);
	for (uint64_t i = 0; i < r->span_count; i++)
		r->bytes_done += r->spans[i].end - r->spans[i].begin;
	return gsn_turns_result(&r->turns, err);
}

static gpusnap_status from_page_cache(struct refill *r, uint64_t total, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	while (!status && plan_window(r, UINT64_MAX)) {
		status = fill_window(r, err);
		if (!status)
			status = gsn_io_progress(
				r->job->io, gsn_min(r->bytes_done, total), total, err);
	}
	return status;
}

static gpusnap_status take_blocks(struct refill *r, struct gsn_reader *reader, gpusnap_error *err)
{
	for (;;) {
		struct gsn_block block;
		bool more;
		gpusnap_status status = gsn_reader_next(reader, &block, &more, err);

		if (status || !more)
			return status;
		r->block = &block;
		while (!status && plan_window(r, block.end))
			status = fill_window(r, err);
		r->block = NULL;
		gsn_reader_release(reader, block.slot);
		if (status)
			return status;
	}
}

static gpusnap_status from_ring(struct refill *r, gpusnap_io_report *ret_report, gpusnap_error *err)
{
	const struct gsn_host_refill *job = r->job;
	struct gsn_reader reader = GSN_READER_INIT;
	gpusnap_status status = gsn_reader_open(&reader, job->snapshot, job->staging, job->segments,
		job->segment_count, 1, job->io, err);

	if (!status)
		status = take_blocks(r, &reader, err);
	*ret_report = reader.report;
	gsn_reader_close(&reader);
	return status;
}

/* ---- which of the two, and by how many threads ---- */

/* Of the files that are needed the least one, in percent; -1 when it cannot be told. */
static int resident_percent(const struct gsn_host_refill *job, struct gsn_direct_choice *ret_choice)
{
	bool needed[GSN_LINKS_MAX];
	struct gsn_direct_choice choice;
	int least = 100;

	*ret_choice = (struct gsn_direct_choice){.alignment_source = "", .why = "nothing is read"};
	gsn_snapshot_mark_links(job->snapshot, job->segments, job->segment_count, needed);
	for (uint32_t i = 0; i < job->snapshot->link_count; i++) {
		int percent =
			needed[i] ? gsn_direct_resident(job->snapshot->links[i]->fd, &choice) : 101;

		if (percent > least)
			continue;
		least = percent;
		*ret_choice = choice;
	}
	return least;
}

static bool is_for_threads(const gpusnap_io_options *io, int percent)
{
	return percent >= GSN_MOSTLY_CACHED_PERCENT && io->direct != GPUSNAP_DIRECT_ON &&
	       (io->engine == GPUSNAP_IO_AUTO || io->engine == GPUSNAP_IO_THREADS);
}

/* Threads that wait for a disk now and then are as many as requests would be. */
static uint32_t count_threads(const struct refill *r, uint64_t total, bool reading, int percent)
{
	uint64_t threads = gsn_pool_cpus();

	if (reading && percent < RESIDENT_PERCENT)
		threads = gsn_max(threads, r->job->io->depth);
	threads = gsn_min(threads, gsn_ceil_div(total, r->span_bytes));
	return (uint32_t)gsn_max(1, gsn_min(threads, THREADS_MAX));
}

static void describe(const struct refill *r, const struct gsn_direct_choice *choice,
	gpusnap_io_report *ret_report)
{
	*ret_report = (gpusnap_io_report){
		.engine = "threads",
		.depth = r->threads,
		.block_bytes = r->span_bytes,
	};
	(void)snprintf(ret_report->reason, sizeof ret_report->reason, "%s",
		r->job->io->engine == GPUSNAP_IO_AUTO ? "first choice for cached I/O"
						      : "it was asked for");
	gsn_io_report_add(ret_report, choice);
}

/* ---- opening and closing ---- */

/* A system that gives no more threads gets the work done by the one that there is. */
static gpusnap_status start_threads(struct refill *r, gpusnap_error *err)
{
	gpusnap_status status = gsn_pool_create(r->threads, &r->pool, err);

	if (status != GPUSNAP_E_LIMIT)
		return status;
	r->threads = 1;
	return gsn_pool_create(r->threads, &r->pool, err);
}

static gpusnap_status take_memory(struct refill *r, gpusnap_error *err)
{
	gpusnap_status status = gsn_turns_open(&r->turns, r->threads, err);

	if (status)
		return status;
	r->spans = gsn_alloc(WINDOW_SPANS, sizeof *r->spans);
	r->memory = gsn_alloc(r->threads, (size_t)r->span_bytes);
	if (!r->spans || !r->memory)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for a restore by %u threads", r->threads);
	for (uint32_t i = 0; i < r->threads; i++)
		gsn_turns_add(&r->turns, r->memory + i * r->span_bytes);
	return GPUSNAP_OK;
}

static void refill_close(struct refill *r)
{
	gsn_pool_destroy(r->pool);
	gsn_turns_close(&r->turns);
	gsn_free(r->memory);
	gsn_free(r->spans);
}

static uint64_t sum_bytes(const struct gsn_host_refill *job)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < job->segment_count; i++)
		bytes += job->segments[i].bytes;
	return bytes;
}

gpusnap_status gsn_host_refill(
	const struct gsn_host_refill *job, gpusnap_io_report *ret_report, gpusnap_error *err)
{
	struct refill r = {
		.job = job,
		.span_bytes = gsn_min(SPAN_BYTES, job->io->block_bytes),
		.planning = {job->segments, job->segment_count, 0, 0},
	};
	struct gsn_direct_choice choice;
	int percent = resident_percent(job, &choice);
	bool reading = is_for_threads(job->io, percent);
	uint64_t total = sum_bytes(job);
	gpusnap_io_report report;
	gpusnap_status status;

	r.threads = count_threads(&r, total, reading, percent);
	status = start_threads(&r, err);
	if (!status)
		status = take_memory(&r, err);
	if (!status && reading) {
		describe(&r, &choice, &report);
		status = from_page_cache(&r, total, err);
	} else if (!status) {
		status = from_ring(&r, &report, err);
	}
	refill_close(&r);
	if (!status)
		*ret_report = report;
	return status;
}
