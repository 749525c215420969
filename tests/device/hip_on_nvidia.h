/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_HIP_ON_NVIDIA_H
#define GPUSNAP_HIP_ON_NVIDIA_H
/*
 * HIP's own headers for NVIDIA GPUs, as 5.2 has them, made to compile with CUDA 13. Read before
 * everything else. What has left CUDA since is put back by name: nothing of it is called here.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>

/* Members that cudaDeviceProp has lost. */
struct cudaDevicePropOld {
	struct cudaDeviceProp; /* -fms-extensions */
	int clockRate, memoryClockRate, computeMode, cooperativeMultiDeviceLaunch,
		kernelExecTimeoutEnabled;
};
#define cudaDeviceProp cudaDevicePropOld
#define cudaGetDeviceProperties(properties, device)                                                \
	(cudaGetDeviceProperties)((void *)(properties), (device))

#define cudaDevAttrCooperativeMultiDeviceLaunch cudaDevAttrCooperativeLaunch

/* Functions whose parameters are others now. */
#undef cuCtxCreate
#define cuCtxCreate(context, flags, device)		((void)(context), CUDA_ERROR_NOT_SUPPORTED)
#define cudaMemAdvise(memory, bytes, advice, device)	cudaErrorNotSupported
#define cudaMemPrefetchAsync(memory, bytes, to, stream) cudaErrorNotSupported

#endif
