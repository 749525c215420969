/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_KERNELS_H
#define GSN_GPU_KERNELS_H
/*
 * What C sees of the kernels: launchers, and the memory layouts that both sides must agree on.
 * Launchers answer the vendor's code. Grids depend on the arguments alone, never on device data,
 * so every launch may be captured into a graph.
 */
#include <stdint.h>

#include "kernels/device_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A range that is not empty, the number of its first leaf among those of all ranges, and where the
 * digests go: host memory that the vendor knows, 16-byte aligned.
 */
struct gsn_gpu_leaf_range {
	uint64_t address;
	uint64_t bytes;
	uint64_t first_leaf;
	uint64_t digests;
};

/* The scratch of moe_experts: offsets from its first 16-byte boundary, sizes in elements. */
struct gsn_gpu_moe_layout {
	uint64_t h;	      /* F32 [pairs, h_stride] */
	uint64_t mask_locals; /* I32 [mask_length]: local expert, or GSN_EXPERT_* */
	uint64_t pair_locals; /* I32 [pairs]: the same for each pair */
	uint64_t numbers;     /* U32 [pairs]: of a pair among those of its expert */
	uint64_t counts;      /* U32 [local_experts]: pairs of an expert */
	uint64_t active;      /* U32 [local_experts, 4]: experts that have pairs, ascending: expert,
			       * begin and end of its pairs, 0 */
	uint64_t pairs;	      /* U32 [pairs]: kept pairs by expert, ascending in each */
	uint64_t active_count; /* U32 */
	uint64_t bytes;	       /* of all, UINT64_MAX when that overflows */
	uint32_t h_stride;
};

struct gsn_gpu_moe_layout gsn_gpu_moe_layout_of(const struct gsn_moe_experts *args);

/* XXH3-128 of every leaf of all ranges, canonical, 16 bytes each; the table is device memory. */
int gsn_gpu_launch_digest(const struct gsn_gpu_leaf_range *ranges, uint32_t range_count,
	uint64_t leaves, void *stream);
int gsn_gpu_launch_route(const struct gsn_moe_route *args, uint32_t multiprocessors, void *stream);
int gsn_gpu_launch_localise(
	const struct gsn_moe_localise *args, uint32_t multiprocessors, void *stream);
int gsn_gpu_launch_experts(
	const struct gsn_moe_experts *args, uint32_t multiprocessors, void *stream);
int gsn_gpu_launch_combine(
	const struct gsn_moe_combine *args, uint32_t multiprocessors, void *stream);
int gsn_gpu_launch_rms_norm(
	const struct gsn_rms_norm *args, uint32_t multiprocessors, void *stream);

#ifdef __cplusplus
}
#endif
#endif
