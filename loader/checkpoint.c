/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint directory: the index, the shards, and their agreement. */
#include "loader/checkpoint.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gpusnap/plan.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "loader/index_check.h"
#include "loader/parallel.h"
#include "loader/tensor_order.h"
#include "loader/weight_map.h"

/* About 200 bytes a tensor are usual; the largest public index has 230,000 of them. */
#define INDEX_BYTES_MAX (1ull << 30)

/* Is there such an entry, be it a dangling link: opening it then says what is wrong. */
static gpusnap_status entry_exists(
	const char *directory, const char *name, bool *ret_exists, gpusnap_error *err)
{
	char *path = gsn_printf("%s/%s", directory, name);
	struct stat st;

	if (!path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to look for %s", name);
	*ret_exists = lstat(path, &st) == 0;
	gsn_free(path);
	return GPUSNAP_OK;
}

/* ---- shards ---- */

static gpusnap_status read_header(struct gsn_shard *shard, gpusnap_error *err)
{
	const struct gsn_source_file *file = &shard->file;
	uint8_t prefix[64];
	size_t prefix_bytes = gsn_min(sizeof prefix, file->bytes);
	uint64_t json_bytes;
	char *json;
	gpusnap_status st;

	st = gsn_source_file_read(file, prefix, prefix_bytes, 0, err);
	if (st)
		return st;
	st = gpusnap_header_measure(prefix, prefix_bytes, file->bytes, &json_bytes, err);
	if (st)
		goto fail;
	json = gsn_alloc(json_bytes, 1);
	if (!json)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the header of %s", file->path);
	st = gsn_source_file_read(file, json, json_bytes, 8, err);
	if (!st)
		st = gpusnap_header_parse(json, json_bytes, file->bytes, &shard->header, err);
	gsn_free(json);
	if (!st)
		return GPUSNAP_OK;
fail:
	gsn_error_prefix(err, "%s", file->path);
	return st;
}

static gpusnap_status open_shard(
	const char *directory, const char *name, struct gsn_shard *shard, gpusnap_error *err)
{
	gpusnap_status st = gsn_source_file_open(directory, name, &shard->file, err);

	if (st)
		return st;
	shard->name = shard->file.path + strlen(directory) + 1;
	return read_header(shard, err);
}

static gpusnap_status allocate_shards(
	struct gsn_checkpoint *checkpoint, uint32_t count, gpusnap_error *err)
{
	checkpoint->shards = gsn_alloc(count, sizeof *checkpoint->shards);
	if (!checkpoint->shards)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u shards", count);
	checkpoint->shard_count = count;
	for (uint32_t i = 0; i < count; i++)
		checkpoint->shards[i].file.fd = -1;
	return GPUSNAP_OK;
}

/* Headers take most of the time before the first read: a thread opens each shard. */
struct opening {
	const char *directory;
	const struct gsn_weight_map *map;
	struct gsn_shard *shards;
	struct opened {
		gpusnap_status status;
		gpusnap_error err;
	} * opened; /* of each shard */
};

static void open_task(void *argument, uint64_t task)
{
	const struct opening *opening = argument;
	struct opened *opened = &opening->opened[task];

	opened->status = open_shard(opening->directory, opening->map->shards[task],
		&opening->shards[task], &opened->err);
}

/* The first failure in the order of names is the one that is told. */
static gpusnap_status first_failure(const struct opening *opening, gpusnap_error *err)
{
	size_t count = opening->map->shard_count;

	for (size_t i = 0; i < count; i++) {
		if (!opening->opened[i].status)
			continue;
		if (err)
			*err = opening->opened[i].err;
		if (opening->shards[i].file.fd < 0)
			gsn_error_prefix(
				err, "shard %zu of %zu in %s", i + 1, count, GSN_INDEX_NAME);
		return opening->opened[i].status;
	}
	return GPUSNAP_OK;
}

static gpusnap_status open_mapped_shards(const char *directory, const struct gsn_weight_map *map,
	struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	struct opening opening = {.directory = directory, .map = map};
	gpusnap_status st = allocate_shards(checkpoint, (uint32_t)map->shard_count, err);

	if (st)
		return st;
	opening.shards = checkpoint->shards;
	opening.opened = gsn_alloc(map->shard_count, sizeof *opening.opened);
	if (!opening.opened)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory to open %zu shards", map->shard_count);
	st = gsn_parallel_run(open_task, &opening, map->shard_count, err);
	if (!st)
		st = first_failure(&opening, err);
	gsn_free(opening.opened);
	return st;
}

const struct gsn_shard *gsn_checkpoint_shard(
	const struct gsn_checkpoint *checkpoint, const char *name)
{
	size_t low = 0, high = checkpoint->shard_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, checkpoint->shards[middle].name);

		if (order == 0)
			return &checkpoint->shards[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

/* ---- tensors ---- */

static gpusnap_status add_tensor(struct gsn_checkpoint *checkpoint, uint32_t shard,
	const gpusnap_tensor *tensor, gpusnap_error *err)
{
	const gpusnap_header *header = checkpoint->shards[shard].header;
	char quoted[GSN_QUOTE_BYTES];

	if (tensor->name_length == 0 || strlen(tensor->name) != tensor->name_length)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%s: tensor name '%s' is empty or holds a NUL character",
			checkpoint->shards[shard].file.path,
			gsn_quote(tensor->name, tensor->name_length, quoted));
	checkpoint->tensors[checkpoint->tensor_count++] = (struct gsn_checkpoint_tensor){
		.tensor = tensor,
		.shard = shard,
		.offset = gpusnap_header_data_offset(header) + tensor->begin,
	};
	return GPUSNAP_OK;
}

static gpusnap_status refuse_twins(const struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (size_t i = 1; i < checkpoint->tensor_count; i++) {
		const struct gsn_checkpoint_tensor *a = &checkpoint->tensors[i - 1];
		const struct gsn_checkpoint_tensor *b = &checkpoint->tensors[i];

		if (gsn_tensor_order(a->tensor, b->tensor) == 0)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor '%s' is in %s and again in %s; only one may hold it",
				gsn_quote(a->tensor->name, a->tensor->name_length, quoted),
				checkpoint->shards[a->shard].name,
				checkpoint->shards[b->shard].name);
	}
	return GPUSNAP_OK;
}

