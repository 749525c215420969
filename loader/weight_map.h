/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_WEIGHT_MAP_H
#define GSN_WEIGHT_MAP_H
/*
 * The index of a checkpoint in shards: which tensor is in which file. Read by the scanner of
 * safetensors headers, since an index names as many tensors as they do together.
 */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/status.h>

struct gsn_weight_entry {
	const char *tensor;
	size_t tensor_length; /* a name may hold NUL */
	const char *shard;    /* a plain file name */
};

struct gsn_weight_map {
	char *text; /* what the names point into */
	size_t count, room;
	struct gsn_weight_entry *entries; /* in the order of the file */
	size_t shard_count;
	const char **shards; /* distinct, sorted */
};

/*
 * Parse the JSON of an index. E_FORMAT: malformed, no weight_map that names a tensor, a shard that
 * is no plain file name. That no tensor is named twice is left to the caller, who looks each up.
 */
gpusnap_status gsn_weight_map_parse(
	const char *json, size_t bytes, struct gsn_weight_map *ret_map, gpusnap_error *err);
void gsn_weight_map_release(struct gsn_weight_map *map); /* takes a zeroed one */

#endif
