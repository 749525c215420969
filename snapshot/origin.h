/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_ORIGIN_H
#define GSN_ORIGIN_H
/*
 * Origin: the snapshot file that live state stands on, last saved or restored, and the directories
 * of its parents, so that it can be opened again.
 */
#include <gpusnap/snapshot.h>

struct gsn_origin {
	char *path;			     /* NULL: none */
	char *dirs[GPUSNAP_DELTA_DEPTH_MAX]; /* one of each parent */
	size_t dir_count;
};

/*
 * @param chain  whose files from `first` on are the parents; NULL: the file is a full snapshot.
 * Released by the caller, also on failure.
 */
gpusnap_status gsn_origin_set(struct gsn_origin *origin, const char *path,
	const gpusnap_snapshot *chain, size_t first, gpusnap_error *err);
void gsn_origin_release(struct gsn_origin *origin);
gpusnap_status gsn_origin_open(
	const struct gsn_origin *origin, gpusnap_snapshot **out, gpusnap_error *err);

#endif
