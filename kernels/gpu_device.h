/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_DEVICE_H
#define GSN_GPU_DEVICE_H
/*
 * A GPU: what a device context of this kind points to, and what the gpu_*.c files share. They are
 * compiled once for each vendor (vendor.h). Any thread may call; the caller's current device is
 * put back before a call returns, because the process has other users of the GPU.
 */
#include <pthread.h>

#include "kernels/address_ranges.h"
#include "kernels/device_ops.h"
#include "kernels/gpu_scratch.h"
#include "kernels/pool.h"
#include "kernels/vendor.h"

struct gsn_gpu {
	int index;
	uint32_t multiprocessors;
	bool reaches_registered; /* kernels write registered host memory */
	char description[128];	 /* asked for once: it takes the driver milliseconds */
	struct gpuVmm vmm;
	pthread_mutex_t lock; /* guards the ranges */
	struct gsn_address_ranges ranges;
	struct gsn_ranges pieces;     /* what the driver has mapped: one or more to a map */
	struct gsn_ranges registered; /* page-locked host memory, as the driver knows it */
	struct gsn_pool *pool;	      /* touches staging memory */
	gpuStream_t housework;	      /* of maps, which are filled before they are given */
	struct gsn_gpu_scratch scratch;
};

struct gsn_stream {
	struct gsn_gpu *gpu;
	gpuStream_t handle;
};

/* Make the GPU current for this thread. @return what was, for gsn_gpu_leave(). */
int gsn_gpu_enter(const struct gsn_gpu *gpu);
void gsn_gpu_leave(int device);

/*
 * Record that a vendor's call failed: "cuda:0: WHAT: cudaErrorX (text)", its code in
 * err->device_code. The vendor's error state of the thread is cleared, so that the next call does
 * not answer it again. @return E_NOMEM for want of memory, E_NODEV without driver or device,
 * else E_DEVICE.
 */
gpusnap_status gsn_gpu_fail(const struct gsn_gpu *gpu, gpuError_t code, gpusnap_error *err,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
