/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LAYOUT_H
#define GSN_LAYOUT_H
/*
 * Where everything of a snapshot goes, decided before the first byte is written:
 *
 *	header | segments | leaf table | seal
 *
 * Segments come by the largest power of two (4096 at most) that divides their size, descending, so
 * that each is aligned to it without a hole; empty ones last. In a delta a segment is a run of
 * changed leaves of an entry, and what follows that order are all runs of one entry together.
 */
#include <gpusnap/digest.h>
#include <gpusnap/plan.h>
#include <gpusnap/seal.h>

#include "snapshot/ranges.h"
#include "snapshot/segment.h"

struct gsn_layout {
	uint8_t uuid[GPUSNAP_UUID_BYTES];
	struct gsn_range *ranges; /* of the whole registry; the segments' names live here */
	size_t range_count;
	const struct gsn_range **kept; /* of each entry */
	struct gsn_segment *entries;   /* kept ranges in the order of the leaf table; of a full
					  snapshot this is the order of the file */
	size_t entry_count;
	struct gsn_segment *segments; /* what is written of them, in file order */
	size_t segment_count;
	gpusnap_digest parent_root; /* zero: a full snapshot */
	uint8_t *header;
	uint64_t header_bytes;	/* offset of the data section, a multiple of 4096 */
	gpusnap_digest *leaves; /* filled while writing; in a delta, those of the rest before */
	uint64_t leaf_count;
	uint64_t leaves_offset;
	uint64_t seal_offset;
	uint64_t file_bytes;
	uint64_t data_bytes;	  /* of all segments */
	uint64_t state_bytes;	  /* of all kept ranges */
	uint64_t unclaimed_bytes; /* of those that no buffer names */
};

/* For the registry as it is now; call inside a job. Released by the caller, also on failure. */
gpusnap_status gsn_layout_init(
	struct gsn_layout *layout, const gpusnap_registry *registry, gpusnap_error *err);
void gsn_layout_release(struct gsn_layout *layout);

/*
 * A delta in two steps: entries alone, for the digests of their live bytes to be put into
 * layout->leaves; then delta_layout.h.
 */
gpusnap_status gsn_layout_init_entries(
	struct gsn_layout *layout, const gpusnap_registry *registry, gpusnap_error *err);
/*
 * Header and offsets, once segments and data_bytes are set and count from the data section.
 * @param tensors  `count` of them, in file order, and room for GSN_LAYOUT_END_TENSORS more.
 * @param delta    NULL for a full snapshot.
 */
enum { GSN_LAYOUT_END_TENSORS = 2 };
gpusnap_status gsn_layout_finish(struct gsn_layout *layout, const gpusnap_registry *registry,
	gpusnap_tensor *tensors, size_t count, gpusnap_plan_delta *delta, gpusnap_error *err);
/* What a run of this size keeps up for the one behind it, up to 4096; 0 for an empty one. */
uint64_t gsn_layout_alignment(uint64_t bytes);

#endif
