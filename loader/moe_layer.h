/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_LAYER_H
#define GSN_MOE_LAYER_H
/*
 * One rank's share of a MoE layer: fused buffers, the views that fill them, the description. The
 * shared expert, whose output is to be added once, lives on expert-parallel rank 0.
 */
#include <gpusnap/moe.h>

#include "loader/moe_tensors.h"
#include "loader/rank_state.h"

/*
 * Append the layer's buffers and views to `state`, and describe it in `*ret_layer` (zeroed before;
 * released by gpusnap_moe_model_free() of the model that it is part of, also after a failure).
 */
gpusnap_status gsn_moe_layer_build(struct gsn_rank_state *state,
	const struct gsn_moe_tensors *tensors, const struct gsn_config *config,
	const struct gsn_rank *rank, gpusnap_moe_layer *ret_layer, gpusnap_error *err);

#endif