static gpusnap_status add_tensors(
	struct gsn_checkpoint *checkpoint, const size_t *first, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	checkpoint->tensors =
		gsn_alloc(first[checkpoint->shard_count], sizeof *checkpoint->tensors);
	if (!checkpoint->tensors)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu tensors",
			first[checkpoint->shard_count]);
	for (uint32_t i = 0; i < checkpoint->shard_count; i++)
		for (size_t k = 0; !st && k < first[i + 1] - first[i]; k++)
			st = add_tensor(checkpoint, i,
				gpusnap_header_tensor(checkpoint->shards[i].header, k), err);
	return st;
}

static gpusnap_status collect_tensors(struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	uint32_t shards = checkpoint->shard_count;
	size_t *first = gsn_alloc((size_t)shards + 1, sizeof *first);
	gpusnap_status st;

	if (!first)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u shards", shards);
	for (uint32_t i = 0; i < shards; i++)
		first[i + 1] = first[i] + gpusnap_header_tensor_count(checkpoint->shards[i].header);
	st = add_tensors(checkpoint, first, err);
	if (!st)
		st = gsn_tensor_order_sort(checkpoint->tensors, first, shards, err);
	gsn_free(first);
	return st ? st : refuse_twins(checkpoint, err);
}

/* ---- the directory ---- */

/* Readers disagree on which of the two counts, so a checkpoint with both is refused. */
static gpusnap_status refuse_stray_single(
	const char *directory, const struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	bool exists;
	gpusnap_status st = entry_exists(directory, GSN_SINGLE_NAME, &exists, err);

	if (st || !exists || gsn_checkpoint_shard(checkpoint, GSN_SINGLE_NAME))
		return st;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"%s holds %s, and an index that does not name it; remove the one that is stale",
		directory, GSN_SINGLE_NAME);
}

