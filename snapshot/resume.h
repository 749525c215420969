/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RESUME_H
#define GSN_RESUME_H
/* Bringing offloaded regions back; offload uses it to undo itself. */
#include "snapshot/selection.h"

/* All of them usable again, or all offloaded as before. Call inside a job. */
gpusnap_status gsn_resume_regions(
	gpusnap_registry *registry, const struct gsn_selection *selection, gpusnap_error *err);

#endif
