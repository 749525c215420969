/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_VENDOR_CUDA_H
#define GSN_VENDOR_CUDA_H
/*
 * CUDA in the neutral spelling of the gpu_*.c files. Only what differs between vendors is here:
 * names, the way to the functions that map memory, and what to say when there is no driver. The
 * runtime is linked statically and looks for the driver itself, so the module loads where there is
 * none.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#define GSN_GPU_KIND	  "cuda"
#define GSN_GPU_NO_DRIVER "no NVIDIA driver, or one that is older than CUDA 13 needs"
#define GSN_GPU_NO_DEVICE "the driver finds no device"

/* Nothing of this runtime needs the ways round that vendor_hip.h has. */
enum {
	gpuMapPieceBytes = 0,
	gpuRegisterPieceBytes = 0,
	gpuStagesHostMemory = 0,
	gpuPitchAlignment = 1,
};

typedef cudaError_t gpuError_t;
typedef cudaStream_t gpuStream_t;
typedef cudaEvent_t gpuEvent_t;
typedef enum cudaMemcpyKind gpuMemcpyKind;

enum {
	gpuSuccess = cudaSuccess,
	gpuErrorInvalidValue = cudaErrorInvalidValue,
	gpuErrorMemoryAllocation = cudaErrorMemoryAllocation,
	gpuErrorInsufficientDriver = cudaErrorInsufficientDriver,
	gpuErrorNoDevice = cudaErrorNoDevice,
	gpuErrorNotSupported = cudaErrorNotSupported,
	gpuMemcpyHostToDevice = cudaMemcpyHostToDevice,
	gpuMemcpyDeviceToHost = cudaMemcpyDeviceToHost,
	gpuMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice,
	gpuStreamNonBlocking = cudaStreamNonBlocking,
	gpuEventDisableTiming = cudaEventDisableTiming,
	gpuHostDefault = 0,
};

#define gpuErrorName	     cudaGetErrorName
#define gpuErrorString	     cudaGetErrorString
#define gpuClearError	     cudaGetLastError
#define gpuGetDeviceCount    cudaGetDeviceCount
#define gpuGetDevice	     cudaGetDevice
#define gpuSetDevice	     cudaSetDevice
#define gpuMemGetInfo	     cudaMemGetInfo
#define gpuMalloc	     cudaMalloc
#define gpuFree		     cudaFree
#define gpuHostAlloc	     cudaHostAlloc
#define gpuHostFree	     cudaFreeHost
#define gpuHostRegister	     cudaHostRegister
#define gpuHostUnregister    cudaHostUnregister
#define gpuStreamCreate	     cudaStreamCreateWithFlags
#define gpuStreamDestroy     cudaStreamDestroy
#define gpuStreamSynchronize cudaStreamSynchronize
#define gpuStreamWaitEvent   cudaStreamWaitEvent
#define gpuEventCreate	     cudaEventCreateWithFlags
#define gpuEventDestroy	     cudaEventDestroy
#define gpuEventRecord	     cudaEventRecord
#define gpuEventQuery	     cudaEventQuery
#define gpuEventSynchronize  cudaEventSynchronize
#define gpuMemcpyAsync	     cudaMemcpyAsync
#define gpuMemcpy2DAsync     cudaMemcpy2DAsync
#define gpuMemsetAsync	     cudaMemsetAsync
#define gpuLaunchHostFunc    cudaLaunchHostFunc

static inline gpuError_t gpuDeviceName(int device, char name[128])
{
	struct cudaDeviceProp properties;
	cudaError_t code = cudaGetDeviceProperties(&properties, device);

	if (code)
		return code;
	memcpy(name, properties.name, 127);
	name[127] = '\0';
	return code;
}

static inline gpuError_t gpuMultiprocessors(int device, int *ret_count)
{
	return cudaDeviceGetAttribute(ret_count, cudaDevAttrMultiProcessorCount, device);
}

