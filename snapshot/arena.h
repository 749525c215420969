/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_ARENA_H
#define GSN_ARENA_H
/*
 * An arena: the kept bytes of one region in pinned host memory, packed range after range, with the
 * digest of every leaf that it holds. It outlives the resume, so that the next offload copies
 * only the leaves that have changed meanwhile.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/device_ops.h"
#include "snapshot/pinning.h"
#include "snapshot/ranges.h"

/* Inline, since there are more leaves than microseconds. */
static inline bool gsn_same_leaf(const gpusnap_digest *a, const gpusnap_digest *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

/* Where one range of the region lies in the arena. */
struct gsn_extent {
	uint64_t offset; /* in the region */
	uint64_t bytes;
	uint64_t at; /* in the arena */
	uint64_t first_leaf;
};

struct gsn_arena {
	gpusnap_device *device; /* that pins the memory; borrowed */
	size_t extent_count;
	struct gsn_extent *extents;
	uint64_t bytes;
	/* One range of addresses, pinned in segments: copies run while the next ones are pinned. */
	struct gsn_pin_job memory;   /* its memory is NULL until first touched */
	bool *pinned;		     /* of each segment */
	struct gsn_pinning *pinning; /* pins them ahead; NULL: as they are touched */
	uint64_t leaf_count;
	gpusnap_digest *leaves; /* zero: the arena does not hold this leaf */
};

/* For these ranges of one region; no pinned memory is taken yet. `out` is owned by the caller. */
gpusnap_status gsn_arena_new(gpusnap_device *device, const struct gsn_range *ranges, size_t count,
	struct gsn_arena **out, gpusnap_error *err);
/* All of the new arena will be touched, in order: take its memory ahead of that. */
gpusnap_status gsn_arena_pin_ahead(struct gsn_arena *arena, gpusnap_error *err);
/* No more of it is needed, or all is there. */
void gsn_arena_pin_end(struct gsn_arena *arena);
/* NULL is a no-op. */
void gsn_arena_free(struct gsn_arena *arena);
/* True when the arena was made for ranges with these offsets and sizes. */
bool gsn_arena_fits(const struct gsn_arena *arena, const struct gsn_range *ranges, size_t count);
/* Consecutive leaves of one extent. */
struct gsn_leaf_run {
	size_t extent;
	uint64_t first; /* leaf of the extent, 0 first */
	uint64_t count;
};

/* Where a run begins in its range, and how many bytes it has. */
uint64_t gsn_arena_run_offset(const struct gsn_leaf_run *run);
uint64_t gsn_arena_run_bytes(const struct gsn_arena *arena, const struct gsn_leaf_run *run);
/* The digests of a run's leaves in the arena's table. */
gpusnap_digest *gsn_arena_run_leaves(struct gsn_arena *arena, const struct gsn_leaf_run *run);
/*
 * Give a stream the copy of a run between the region at `base` and the arena, either way. Pinned
 * memory is taken as it is touched first.
 */
gpusnap_status gsn_arena_copy(struct gsn_arena *arena, const struct gsn_leaf_run *run,
	struct gsn_stream *stream, enum gsn_copy_direction direction, gpusnap_address base,
	gpusnap_error *err);

#endif
