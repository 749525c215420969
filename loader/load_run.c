/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline of a load: plan -> reads in flight -> gather -> copy, slot by slot. */
#include "loader/load_run.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/pool.h"
#include "loader/gather.h"
#include "loader/load_plan.h"
#include "snapshot/direct.h"
#include "snapshot/io_options.h"
#include "snapshot/ring.h"

/*
 * Two slots keep the link busy, the third takes the gathering; 32 MiB make the cost of a copy's
 * launch vanish. Together with the read buffers well under the 512 MiB that staging may take.
 */
#define SLOT_COUNT	 3u
#define SLOT_BYTES	 (32ull << 20)
#define BUFFER_BYTES_MAX (256ull << 20)
#define THREADS_MAX	 8u /* memory-bound work: more do not copy faster */

/* A staging slot and the window that is being put together in it. */
struct slot {
	uint8_t *memory;
	struct gsn_window window;
	size_t next_read; /* to submit */
	size_t left;	  /* reads not landed yet */
	bool open;
	bool recorded; /* the event stands for a copy out of the slot */
	struct gsn_event *event;
};

/* A read buffer, and the read that it is used for. Direct reads leave its memory alone. */
struct buffer {
	uint8_t *memory;
	struct slot *slot;
	const struct gsn_read *read;
	uint64_t skipped; /* bytes before the read's first, read for alignment */
};

struct run {
	const struct gsn_load_job *job;
	const struct gsn_device_ops *ops;
	gpusnap_load_report *report;
	gpusnap_io_options io;
	uint64_t slot_bytes, read_bytes;
	uint32_t buffer_count, free_count, ready_count;
	struct buffer *buffers;
	struct buffer **free;  /* a stack */
	struct buffer **ready; /* landed, to be gathered */
	bool *direct;	       /* of each shard: O_DIRECT */
	uint8_t *arena;	       /* pinned: slots, then read buffers */
	uint64_t arena_bytes;
	struct slot slots[SLOT_COUNT];
	uint32_t filling; /* slot whose reads are being submitted */
	bool exhausted;	  /* no window is left to open */
	uint64_t bytes_done;
	struct gsn_load_plan plan;
	struct gsn_ring *ring;
	struct gsn_pool *pool;
	struct gsn_stream *stream;
};

/* ---- setting up ---- */

/* A small model gets small buffers. */
static void choose_sizes(struct run *run)
{
	uint64_t all = gsn_align_up(gsn_max(run->job->bytes, 1), GSN_IO_BLOCK_UNIT);
	uint64_t buffers;

	run->slot_bytes = gsn_min(SLOT_BYTES, all);
	run->read_bytes = gsn_min(run->io.block_bytes, all);
	buffers = gsn_min(2ull * run->io.depth, 2 * gsn_ceil_div(all, run->read_bytes) + 2);
	buffers = gsn_min(buffers, BUFFER_BYTES_MAX / run->read_bytes);
	run->buffer_count = (uint32_t)buffers;
}

/* A read may be widened to the alignment of direct I/O at both ends. */
static uint64_t buffer_bytes(const struct run *run)
{
	return run->read_bytes + 2 * (uint64_t)GSN_DIRECT_ALIGN;
}

static gpusnap_status open_arena(struct run *run, gpusnap_error *err)
{
	void *memory;
	gpusnap_status st;

	run->arena_bytes = SLOT_COUNT * run->slot_bytes + run->buffer_count * buffer_bytes(run);
	st = run->ops->pinned_alloc(run->job->device->context, run->arena_bytes, &memory, err);
	if (st)
		return st;
	run->arena = memory;
	for (uint32_t i = 0; i < SLOT_COUNT; i++)
		run->slots[i].memory = run->arena + (uint64_t)i * run->slot_bytes;
	for (uint32_t i = 0; i < run->buffer_count; i++) {
		run->buffers[i].memory =
			run->arena + SLOT_COUNT * run->slot_bytes + i * buffer_bytes(run);
		run->free[run->free_count++] = &run->buffers[i];
	}
	return GPUSNAP_OK;
}

