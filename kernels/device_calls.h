/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DEVICE_CALLS_H
#define GSN_DEVICE_CALLS_H
/*
 * Single operations done at once: each makes a stream, gives it one piece of work, waits for it.
 * For many operations keep a stream and call the table.
 */
#include "kernels/device_ops.h"

gpusnap_status gsn_device_copy_sync(const gpusnap_device *device, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err);
gpusnap_status gsn_device_fill_sync(const gpusnap_device *device, gpusnap_address address,
	uint8_t value, uint64_t bytes, gpusnap_error *err);
gpusnap_status gsn_device_digest_sync(const gpusnap_device *device,
	const struct gsn_leaf_range *ranges, size_t range_count, gpusnap_error *err);

/* A host pointer as the copy operations take it. */
static inline uint64_t gsn_host_address(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

#endif
