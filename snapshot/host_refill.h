/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_REFILL_H
#define GSN_HOST_REFILL_H
/*
 * Filling live memory that the host addresses. There is no link to overlap with, and a core's time
 * is what a restore costs, so each byte is moved once and digested on its way (host_place.h): from
 * the page cache by threads that read into a little memory of their own, which stays in their
 * caches; from a disk out of the staging ring.
 */
#include <gpusnap/io.h>

#include "snapshot/segment.h"
#include "snapshot/snapshot_file.h"
#include "snapshot/staging.h"

struct gsn_host_refill {
	const gpusnap_snapshot *snapshot;
	const struct gsn_segment *segments; /* by place, with live addresses */
	size_t segment_count;
	gpusnap_digest *live;		    /* as long as the file's leaf table */
	struct gsn_staging_source *staging; /* where a ring is needed */
	const gpusnap_io_options *io;	    /* resolved */
};

/*
 * Fill the segments; the digest of each of their leaves, as it was stored, goes to `live`. What the
 * memory holds after a failure is undefined, in part the file's.
 */
gpusnap_status gsn_host_refill(
	const struct gsn_host_refill *job, gpusnap_io_report *ret_report, gpusnap_error *err);

#endif
