/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint directory: the index, the shards, and their agreement. */
#include "loader/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gpusnap/json.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"

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

static gpusnap_status open_single(
	const char *directory, struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	bool exists;
	gpusnap_status st = entry_exists(directory, GSN_SINGLE_NAME, &exists, err);

	if (st)
		return st;
	if (!exists)
		return gsn_fail(err, GPUSNAP_E_IO, "%s holds neither %s nor %s", directory,
			GSN_INDEX_NAME, GSN_SINGLE_NAME);
	st = allocate_shards(checkpoint, 1, err);
	if (st)
		return st;
	return open_shard(directory, GSN_SINGLE_NAME, &checkpoint->shards[0], err);
}

/* ---- index ---- */

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A shard is a file of the same directory: a path would reach whatever the index's author likes. */
static gpusnap_status check_shard_name(const char *name, const char *tensor, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES], quoted_tensor[GSN_QUOTE_BYTES];

	if (!name)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "weight_map of tensor '%s' is not a string",
			gsn_quote(tensor, strlen(tensor), quoted_tensor));
	if (*name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"shard '%s' of tensor '%s' is not a plain file name; shards lie beside the index",
		gsn_quote(name, strlen(name), quoted),
		gsn_quote(tensor, strlen(tensor), quoted_tensor));
}

/* Distinct shard names, sorted. `ret_names` holds one entry a tensor at first. */
static gpusnap_status shard_names(
	gpusnap_json *map, const char **names, size_t *ret_count, gpusnap_error *err)
{
	size_t n = 0, distinct = 0;

	for (void *at = gpusnap_json_first(map); at; at = gpusnap_json_next(map, at)) {
		const char *name = gpusnap_json_text(gpusnap_json_value(at));
		gpusnap_status st = check_shard_name(name, gpusnap_json_key(at), err);

		if (st)
			return st;
		names[n++] = name;
	}
	qsort(names, n, sizeof *names, compare_text);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(names[i], names[distinct - 1]) != 0)
			names[distinct++] = names[i];
	*ret_count = distinct;
	return GPUSNAP_OK;
}

static gpusnap_status open_named_shards(const char *directory, const char **names, size_t count,
	struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	gpusnap_status st = allocate_shards(checkpoint, (uint32_t)count, err);

	for (size_t i = 0; !st && i < count; i++) {
		st = open_shard(directory, names[i], &checkpoint->shards[i], err);
		if (st && checkpoint->shards[i].file.fd < 0)
			gsn_error_prefix(
				err, "shard %zu of %zu in %s", i + 1, count, GSN_INDEX_NAME);
	}
	return st;
}

static const struct gsn_shard *find_shard(const struct gsn_checkpoint *checkpoint, const char *name)
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

/* Every tensor of the index is in the shard that it names. */
static gpusnap_status check_index_in_shards(
	const struct gsn_checkpoint *checkpoint, gpusnap_json *map, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (void *at = gpusnap_json_first(map); at; at = gpusnap_json_next(map, at)) {
		const char *tensor = gpusnap_json_key(at);
		const char *name = gpusnap_json_text(gpusnap_json_value(at));
		const struct gsn_shard *shard = find_shard(checkpoint, name);

		if (!shard || !gpusnap_header_find(shard->header, tensor))
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"%s maps tensor '%s' to %s, which does not hold it", GSN_INDEX_NAME,
				gsn_quote(tensor, strlen(tensor), quoted), name);
	}
	return GPUSNAP_OK;
}

/* Every tensor of the shards is in the index: dropping one in silence would lose weights. */
static gpusnap_status check_shards_in_index(
	const struct gsn_checkpoint *checkpoint, const gpusnap_json *map, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	if (checkpoint->tensor_count == gpusnap_json_size(map))
		return GPUSNAP_OK;
	for (size_t i = 0; i < checkpoint->tensor_count; i++) {
		const struct gsn_checkpoint_tensor *tensor = &checkpoint->tensors[i];

		if (!gpusnap_json_get(map, tensor->tensor->name))
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor '%s' of %s is not in %s; write the index anew",
				gsn_quote(
					tensor->tensor->name, tensor->tensor->name_length, quoted),
				checkpoint->shards[tensor->shard].name, GSN_INDEX_NAME);
	}
	return GPUSNAP_OK;
}

/* ---- tensors ---- */

static int compare_tensors(const void *a, const void *b)
{
	const struct gsn_checkpoint_tensor *x = a, *y = b;

	return strverscmp(x->tensor->name, y->tensor->name);
}

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

		if (strcmp(a->tensor->name, b->tensor->name) == 0)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor '%s' is in %s and again in %s; only one may hold it",
				gsn_quote(a->tensor->name, a->tensor->name_length, quoted),
				checkpoint->shards[a->shard].name,
				checkpoint->shards[b->shard].name);
	}
	return GPUSNAP_OK;
}

