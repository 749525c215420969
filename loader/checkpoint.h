/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_CHECKPOINT_H
#define GSN_CHECKPOINT_H
/*
 * A checkpoint: its shards, held open, and where each tensor lies. With an index the index and the
 * shards must agree in both directions; without one a single file is the checkpoint. Other files
 * of the directory are left alone.
 */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/safetensors.h>
#include <gpusnap/status.h>

#include "loader/source_file.h"

#define GSN_INDEX_NAME	"model.safetensors.index.json"
#define GSN_SINGLE_NAME "model.safetensors"

struct gsn_shard {
	const char *name; /* in the directory; borrowed from file.path */
	struct gsn_source_file file;
	gpusnap_header *header;
};

struct gsn_checkpoint_tensor {
	const gpusnap_tensor *tensor; /* borrowed from the shard's header */
	uint32_t shard;
	uint64_t offset; /* in the shard's file */
};

struct gsn_checkpoint {
	uint32_t shard_count;
	struct gsn_shard *shards;
	size_t tensor_count;
	struct gsn_checkpoint_tensor *tensors; /* by name, numbers inside names by value */
};

/*
 * The checkpoint of a directory, or with `file` that one file of it. E_IO: no such directory, a
 * file of the index missing; E_FORMAT: index or shard malformed, index and shards disagree, a
 * tensor in two shards, a name that cannot be used; E_INVALID: the file is a snapshot.
 */
gpusnap_status gsn_checkpoint_open(const char *directory, const char *file,
	struct gsn_checkpoint *ret_checkpoint, gpusnap_error *err);
void gsn_checkpoint_close(struct gsn_checkpoint *checkpoint); /* takes a zeroed one */
/* By its name in the directory; NULL when absent. O(log n). */
const struct gsn_shard *gsn_checkpoint_shard(
	const struct gsn_checkpoint *checkpoint, const char *name);
/* NULL when absent. O(log n). */
const struct gsn_checkpoint_tensor *gsn_checkpoint_find(
	const struct gsn_checkpoint *checkpoint, const char *name);
/* E_IO unless every shard still is what was opened. */
gpusnap_status gsn_checkpoint_unchanged(
	const struct gsn_checkpoint *checkpoint, gpusnap_error *err);

#endif
