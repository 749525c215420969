/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_BENCH_FILL_H
#define GPUSNAP_BENCH_FILL_H
/* The state that files are measured with: one region of random words on the host device. */
#include <gpusnap/registry.h>

enum { BENCH_BUFFERS = 64 };

/*
 * `bytes` in BENCH_BUFFERS equal buffers, a multiple of 8 bytes each; `random` is the seed, and
 * goes on. `ret_bytes` is where they lie. The registry is owned by the caller.
 */
gpusnap_status bench_fill(gpusnap_device *device, uint64_t bytes, uint64_t *random,
	gpusnap_registry **ret_registry, uint8_t **ret_bytes, gpusnap_error *err);

#endif