static gpusnap_status open_by_map(const char *directory, const struct gsn_weight_map *map,
	struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	struct gsn_index_check check = {.checkpoint = checkpoint};
	gpusnap_status st = open_mapped_shards(directory, map, checkpoint, err);

	if (!st)
		st = refuse_stray_single(directory, checkpoint, err);
	if (!st)
		st = gsn_index_check_entries(&check, map, err);
	if (!st)
		st = collect_tensors(checkpoint, err);
	if (!st)
		st = gsn_index_check_shards(&check, err);
	gsn_index_check_close(&check);
	return st;
}

static gpusnap_status open_indexed(
	const char *directory, struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	struct gsn_weight_map map = {0};
	size_t bytes;
	char *json;
	gpusnap_status st;

	st = gsn_text_file_read(directory, GSN_INDEX_NAME, INDEX_BYTES_MAX, &json, &bytes, err);
	if (st)
		return st;
	st = gsn_weight_map_parse(json, bytes, &map, err);
	gsn_free(json);
	if (st)
		gsn_error_prefix(err, "%s/%s", directory, GSN_INDEX_NAME);
	else
		st = open_by_map(directory, &map, checkpoint, err);
	gsn_weight_map_release(&map);
	return st;
}

static gpusnap_status open_single(const char *directory, const char *name,
	struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	gpusnap_status st = allocate_shards(checkpoint, 1, err);

	if (!st)
		st = open_shard(directory, name, &checkpoint->shards[0], err);
	if (!st && gpusnap_header_metadata(checkpoint->shards[0].header, GPUSNAP_PLAN_KEY))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s/%s is a snapshot, not a checkpoint; restore it", directory, name);
	return st ? st : collect_tensors(checkpoint, err);
}

static gpusnap_status open_directory(
	const char *directory, struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	bool indexed = false, single = false;
	gpusnap_status st = gsn_source_directory_check(directory, err);

	if (!st)
		st = entry_exists(directory, GSN_INDEX_NAME, &indexed, err);
	if (!st)
		st = entry_exists(directory, GSN_SINGLE_NAME, &single, err);
	if (st)
		return st;
	if (indexed)
		return open_indexed(directory, checkpoint, err);
	if (single)
		return open_single(directory, GSN_SINGLE_NAME, checkpoint, err);
	return gsn_fail(err, GPUSNAP_E_IO, "%s holds neither %s nor %s", directory, GSN_INDEX_NAME,
		GSN_SINGLE_NAME);
}

gpusnap_status gsn_checkpoint_open(const char *directory, const char *file,
	struct gsn_checkpoint *ret_checkpoint, gpusnap_error *err)
{
	struct gsn_checkpoint checkpoint = {0};
	gpusnap_status st = file ? open_single(directory, file, &checkpoint, err)
				 : open_directory(directory, &checkpoint, err);

	if (st)
		gsn_checkpoint_close(&checkpoint);
	else
		*ret_checkpoint = checkpoint;
	return st;
}

void gsn_checkpoint_close(struct gsn_checkpoint *checkpoint)
{
	for (uint32_t i = 0; i < checkpoint->shard_count; i++) {
		gpusnap_header_free(checkpoint->shards[i].header);
		gsn_source_file_close(&checkpoint->shards[i].file);
	}
	gsn_free(checkpoint->shards);
	gsn_free(checkpoint->tensors);
	memset(checkpoint, 0, sizeof *checkpoint);
}

static int compare_key(const void *key, const void *tensor)
{
	return gsn_tensor_order(key, ((const struct gsn_checkpoint_tensor *)tensor)->tensor);
}

const struct gsn_checkpoint_tensor *gsn_checkpoint_find(
	const struct gsn_checkpoint *checkpoint, const char *name)
{
	const gpusnap_tensor wanted = {.name = name, .name_length = strlen(name)};

	return bsearch(&wanted, checkpoint->tensors, checkpoint->tensor_count,
		sizeof *checkpoint->tensors, compare_key);
}

gpusnap_status gsn_checkpoint_unchanged(const struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; !st && i < checkpoint->shard_count; i++)
		st = gsn_source_file_unchanged(&checkpoint->shards[i].file, err);
	return st;
}
