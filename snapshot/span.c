/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/span.h"

#include "formats/base/bytes.h"

/* Up to which place of the segment, in which the cursor stands at `begin`, a span may reach. */
static uint64_t reach(const struct gsn_cursor *cursor, uint64_t begin, uint64_t stop)
{
	const struct gsn_segment *segment = &cursor->segments[cursor->index];
	uint64_t end = segment->file_offset + segment->bytes;
	uint64_t left;

	if (end <= stop)
		return end;
	if (stop <= begin)
		return begin;
	left = gsn_align_down(cursor->offset + (stop - begin), GPUSNAP_LEAF_BYTES);
	return left > cursor->offset ? begin + (left - cursor->offset) : begin;
}

bool gsn_span_next(const gpusnap_snapshot *snapshot, struct gsn_cursor *cursor, uint64_t limit,
	uint64_t most, struct gsn_span *ret_span)
{
	uint64_t begin, next, end;
	struct gsn_piece piece;

	if (!gsn_cursor_peek(cursor, &begin) || begin >= limit)
		return false;
	*ret_span = (struct gsn_span){begin, begin, *cursor};
	for (next = begin; next >= ret_span->end && next < limit;) {
		if (gsn_snapshot_link_of(snapshot, next) != gsn_snapshot_link_of(snapshot, begin))
			break;
		/* What the limit cuts is the span's all the same. */
		end = limit - begin <= most ? limit : reach(cursor, next, begin + most);
		if (!gsn_cursor_next(cursor, end, &piece))
			break;
		ret_span->end = gsn_piece_file_offset(&piece) + piece.bytes;
		if (!gsn_cursor_peek(cursor, &next))
			break;
	}
	return true;
}
