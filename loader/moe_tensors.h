/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_TENSORS_H
#define GSN_MOE_TENSORS_H
/*
 * The tensors of one MoE layer, sorted into the slots of its parameters, and checked: all there,
 * one dtype, shapes that fit each other.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/moe.h>

#include "loader/checkpoint.h"
#include "loader/config.h"
#include "loader/family.h"

struct gsn_moe_slot_tensors {
	uint32_t parts;	  /* tensors an expert, or 1 for a tensor of the layer; 0: none seen */
	uint32_t experts; /* 1 for a tensor of the layer */
	enum gsn_shard_axis axis;
	const struct gsn_checkpoint_tensor **tensors; /* [experts * parts]; NULL where missing */
};

struct gsn_moe_tensors {
	uint32_t layer;
	bool prefixed;
	struct gsn_moe_slot_tensors slots[GPUSNAP_MOE_SLOTS];
};

/* Sizes of the whole layer, taken from the tensors. */
struct gsn_moe_sizes {
	uint64_t hidden;
	uint64_t intermediate;
	gpusnap_dtype dtype; /* of the experts' weights */
	uint64_t shared;     /* intermediate of the shared expert; 0: none */
	gpusnap_dtype shared_dtype;
};

/* E_FORMAT: an expert that config.json does not count, a parameter given twice. */
gpusnap_status gsn_moe_tensors_add(struct gsn_moe_tensors *layer, const struct gsn_config *config,
	const struct gsn_tensor_match *match, const struct gsn_checkpoint_tensor *tensor,
	gpusnap_error *err);
/* Has it any tensor besides the norm, which dense layers have too. */
bool gsn_moe_tensors_any(const struct gsn_moe_tensors *layer);
/* Complete and consistent, or E_FORMAT / E_UNSUPPORTED naming tensor and values. */
gpusnap_status gsn_moe_tensors_check(const struct gsn_moe_tensors *layer,
	const struct gsn_config *config, struct gsn_moe_sizes *ret_sizes, gpusnap_error *err);
void gsn_moe_tensors_release(struct gsn_moe_tensors *layer);

#endif
