/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_ARGS_H
#define GSN_MOE_ARGS_H
/*
 * Checks of the arguments of MoE launches that hold for every device: no zero size, known score,
 * activation and dtype, scales where they belong, addresses given and aligned. Device kinds call
 * them when work is given to a stream, so that a bad call fails at once and not at the next sync.
 * E_INVALID for a contradiction, E_UNSUPPORTED for what the kernels do not compute.
 */
#include <stdbool.h>

#include <gpusnap/moe.h>
#include <gpusnap/status.h>

#include "kernels/device_ops.h"

/* A score of one expert's logit alone, so that keys and weights may differ; else a softmax. */
static inline bool gsn_score_is_single(uint32_t score)
{
	return score == GPUSNAP_SCORE_SIGMOID || score == GPUSNAP_SCORE_SQRT_SOFTPLUS;
}

gpusnap_status gsn_moe_route_check(const struct gsn_moe_route *args, gpusnap_error *err);
gpusnap_status gsn_moe_localise_check(const struct gsn_moe_localise *args, gpusnap_error *err);
gpusnap_status gsn_moe_experts_check(const struct gsn_moe_experts *args, gpusnap_error *err);
gpusnap_status gsn_moe_combine_check(const struct gsn_moe_combine *args, gpusnap_error *err);
gpusnap_status gsn_rms_norm_check(const struct gsn_rms_norm *args, gpusnap_error *err);

#endif
