/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LAYOUT_H
#define GSN_LAYOUT_H
/*
 * Where everything of a snapshot goes, decided before the first byte is written:
 *
 *	header | segments | leaf table | seal
 *
 * Segments come by the largest power of two (4096 at most) that divides their size, descending, so
 * that each is aligned to it without a hole; empty ones last.
 */
#include <gpusnap/digest.h>
#include <gpusnap/seal.h>

#include "snapshot/ranges.h"
#include "snapshot/segment.h"

struct gsn_layout {
	uint8_t uuid[GPUSNAP_UUID_BYTES];
	struct gsn_range *ranges; /* of the whole registry; the segments' names live here */
	size_t range_count;
	struct gsn_segment *segments; /* kept ranges in file order */
	size_t segment_count;
	uint8_t *header;
	uint64_t header_bytes;	/* offset of the data section, a multiple of 4096 */
	gpusnap_digest *leaves; /* filled while writing */
	uint64_t leaf_count;
	uint64_t leaves_offset;
	uint64_t seal_offset;
	uint64_t file_bytes;
	uint64_t state_bytes;	  /* of all kept ranges */
	uint64_t unclaimed_bytes; /* of those that no buffer names */
};

/* For the registry as it is now; call inside a job. Released by the caller, also on failure. */
gpusnap_status gsn_layout_init(
	struct gsn_layout *layout, const gpusnap_registry *registry, gpusnap_error *err);
void gsn_layout_release(struct gsn_layout *layout);

#endif
