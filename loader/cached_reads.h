/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_CACHED_READS_H
#define GSN_CACHED_READS_H
/*
 * Filling windows from files that are read through the page cache: each thread of the pool reads a
 * run and gathers it at once, while it is in that core's cache. Runs are many and short, so that
 * handing them to other threads and back would cost more than to copy them. Meanwhile one thread
 * plans the window after.
 */
#include "loader/load_stage.h"

/* Bytes that the reader allocates; of a buffer, only what the longest run needs is touched. */
uint64_t gsn_cached_reads_memory(const struct gsn_load_stage *stage);
/* All windows of the plan, in their order. Engine, depth and reason go to the report. */
gpusnap_status gsn_cached_reads_run(struct gsn_load_stage *stage, gpusnap_error *err);

#endif
