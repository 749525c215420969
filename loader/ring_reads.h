/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RING_READS_H
#define GSN_RING_READS_H
/*
 * Filling windows through the I/O ring: runs are in flight while earlier ones are gathered by the
 * pool and earlier windows are copied. For files that are read from the disk.
 */
#include "loader/load_stage.h"
#include "snapshot/direct.h"

/* Bytes of pinned memory that the reader wants of the stage. */
uint64_t gsn_ring_reads_memory(const struct gsn_load_stage *stage);
/* All windows of the plan; `choices` says of each shard how it is open. */
gpusnap_status gsn_ring_reads_run(
	struct gsn_load_stage *stage, const struct gsn_direct_choice *choices, gpusnap_error *err);

#endif
