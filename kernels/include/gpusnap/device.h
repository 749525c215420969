/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_DEVICE_H
#define GPUSNAP_DEVICE_H
/*
 * Devices: "host" (always there), "cuda:N", "hip:N". "No driver" and "no device" are answers.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpusnap_device gpusnap_device;

/* An address on a device. On "host" it is a pointer. */
typedef uint64_t gpusnap_address;

typedef struct gpusnap_device_properties {
	char name[32];		/* "host", "cuda:0" */
	char description[128];	/* vendor's name of the part, CPU paths of the host */
	uint64_t memory_bytes;	/* total device memory */
	uint64_t free_bytes;	/* measured now */
	uint64_t granule_bytes; /* unit of mapping and unmapping */
} gpusnap_device_properties;

/**
 * Open a device by name. E_INVALID for a malformed name, E_NODEV when it is not there (the
 * message says whether the module, the driver or the device is missing).
 * @param out  owned by the caller; close after all that uses it.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_device_open(
	const char *name, gpusnap_device **out, gpusnap_error *err);
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_device_query(
	gpusnap_device *device, gpusnap_device_properties *ret_properties, gpusnap_error *err);
/** NULL is a no-op. */
GPUSNAP_API void gpusnap_device_close(gpusnap_device *device);

#ifdef __cplusplus
}
#endif
#endif
