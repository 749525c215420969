/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points that only CUDA spells this way. */
#include <stdio.h>
#include <string.h>

#include "tests/fake/fake_state.h"

struct host_function {
	void (*run)(void *);
	void *argument;
};

static gpuError_t do_host_function(void *args)
{
	const struct host_function function = *(struct host_function *)args;

	function.run(function.argument);
	return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *argument)
{
	const struct host_function function = {run, argument};
	cudaError_t code = fake_enter("gpuLaunchHostFunc");

	return fake_leave(
		code ? code : fake_submit(stream, do_host_function, &function, sizeof function));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	cudaError_t code = fake_enter("gpuDeviceName");

	if (!code) {
		memset(properties, 0, sizeof *properties);
		(void)snprintf(properties->name, sizeof properties->name, "stand-in %d",
			fake_physical(device));
	}
	return fake_leave(code);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	cudaError_t code = fake_enter("gpuMultiprocessors");

	(void)device;
	if (!code && attribute == cudaDevAttrMultiProcessorCount)
		*value = 4;
	else if (!code && attribute == cudaDevAttrCanUseHostPointerForRegisteredMem)
		*value = 1;
	else if (!code)
		code = cudaErrorInvalidValue;
	return fake_leave(code);
}

static CUresult reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr where,
	unsigned long long flags)
{
	cudaError_t code = fake_enter("gpuMemReserve");
	uint64_t got = 0;

	(void)where;
	(void)flags;
	if (!code)
		code = fake_vm_reserve(bytes, alignment, &got);
	if (!code)
		*address = got;
	return (CUresult)fake_leave(code);
}

static CUresult release_range(CUdeviceptr address, size_t bytes)
{
	cudaError_t code = fake_enter("gpuMemFree");
	cudaError_t done = fake_vm_free(address, bytes);

	return (CUresult)fake_leave(code ? code : done);
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
	const CUmemAllocationProp *properties, unsigned long long flags)
{
	cudaError_t code = fake_enter("gpuMemCreate");
	void *got = NULL;

	(void)flags;
	if (!code && (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
			     properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE))
		code = cudaErrorInvalidValue;
	if (!code)
		code = fake_vm_create(properties->location.id, bytes, &got);
	if (!code)
		*handle = (uintptr_t)got;
	return (CUresult)fake_leave(code);
}

static CUresult release_handle(CUmemGenericAllocationHandle handle)
{
	cudaError_t code = fake_enter("gpuMemRelease");
	cudaError_t done = fake_vm_release((void *)(uintptr_t)handle);

	return (CUresult)fake_leave(code ? code : done);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	cudaError_t code = fake_enter("gpuMemMap");

	(void)offset;
	(void)flags;
	return (CUresult)fake_leave(
		code ? code : fake_vm_map(address, bytes, (void *)(uintptr_t)handle));
}

static CUresult allow(
	CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	cudaError_t code = fake_enter("gpuMemAllow");

	if (!code && (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
		code = cudaErrorInvalidValue;
	return (CUresult)fake_leave(
		code ? code : fake_vm_allow(access->location.id, address, bytes));
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
	cudaError_t code = fake_enter("gpuMemUnmap");

	return (CUresult)fake_leave(code ? code : fake_vm_unmap(address, bytes));
}

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *properties,
	CUmemAllocationGranularity_flags flags)
{
	cudaError_t code = fake_enter("gpuMemGranularity");

	(void)properties;
	(void)flags;
	if (!code)
		*bytes = FAKE_GRANULE;
	return (CUresult)fake_leave(code);
}

typedef void (*entry_function)(void);

static const struct entry {
	const char *name;
	entry_function function;
} entries[] = {
	{"cuMemAddressReserve", (entry_function)reserve},
	{"cuMemAddressFree", (entry_function)release_range},
	{"cuMemCreate", (entry_function)create},
	{"cuMemRelease", (entry_function)release_handle},
	{"cuMemMap", (entry_function)map},
	{"cuMemSetAccess", (entry_function)allow},
	{"cuMemUnmap", (entry_function)unmap},
	{"cuMemGetAllocationGranularity", (entry_function)granularity},
};

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
	unsigned long long flags, enum cudaDriverEntryPointQueryResult *status)
{
	cudaError_t code = fake_enter("gpuEntryPoint");

	(void)version;
	(void)flags;
	*status = cudaDriverEntryPointSymbolNotFound;
	for (size_t i = 0; !code && i < sizeof entries / sizeof entries[0]; i++)
		if (strcmp(entries[i].name, name) == 0) {
			memcpy(function, &entries[i].function, sizeof *function);
			*status = cudaDriverEntryPointSuccess;
		}
	return fake_leave(code);
}
