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

/* ---- index ---- */

static gpusnap_status open_mapped_shards(const char *directory, const struct gsn_weight_map *map,
	struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	size_t count = map->shard_count;
	gpusnap_status st = allocate_shards(checkpoint, (uint32_t)count, err);

	for (size_t i = 0; !st && i < count; i++) {
		st = open_shard(directory, map->shards[i], &checkpoint->shards[i], err);
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

/*
 * Which tensors the index names: one flag a tensor, shard by shard in the order of their files. So
 * one look-up an entry tells whether the shard holds it and whether it is named twice.
 */
struct index_check {
	const struct gsn_checkpoint *checkpoint;
	size_t *first; /* flag of each shard's first tensor */
	bool *named;
};

static gpusnap_status open_index_check(struct index_check *check, gpusnap_error *err)
{
	const struct gsn_checkpoint *checkpoint = check->checkpoint;
	size_t total = 0;

	check->first = gsn_alloc(checkpoint->shard_count, sizeof *check->first);
	for (uint32_t i = 0; check->first && i < checkpoint->shard_count; i++) {
		check->first[i] = total;
		total += gpusnap_header_tensor_count(checkpoint->shards[i].header);
	}
	check->named = gsn_alloc(total, sizeof *check->named);
	if (!check->first || !check->named)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to check the index");
	return GPUSNAP_OK;
}

static gpusnap_status check_entry(
	struct index_check *check, const struct gsn_weight_entry *entry, gpusnap_error *err)
{
	const struct gsn_shard *shard = find_shard(check->checkpoint, entry->shard);
	const gpusnap_tensor *tensor =
		shard ? gpusnap_header_find(shard->header, entry->tensor) : NULL;
	char quoted[GSN_QUOTE_BYTES];
	bool *named;

	if (!tensor || tensor->name_length != entry->tensor_length)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%s maps tensor '%s' to %s, which does not hold it", GSN_INDEX_NAME,
			gsn_quote(entry->tensor, entry->tensor_length, quoted), entry->shard);
	named = &check->named[check->first[shard - check->checkpoint->shards] +
			      (size_t)(tensor - gpusnap_header_tensor(shard->header, 0))];
	if (*named)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "%s names tensor '%s' twice", GSN_INDEX_NAME,
			gsn_quote(entry->tensor, entry->tensor_length, quoted));
	*named = true;
	return GPUSNAP_OK;
}

/* Every tensor of the index is in the shard that it names. */
static gpusnap_status check_index_in_shards(
	struct index_check *check, const struct gsn_weight_map *map, gpusnap_error *err)
{
	gpusnap_status st = open_index_check(check, err);

	for (size_t i = 0; !st && i < map->count; i++)
		st = check_entry(check, &map->entries[i], err);
	return st;
}

/* Every tensor of the shards is in the index: dropping one in silence would lose weights. */
static gpusnap_status check_shards_in_index(const struct index_check *check, gpusnap_error *err)
{
	const struct gsn_checkpoint *checkpoint = check->checkpoint;
	char quoted[GSN_QUOTE_BYTES];

	for (uint32_t i = 0; i < checkpoint->shard_count; i++) {
		const struct gsn_shard *shard = &checkpoint->shards[i];
		size_t count = gpusnap_header_tensor_count(shard->header);

		for (size_t k = 0; k < count; k++) {
			const gpusnap_tensor *tensor = gpusnap_header_tensor(shard->header, k);

			if (!check->named[check->first[i] + k])
				return gsn_fail(err, GPUSNAP_E_FORMAT,
					"tensor '%s' of %s is not in %s; write the index anew",
					gsn_quote(tensor->name, tensor->name_length, quoted),
					shard->name, GSN_INDEX_NAME);
		}
	}
	return GPUSNAP_OK;
}

static void close_index_check(struct index_check *check)
{
	gsn_free(check->first);
	gsn_free(check->named);
}

/* ---- tensors ---- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t digit_count(const char *text)
{
	size_t count = 0;

	while (is_digit(text[count]))
		count++;
	return count;
}

/*
 * By bytes, but the longer of two numbers is the larger one. A total order: it compares names as
 * sequences of characters and numbers, and numbers by length, then digits.
 */
static int compare_names(const char *a, const char *b)
{
	size_t at = 0, digits_a, digits_b;

	while (a[at] == b[at]) {
		if (a[at] == '\0')
			return 0;
		at++;
	}
	if ((is_digit(a[at]) && is_digit(b[at])) || (at > 0 && is_digit(a[at - 1]))) {
		digits_a = digit_count(a + at);
		digits_b = digit_count(b + at);
		if (digits_a != digits_b)
			return digits_a < digits_b ? -1 : 1;
	}
	return (uint8_t)a[at] < (uint8_t)b[at] ? -1 : 1;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct gsn_checkpoint_tensor *x = a, *y = b;

	return compare_names(x->tensor->name, y->tensor->name);
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

static gpusnap_status open_by_map(const char *directory, const struct gsn_weight_map *map,
	struct gsn_checkpoint *checkpoint, gpusnap_error *err)
{
	struct index_check check = {.checkpoint = checkpoint};
	gpusnap_status st = open_mapped_shards(directory, map, checkpoint, err);

	if (!st)
		st = refuse_stray_single(directory, checkpoint, err);
	if (!st)
		st = check_index_in_shards(&check, map, err);
	if (!st)
		st = collect_tensors(checkpoint, err);
	if (!st)
		st = check_shards_in_index(&check, err);
	close_index_check(&check);
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
