/* SPDX-License-Identifier: Apache-2.0 */
/* MoE operations on a GPU: arguments are checked at once, the launchers choose kernel and grid. */
#include "kernels/gpu_launch.h"

#include <stdbool.h>

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

/* What the GPU kernels do not compute is refused by name: never run as if it were not asked for. */
struct refusal {
	bool asked;
	const char *what;
};

static gpusnap_status refuse(
	const char *call, const struct refusal *list, size_t count, gpusnap_error *err)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].asked)
			return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
				"%s: %s not built for GPUs yet; use device host", call,
				list[i].what);
	return GPUSNAP_OK;
}

static gpusnap_status check_route(const struct gsn_moe_route *args, gpusnap_error *err)
{
	const struct refusal refusals[] = {
		{args->score != GPUSNAP_SCORE_SOFTMAX, "scores other than softmax are"},
		{args->scale != 0.0f, "scaled weights are"},
		{args->router_bias != 0, "a router bias is"},
	};
	gpusnap_status status = gsn_moe_route_check(args, err);

	return status ? status
		      : refuse("MoE route", refusals, sizeof refusals / sizeof refusals[0], err);
}

static gpusnap_status check_experts(const struct gsn_moe_experts *args, gpusnap_error *err)
{
	const struct refusal refusals[] = {
		{args->weight_dtype == GPUSNAP_F4, "F4 weights are"},
		{args->w13_scale && args->scale_dtype != GPUSNAP_F32, "E8M0 scales are"},
		{args->activation != GPUSNAP_ACTIVATION_SILU, "activations other than silu are"},
		{args->limit != 0.0f, "limits of the activation are"},
		{args->w13_bias || args->w2_bias, "biases of experts are"},
		{args->weight_before_w2, "weights before w2 are"},
	};
	gpusnap_status status = gsn_moe_experts_check(args, err);

	return status ? status
		      : refuse("MoE experts", refusals, sizeof refusals / sizeof refusals[0], err);
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
LAUNCH(gsn_gpu_moe_experts, struct gsn_moe_experts, check_experts, gsn_gpu_launch_experts,
	"MoE experts")
LAUNCH(gsn_gpu_moe_combine, struct gsn_moe_combine, check_combine, gsn_gpu_launch_combine,
	"MoE combine")
LAUNCH(gsn_gpu_rms_norm, struct gsn_rms_norm, gsn_rms_norm_check, gsn_gpu_launch_rms_norm,
	"RMS norm")
