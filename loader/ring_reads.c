/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/ring_reads.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "loader/gather.h"
#include "loader/gather_crew.h"
#include "snapshot/io_options.h"
#include "snapshot/ring.h"

/* Together with the slots well under the 512 MiB that staging may take. */
#define CHUNK_BYTES_MAX (256ull << 20)
/*
 * Where the caller does not say how many requests may be in flight, short ones may be so many:
 * disks want bytes in flight, whatever the requests.
 */
#define SHORT_DEPTH 64u

/* Memory that reads are placed in one after another; free again when the last is gathered. */
struct chunk {
	uint8_t *memory;
	uint64_t used;
	uint32_t left; /* reads in it */
};

/*
 * A run in flight, or landed and being gathered. Direct ones into a cached file use no chunk.
 * Without a run: the planning of the slot's next window, which the crew does as well.
 */
struct flight {
	struct chunk *chunk; /* NULL: it goes to the slot itself */
	struct gsn_load_slot *slot;
	const struct gsn_read *read;
	uint8_t *memory;
	uint64_t skipped; /* bytes before the run's first, read for alignment */
	uint64_t length;
};

struct reader {
	struct gsn_load_stage *stage;
	const struct gsn_direct_choice *choices;
	uint32_t depth;
	uint32_t chunk_count;
	struct chunk *chunks;
	struct chunk *filling; /* NULL: take the next free one */
	uint32_t free_count;
	struct flight *flights;
	struct flight **free; /* a stack */
	uint64_t bytes_in_flight;
	struct gsn_load_slot *reading; /* whose reads are being submitted; NULL: none yet */
	uint32_t next;		       /* number of the slot for the next window */
	bool exhausted;		       /* no window is left to open */
	struct flight planning;	       /* its slot is NULL when no window is being planned */
	gpusnap_status plan_status;    /* of that */
	gpusnap_error plan_failure;
	struct gsn_ring *ring;
	struct gsn_crew *crew;
};

/* ---- what the crew does ---- */

static void gather(const struct flight *flight)
{
	const struct gsn_read *read = flight->read;
	const struct gsn_view *pieces = &flight->slot->window.pieces[read->first];

	for (uint32_t i = 0; i < read->count; i++) {
		const struct gsn_view *view = &pieces[i];

		gsn_gather(view, flight->memory + flight->skipped + (view->source - read->offset),
			gsn_load_slot_target(flight->slot, view));
	}
}

static void work(void *argument, void *job)
{
	struct reader *reader = argument;
	const struct flight *flight = job;

	if (flight->read)
		gather(flight);
	else
		reader->plan_status =
			gsn_load_stage_plan(reader->stage, flight->slot, &reader->plan_failure);
}

/* ---- setting up ---- */

/* A run may be widened to the alignment of direct I/O at both ends. */
static uint64_t chunk_bytes(const struct gsn_load_stage *stage)
{
	return stage->limits.read_bytes + 2 * (uint64_t)GSN_DIRECT_ALIGN;
}

static uint32_t chunk_count(const struct gsn_load_stage *stage)
{
	uint64_t all = gsn_ceil_div(gsn_max(stage->job->bytes, 1), stage->limits.read_bytes);
	uint64_t count = gsn_min(2ull * stage->io.depth, 2 * all + 2);

	return (uint32_t)gsn_min(count, CHUNK_BYTES_MAX / stage->limits.read_bytes);
}

uint64_t gsn_ring_reads_memory(const struct gsn_load_stage *stage)
{
	return chunk_count(stage) * chunk_bytes(stage);
}

static gpusnap_status open_tables(struct reader *reader, gpusnap_error *err)
{
	const struct gsn_load_stage *stage = reader->stage;
	uint32_t flights = 2 * reader->depth;

	reader->chunk_count = chunk_count(stage);
	reader->chunks = gsn_alloc(reader->chunk_count, sizeof *reader->chunks);
	reader->flights = gsn_alloc(flights, sizeof *reader->flights);
	reader->free = gsn_alloc(flights, sizeof(struct flight *));
	if (!reader->chunks || !reader->flights || !reader->free)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u reads", flights);
	for (uint32_t i = 0; i < reader->chunk_count; i++)
		reader->chunks[i].memory = stage->reader_memory + i * chunk_bytes(stage);
	for (uint32_t i = 0; i < flights; i++)
		reader->free[reader->free_count++] = &reader->flights[i];
	return GPUSNAP_OK;
}

static gpusnap_status open_reader(struct reader *reader, gpusnap_error *err)
{
	struct gsn_load_stage *stage = reader->stage;
	gpusnap_io_options io = stage->io;
	gpusnap_status st = open_tables(reader, err);

	io.depth = reader->depth;
	if (!st)
		st = gsn_ring_open(&io, stage->job->checkpoint->shards[0].file.fd, stage->arena,
			stage->arena_bytes, &reader->ring, &stage->report->io, err);
	if (!st)
		gsn_io_report_add(&stage->report->io, &reader->choices[0]);
	if (!st)
		st = gsn_crew_open(
			stage->threads, 2 * reader->depth + 1, work, reader, &reader->crew, err);
	return st;
}

