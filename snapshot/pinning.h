/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PINNING_H
#define GSN_PINNING_H
/*
 * Pinned memory taken ahead of need: a list of blocks, pinned in order by two threads, so that one
 * block's pages are touched while the one before is registered and those before it are copied to.
 */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/device.h>
#include <gpusnap/status.h>

struct gsn_pinning;

/* Bytes of block `block` of what is pinned. */
typedef uint64_t (*gsn_pinning_size_fn)(const void *owner, size_t block);

/*
 * Begin to fill blocks[0 .. count), all NULL, which nobody else may touch until gsn_pinning_wait()
 * has answered for them. `owner` is passed to `size_of`; both are used until the stop.
 */
gpusnap_status gsn_pinning_start(gpusnap_device *device, void **blocks, size_t count,
	gsn_pinning_size_fn size_of, const void *owner, struct gsn_pinning **ret_pinning,
	gpusnap_error *err);
/* Until the block is there; or the failure that pinning ended with. */
gpusnap_status gsn_pinning_wait(struct gsn_pinning *pinning, size_t block, gpusnap_error *err);
/* Waits for the threads; blocks that they have not begun stay NULL. NULL is a no-op. */
void gsn_pinning_stop(struct gsn_pinning *pinning);

#endif