static gpusnap_status open_tables(struct run *run, gpusnap_error *err)
{
	run->buffers = gsn_alloc(run->buffer_count, sizeof *run->buffers);
	run->free = gsn_alloc(run->buffer_count, sizeof(struct buffer *));
	run->ready = gsn_alloc(run->buffer_count, sizeof(struct buffer *));
	run->direct = gsn_alloc(run->job->checkpoint->shard_count, sizeof *run->direct);
	if (!run->buffers || !run->free || !run->ready || !run->direct)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %u read buffers", run->buffer_count);
	return GPUSNAP_OK;
}

static gpusnap_status choose_direct(struct run *run, gpusnap_error *err)
{
	const struct gsn_checkpoint *checkpoint = run->job->checkpoint;
	struct gsn_direct_choice first = {0};
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; !st && i < checkpoint->shard_count; i++) {
		const struct gsn_source_file *file = &checkpoint->shards[i].file;
		struct gsn_direct_choice choice = {0};

		st = gsn_direct_choose(file->fd, file->path, run->io.direct, &choice, err);
		run->direct[i] = choice.direct;
		if (i == 0)
			first = choice;
	}
	if (!st)
		st = gsn_ring_open(&run->io, checkpoint->shards[0].file.fd, run->arena,
			run->arena_bytes, &run->ring, &run->report->io, err);
	if (!st)
		gsn_io_report_add(&run->report->io, &first);
	return st;
}

static gpusnap_status open_device(struct run *run, gpusnap_error *err)
{
	void *context = run->job->device->context;
	gpusnap_status st = run->ops->stream_create(context, &run->stream, err);

	for (uint32_t i = 0; !st && i < SLOT_COUNT; i++)
		st = run->ops->event_create(context, &run->slots[i].event, err);
	return st;
}

static uint32_t thread_count(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 1 ? 1 : (uint32_t)gsn_min((uint64_t)cpus, THREADS_MAX);
}

static gpusnap_status open_run(struct run *run, gpusnap_error *err)
{
	struct gsn_plan_limits limits = {.compact = run->job->compact};
	gpusnap_status st = gsn_io_options_resolve(run->job->io, &run->io, err);

	if (st)
		return st;
	choose_sizes(run);
	limits.slot_bytes = run->slot_bytes;
	limits.read_bytes = run->read_bytes;
	gsn_load_plan_init(&run->plan, run->job->views, run->job->view_count, &limits);
	st = open_tables(run, err);
	if (!st)
		st = open_arena(run, err);
	if (!st)
		st = choose_direct(run, err);
	if (!st)
		st = open_device(run, err);
	if (!st)
		st = gsn_pool_create(thread_count(), &run->pool, err);
	return st;
}

/* Everything that may still use the arena ends before it is freed. */
static void close_run(struct run *run)
{
	gsn_ring_close(run->ring);
	gsn_pool_destroy(run->pool);
	run->ops->stream_destroy(run->stream);
	for (uint32_t i = 0; i < SLOT_COUNT; i++) {
		run->ops->event_destroy(run->slots[i].event);
		gsn_window_release(&run->slots[i].window);
	}
	if (run->arena)
		run->ops->pinned_free(run->job->device->context, run->arena, run->arena_bytes);
	gsn_load_plan_release(&run->plan);
	gsn_free(run->buffers);
	gsn_free((void *)run->free);
	gsn_free((void *)run->ready);
	gsn_free(run->direct);
}

/* ---- windows ---- */

static uint8_t *piece_target(const struct slot *slot, const struct gsn_view *view)
{
	return slot->memory + (view->target - slot->window.target);
}

static void gather_memory_pieces(const struct slot *slot)
{
	for (size_t i = slot->window.piece_count; i > 0; i--) {
		const struct gsn_view *view = &slot->window.pieces[i - 1].view;

		if (gsn_view_is_read(view))
			break;
		gsn_gather(view, NULL, piece_target(slot, view));
	}
}

