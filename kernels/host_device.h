/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_DEVICE_H
#define GSN_HOST_DEVICE_H
/* The `host` device: its table, and the context that its operations share. */
#include "kernels/device_ops.h"
#include "kernels/host_memory.h"
#include "kernels/host_moe.h"
#include "kernels/pages.h"
#include "kernels/pool.h"

/* Unit of mapping: no larger, so that a small state does not take much more than its size. */
#define GSN_HOST_GRANULE GSN_PAGES_UNIT

/* What a device context of this kind points to. */
struct gsn_host {
	struct gsn_host_memory memory;
	struct gsn_pool *pool;
	struct gsn_host_moe moe; /* borrows the pool */
};

/* Run the tasks of a job that touches `bytes`: by the pool when it is worth waking up. */
void gsn_host_run(struct gsn_host *host, uint64_t bytes, gsn_pool_fn function, void *argument,
	uint64_t task_count);

extern const struct gsn_device_ops gsn_host_ops;

#endif
