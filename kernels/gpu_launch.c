/* SPDX-License-Identifier: Apache-2.0 */
/* MoE operations on a GPU: arguments are checked at once, the launchers choose kernel and grid. */
#include "kernels/gpu_launch.h"

#include <gpusnap/moe.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/gpu_device.h"
#include "kernels/gpu_kernels.h"
#include "kernels/moe_args.h"

uint64_t gsn_gpu_moe_scratch_bytes(const struct gsn_moe_experts *args)
{
	const struct gsn_gpu_moe_layout layout = gsn_gpu_moe_layout_of(args);

	return layout.bytes;
}

#define LAUNCH(name, type, check, launcher, text)                                                  \
	gpusnap_status name(struct gsn_stream *stream, const type *args, gpusnap_error *err)       \
	{                                                                                          \
		gpusnap_status status = check(args, err);                                          \
		gpuError_t code;                                                                   \
		int caller;                                                                        \
                                                                                                   \
		if (status)                                                                        \
			return status;                                                             \
		caller = gsn_gpu_enter(stream->gpu);                                               \
		code = (gpuError_t)launcher(args, stream->gpu->multiprocessors, stream->handle);   \
		gsn_gpu_leave(caller);                                                             \
		return code ? gsn_gpu_fail(stream->gpu, code, err, "%s: launch", text)             \
			    : GPUSNAP_OK;                                                          \
	}

/* The GPU kernels know softmax routing without groups; others must not run as if they were that. */
static gpusnap_status check_route(const struct gsn_moe_route *args, gpusnap_error *err)
{
	gpusnap_status status = gsn_moe_route_check(args, err);

	if (status)
		return status;
	if (args->score != GPUSNAP_SCORE_SOFTMAX || args->scale != 0.0f)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"MoE route: score %u with weights scaled by %g is not built for GPUs yet; "
			"use "
			"device host",
			args->score, (double)args->scale);
	return GPUSNAP_OK;
}

static gpusnap_status check_combine(const struct gsn_moe_combine *args, gpusnap_error *err)
{
	gpusnap_status status = gsn_moe_combine_check(args, err);

	if (!status && args->shared)
		status = gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"MoE combine: shared experts are not built for GPUs yet; use device host");
	return status;
}

LAUNCH(gsn_gpu_moe_route, struct gsn_moe_route, check_route, gsn_gpu_launch_route, "MoE route")
LAUNCH(gsn_gpu_moe_localise, struct gsn_moe_localise, gsn_moe_localise_check,
	gsn_gpu_launch_localise, "MoE localise")
LAUNCH(gsn_gpu_moe_experts, struct gsn_moe_experts, gsn_moe_experts_check, gsn_gpu_launch_experts,
	"MoE experts")
LAUNCH(gsn_gpu_moe_combine, struct gsn_moe_combine, check_combine, gsn_gpu_launch_combine,
	"MoE combine")
LAUNCH(gsn_gpu_rms_norm, struct gsn_rms_norm, gsn_rms_norm_check, gsn_gpu_launch_rms_norm,
	"RMS norm")
