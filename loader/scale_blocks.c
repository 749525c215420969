/* SPDX-License-Identifier: Apache-2.0 */
/* The block size that a tensor-parallel slice leaves possible. */
#include "loader/scale_blocks.h"

#include "formats/base/fail.h"

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

gpusnap_status gsn_scale_blocks_choose(uint32_t block_n, uint32_t block_k, uint64_t intermediate,
	uint32_t tp_size, struct gsn_scale_blocks *ret_blocks, gpusnap_error *err)
{
	struct gsn_scale_blocks blocks = {block_n, block_k, 1, 1};

	/* Slices begin at multiples of `intermediate`, so all ranks can share these borders. */
	if (tp_size > 1) {
		blocks.block_n = (uint32_t)greatest_common_divisor(block_n, intermediate);
		blocks.block_k = (uint32_t)greatest_common_divisor(block_k, intermediate);
		blocks.ratio_n = block_n / blocks.block_n;
		blocks.ratio_k = block_k / blocks.block_k;
	}
	if (blocks.block_k % GSN_BLOCK_K_UNIT != 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"tp_size %u splits scale blocks of %u columns into pieces of %u (slices of "
			"%llu); pieces must be multiples of %u: choose another tp_size",
			tp_size, block_k, blocks.block_k, (unsigned long long)intermediate,
			GSN_BLOCK_K_UNIT);
	*ret_blocks = blocks;
	return GPUSNAP_OK;
}
