/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_VENDOR_HIP_H
#define GSN_VENDOR_HIP_H
/*
 * HIP in the neutral spelling of the gpu_*.c files: what vendor_cuda.h is for CUDA. The runtime
 * library is looked for when the module is used (hip_entries.c), so the module loads where there
 * is none, and one build serves ROCm 5 to 7.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <hip/hip_runtime_api.h>

#include "formats/base/alloc.h"
#include "kernels/hip_entries.h"

#define GSN_GPU_KIND	  "hip"
#define GSN_GPU_NO_DRIVER "no libamdhip64.so.5, .6 or .7: the ROCm runtime is not installed"
#define GSN_GPU_NO_DEVICE                                                                          \
	"the ROCm runtime finds no AMD GPU that this user may use (/dev/kfd, group render)"

/* What of the runtime is worked around; each has its test in tests/fake. */
enum {
	/* Large physical handles fail in ROCm 6 on some machines: then this much each. */
	gpuMapPieceBytes = 2 << 20,
	/* Registering much memory at once fails at limits of the kernel driver: this much each. */
	gpuRegisterPieceBytes = 64 << 20,
	/* Memory that was not allocated or registered is pinned page by page for each copy, and
	 * file-backed pages stop the queues: such memory is never handed to the runtime. */
	gpuStagesHostMemory = 1,
	/* Strided copies are many times slower when a pitch is no multiple of this. */
	gpuPitchAlignment = 4,
};

typedef hipError_t gpuError_t;
typedef hipStream_t gpuStream_t;
typedef hipEvent_t gpuEvent_t;
typedef hipMemcpyKind gpuMemcpyKind;

enum {
	gpuSuccess = hipSuccess,
	gpuErrorInvalidValue = hipErrorInvalidValue,
	gpuErrorMemoryAllocation = hipErrorOutOfMemory,
	gpuErrorInsufficientDriver = hipErrorInsufficientDriver,
	gpuErrorNoDevice = hipErrorNoDevice,
	gpuErrorNotSupported = hipErrorNotSupported,
	gpuMemcpyHostToDevice = hipMemcpyHostToDevice,
	gpuMemcpyDeviceToHost = hipMemcpyDeviceToHost,
	gpuMemcpyDeviceToDevice = hipMemcpyDeviceToDevice,
	gpuStreamNonBlocking = hipStreamNonBlocking,
	gpuEventDisableTiming = hipEventDisableTiming,
	gpuHostDefault = 0,
};

#define gpuErrorName	     hipGetErrorName
#define gpuErrorString	     hipGetErrorString
#define gpuClearError	     hipGetLastError
#define gpuGetDeviceCount    hipGetDeviceCount
#define gpuGetDevice	     hipGetDevice
#define gpuSetDevice	     hipSetDevice
#define gpuMemGetInfo	     hipMemGetInfo
#define gpuMalloc	     hipMalloc
#define gpuFree		     hipFree
#define gpuHostAlloc	     hipHostMalloc
#define gpuHostFree	     hipHostFree
#define gpuHostRegister	     hipHostRegister
#define gpuHostUnregister    hipHostUnregister
#define gpuStreamCreate	     hipStreamCreateWithFlags
#define gpuStreamDestroy     hipStreamDestroy
#define gpuStreamSynchronize hipStreamSynchronize
#define gpuStreamWaitEvent   hipStreamWaitEvent
#define gpuEventCreate	     hipEventCreateWithFlags
#define gpuEventDestroy	     hipEventDestroy
#define gpuEventRecord	     hipEventRecord
#define gpuEventQuery	     hipEventQuery
#define gpuEventSynchronize  hipEventSynchronize
#define gpuMemcpyAsync	     hipMemcpyAsync
#define gpuMemcpy2DAsync     hipMemcpy2DAsync
#define gpuMemsetAsync	     hipMemsetAsync

static inline gpuError_t gpuDeviceName(int device, char name[128])
{
	return hipDeviceGetName(name, 128, device);
}

static inline gpuError_t gpuMultiprocessors(int device, int *ret_count)
{
	return hipDeviceGetAttribute(ret_count, hipDeviceAttributeMultiprocessorCount, device);
}

/* Registered memory has an address of its own on the device. */
static inline gpuError_t gpuReachesRegistered(int device, int *ret_reaches)
{
	(void)device;
	*ret_reaches = 0;
	return hipSuccess;
}

static inline gpuError_t gpuEntryPoint(const char *name, void **function)
{
	*function = gsn_hip_entry(name);
	return *function ? hipSuccess : hipErrorNotSupported;
}

/* A host function of a stream in the form that HIP before 5.3 takes. */
struct gpuHostFunction {
	void (*run)(void *);
	void *argument;
};

static inline void gpuRunHostFunction(hipStream_t stream, hipError_t code, void *argument)
{
	const struct gpuHostFunction function = *(struct gpuHostFunction *)argument;

	(void)stream;
	(void)code;
	gsn_free(argument);
	function.run(function.argument);
}

static inline gpuError_t gpuAddCallback(gpuStream_t stream, void (*run)(void *), void *argument)
{
	struct gpuHostFunction *function = gsn_alloc(1, sizeof *function);
	hipError_t code;

	if (!function)
		return hipErrorOutOfMemory;
	*function = (struct gpuHostFunction){run, argument};
	code = hipStreamAddCallback(stream, gpuRunHostFunction, function, 0);
	if (code)
		gsn_free(function);
	return code;
}

