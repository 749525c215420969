/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points that vendor_hip.h looks up, where HIP's headers for NVIDIA GPUs are its runtime:
 * they have no virtual memory management, so it is CUDA's under HIP's names. Error numbers are the
 * same in both.
 */
#include "kernels/vendor_hip.h"

#include <cudaTypedefs.h>

/* CUDA's function of that name, or NULL. */
static void *driver_entry(const char *name)
{
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
	void *function = NULL;

	if (cudaGetDriverEntryPointByVersion(name, &function, 10020, cudaEnableDefault, &found) ||
		found != cudaDriverEntryPointSuccess)
		return NULL;
	return function;
}

#define DRIVER(type, variable, name)                                                               \
	PFN_##type variable = NULL;                                                                \
	void *variable##_entry = driver_entry(name);                                               \
                                                                                                   \
	memcpy(&variable, &variable##_entry, sizeof variable);                                     \
	if (!variable)                                                                             \
	return hipErrorNotSupported

/* What HIP's headers call of the driver: the module is not linked to it. */
CUresult CUDAAPI cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	PFN_cuDeviceGetName_v2000 call = NULL;
	void *entry = driver_entry("cuDeviceGetName");

	memcpy(&call, &entry, sizeof call);
	return call ? call(name, bytes, device) : CUDA_ERROR_NOT_SUPPORTED;
}

static hipError_t reserve(
	void **address, size_t bytes, size_t alignment, void *where, unsigned long long flags)
{
	CUdeviceptr got = 0;
	CUresult code;
	DRIVER(cuMemAddressReserve_v10020, call, "cuMemAddressReserve");

	code = call(&got, bytes, alignment, (uintptr_t)where, flags);
	*address = (void *)(uintptr_t)got;
	return (hipError_t)code;
}

static hipError_t release_range(void *address, size_t bytes)
{
	DRIVER(cuMemAddressFree_v10020, call, "cuMemAddressFree");

	return (hipError_t)call((uintptr_t)address, bytes);
}

/* The runtime's version is CUDA's here, which is low for HIP: so the properties are the old ones.
 */
static CUmemAllocationProp properties_of(const void *properties)
{
	const union gpuMemProperties *old = properties;

	return (CUmemAllocationProp){
		.type = (CUmemAllocationType)old->old.type,
		.location = {.type = (CUmemLocationType)old->old.location.type,
			.id = old->old.location.id},
	};
}

static hipError_t create(
	void **handle, size_t bytes, const void *properties, unsigned long long flags)
{
	const CUmemAllocationProp cuda = properties_of(properties);
	CUmemGenericAllocationHandle got = 0;
	CUresult code;
	DRIVER(cuMemCreate_v10020, call, "cuMemCreate");

	code = call(&got, bytes, &cuda, flags);
	*handle = (void *)(uintptr_t)got;
	return (hipError_t)code;
}

static hipError_t release_handle(void *handle)
{
	DRIVER(cuMemRelease_v10020, call, "cuMemRelease");

	return (hipError_t)call((uintptr_t)handle);
}

static hipError_t map(
	void *address, size_t bytes, size_t offset, void *handle, unsigned long long flags)
{
	DRIVER(cuMemMap_v10020, call, "cuMemMap");

	return (hipError_t)call((uintptr_t)address, bytes, offset, (uintptr_t)handle, flags);
}

static hipError_t allow(void *address, size_t bytes, const void *access, size_t count)
{
	const struct gpuMemAccess *hip = access;
	const CUmemAccessDesc cuda = {
		.location = {.type = (CUmemLocationType)hip->location.type, .id = hip->location.id},
		.flags = (CUmemAccess_flags)hip->flags,
	};
	DRIVER(cuMemSetAccess_v10020, call, "cuMemSetAccess");

	return (hipError_t)call((uintptr_t)address, bytes, &cuda, count);
}

static hipError_t unmap(void *address, size_t bytes)
{
	DRIVER(cuMemUnmap_v10020, call, "cuMemUnmap");

	return (hipError_t)call((uintptr_t)address, bytes);
}

static hipError_t granularity(size_t *bytes, const void *properties, int flags)
{
	const CUmemAllocationProp cuda = properties_of(properties);
	DRIVER(cuMemGetAllocationGranularity_v10020, call, "cuMemGetAllocationGranularity");

	return (hipError_t)call(bytes, &cuda, (CUmemAllocationGranularity_flags)flags);
}

typedef void (*entry_function)(void);

static const struct entry {
	const char *name;
	entry_function function;
} entries[] = {
	{"hipLaunchHostFunc", (entry_function)cudaLaunchHostFunc},
	{"hipMemAddressReserve", (entry_function)reserve},
	{"hipMemAddressFree", (entry_function)release_range},
	{"hipMemCreate", (entry_function)create},
	{"hipMemRelease", (entry_function)release_handle},
	{"hipMemMap", (entry_function)map},
	{"hipMemSetAccess", (entry_function)allow},
	{"hipMemUnmap", (entry_function)unmap},
	{"hipMemGetAllocationGranularity", (entry_function)granularity},
};

void *gsn_hip_entry(const char *name)
{
	void *function = NULL;

	for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
		if (strcmp(entries[i].name, name) == 0)
			memcpy(&function, &entries[i].function, sizeof function);
	return function;
}
