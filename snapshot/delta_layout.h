/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DELTA_LAYOUT_H
#define GSN_DELTA_LAYOUT_H
/* Laying out a delta: the leaves that differ from a parent's, entry by entry. */
#include "snapshot/layout.h"
#include "snapshot/snapshot_file.h"

struct gsn_delta_parent {
	const gpusnap_snapshot *snapshot; /* has the layout's entries (match.h) */
	char *name;			  /* of its file */
	uint32_t depth;			  /* that the delta will have */
	uint64_t runs_max;		  /* of changed leaves; where more are needed, some hold
					     leaves that did not change as well */
};

/* The second step of a delta's layout, with the digests of live state in layout->leaves. */
gpusnap_status gsn_delta_layout(struct gsn_layout *layout, const gpusnap_registry *registry,
	const struct gsn_delta_parent *parent, gpusnap_error *err);

#endif
