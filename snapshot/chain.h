/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_CHAIN_H
#define GSN_CHAIN_H
/*
 * The chain of a delta: its parent, the parent's parent, and so on to a full snapshot. It is walked
 * once, when the delta is opened; then each leaf has its place in one of the files.
 */
#include <sys/stat.h>

#include "snapshot/snapshot_file.h"

/* The same for a full snapshot, whose chain is itself. */
gpusnap_status gsn_chain_open(gpusnap_snapshot *snapshot,
	const gpusnap_snapshot_open_options *options, gpusnap_error *err);
/* Closes all links but the first. */
void gsn_chain_close(gpusnap_snapshot *snapshot);

/*
 * A file of the chain, from link `first` on, is not to be replaced by what needs it: E_INVALID when
 * `target` is one. `path` is its name.
 */
gpusnap_status gsn_chain_guard(const gpusnap_snapshot *snapshot, uint32_t first,
	const struct stat *target, const char *path, gpusnap_error *err);

/*
 * Find the file that has the parent root of `child`, the last link so far of `snapshot`'s chain:
 * under the name that the child gives beside it, beside the first link, and in the directories of
 * `options`, then under any name in those. What was found wrong on the way is the error when there
 * is none: E_MISMATCH a file of that name with another root, E_FORMAT a cycle, E_IO nothing.
 */
gpusnap_status gsn_parent_find(const gpusnap_snapshot *snapshot, const gpusnap_snapshot *child,
	const gpusnap_snapshot_open_options *options, gpusnap_snapshot **ret_parent,
	gpusnap_error *err);

#endif