static gpusnap_status collect_tensors(struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	size_t total = 0;
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; i < checkpoint->shard_count; i++)
		total += gpusnap_header_tensor_count(checkpoint->shards[i].header);
	checkpoint->tensors = gsn_alloc(total, sizeof *checkpoint->tensors);
	if (!checkpoint->tensors)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu tensors", total);
	for (uint32_t i = 0; i < checkpoint->shard_count; i++) {
		const gpusnap_header *header = checkpoint->shards[i].header;
		size_t count = gpusnap_header_tensor_count(header);

		for (size_t k = 0; !st && k < count; k++)
			st = add_tensor(checkpoint, i, gpusnap_header_tensor(header, k), err);
	}
	if (st)
		return st;
	qsort(checkpoint->tensors, checkpoint->tensor_count, sizeof *checkpoint->tensors,
		compare_tensors);
	return refuse_twins(checkpoint, err);
}

/* ---- the directory ---- */

/* Readers disagree on which of the two counts, so a checkpoint with both is refused. */
static gpusnap_status refuse_stray_single(
	const char *directory, const struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	bool exists;
	gpusnap_status st = entry_exists(directory, GSN_SINGLE_NAME, &exists, err);

	if (st || !exists || find_shard(checkpoint, GSN_SINGLE_NAME))
		return st;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"%s holds %s, and an index that does not name it; remove the one that is stale",
		directory, GSN_SINGLE_NAME);
}

static gpusnap_status open_mapped_shards(const char *directory, gpusnap_json *map,
	struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	const char **names = gsn_alloc(gpusnap_json_size(map), sizeof *names);
	size_t count = 0;
	gpusnap_status st;

	if (!names)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the index of %s", directory);
	st = shard_names(map, names, &count, err);
	if (st)
		gsn_error_prefix(err, "%s", GSN_INDEX_NAME);
	else
		st = open_named_shards(directory, names, count, checkpoint, err);
	gsn_free((void *)names);
	return st;
}

static gpusnap_status open_indexed(
	const char *directory, struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	gpusnap_json *index = NULL, *map;
	gpusnap_status st;

	st = gsn_json_file_read(directory, GSN_INDEX_NAME, INDEX_BYTES_MAX, &index, err);
	if (st)
		return st;
	map = gpusnap_json_get(index, "weight_map");
	if (gpusnap_json_kind_of(map) != GPUSNAP_JSON_OBJECT || gpusnap_json_size(map) == 0)
		st = gsn_fail(err, GPUSNAP_E_FORMAT,
			"%s/%s has no weight_map object that names a tensor", directory,
			GSN_INDEX_NAME);
	if (!st)
		st = open_mapped_shards(directory, map, checkpoint, err);
	if (!st)
		st = refuse_stray_single(directory, checkpoint, err);
	if (!st)
		st = check_index_in_shards(checkpoint, map, err);
	if (!st)
		st = collect_tensors(checkpoint, err);
	if (!st)
		st = check_shards_in_index(checkpoint, map, err);
	gpusnap_json_free(index);
	return st;
}

gpusnap_status gsn_checkpoint_open(
	const char *directory, struct gsn_checkpoint *ret_checkpoint, gpusnap_error *err)
{
	struct gsn_checkpoint checkpoint = {0};
	bool indexed;
	gpusnap_status st = gsn_source_directory_check(directory, err);

	if (!st)
		st = entry_exists(directory, GSN_INDEX_NAME, &indexed, err);
	if (st)
		return st;
	if (indexed)
		st = open_indexed(directory, &checkpoint, err);
	else
		st = open_single(directory, &checkpoint, err);
	if (!st && !indexed)
		st = collect_tensors(&checkpoint, err);
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

const struct gsn_checkpoint_tensor *gsn_checkpoint_find(
	const struct gsn_checkpoint *checkpoint, const char *name)
{
	const gpusnap_tensor wanted = {.name = name, .name_length = strlen(name)};
	const struct gsn_checkpoint_tensor key = {.tensor = &wanted};

	return bsearch(&key, checkpoint->tensors, checkpoint->tensor_count,
		sizeof *checkpoint->tensors, compare_tensors);
}

gpusnap_status gsn_checkpoint_unchanged(const struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; !st && i < checkpoint->shard_count; i++)
		st = gsn_source_file_unchanged(&checkpoint->shards[i].file, err);
	return st;
}
