/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_MEMORY_H
#define GSN_HOST_MEMORY_H
/*
 * Address ranges of the host device: what is reserved, and which parts are mapped. Stricter than
 * the kernel's mmap, because it stands for devices that are.
 */
#include <pthread.h>

#include <gpusnap/device.h>

#include "kernels/address_ranges.h"

struct gsn_host_memory {
	pthread_mutex_t lock; /* guards the ranges */
	struct gsn_address_ranges ranges;
};

void gsn_host_memory_init(struct gsn_host_memory *memory);
/* Gives every range that is left back to the system. */
void gsn_host_memory_release(struct gsn_host_memory *memory);
/*
 * E_DEVICE when [address, address + bytes) meets reserved addresses that are not mapped; memory
 * that is not of this device is not looked at. `what` names the operation.
 */
gpusnap_status gsn_host_memory_check(struct gsn_host_memory *memory, uint64_t address,
	uint64_t bytes, const char *what, gpusnap_error *err);

/* Slots of the device table: `context` is a struct gsn_host. */
gpusnap_status gsn_host_reserve(
	void *context, uint64_t bytes, gpusnap_address *ret_address, gpusnap_error *err);
gpusnap_status gsn_host_map(
	void *context, gpusnap_address address, uint64_t bytes, uint8_t fill, gpusnap_error *err);
gpusnap_status gsn_host_unmap(
	void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
void gsn_host_release(void *context, gpusnap_address address, uint64_t bytes);

#endif
