/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_LAUNCH_H
#define GSN_GPU_LAUNCH_H
/* MoE operations on a GPU: slots of the device table. */
#include "kernels/device_ops.h"

uint64_t gsn_gpu_moe_scratch_bytes(const struct gsn_moe_experts *args);
gpusnap_status gsn_gpu_moe_route(
	struct gsn_stream *stream, const struct gsn_moe_route *args, gpusnap_error *err);
gpusnap_status gsn_gpu_moe_localise(
	struct gsn_stream *stream, const struct gsn_moe_localise *args, gpusnap_error *err);
gpusnap_status gsn_gpu_moe_experts(
	struct gsn_stream *stream, const struct gsn_moe_experts *args, gpusnap_error *err);
gpusnap_status gsn_gpu_moe_combine(
	struct gsn_stream *stream, const struct gsn_moe_combine *args, gpusnap_error *err);
gpusnap_status gsn_gpu_rms_norm(
	struct gsn_stream *stream, const struct gsn_rms_norm *args, gpusnap_error *err);

#endif
