/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RESTORE_H
#define GSN_RESTORE_H
/* Reading a snapshot's bytes back into regions; what restore and a snapshot-backed resume share. */
#include <gpusnap/io.h>
#include <gpusnap/snapshot.h>

#include "snapshot/registry_state.h"

/*
 * Read the kept ranges of `regions` from the snapshot, on a device each poisoned just before it
 * arrives, and prove each leaf there, or on its way where the host addresses the memory; a leaf
 * that differs is read once more, then E_CORRUPT names buffer, leaf and file offset. The regions
 * are mapped (residency.h) and match the snapshot by name and size; states and other bytes are left
 * alone. Call inside a job.
 * @param io  NULL for defaults.
 */
gpusnap_status gsn_restore_regions(gpusnap_registry *registry, gpusnap_snapshot *snapshot,
	struct gsn_region *const *regions, size_t count, const gpusnap_io_options *io,
	gpusnap_io_report *ret_report, gpusnap_error *err);

/*
 * gpusnap_restore() from an open snapshot.
 * @param quiesce  false where nobody can be using the registry yet.
 */
gpusnap_status gsn_restore_snapshot(gpusnap_registry *registry, gpusnap_snapshot *snapshot,
	bool quiesce, const gpusnap_io_options *io, gpusnap_restore_report *ret_report,
	gpusnap_error *err);

#endif
