/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/rank_slice.h"

#include "formats/base/bytes.h"

struct gsn_slice gsn_slice_whole(uint64_t whole)
{
	return (struct gsn_slice){0, whole, whole};
}

struct gsn_slice gsn_slice_of_rank(uint64_t whole, uint32_t rank, uint32_t ranks, uint32_t unit)
{
	uint64_t share, first;

	if (ranks == 1)
		return gsn_slice_whole(whole);
	share = gsn_ceil_div(gsn_ceil_div(whole, ranks), unit) * unit;
	first = gsn_min(share * rank, whole);
	return (struct gsn_slice){first, gsn_min(share, whole - first), share};
}

struct gsn_slice gsn_slice_in(const struct gsn_slice *slice, uint32_t size)
{
	return (struct gsn_slice){slice->first / size, gsn_ceil_div(slice->have, size),
		gsn_ceil_div(slice->padded, size)};
}
