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
		(void)gpuClearError(); /* an older one would be taken for the launch's */          \
		code = (gpuError_t)launcher(args, stream->gpu->multiprocessors, stream->handle);   \
		gsn_gpu_leave(caller);                                                             \
		return code ? gsn_gpu_fail(stream->gpu, code, err, "%s: launch", text)             \
			    : GPUSNAP_OK;                                                          \
	}

LAUNCH(gsn_gpu_moe_route, struct gsn_moe_route, gsn_moe_route_check, gsn_gpu_launch_route,
	"MoE route")
LAUNCH(gsn_gpu_moe_localise, struct gsn_moe_localise, gsn_moe_localise_check,
	gsn_gpu_launch_localise, "MoE localise")
LAUNCH(gsn_gpu_moe_experts, struct gsn_moe_experts, gsn_moe_experts_check, gsn_gpu_launch_experts,
	"MoE experts")
LAUNCH(gsn_gpu_moe_combine, struct gsn_moe_combine, gsn_moe_combine_check, gsn_gpu_launch_combine,
	"MoE combine")
LAUNCH(gsn_gpu_rms_norm, struct gsn_rms_norm, gsn_rms_norm_check, gsn_gpu_launch_rms_norm,
	"RMS norm")
