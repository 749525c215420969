/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SPAN_H
#define GSN_SPAN_H
/*
 * Spans: what one thread handles at a time. A run of the file, of one link, that holds whole leaves
 * of any number of segments; only where it meets the end of what there is may it cut one.
 */
#include "snapshot/snapshot_file.h"

struct gsn_span {
	uint64_t begin, end;	/* places */
	struct gsn_cursor from; /* to walk its pieces with, up to `end` */
};

/*
 * The next span of at most `most` bytes, a multiple of the leaf size, that ends before the place
 * `limit`; the cursor moves behind it. False when there is none.
 */
bool gsn_span_next(const gpusnap_snapshot *snapshot, struct gsn_cursor *cursor, uint64_t limit,
	uint64_t most, struct gsn_span *ret_span);

#endif
