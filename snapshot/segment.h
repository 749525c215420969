/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SEGMENT_H
#define GSN_SEGMENT_H
/*
 * Segments: where in a file each saved range lies, and where in memory. Jobs walk them in file
 * order, block by block, each of their steps (copy, hash, write) with a cursor of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/device.h>
#include <gpusnap/digest.h>

struct gsn_segment {
	const char *name;	 /* borrowed */
	uint32_t region;	 /* id of the region that the live bytes lie in */
	gpusnap_address address; /* of the live bytes; 0 where there are none */
	uint64_t start; /* in the buffer, a multiple of the leaf size; more than 0 in its parts */
	uint64_t bytes;
	uint64_t file_offset;
	uint64_t first_leaf; /* in the file's leaf table */
};

/* Segments in file order, which may leave gaps. */
struct gsn_cursor {
	const struct gsn_segment *segments;
	size_t count;
	size_t index;
	uint64_t offset; /* in segments[index] */
};

/* Consecutive bytes of one segment. */
struct gsn_piece {
	const struct gsn_segment *segment;
	uint64_t offset; /* in the segment */
	uint64_t bytes;
};

/* Consecutive bytes both in the file and in one region, over any number of segments. */
struct gsn_run {
	uint64_t file_offset;
	gpusnap_address address;
	uint64_t bytes;
};

/* The next piece before `file_end`; false when there is none. Empty segments give none. */
bool gsn_cursor_next(struct gsn_cursor *cursor, uint64_t file_end, struct gsn_piece *ret_piece);
bool gsn_cursor_next_run(struct gsn_cursor *cursor, uint64_t file_end, struct gsn_run *ret_run);
/* Where in the file the next piece begins; false when nothing is left. */
bool gsn_cursor_peek(struct gsn_cursor *cursor, uint64_t *ret_file_offset);

/* Number of the first leaf, counted in the buffer. */
static inline uint64_t gsn_segment_leaf(const struct gsn_segment *segment)
{
	return segment->start / GPUSNAP_LEAF_BYTES;
}

static inline uint64_t gsn_piece_file_offset(const struct gsn_piece *piece)
{
	return piece->segment->file_offset + piece->offset;
}

#endif