static void close_reader(struct reader *reader)
{
	gsn_ring_close(reader->ring);
	gsn_crew_close(reader->crew);
	gsn_free(reader->chunks);
	gsn_free(reader->flights);
	gsn_free((void *)reader->free);
}

/* ---- reads ---- */

/* The chunk that takes so many bytes; NULL when all are in use. */
static struct chunk *chunk_for(struct reader *reader, uint64_t bytes)
{
	struct chunk *chunk = reader->filling;

	if (chunk && chunk->used + bytes <= chunk_bytes(reader->stage))
		return chunk;
	for (uint32_t i = 0; i < reader->chunk_count; i++)
		if (reader->chunks[i].left == 0) {
			reader->chunks[i].used = 0;
			return reader->filling = &reader->chunks[i];
		}
	return NULL;
}

/* Where the run goes and which bytes of the file that takes; false when there is no room. */
static bool place_read(struct reader *reader, struct flight *flight, uint64_t *ret_offset)
{
	const struct gsn_read *read = flight->read;
	uint32_t alignment = reader->choices[read->shard].alignment;

	*ret_offset = read->offset;
	flight->length = read->bytes;
	if (reader->choices[read->shard].direct) {
		*ret_offset = gsn_align_down(read->offset, alignment);
		flight->skipped = read->offset - *ret_offset;
		flight->length = gsn_align_up(flight->skipped + read->bytes, alignment);
	} else if (read->direct) {
		const struct gsn_view *first = &flight->slot->window.pieces[read->first];

		flight->memory = gsn_load_slot_target(flight->slot, first);
		return true;
	}
	flight->chunk = chunk_for(reader, flight->length);
	if (!flight->chunk)
		return false;
	flight->memory = flight->chunk->memory + flight->chunk->used;
	return true;
}

static gpusnap_status submit_read(
	struct reader *reader, struct gsn_load_slot *slot, bool *ret_submitted, gpusnap_error *err)
{
	const struct gsn_read *read = &slot->window.reads[slot->next_read];
	struct flight *flight = reader->free[reader->free_count - 1];
	struct gsn_ring_request request = {
		.op = GSN_RING_READ,
		.fd = reader->stage->job->checkpoint->shards[read->shard].file.fd,
		.tag = flight,
	};
	gpusnap_status st;

	*flight = (struct flight){.slot = slot, .read = read};
	*ret_submitted = place_read(reader, flight, &request.offset);
	if (!*ret_submitted)
		return GPUSNAP_OK;
	request.memory = flight->memory;
	request.length = flight->length;
	st = gsn_ring_submit(reader->ring, &request, err);
	if (st)
		return st;
	if (flight->chunk) {
		flight->chunk->used += gsn_align_up(flight->length, GSN_DIRECT_ALIGN);
		flight->chunk->left++;
	}
	reader->bytes_in_flight += flight->length;
	reader->free_count--;
	slot->next_read++;
	return GPUSNAP_OK;
}

static bool has_reads(const struct gsn_load_slot *slot)
{
	return slot && slot->open && slot->next_read < slot->window.read_count;
}

/* The next window, as soon as its slot is free and nothing else is being planned. */
static void plan_ahead(struct reader *reader)
{
	struct gsn_load_slot *slot = &reader->stage->slots[reader->next];

	if (reader->exhausted || reader->planning.slot || slot->open || slot->planned)
		return;
	reader->planning = (struct flight){.slot = slot};
	gsn_crew_give(reader->crew, &reader->planning);
}

/* Open the next window if it is planned by now. */
static gpusnap_status open_window(struct reader *reader, gpusnap_error *err)
{
	struct gsn_load_slot *slot = &reader->stage->slots[reader->next];
	gpusnap_status st;
	bool more;

	if (reader->exhausted || reader->planning.slot || !slot->planned)
		return GPUSNAP_OK;
	st = gsn_load_stage_next(reader->stage, slot, &more, err);
	if (st)
		return st;
	reader->exhausted = !more;
	reader->reading = slot;
	reader->next = (reader->next + 1) % GSN_LOAD_SLOTS;
	return GPUSNAP_OK;
}

/* The slot that has a read to submit; NULL: none before the crew has done more. */
static gpusnap_status slot_to_read(
	struct reader *reader, struct gsn_load_slot **ret_slot, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	if (!has_reads(reader->reading))
		st = open_window(reader, err);
	if (st)
		return st;
	plan_ahead(reader);
	*ret_slot = has_reads(reader->reading) ? reader->reading : NULL;
	return GPUSNAP_OK;
}