/* All of the window has landed in the slot: send it off. */
static gpusnap_status copy_window(struct run *run, struct slot *slot, gpusnap_error *err)
{
	gpusnap_status st;

	st = run->ops->copy(run->stream, GSN_HOST_TO_DEVICE,
		run->job->address + slot->window.target, (uint64_t)(uintptr_t)slot->memory,
		slot->window.bytes, err);
	if (!st)
		st = run->ops->event_record(slot->event, run->stream, err);
	if (st)
		return st;
	slot->recorded = true;
	slot->open = false;
	run->report->copies++;
	run->bytes_done += slot->window.bytes;
	return gsn_io_progress(&run->io, run->bytes_done, run->job->bytes, err);
}

static gpusnap_status open_window(struct run *run, struct slot *slot, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	if (slot->recorded)
		st = run->ops->event_sync(slot->event, err);
	if (!st)
		st = gsn_load_plan_next(&run->plan, &slot->window, err);
	if (st)
		return st;
	run->exhausted = slot->window.bytes == 0;
	if (run->exhausted)
		return GPUSNAP_OK;
	slot->open = true;
	slot->next_read = 0;
	slot->left = slot->window.read_count;
	gather_memory_pieces(slot);
	return slot->left ? GPUSNAP_OK : copy_window(run, slot, err);
}

/* ---- reads ---- */

static gpusnap_status submit_read(struct run *run, struct slot *slot, gpusnap_error *err)
{
	const struct gsn_read *read = &slot->window.reads[slot->next_read];
	struct buffer *buffer = run->free[run->free_count - 1];
	struct gsn_ring_request request = {
		.op = GSN_RING_READ,
		.fd = run->job->checkpoint->shards[read->shard].file.fd,
		.memory = buffer->memory,
		.length = read->bytes,
		.offset = read->offset,
		.tag = buffer,
	};
	gpusnap_status st;

	*buffer = (struct buffer){.memory = buffer->memory, .slot = slot, .read = read};
	if (run->direct[read->shard]) {
		request.offset = gsn_align_down(read->offset, GSN_DIRECT_ALIGN);
		buffer->skipped = read->offset - request.offset;
		request.length = gsn_align_up(buffer->skipped + read->bytes, GSN_DIRECT_ALIGN);
	} else if (read->direct) {
		request.memory = piece_target(slot, &slot->window.pieces[read->first].view);
	}
	st = gsn_ring_submit(run->ring, &request, err);
	if (st)
		return st;
	run->free_count--;
	slot->next_read++;
	return GPUSNAP_OK;
}

/* The slot that has a read to submit, opening the next window when there is room; NULL: none. */
static gpusnap_status slot_to_read(struct run *run, struct slot **ret_slot, gpusnap_error *err)
{
	struct slot *slot = &run->slots[run->filling];
	gpusnap_status st = GPUSNAP_OK;

	*ret_slot = NULL;
	if (slot->open && slot->next_read < slot->window.read_count) {
		*ret_slot = slot;
		return GPUSNAP_OK;
	}
	if (slot->open) {
		run->filling = (run->filling + 1) % SLOT_COUNT;
		slot = &run->slots[run->filling];
	}
	while (!st && !slot->open && !run->exhausted)
		st = open_window(run, slot, err);
	if (!st && slot->open && slot->next_read < slot->window.read_count)
		*ret_slot = slot;
	return st;
}

static gpusnap_status submit_reads(struct run *run, gpusnap_error *err)
{
	while (run->free_count && gsn_ring_in_flight(run->ring) < run->io.depth) {
		struct slot *slot;
		gpusnap_status st = slot_to_read(run, &slot, err);

		if (!st && slot)
			st = submit_read(run, slot, err);
		if (st || !slot)
			return st;
	}
	return GPUSNAP_OK;
}

