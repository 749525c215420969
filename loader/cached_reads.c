/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/cached_reads.h"

#include <pthread.h>
#include <stdio.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "loader/gather.h"

typedef gpusnap_status read_fn(const struct gsn_source_file *file, void *bytes, uint64_t length,
	uint64_t offset, gpusnap_error *err);

struct reader {
	struct gsn_load_stage *stage;
	read_fn *read;
	const struct gsn_load_slot *slot; /* being filled */
	pthread_mutex_t lock;		  /* guards all below */
	uint8_t **scratch;		  /* buffers that no thread holds: a stack */
	uint32_t scratch_count;
	gpusnap_status status; /* of the first read that failed */
	gpusnap_error failure;
};

uint64_t gsn_cached_reads_memory(const struct gsn_load_stage *stage)
{
	return stage->threads * stage->limits.read_bytes;
}

/* ---- one run, by a thread of the pool ---- */

/* NULL once a read has failed: what is read after that is of no use. */
static uint8_t *take_scratch(struct reader *reader)
{
	uint8_t *scratch = NULL;

	(void)pthread_mutex_lock(&reader->lock);
	if (!reader->status)
		scratch = reader->scratch[--reader->scratch_count];
	(void)pthread_mutex_unlock(&reader->lock);
	return scratch;
}

static void give_back_scratch(
	struct reader *reader, uint8_t *scratch, gpusnap_status status, const gpusnap_error *err)
{
	(void)pthread_mutex_lock(&reader->lock);
	reader->scratch[reader->scratch_count++] = scratch;
	if (status && !reader->status) {
		reader->status = status;
		reader->failure = *err;
	}
	(void)pthread_mutex_unlock(&reader->lock);
}

static gpusnap_status read_run(const struct reader *reader, const struct gsn_read *read,
	uint8_t *scratch, gpusnap_error *err)
{
	const struct gsn_load_slot *slot = reader->slot;
	const struct gsn_view *pieces = &slot->window.pieces[read->first];
	const struct gsn_source_file *file =
		&reader->stage->job->checkpoint->shards[read->shard].file;
	gpusnap_status st;

	if (read->direct)
		return reader->read(file, gsn_load_slot_target(slot, &pieces[0]), read->bytes,
			read->offset, err);
	st = reader->read(file, scratch, read->bytes, read->offset, err);
	for (uint32_t i = 0; !st && i < read->count; i++)
		gsn_gather(&pieces[i], scratch + (pieces[i].source - read->offset),
			gsn_load_slot_target(slot, &pieces[i]));
	return st;
}

static void read_task(void *argument, uint64_t task)
{
	struct reader *reader = argument;
	uint8_t *scratch = take_scratch(reader);
	gpusnap_error err = {0};
	gpusnap_status st;

	if (!scratch)
		return;
	st = read_run(reader, &reader->slot->window.reads[task], scratch, &err);
	give_back_scratch(reader, scratch, st, &err);
}

/* ---- windows ---- */

static gpusnap_status fill_window(
	struct reader *reader, struct gsn_load_slot *slot, gpusnap_error *err)
{
	struct gsn_load_stage *stage = reader->stage;

	reader->slot = slot;
	gsn_pool_run(stage->pool, read_task, reader, slot->window.read_count);
	if (reader->status) {
		if (err)
			*err = reader->failure;
		return reader->status;
	}
	for (size_t i = 0; i < slot->window.read_count; i++)
		stage->report->bytes_read += slot->window.reads[i].bytes;
	return gsn_load_stage_send(stage, slot, err);
}

static gpusnap_status fill_windows(struct reader *reader, gpusnap_error *err)
{
	struct gsn_load_stage *stage = reader->stage;
	gpusnap_status st = GPUSNAP_OK;
	bool more = true;

	for (uint32_t i = 0; !st && more; i = (i + 1) % GSN_LOAD_SLOTS) {
		struct gsn_load_slot *slot = &stage->slots[i];

		st = gsn_load_stage_next(stage, slot, &more, err);
		if (!st && slot->open)
			st = fill_window(reader, slot, err);
	}
	return st;
}

static gpusnap_status map_files(const struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; !st && i < checkpoint->shard_count; i++)
		st = gsn_source_file_map(&checkpoint->shards[i].file, err);
	return st;
}

static void describe(struct gsn_load_stage *stage, bool mapped)
{
	gpusnap_io_report *report = &stage->report->io;

	report->engine = mapped ? "mmap" : "threads";
	report->depth = stage->threads;
	report->block_bytes = stage->limits.read_bytes;
	(void)snprintf(report->reason, sizeof report->reason, "%s, %s", report->engine,
		stage->io.engine == GPUSNAP_IO_AUTO ? "first choice for cached I/O"
						    : "as asked for");
}

gpusnap_status gsn_cached_reads_run(struct gsn_load_stage *stage, gpusnap_error *err)
{
	bool mapped = stage->io.engine == GPUSNAP_IO_MMAP;
	struct reader reader = {
		.stage = stage,
		.read = mapped ? gsn_source_file_read_mapped : gsn_source_file_read,
		.scratch = gsn_alloc(stage->threads, sizeof(uint8_t *)),
	};
	gpusnap_status st = GPUSNAP_OK;

	if (!reader.scratch)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u readers", stage->threads);
	(void)pthread_mutex_init(&reader.lock, NULL); /* cannot fail on Linux */
	for (; reader.scratch_count < stage->threads; reader.scratch_count++)
		reader.scratch[reader.scratch_count] =
			stage->reader_memory + reader.scratch_count * stage->limits.read_bytes;
	describe(stage, mapped);
	if (mapped)
		st = map_files(stage->job->checkpoint, err);
	if (!st)
		st = fill_windows(&reader, err);
	(void)pthread_mutex_destroy(&reader.lock);
	gsn_free((void *)reader.scratch);
	return st;
}
