/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DAMAGE_H
#define GSN_DAMAGE_H
/* Collecting what a verification finds. */
#include <gpusnap/snapshot.h>

#include "snapshot/segment.h"

/*
 * Hold the leaves of one range against what they should be, and note the first wrong one and
 * their number. `segment` gives name, size and place in the file (0 without one).
 */
gpusnap_status gsn_damage_compare(gpusnap_damage *damage, const struct gsn_segment *segment,
	const gpusnap_digest *expected, const gpusnap_digest *found, gpusnap_error *err);
/* Say which file the first wrong leaf of an item lies in. */
gpusnap_status gsn_damage_locate(
	gpusnap_damage_item *item, const char *file, uint64_t offset, gpusnap_error *err);

#endif
