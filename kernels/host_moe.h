/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_MOE_H
#define GSN_HOST_MOE_H
/*
 * The MoE arithmetic of the host device: addresses of the argument structs are host pointers.
 * Calls run to their end on the calling thread and the pool. They allocate nothing; arguments are
 * checked first (moe_args.h), and a call that is refused writes nothing. Bits do not depend on
 * batch, threads, path or the caller's floating-point environment (arithmetic.md).
 */
#include <gpusnap/status.h>

#include "kernels/cpu_path.h"
#include "kernels/device_ops.h"
#include "kernels/pool.h"

struct gsn_host_moe {
	struct gsn_pool *pool;		 /* borrowed */
	const struct gsn_cpu_path *path; /* gsn_cpu_path_best() */
};

/* Bytes at args->scratch that gsn_host_moe_experts() writes; UINT64_MAX when that overflows. */
uint64_t gsn_host_moe_scratch_bytes(const struct gsn_moe_experts *args);

gpusnap_status gsn_host_moe_route(
	const struct gsn_host_moe *host, const struct gsn_moe_route *args, gpusnap_error *err);
gpusnap_status gsn_host_moe_localise(
	const struct gsn_host_moe *host, const struct gsn_moe_localise *args, gpusnap_error *err);
gpusnap_status gsn_host_moe_experts(
	const struct gsn_host_moe *host, const struct gsn_moe_experts *args, gpusnap_error *err);
gpusnap_status gsn_host_moe_combine(
	const struct gsn_host_moe *host, const struct gsn_moe_combine *args, gpusnap_error *err);
gpusnap_status gsn_host_rms_norm(
	const struct gsn_host_moe *host, const struct gsn_rms_norm *args, gpusnap_error *err);

#endif
