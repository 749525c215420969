/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PINNING_H
#define GSN_PINNING_H
/*
 * Memory that is pinned block by block ahead of need, in order, by several threads: while one
 * block's pages are found or touched another one is registered, and those before are copied.
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
gpusnap_status gsn_pin_block(const struct gsn_pin_job *job, size_t block, gpusnap_error *err);
/* Unpin the blocks whose flag is set, and clear it. Not while threads pin. */
void gsn_pin_undo(const struct gsn_pin_job *job, bool *pinned);

/*
 * Begin to pin; `pinned`, a flag for each block and all clear, is the threads' until
 * gsn_pinning_stop(). `job` is copied.
 */
gpusnap_status gsn_pinning_start(const struct gsn_pin_job *job, bool *pinned,
	struct gsn_pinning **ret_pinning, gpusnap_error *err);
/* Until the block is there; or the failure that pinning ended with. */
gpusnap_status gsn_pinning_wait(struct gsn_pinning *pinning, size_t block, gpusnap_error *err);
/* Waits for the threads. NULL is a no-op. */
void gsn_pinning_stop(struct gsn_pinning *pinning);

#endif
