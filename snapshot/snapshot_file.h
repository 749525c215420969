/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SNAPSHOT_FILE_H
#define GSN_SNAPSHOT_FILE_H
/* An open snapshot, for the jobs that read its data. */
#include <gpusnap/snapshot.h>

#include "snapshot/direct.h"
#include "snapshot/segment.h"

/* Where an entry lies; no live address. */
struct gsn_segment gsn_snapshot_segment(const gpusnap_snapshot *snapshot, size_t index);

/*
 * A second descriptor of the file, whose flags are the job's own, made direct or cached as wanted;
 * the caller closes it.
 */
gpusnap_status gsn_snapshot_reopen(const gpusnap_snapshot *snapshot, gpusnap_io_direct wanted,
	int *ret_fd, struct gsn_direct_choice *ret_choice, gpusnap_error *err);
/* Read a piece again, around what an earlier read left in the page cache where possible. */
gpusnap_status gsn_snapshot_reread(const gpusnap_snapshot *snapshot, uint64_t offset, void *memory,
	uint64_t bytes, gpusnap_error *err);

#endif
