/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_PINNED_H
#define GSN_HOST_PINNED_H
/*
 * Staging memory: anonymous, in huge pages where the system has them, with all its pages there. The
 * host device has nobody who reads it behind the kernel's back, so it is not locked.
 */
#include <gpusnap/status.h>

/* Slots of the device table. */
gpusnap_status gsn_host_pinned_alloc(
	void *context, uint64_t bytes, void **ret_memory, gpusnap_error *err);
void gsn_host_pinned_free(void *context, void *memory, uint64_t bytes);
gpusnap_status gsn_host_pin(void *context, void *memory, uint64_t bytes, gpusnap_error *err);
void gsn_host_unpin(void *context, void *memory, uint64_t bytes);

#endif
