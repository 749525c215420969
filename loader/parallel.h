/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PARALLEL_H
#define GSN_PARALLEL_H
/* Independent tasks of the planner, on as many threads as that pays for. */
#include <stdint.h>

#include "kernels/pool.h"

/* Work on memory is memory-bound: more threads do not make it faster. */
#define GSN_LOAD_THREADS_MAX 16u

/* Threads that `tasks` tasks may use: one each, but no more than there are CPUs. At least 1. */
uint32_t gsn_parallel_threads(uint64_t tasks);
/* Run them and wait; with one task, or on one CPU, in this thread. E_LIMIT: threads do not start.
 */
gpusnap_status gsn_parallel_run(
	gsn_pool_fn function, void *argument, uint64_t tasks, gpusnap_error *err);

#endif
