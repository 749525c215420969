/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_BACKING_H
#define GSN_BACKING_H
/* A snapshot that stands for live state, so that offload need not copy it. */
#include "snapshot/selection.h"

/*
 * Open the file of the last save or restore once for each selected region that keeps bytes, and
 * check that it is still that snapshot and that the live leaves of all kept ranges equal it.
 * E_STATE says what does not fit.
 * @param leaves  of selection->kept, live.
 * @param ret_snapshots  selection->count entries; owned by the caller, NULL where nothing is kept.
 */
gpusnap_status gsn_backing_open(const gpusnap_registry *registry,
	const struct gsn_selection *selection, const gpusnap_digest *leaves,
	gpusnap_snapshot **ret_snapshots, gpusnap_error *err);

#endif
