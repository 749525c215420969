/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RESUME_H
#define GSN_RESUME_H
/* Bringing offloaded regions back; offload uses it to undo itself. */
#include <gpusnap/io.h>

#include "snapshot/selection.h"

/*
 * All of them usable again, or all offloaded as before. `io` may be NULL for defaults, ret_report
 * (of the snapshot read last) for nobody who asks. Call inside a job.
 */
gpusnap_status gsn_resume_regions(gpusnap_registry *registry, const struct gsn_selection *selection,
	const gpusnap_io_options *io, gpusnap_io_report *ret_report, gpusnap_error *err);

#endif
