/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_BASELINE_H
#define GSN_BASELINE_H
/* Baselines for the jobs of this module: how one is made, and where its leaves lie in a file. */
#include <gpusnap/snapshot.h>

#include "snapshot/segment.h"

/* What a baseline is made of; everything is copied. */
struct gsn_baseline_source {
	const struct gsn_segment *segments; /* name, bytes, file_offset, first_leaf; any order */
	size_t count;
	const gpusnap_digest *leaves;
	uint64_t leaf_count;
	gpusnap_digest root;
	gpusnap_json *records; /* object or NULL */
};

gpusnap_status gsn_baseline_make(
	const struct gsn_baseline_source *source, gpusnap_baseline **out, gpusnap_error *err);
size_t gsn_baseline_count(const gpusnap_baseline *baseline);
/* Entry by name; NULL when absent. file_offset is 0 for a baseline of live state. */
const struct gsn_segment *gsn_baseline_find(const gpusnap_baseline *baseline, const char *name);

#endif
