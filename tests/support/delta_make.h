/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_DELTA_MAKE_H
#define GPUSNAP_TEST_DELTA_MAKE_H
/*
 * Deltas in memory, out of two full snapshots of one plan (gsnap_make.h), by the words of
 * formats/gsnap.md and the functions of formats alone.
 */
#include "tests/support/gsnap_make.h"

/* What changed between two files of one plan; it goes into plan->delta, for the caller to change.
 */
gpusnap_plan_delta *make_changes(const struct gsnap_file *before, const struct gsnap_file *after,
	const char *parent, uint32_t depth);
/*
 * The delta that holds what plan->delta says, with the bytes and leaves of `after`. Runs that
 * `after` has no bytes for are left out of the data.
 */
struct gsnap_file make_delta(
	const gpusnap_plan *plan, const struct gsnap_file *after, gpusnap_digest parent_root);
/* The root in a file's seal. */
gpusnap_digest root_of(const struct gsnap_file *file);

#endif
