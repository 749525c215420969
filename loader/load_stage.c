/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/load_stage.h"

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "loader/gather.h"
#include "snapshot/io_options.h"

/* Makes the cost of a copy's launch vanish. */
#define SLOT_BYTES (32ull << 20)
/* Every thread of a reader has a buffer for one run. */
#define READ_BYTES_MAX (16ull << 20)

struct gsn_plan_limits gsn_load_limits(
	uint64_t bytes, const gpusnap_io_options *io, gpusnap_compact compact)
{
	uint64_t all = gsn_align_up(gsn_max(bytes, 1), GSN_IO_BLOCK_UNIT);

	return (struct gsn_plan_limits){
		.slot_bytes = gsn_min(SLOT_BYTES, all),
		.read_bytes = gsn_min(gsn_min(io->block_bytes, READ_BYTES_MAX), all),
		.compact = compact,
	};
}

/* ---- opening and closing ---- */

static gpusnap_status open_arena(
	struct gsn_load_stage *stage, uint64_t reader_bytes, gpusnap_error *err)
{
	uint64_t slot_bytes = stage->in_place ? 0 : stage->limits.slot_bytes;
	void *memory;
	gpusnap_status st;

	stage->arena_bytes = GSN_LOAD_SLOTS * slot_bytes + reader_bytes;
	if (stage->arena_bytes == 0)
		return GPUSNAP_OK;
	st = stage->ops->pinned_alloc(
		stage->job->device->context, stage->arena_bytes, &memory, err);
	if (st)
		return st;
	stage->arena = memory;
	for (uint32_t i = 0; i < GSN_LOAD_SLOTS; i++)
		stage->slots[i].memory = stage->arena + i * slot_bytes;
	stage->reader_memory = stage->arena + GSN_LOAD_SLOTS * slot_bytes;
	return GPUSNAP_OK;
}

static gpusnap_status open_device(struct gsn_load_stage *stage, gpusnap_error *err)
{
	void *context = stage->job->device->context;
	gpusnap_status st = stage->ops->stream_create(context, &stage->stream, err);

	for (uint32_t i = 0; !st && i < GSN_LOAD_SLOTS; i++)
		st = stage->ops->event_create(context, &stage->slots[i].event, err);
	return st;
}

gpusnap_status gsn_load_stage_open(
	struct gsn_load_stage *stage, uint64_t reader_bytes, gpusnap_error *err)
{
	const struct gsn_load_job *job = stage->job;
	gpusnap_status st;

	stage->ops = job->device->ops;
	stage->in_place = (stage->ops->caps & GSN_CAP_HOST_ADDRESSABLE) != 0;
	gsn_load_plan_init(&stage->plan, job->views, job->view_count, &stage->limits);
	st = open_arena(stage, reader_bytes, err);
	return st ? st : open_device(stage, err);
}

/* The stream ends before the memory that it copies from is freed. */
void gsn_load_stage_close(struct gsn_load_stage *stage)
{
	if (!stage->ops)
		return;
	stage->ops->stream_destroy(stage->stream);
	for (uint32_t i = 0; i < GSN_LOAD_SLOTS; i++) {
		stage->ops->event_destroy(stage->slots[i].event);
		gsn_window_release(&stage->slots[i].window);
	}
	if (stage->arena)
		stage->ops->pinned_free(
			stage->job->device->context, stage->arena, stage->arena_bytes);
	gsn_load_plan_release(&stage->plan);
}

/* ---- windows ---- */

uint8_t *gsn_load_slot_target(const struct gsn_load_slot *slot, const struct gsn_view *view)
{
	return slot->memory + (view->target - slot->window.target);
}

static void fill_unread_pieces(const struct gsn_load_slot *slot)
{
	for (size_t i = slot->window.piece_count; i > 0; i--) {
		const struct gsn_view *view = &slot->window.pieces[i - 1];

		if (gsn_view_is_read(view))
			break;
		gsn_gather(view, NULL, gsn_load_slot_target(slot, view));
	}
}

static gpusnap_status copy_to_device(
	struct gsn_load_stage *stage, struct gsn_load_slot *slot, gpusnap_error *err)
{
	gpusnap_status st;

	if (stage->in_place)
		return GPUSNAP_OK;
	st = stage->ops->copy(stage->stream, GSN_HOST_TO_DEVICE,
		stage->job->address + slot->window.target, (uint64_t)(uintptr_t)slot->memory,
		slot->window.bytes, err);
	if (!st)
		st = stage->ops->event_record(slot->event, stage->stream, err);
	slot->recorded = !st;
	return st;
}

gpusnap_status gsn_load_stage_send(
	struct gsn_load_stage *stage, struct gsn_load_slot *slot, gpusnap_error *err)
{
	gpusnap_status st = copy_to_device(stage, slot, err);

	if (st)
		return st;
	slot->open = false;
	stage->report->copies++;
	stage->report->runs += slot->window.read_count;
	stage->bytes_done += slot->window.bytes;
	return gsn_io_progress(&stage->io, stage->bytes_done, stage->job->bytes, err);
}

gpusnap_status gsn_load_stage_plan(
	struct gsn_load_stage *stage, struct gsn_load_slot *slot, gpusnap_error *err)
{
	gpusnap_status st = gsn_load_plan_next(&stage->plan, &slot->window, err);

	slot->planned = !st;
	return st;
}

gpusnap_status gsn_load_stage_next(struct gsn_load_stage *stage, struct gsn_load_slot *slot,
	bool *ret_more, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	if (!slot->planned)
		st = gsn_load_stage_plan(stage, slot, err);
	if (!st && slot->recorded)
		st = stage->ops->event_sync(slot->event, err);
	if (st)
		return st;
	slot->planned = false;
	*ret_more = slot->window.bytes > 0;
	if (!*ret_more)
		return GPUSNAP_OK;
	if (stage->in_place)
		slot->memory = (uint8_t *)(uintptr_t)(stage->job->address + slot->window.target);
	slot->open = true;
	slot->next_read = 0;
	slot->left = slot->window.read_count;
	fill_unread_pieces(slot);
	return slot->left ? GPUSNAP_OK : gsn_load_stage_send(stage, slot, err);
}
