/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LOAD_STAGE_H
#define GSN_LOAD_STAGE_H
/*
 * The device's side of a load: windows of the plan are put together in pinned staging slots and
 * sent off, one copy a window. How the bytes come into a slot is the reader's business. Memory of
 * the host device needs no staging: a slot is the window's place in the region, and no copy is
 * made.
 */
#include <stdbool.h>

#include "loader/load_plan.h"
#include "loader/load_run.h"

/* Two slots keep the link busy, the third takes the gathering. */
#define GSN_LOAD_SLOTS 3u

/* A slot and the window that is being put together in it. */
struct gsn_load_slot {
	uint8_t *memory;
	struct gsn_window window;
	size_t next_read; /* for the reader: reads begun, */
	size_t left;	  /* and reads not landed yet */
	bool open;
	bool planned;  /* the window is the next one, not opened yet */
	bool recorded; /* the event stands for a copy out of the slot */
	struct gsn_event *event;
};

struct gsn_load_stage {
	const struct gsn_load_job *job;
	const struct gsn_device_ops *ops;
	gpusnap_load_report *report;
	gpusnap_io_options io; /* resolved */
	struct gsn_plan_limits limits;
	uint32_t threads; /* that the reader may use */
	bool in_place;	  /* windows are put together where they belong: the device is the host */
	uint8_t *arena;	  /* pinned: slots, then what the reader asked for */
	uint64_t arena_bytes;
	uint8_t *reader_memory;
	struct gsn_load_slot slots[GSN_LOAD_SLOTS];
	uint64_t bytes_done;
	struct gsn_load_plan plan;
	struct gsn_stream *stream;
};

/* Window and read sizes for a region of so many bytes: a small model gets small buffers. */
struct gsn_plan_limits gsn_load_limits(
	uint64_t bytes, const gpusnap_io_options *io, gpusnap_compact compact);

/*
 * `job`, `report`, `io`, `limits` and `threads` are set; the rest is zero. `reader_bytes` of pinned
 * memory go along.
 */
gpusnap_status gsn_load_stage_open(
	struct gsn_load_stage *stage, uint64_t reader_bytes, gpusnap_error *err);
/* Nothing may read into the slots any more. Takes one that failed to open. */
void gsn_load_stage_close(struct gsn_load_stage *stage);
/*
 * Plan the next window ahead, into a slot that is not open; its copy may still be on the way. The
 * other slots' windows stay as they are, so this may run beside their gathering.
 */
gpusnap_status gsn_load_stage_plan(
	struct gsn_load_stage *stage, struct gsn_load_slot *slot, gpusnap_error *err);
/*
 * Put the next window into a slot once that one's copy is done; its padding and masks are there
 * already. A window that needs no read is sent off at once, and `slot->open` is false then.
 * *ret_more is false when no window is left.
 */
gpusnap_status gsn_load_stage_next(struct gsn_load_stage *stage, struct gsn_load_slot *slot,
	bool *ret_more, gpusnap_error *err);
/* All of the window has landed: send it off. */
gpusnap_status gsn_load_stage_send(
	struct gsn_load_stage *stage, struct gsn_load_slot *slot, gpusnap_error *err);
/* Where in the slot the view's bytes belong. */
uint8_t *gsn_load_slot_target(const struct gsn_load_slot *slot, const struct gsn_view *view);

#endif
