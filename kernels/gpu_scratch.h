/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_SCRATCH_H
#define GSN_GPU_SCRATCH_H
/*
 * Memory that a piece of stream work needs for itself: a block is page-locked host memory and as
 * much device memory. What a host function of the stream needs belongs to the block, because a
 * runtime does not call one behind work that failed. Blocks are kept, since both kinds are slow to
 * get, and lent again once the work that used them is done.
 */
#include <pthread.h>
#include <stdbool.h>

#include <gpusnap/status.h>

#include "kernels/vendor.h"

struct gsn_gpu;

struct gsn_gpu_block {
	struct gsn_gpu_block *next;
	uint64_t bytes; /* of each of the two */
	void *host;
	void *device;
	gpuEvent_t done;
	void *owned; /* heap memory of its last work, freed when the block is lent again */
	bool lent;   /* not given back yet; `done` counts from then on */
};

struct gsn_gpu_scratch {
	pthread_mutex_t lock; /* guards the list and `lent` */
	struct gsn_gpu_block *blocks;
};

void gsn_gpu_scratch_init(struct gsn_gpu_scratch *scratch);
/* All work that used blocks must be done, or the device lost. */
void gsn_gpu_scratch_release(struct gsn_gpu_scratch *scratch);
/* A block of at least `bytes`, for the caller alone. */
gpusnap_status gsn_gpu_block_take(
	struct gsn_gpu *gpu, uint64_t bytes, struct gsn_gpu_block **ret_block, gpusnap_error *err);
/* The block is free again after the work that the stream has now. */
gpusnap_status gsn_gpu_block_give_back(
	struct gsn_gpu *gpu, struct gsn_gpu_block *block, gpuStream_t stream, gpusnap_error *err);

#endif
