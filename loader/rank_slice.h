/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RANK_SLICE_H
#define GSN_RANK_SLICE_H
/* What a rank takes of one axis of a matrix. */
#include <stdint.h>

/* `have` of the whole from `first` on, then padding up to `padded`. */
struct gsn_slice {
	uint64_t first, have, padded;
};

struct gsn_slice gsn_slice_whole(uint64_t whole);
/*
 * One of `ranks` equal slices, a multiple of `unit` where there are several. Slices begin at
 * multiples of their size, so that the last ones have less than it, or nothing.
 */
struct gsn_slice gsn_slice_of_rank(uint64_t whole, uint32_t rank, uint32_t ranks, uint32_t unit);
/* The same counted in pieces of `size`, on a border of which it begins. */
struct gsn_slice gsn_slice_in(const struct gsn_slice *slice, uint32_t size);

#endif
