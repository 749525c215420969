/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SCALE_BLOCKS_H
#define GSN_SCALE_BLOCKS_H
/*
 * Block scales under tensor parallelism. A rank's slice may begin inside a block of the
 * checkpoint; then the rank's layer is described with smaller blocks, and scales are repeated, so
 * that every block of the rank begins on a border: rows 96.. of 128-row blocks become blocks of 32.
 */
#include <stdint.h>

#include <gpusnap/status.h>

/* Kernels take weights in groups of this many columns, which must not cross a scale's border. */
#define GSN_BLOCK_K_UNIT 16u

struct gsn_scale_blocks {
	uint32_t block_n, block_k; /* of the rank's layer */
	uint32_t ratio_n, ratio_k; /* how many of them make one of the checkpoint */
};

/*
 * Blocks of a rank that holds `intermediate` rows of gate and up, and as many columns of down,
 * from blocks of block_n x block_k. E_INVALID names tp_size where block_k would be no multiple of
 * GSN_BLOCK_K_UNIT.
 */
gpusnap_status gsn_scale_blocks_choose(uint32_t block_n, uint32_t block_k, uint64_t intermediate,
	uint32_t tp_size, struct gsn_scale_blocks *ret_blocks, gpusnap_error *err);

#endif
