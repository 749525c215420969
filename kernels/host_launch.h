/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_LAUNCH_H
#define GSN_HOST_LAUNCH_H
/* MoE operations of the host device as work of a stream: slots of the device table. */
#include "kernels/device_ops.h"

gpusnap_status gsn_host_launch_route(
	struct gsn_stream *stream, const struct gsn_moe_route *args, gpusnap_error *err);
gpusnap_status gsn_host_launch_localise(
	struct gsn_stream *stream, const struct gsn_moe_localise *args, gpusnap_error *err);
gpusnap_status gsn_host_launch_experts(
	struct gsn_stream *stream, const struct gsn_moe_experts *args, gpusnap_error *err);
gpusnap_status gsn_host_launch_combine(
	struct gsn_stream *stream, const struct gsn_moe_combine *args, gpusnap_error *err);
gpusnap_status gsn_host_launch_rms_norm(
	struct gsn_stream *stream, const struct gsn_rms_norm *args, gpusnap_error *err);

#endif