static gpusnap_status check_completion(
	const struct run *run, const struct gsn_ring_completion *completion, gpusnap_error *err)
{
	const struct buffer *buffer = completion->tag;
	const struct gsn_read *read = buffer->read;
	const struct gsn_source_file *file = &run->job->checkpoint->shards[read->shard].file;

	if (completion->status)
		return gsn_fail_os(err, completion->status, completion->os_errno,
			"cannot read %s at %llu: %s", file->path, (unsigned long long)read->offset,
			strerror(completion->os_errno));
	if (completion->done < buffer->skipped + read->bytes)
		return gsn_fail_at(err, GPUSNAP_E_IO, read->offset,
			"%s ends before %llu, it had %llu bytes when the load began; load again",
			file->path, (unsigned long long)(read->offset + read->bytes),
			(unsigned long long)file->bytes);
	return GPUSNAP_OK;
}

static gpusnap_status release_buffer(struct run *run, struct buffer *buffer, gpusnap_error *err)
{
	struct slot *slot = buffer->slot;

	run->free[run->free_count++] = buffer;
	slot->left--;
	return slot->left ? GPUSNAP_OK : copy_window(run, slot, err);
}

/* Wait for one read; those that landed in the slot itself are done, the others become ready. */
static gpusnap_status reap_read(struct run *run, gpusnap_error *err)
{
	struct gsn_ring_completion completion;
	struct buffer *buffer;
	gpusnap_status st = gsn_ring_wait(run->ring, &completion, err);

	if (!st)
		st = check_completion(run, &completion, err);
	if (st)
		return st;
	buffer = completion.tag;
	run->report->bytes_read += completion.done;
	if (buffer->read->direct && !run->direct[buffer->read->shard])
		return release_buffer(run, buffer, err);
	run->ready[run->ready_count++] = buffer;
	return GPUSNAP_OK;
}

/* ---- gathering ---- */

static void gather_piece(const struct buffer *buffer, uint32_t index)
{
	const struct gsn_view *view =
		&buffer->slot->window.pieces[buffer->read->first + index].view;
	const uint8_t *source =
		buffer->memory + buffer->skipped + (view->source - buffer->read->offset);

	gsn_gather(view, source, piece_target(buffer->slot, view));
}

/* Task number: pieces of all ready buffers, one after the other. */
static void gather_task(void *argument, uint64_t task)
{
	const struct run *run = argument;

	for (uint32_t i = 0; i < run->ready_count; i++) {
		if (task < run->ready[i]->read->count) {
			gather_piece(run->ready[i], (uint32_t)task);
			return;
		}
		task -= run->ready[i]->read->count;
	}
}

static gpusnap_status gather_ready(struct run *run, gpusnap_error *err)
{
	uint64_t tasks = 0;
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; i < run->ready_count; i++)
		tasks += run->ready[i]->read->count;
	if (tasks)
		gsn_pool_run(run->pool, gather_task, run, tasks);
	while (!st && run->ready_count)
		st = release_buffer(run, run->ready[--run->ready_count], err);
	return st;
}

/* ---- the loop ---- */

/* Wait for half of what is in flight, refill the ring, and gather while the disk works. */
static gpusnap_status advance(struct run *run, gpusnap_error *err)
{
	uint32_t wanted = (gsn_ring_in_flight(run->ring) + 1) / 2;
	gpusnap_status st = GPUSNAP_OK;

	while (!st && wanted--)
		st = reap_read(run, err);
	if (!st)
		st = submit_reads(run, err);
	if (!st)
		st = gather_ready(run, err);
	return st;
}

static gpusnap_status run_plan(struct run *run, gpusnap_error *err)
{
	gpusnap_status st;

	do {
		st = submit_reads(run, err);
		if (!st && gsn_ring_in_flight(run->ring))
			st = advance(run, err);
	} while (!st && (!run->exhausted || gsn_ring_in_flight(run->ring)));
	return st ? st : run->ops->stream_sync(run->stream, err);
}

static double now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

gpusnap_status gsn_load_run(
	const struct gsn_load_job *job, gpusnap_load_report *report, gpusnap_error *err)
{
	struct run run = {.job = job, .ops = job->device->ops, .report = report};
	double start = now();
	gpusnap_status st = open_run(&run, err);

	if (!st)
		st = run_plan(&run, err);
	close_run(&run);
	report->io.bytes = report->bytes_read;
	report->io.seconds = now() - start;
	return st;
}
