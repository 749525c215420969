/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SELECTION_H
#define GSN_SELECTION_H
/* Which regions an offload or a resume is about, and the ranges in them that must be kept. */
#include <gpusnap/snapshot.h>

#include "snapshot/ranges.h"
#include "snapshot/registry_state.h"

struct gsn_selection {
	size_t count;
	struct gsn_region **regions; /* registry order */
	struct gsn_range *kept;	     /* policy keep and not empty, region by region */
	size_t *first_kept;	     /* count + 1 entries: those of region i begin here */
	uint64_t bytes;		     /* of the regions */
};

enum gsn_selection_job { GSN_SELECT_OFFLOAD, GSN_SELECT_RESUME };

/*
 * Resolve the tags and check every region's state for the job. E_STATE, saying which region or
 * tag, when none matches or when one is in a state that the job cannot begin in.
 * @param ret_selection  released by the caller, also after a failure.
 */
gpusnap_status gsn_selection_init(const gpusnap_registry *registry,
	const gpusnap_offload_options *options, enum gsn_selection_job job,
	struct gsn_selection *ret_selection, gpusnap_error *err);
void gsn_selection_release(struct gsn_selection *selection);

/* Kept ranges of region i. */
size_t gsn_selection_kept_count(const struct gsn_selection *selection, size_t i);
const struct gsn_range *gsn_selection_kept(const struct gsn_selection *selection, size_t i);

#endif
