/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_SIZES_H
#define GSN_MOE_SIZES_H
/*
 * Sizes and number formats of a whole MoE layer, taken from its tensors, which are checked to fit
 * each other. What config.json says of formats is not asked, but for the size of FP8's blocks.
 */
#include <stdint.h>

#include "loader/moe_tensors.h"

struct gsn_weight_format {
	gpusnap_dtype dtype;	   /* F4 also where the file calls a pair of them I8 or U8 */
	uint32_t packed;	   /* elements in a unit of the file: 2 of F4, else 1 */
	gpusnap_dtype scale_dtype; /* of the file; F8_E8M0 also where it calls them U8 */
	uint32_t block_n, block_k; /* 0: no scales */
};

struct gsn_moe_sizes {
	uint64_t hidden;
	uint64_t intermediate;
	uint64_t shared;     /* intermediate of the shared expert; 0: none */
	uint32_t vocabulary; /* rows of the hash table; 0: none */
	struct gsn_weight_format routed_format, shared_format;
};

/* Complete and consistent, or E_FORMAT / E_UNSUPPORTED naming tensor and values. */
gpusnap_status gsn_moe_sizes_take(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, struct gsn_moe_sizes *ret_sizes, gpusnap_error *err);

#endif
