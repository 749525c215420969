/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/cached_reads.h"

#include <stdio.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "kernels/pool.h"
#include "kernels/turns.h"
#include "loader/gather.h"

typedef gpusnap_status read_fn(const struct gsn_source_file *file, void *bytes, uint64_t length,
	uint64_t offset, gpusnap_error *err);

struct reader {
	struct gsn_load_stage *stage;
	struct gsn_pool *pool;
	read_fn *read;
	const struct gsn_load_slot *slot; /* being filled */
	struct gsn_load_slot *next;	  /* whose window is planned meanwhile */
	uint8_t *memory;		  /* of all scratch; only what runs need of it is touched */
	struct gsn_turns scratch;
};

uint64_t gsn_cached_reads_memory(const struct gsn_load_stage *stage)
{
	return stage->threads * stage->limits.read_bytes;
}

/* ---- one run, by a thread of the pool ---- */

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

static void read_task(struct reader *reader, uint64_t run)
{
	uint8_t *scratch = gsn_turns_take(&reader->scratch);
	gpusnap_error err = {0};
	gpusnap_status st;

	if (!scratch)
		return;
	st = read_run(reader, &reader->slot->window.reads[run], scratch, &err);
	gsn_turns_give(&reader->scratch, scratch, st, &err);
}

/* The first task plans what comes next, so that no thread waits for that. */
static void run_task(void *argument, uint64_t task)
{
	struct reader *reader = argument;
	gpusnap_error err = {0};
	gpusnap_status st;
	void *turn;

	if (task > 0) {
		read_task(reader, task - 1);
		return;
	}
	turn = gsn_turns_take(&reader->scratch);
	if (!turn)
		return;
	st = gsn_load_stage_plan(reader->stage, reader->next, &err);
	gsn_turns_give(&reader->scratch, turn, st, &err);
}

/* ---- windows ---- */

static gpusnap_status fill_window(
	struct reader *reader, struct gsn_load_slot *slot, gpusnap_error *err)
{
	struct gsn_load_stage *stage = reader->stage;
	gpusnap_status st;

	gsn_pool_run(reader->pool, run_task, reader, 1 + slot->window.read_count);
	st = gsn_turns_result(&reader->scratch, err);
	if (st)
		return st;
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

		reader->slot = slot;
		reader->next = &stage->slots[(i + 1) % GSN_LOAD_SLOTS];
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

static gpusnap_status open_scratch(struct reader *reader, gpusnap_error *err)
{
	const struct gsn_load_stage *stage = reader->stage;
	uint64_t bytes = stage->limits.read_bytes;
	gpusnap_status st = gsn_turns_open(&reader->scratch, stage->threads, err);

	if (st)
		return st;
	reader->memory = gsn_alloc(1, gsn_cached_reads_memory(stage));
	if (!reader->memory)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u readers", stage->threads);
	for (uint32_t i = 0; i < stage->threads; i++)
		gsn_turns_add(&reader->scratch, reader->memory + i * bytes);
	return GPUSNAP_OK;
}

gpusnap_status gsn_cached_reads_run(struct gsn_load_stage *stage, gpusnap_error *err)
{
	bool mapped = stage->io.engine == GPUSNAP_IO_MMAP;
	struct reader reader = {
		.stage = stage,
		.read = mapped ? gsn_source_file_read_mapped : gsn_source_file_read,
	};
	gpusnap_status st = open_scratch(&reader, err);

	describe(stage, mapped);
	if (!st)
		st = gsn_pool_create(stage->threads, &reader.pool, err);
	if (!st && mapped)
		st = map_files(stage->job->checkpoint, err);
	if (!st)
		st = fill_windows(&reader, err);
	gsn_turns_close(&reader.scratch);
	gsn_pool_destroy(reader.pool);
	gsn_free(reader.memory);
	return st;
}