/* As many bytes as requests of full length may have, in as many requests as the ring takes. */
static bool may_submit(const struct reader *reader)
{
	const struct gsn_load_stage *stage = reader->stage;

	return reader->free_count && gsn_ring_in_flight(reader->ring) < reader->depth &&
	       reader->bytes_in_flight < stage->io.depth * stage->limits.read_bytes;
}

static gpusnap_status submit_reads(struct reader *reader, gpusnap_error *err)
{
	bool submitted = true;

	while (submitted && may_submit(reader)) {
		struct gsn_load_slot *slot;
		gpusnap_status st = slot_to_read(reader, &slot, err);

		if (!st && slot)
			st = submit_read(reader, slot, &submitted, err);
		if (st || !slot)
			return st;
	}
	return GPUSNAP_OK;
}

static gpusnap_status check_completion(const struct reader *reader,
	const struct gsn_ring_completion *completion, gpusnap_error *err)
{
	const struct flight *flight = completion->tag;
	const struct gsn_read *read = flight->read;
	const struct gsn_source_file *file =
		&reader->stage->job->checkpoint->shards[read->shard].file;

	if (completion->status)
		return gsn_fail_os(err, completion->status, completion->os_errno,
			"cannot read %s at %llu: %s", file->path, (unsigned long long)read->offset,
			strerror(completion->os_errno));
	if (completion->done < flight->skipped + read->bytes)
		return gsn_fail_at(err, GPUSNAP_E_IO, read->offset,
			"%s ends before %llu, it had %llu bytes when the load began; load again",
			file->path, (unsigned long long)(read->offset + read->bytes),
			(unsigned long long)file->bytes);
	return GPUSNAP_OK;
}

static gpusnap_status release_flight(
	struct reader *reader, struct flight *flight, gpusnap_error *err)
{
	struct gsn_load_slot *slot = flight->slot;

	if (flight->chunk)
		flight->chunk->left--;
	reader->free[reader->free_count++] = flight;
	slot->left--;
	return slot->left ? GPUSNAP_OK : gsn_load_stage_send(reader->stage, slot, err);
}

/* Wait for one run; one that landed in the slot itself is done, others become ready. */
static gpusnap_status reap_read(struct reader *reader, gpusnap_error *err)
{
	struct gsn_ring_completion completion;
	struct flight *flight;
	gpusnap_status st = gsn_ring_wait(reader->ring, &completion, err);

	if (!st)
		st = check_completion(reader, &completion, err);
	if (st)
		return st;
	flight = completion.tag;
	reader->bytes_in_flight -= flight->length;
	reader->stage->report->bytes_read += completion.done;
	if (!flight->chunk)
		return release_flight(reader, flight, err);
	gsn_crew_give(reader->crew, flight);
	return GPUSNAP_OK;
}

static gpusnap_status finish_job(struct reader *reader, struct flight *flight, gpusnap_error *err)
{
	if (flight->read)
		return release_flight(reader, flight, err);
	reader->planning.slot = NULL;
	if (reader->plan_status && err)
		*err = reader->plan_failure;
	return reader->plan_status;
}

/* What the crew is done with; with `wait` at least one job of those that it has. */
static gpusnap_status finish_jobs(struct reader *reader, bool wait, gpusnap_error *err)
{
	struct flight *flight = gsn_crew_take(reader->crew, wait);
	gpusnap_status st = GPUSNAP_OK;

	for (; !st && flight; flight = st ? NULL : gsn_crew_take(reader->crew, false))
		st = finish_job(reader, flight, err);
	return st;
}

/* ---- the loop ---- */

static bool is_done(const struct reader *reader)
{
	return reader->exhausted && !gsn_ring_in_flight(reader->ring) &&
	       !gsn_crew_jobs(reader->crew);
}

/* The disk is kept busy before all else; one run that lands is enough to send the next after. */
static gpusnap_status advance(struct reader *reader, gpusnap_error *err)
{
	gpusnap_status st = submit_reads(reader, err);

	if (!st && gsn_ring_in_flight(reader->ring))
		st = reap_read(reader, err);
	else if (!st)
		return finish_jobs(reader, true, err);
	return st ? st : finish_jobs(reader, false, err);
}

gpusnap_status gsn_ring_reads_run(
	struct gsn_load_stage *stage, const struct gsn_direct_choice *choices, gpusnap_error *err)
{
	struct reader reader = {
		.stage = stage,
		.choices = choices,
		.depth = stage->job->io && stage->job->io->depth
				 ? stage->io.depth
				 : (uint32_t)gsn_max(stage->io.depth, SHORT_DEPTH),
	};
	gpusnap_status st = open_reader(&reader, err);

	while (!st && !is_done(&reader))
		st = advance(&reader, err);
	close_reader(&reader);
	return st;
}
