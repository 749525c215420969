/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_TENSORS_H
#define GSN_MOE_TENSORS_H
/* The tensors of one MoE layer, sorted into the slots of its parameters, and whether all are there.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/moe.h>

#include "loader/checkpoint.h"
#include "loader/config.h"
#include "loader/family.h"

struct gsn_moe_slot_tensors {
	uint32_t parts;	  /* matrices an expert, or 1 for a tensor of the layer; 0: none seen */
	uint32_t experts; /* 1 for a tensor of the layer */
	enum gsn_shard_axis axis;
	enum gsn_layout layout;
	/* [experts * parts]; NULL where missing. One that holds all experts is in all places. */
	const struct gsn_checkpoint_tensor **tensors;
};

struct gsn_moe_tensors {
	uint32_t layer;
	bool prefixed;
	struct gsn_moe_slot_tensors slots[GPUSNAP_MOE_SLOTS];
};

/* The slots that weights and their scales are in: of the routed experts, of the shared one. */
struct gsn_expert_slots {
	gpusnap_moe_slot w13, w13_scale, w2, w2_scale;
};
extern const struct gsn_expert_slots gsn_routed_slots, gsn_shared_slots;

/* E_FORMAT: an expert that config.json does not count, a parameter given twice. */
gpusnap_status gsn_moe_tensors_add(struct gsn_moe_tensors *layer, const struct gsn_config *config,
	const struct gsn_tensor_match *match, const struct gsn_checkpoint_tensor *tensor,
	gpusnap_error *err);
/* Has it any tensor besides the norm, which dense layers have too. */
bool gsn_moe_tensors_any(const struct gsn_moe_tensors *layer);
/* Has the layer weights whose dtype asks for scales; dtype of the first one that is there. */
bool gsn_moe_tensors_scaled(
	const struct gsn_moe_tensors *layer, const struct gsn_expert_slots *slots);
/* E_FORMAT, with their names, when tensors that the layer needs are not there. */
gpusnap_status gsn_moe_tensors_complete(
	const struct gsn_moe_tensors *layer, const struct gsn_config *config, gpusnap_error *err);
void gsn_moe_tensors_release(struct gsn_moe_tensors *layer);

#endif
