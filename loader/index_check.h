/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_INDEX_CHECK_H
#define GSN_INDEX_CHECK_H
/* Do the index of a checkpoint and its shards agree, in both directions. */
#include <stdatomic.h>
#include <stdbool.h>

#include "loader/checkpoint.h"
#include "loader/weight_map.h"

/*
 * Which tensors the index names: one flag a tensor, shard by shard in the order of their files. So
 * one look-up an entry tells whether the shard holds it and whether it is named twice.
 */
struct gsn_index_check {
	const struct gsn_checkpoint *checkpoint;
	size_t *first; /* flag of each shard's first tensor */
	atomic_bool *named;
};

/* E_FORMAT unless every tensor of the index is in the shard that it names, and named once. */
gpusnap_status gsn_index_check_entries(
	struct gsn_index_check *check, const struct gsn_weight_map *map, gpusnap_error *err);
/* After that: E_FORMAT unless every tensor of the shards is in the index. */
gpusnap_status gsn_index_check_shards(const struct gsn_index_check *check, gpusnap_error *err);
void gsn_index_check_close(struct gsn_index_check *check); /* takes one without its arrays */

#endif