static inline gpuError_t gpuLaunchHostFunc(gpuStream_t stream, void (*run)(void *), void *argument)
{
	hipError_t (*launch)(hipStream_t, void (*)(void *), void *);
	void *function;

	if (gpuEntryPoint("hipLaunchHostFunc", &function))
		return gpuAddCallback(stream, run, argument);
	memcpy(&launch, &function, sizeof launch);
	return launch(stream, run, argument);
}

/* Virtual memory management is in the library from 5.1 on; whether a device has it, it says. */
struct gpuVmm {
	hipError_t (*reserve)(void **, size_t, size_t, void *, unsigned long long);
	hipError_t (*free)(void *, size_t);
	hipError_t (*create)(void **, size_t, const void *, unsigned long long);
	hipError_t (*release)(void *);
	hipError_t (*map)(void *, size_t, size_t, void *, unsigned long long);
	hipError_t (*allow)(void *, size_t, const void *, size_t);
	hipError_t (*unmap)(void *, size_t);
	hipError_t (*granularity)(size_t *, const void *, int);
};

static const struct gpuVmmEntry {
	const char *name;
	size_t offset;
} gpuVmmEntries[] = {
	{"hipMemAddressReserve", offsetof(struct gpuVmm, reserve)},
	{"hipMemAddressFree", offsetof(struct gpuVmm, free)},
	{"hipMemCreate", offsetof(struct gpuVmm, create)},
	{"hipMemRelease", offsetof(struct gpuVmm, release)},
	{"hipMemMap", offsetof(struct gpuVmm, map)},
	{"hipMemSetAccess", offsetof(struct gpuVmm, allow)},
	{"hipMemUnmap", offsetof(struct gpuVmm, unmap)},
	{"hipMemGetAllocationGranularity", offsetof(struct gpuVmm, granularity)},
};

typedef void *gpuMemHandle;

/* hipMemLocation, hipMemAccessDesc and hipMemAllocationProp by their layout, so that the module
 * does not depend on the headers that it was built with. */
struct gpuMemLocation {
	int type, id;
};

struct gpuMemAccess {
	struct gpuMemLocation location;
	int flags;
};

/* The members of hipMemAllocationProp changed their order in 5.3. */
union gpuMemProperties {
	struct {
		int type, handle_type;
		struct gpuMemLocation location;
		void *win32;
		unsigned char compression, rdma;
		unsigned short usage;
	} now;
	struct {
		unsigned char compression;
		struct gpuMemLocation location;
		int handle_type, type;
		unsigned short usage;
		void *win32;
	} old;
};

enum { gpuMemPinned = 1, gpuMemOnDevice = 1, gpuMemReadWrite = 3, gpuMemRecommended = 1 };

static inline union gpuMemProperties gpuMemPropertiesOf(int device)
{
	const struct gpuMemLocation location = {gpuMemOnDevice, device};
	union gpuMemProperties properties;
	int version = 0;

	memset(&properties, 0, sizeof properties);
	if (!hipRuntimeGetVersion(&version) && version < 50300000) {
		properties.old.type = gpuMemPinned;
		properties.old.location = location;
	} else {
		properties.now.type = gpuMemPinned;
		properties.now.location = location;
	}
	return properties;
}

static inline void *gpuMemPointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static inline gpuError_t gpuMemGranularity(const struct gpuVmm *vmm, int device, size_t *ret_bytes)
{
	const union gpuMemProperties properties = gpuMemPropertiesOf(device);

	return vmm->granularity(ret_bytes, &properties, gpuMemRecommended);
}

static inline gpuError_t gpuMemReserve(
	const struct gpuVmm *vmm, uint64_t bytes, uint64_t alignment, uint64_t *ret_address)
{
	void *address = NULL;
	hipError_t code = vmm->reserve(&address, bytes, alignment, NULL, 0);

	if (!code)
		*ret_address = (uintptr_t)address;
	return code;
}

static inline gpuError_t gpuMemFree(const struct gpuVmm *vmm, uint64_t address, uint64_t bytes)
{
	return vmm->free(gpuMemPointer(address), bytes);
}

static inline gpuError_t gpuMemCreate(
	const struct gpuVmm *vmm, int device, uint64_t bytes, gpuMemHandle *ret_handle)
{
	const union gpuMemProperties properties = gpuMemPropertiesOf(device);

	return vmm->create(ret_handle, bytes, &properties, 0);
}

static inline gpuError_t gpuMemRelease(const struct gpuVmm *vmm, gpuMemHandle handle)
{
	return vmm->release(handle);
}

static inline gpuError_t gpuMemMap(
	const struct gpuVmm *vmm, uint64_t address, uint64_t bytes, gpuMemHandle handle)
{
	return vmm->map(gpuMemPointer(address), bytes, 0, handle, 0);
}

static inline gpuError_t gpuMemAllow(
	const struct gpuVmm *vmm, int device, uint64_t address, uint64_t bytes)
{
	const struct gpuMemAccess access = {{gpuMemOnDevice, device}, gpuMemReadWrite};

	return vmm->allow(gpuMemPointer(address), bytes, &access, 1);
}

static inline gpuError_t gpuMemUnmap(const struct gpuVmm *vmm, uint64_t address, uint64_t bytes)
{
	return vmm->unmap(gpuMemPointer(address), bytes);
}

#endif
