/* SPDX-License-Identifier: Apache-2.0 */
/* Walking segments in pieces that end where a block of the file ends. */
#include "snapshot/segment.h"

#include "formats/base/bytes.h"

/* The segment that the cursor stands in, with bytes left; NULL at the end. */
static const struct gsn_segment *current(struct gsn_cursor *cursor)
{
	while (cursor->index < cursor->count) {
		const struct gsn_segment *segment = &cursor->segments[cursor->index];

		if (cursor->offset < segment->bytes)
			return segment;
		cursor->index++;
		cursor->offset = 0;
	}
	return NULL;
}

bool gsn_cursor_peek(struct gsn_cursor *cursor, uint64_t *ret_file_offset)
{
	const struct gsn_segment *segment = current(cursor);

	if (!segment)
		return false;
	*ret_file_offset = segment->file_offset + cursor->offset;
	return true;
}

bool gsn_cursor_next(struct gsn_cursor *cursor, uint64_t file_end, struct gsn_piece *ret_piece)
{
	const struct gsn_segment *segment;
	uint64_t begin;

	if (!gsn_cursor_peek(cursor, &begin) || begin >= file_end)
		return false;
	segment = &cursor->segments[cursor->index];
	*ret_piece = (struct gsn_piece){
		.segment = segment,
		.offset = cursor->offset,
		.bytes = gsn_min(segment->bytes - cursor->offset, file_end - begin),
	};
	cursor->offset += ret_piece->bytes;
	return true;
}

/* Two regions may have neighbouring addresses; a copy must not cross from one into the other. */
static bool continues(
	const struct gsn_run *run, uint32_t region, const struct gsn_segment *next, uint64_t offset)
{
	return next->region == region &&
	       next->file_offset + offset == run->file_offset + run->bytes &&
	       next->address + offset == run->address + run->bytes;
}

bool gsn_cursor_next_run(struct gsn_cursor *cursor, uint64_t file_end, struct gsn_run *ret_run)
{
	const struct gsn_segment *next;
	struct gsn_piece piece;
	uint32_t region;

	if (!gsn_cursor_next(cursor, file_end, &piece))
		return false;
	region = piece.segment->region;
	*ret_run = (struct gsn_run){
		.file_offset = gsn_piece_file_offset(&piece),
		.address = piece.segment->address + piece.offset,
		.bytes = piece.bytes,
	};
	for (;;) {
		next = current(cursor);
		if (!next || !continues(ret_run, region, next, cursor->offset) ||
			!gsn_cursor_next(cursor, file_end, &piece))
			return true;
		ret_run->bytes += piece.bytes;
	}
}
