/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PINNING_H
#define GSN_PINNING_H
/*
 * Memory that is pinned block by block, in order: threads touch the pages ahead of need, and who
 * waits for a block locks it, and then copies. Locking gets no faster by more threads, touching
 * does; where a hypervisor has not backed the memory yet, touching is what takes the time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/device_ops.h"

struct gsn_pinning;

/* Memory that is mapped and not pinned yet, in blocks of equal size but for the last. */
struct gsn_pin_job {
	gpusnap_device *device; /* borrowed */
	uint8_t *memory;
	uint64_t bytes, block_bytes; /* multiples of the page size */
	uint32_t threads;	     /* most; no more than there are CPUs */
};

size_t gsn_pin_block_count(const struct gsn_pin_job *job);
uint64_t gsn_pin_block_bytes(const struct gsn_pin_job *job, size_t block);
/* Touch and lock it. */
gpusnap_status gsn_pin_block(const struct gsn_pin_job *job, size_t block, gpusnap_error *err);
/* Unpin the blocks whose flag is set, and clear it. */
void gsn_pin_undo(const struct gsn_pin_job *job, bool *pinned);

/*
 * Begin to touch. `pinned`, a flag for each block and all clear, is used until gsn_pinning_stop().
 * `job` is copied.
 */
gpusnap_status gsn_pinning_start(const struct gsn_pin_job *job, bool *pinned,
	struct gsn_pinning **ret_pinning, gpusnap_error *err);
/* Have the block pinned; or the failure that touching ended with. One thread. */
gpusnap_status gsn_pinning_wait(struct gsn_pinning *pinning, size_t block, gpusnap_error *err);
/* Waits for the threads. NULL is a no-op. */
void gsn_pinning_stop(struct gsn_pinning *pinning);

#endif
