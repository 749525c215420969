/* SPDX-License-Identifier: Apache-2.0 */
/* MoE operations as stream work: arguments are checked at once, the arithmetic runs in its turn. */
#include "kernels/host_launch.h"

#include "kernels/host_moe.h"
#include "kernels/host_stream.h"
#include "kernels/moe_args.h"

#define LAUNCH(name, type, check, compute)                                                         \
	static gpusnap_status run_##name(                                                          \
		struct gsn_host *host, const void *args, gpusnap_error *err)                       \
	{                                                                                          \
		return compute(&host->moe, args, err);                                             \
	}                                                                                          \
                                                                                                   \
	gpusnap_status gsn_host_launch_##name(                                                     \
		struct gsn_stream *stream, const type *args, gpusnap_error *err)                   \
	{                                                                                          \
		gpusnap_status status = check(args, err);                                          \
                                                                                                   \
		if (!status)                                                                       \
			gsn_host_stream_submit(stream, run_##name, args, sizeof *args, NULL);      \
		return status;                                                                     \
	}

LAUNCH(route, struct gsn_moe_route, gsn_moe_route_check, gsn_host_moe_route)
LAUNCH(localise, struct gsn_moe_localise, gsn_moe_localise_check, gsn_host_moe_localise)
LAUNCH(experts, struct gsn_moe_experts, gsn_moe_experts_check, gsn_host_moe_experts)
LAUNCH(combine, struct gsn_moe_combine, gsn_moe_combine_check, gsn_host_moe_combine)
LAUNCH(rms_norm, struct gsn_rms_norm, gsn_rms_norm_check, gsn_host_rms_norm)
