/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_MEMORY_H
#define GSN_GPU_MEMORY_H
/* Memory of a GPU: address ranges, maps, and page-locked memory of the host. */
#include <stdbool.h>

#include "kernels/device_ops.h"

struct gsn_gpu;

/* Give every range that is left back to the driver. */
void gsn_gpu_memory_release(struct gsn_gpu *gpu);

/* How much of the host memory from `address` on is registered, or is not: one or the other. */
uint64_t gsn_gpu_registered_part(
	struct gsn_gpu *gpu, uint64_t address, uint64_t bytes, bool *ret_registered);

/* Slots of the device table: `context` is a struct gsn_gpu. */
gpusnap_status gsn_gpu_reserve(
	void *context, uint64_t bytes, gpusnap_address *ret_address, gpusnap_error *err);
gpusnap_status gsn_gpu_map(
	void *context, gpusnap_address address, uint64_t bytes, uint8_t fill, gpusnap_error *err);
gpusnap_status gsn_gpu_unmap(
	void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
void gsn_gpu_release(void *context, gpusnap_address address, uint64_t bytes);
gpusnap_status gsn_gpu_pinned_alloc(
	void *context, uint64_t bytes, void **ret_memory, gpusnap_error *err);
void gsn_gpu_pinned_free(void *context, void *memory, uint64_t bytes);
gpusnap_status gsn_gpu_pin(void *context, void *memory, uint64_t bytes, gpusnap_error *err);
void gsn_gpu_unpin(void *context, void *memory, uint64_t bytes);

#endif