/* Whether kernels reach registered memory at the addresses that it has on the host. */
static inline gpuError_t gpuReachesRegistered(int device, int *ret_reaches)
{
	return cudaDeviceGetAttribute(
		ret_reaches, cudaDevAttrCanUseHostPointerForRegisteredMem, device);
}

/*
 * Virtual memory management is in the driver only. Its codes are the runtime's codes: since CUDA
 * 10.1 both number their errors alike.
 */
struct gpuVmm {
	PFN_cuMemAddressReserve_v10020 reserve;
	PFN_cuMemAddressFree_v10020 free;
	PFN_cuMemCreate_v10020 create;
	PFN_cuMemRelease_v10020 release;
	PFN_cuMemMap_v10020 map;
	PFN_cuMemSetAccess_v10020 allow;
	PFN_cuMemUnmap_v10020 unmap;
	PFN_cuMemGetAllocationGranularity_v10020 granularity;
};

static const struct gpuVmmEntry {
	const char *name;
	size_t offset;
} gpuVmmEntries[] = {
	{"cuMemAddressReserve", offsetof(struct gpuVmm, reserve)},
	{"cuMemAddressFree", offsetof(struct gpuVmm, free)},
	{"cuMemCreate", offsetof(struct gpuVmm, create)},
	{"cuMemRelease", offsetof(struct gpuVmm, release)},
	{"cuMemMap", offsetof(struct gpuVmm, map)},
	{"cuMemSetAccess", offsetof(struct gpuVmm, allow)},
	{"cuMemUnmap", offsetof(struct gpuVmm, unmap)},
	{"cuMemGetAllocationGranularity", offsetof(struct gpuVmm, granularity)},
};

static inline gpuError_t gpuEntryPoint(const char *name, void **function)
{
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
	cudaError_t code =
		cudaGetDriverEntryPointByVersion(name, function, 10020, cudaEnableDefault, &found);

	if (!code && (found != cudaDriverEntryPointSuccess || !*function))
		code = cudaErrorNotSupported;
	return code;
}

typedef CUmemGenericAllocationHandle gpuMemHandle;

static inline CUmemAllocationProp gpuMemProperties(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
}

static inline gpuError_t gpuMemGranularity(const struct gpuVmm *vmm, int device, size_t *ret_bytes)
{
	const CUmemAllocationProp properties = gpuMemProperties(device);

	return (gpuError_t)vmm->granularity(
		ret_bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

static inline gpuError_t gpuMemReserve(
	const struct gpuVmm *vmm, uint64_t bytes, uint64_t alignment, uint64_t *ret_address)
{
	CUdeviceptr address = 0;
	CUresult code = vmm->reserve(&address, bytes, alignment, 0, 0);

	if (!code)
		*ret_address = address;
	return (gpuError_t)code;
}

static inline gpuError_t gpuMemFree(const struct gpuVmm *vmm, uint64_t address, uint64_t bytes)
{
	return (gpuError_t)vmm->free(address, bytes);
}

static inline gpuError_t gpuMemCreate(
	const struct gpuVmm *vmm, int device, uint64_t bytes, gpuMemHandle *ret_handle)
{
	const CUmemAllocationProp properties = gpuMemProperties(device);

	return (gpuError_t)vmm->create(ret_handle, bytes, &properties, 0);
}

static inline gpuError_t gpuMemRelease(const struct gpuVmm *vmm, gpuMemHandle handle)
{
	return (gpuError_t)vmm->release(handle);
}

static inline gpuError_t gpuMemMap(
	const struct gpuVmm *vmm, uint64_t address, uint64_t bytes, gpuMemHandle handle)
{
	return (gpuError_t)vmm->map(address, bytes, 0, handle, 0);
}

static inline gpuError_t gpuMemAllow(
	const struct gpuVmm *vmm, int device, uint64_t address, uint64_t bytes)
{
	const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	return (gpuError_t)vmm->allow(address, bytes, &access, 1);
}

static inline gpuError_t gpuMemUnmap(const struct gpuVmm *vmm, uint64_t address, uint64_t bytes)
{
	return (gpuError_t)vmm->unmap(address, bytes);
}

#endif
