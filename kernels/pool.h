/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_POOL_H
#define GSN_POOL_H
/*
 * A fixed set of threads that run the tasks of one job at a time. Which thread runs which task is
 * left open, so a task's result must depend on its number only.
 */
#include <stdint.h>

#include <gpusnap/status.h>

struct gsn_pool;

/* Task numbers are 0 .. task_count - 1, each given once. Must not call gsn_pool_run() itself. */
typedef void (*gsn_pool_fn)(void *argument, uint64_t task);

/* CPUs that this process may use. */
uint32_t gsn_pool_cpus(void);
/* `threads` counts the caller of gsn_pool_run(), so 1 starts none; 0: gsn_pool_cpus(). */
gpusnap_status gsn_pool_create(uint32_t threads, struct gsn_pool **ret_pool, gpusnap_error *err);
/* No run may be in progress. NULL is a no-op. */
void gsn_pool_destroy(struct gsn_pool *pool);
/* Threads that take part in a run, the caller among them. */
uint32_t gsn_pool_threads(const struct gsn_pool *pool);
/*
 * Run all tasks and return when the last one is done; what they wrote is visible then. The calling
 * thread takes part. Runs of several callers follow one another. Allocates nothing, cannot fail.
 */
void gsn_pool_run(struct gsn_pool *pool, gsn_pool_fn function, void *argument, uint64_t task_count);

#endif
