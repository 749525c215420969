/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/weight_map.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/json_scan.h"

#define MAP_KEY "weight_map"

struct parse {
	struct gsn_scan scan;
	struct gsn_weight_map *map;
	size_t used; /* of map->text, which has room for all strings of the JSON */
	bool seen;   /* weight_map */
	gpusnap_error *err;
};

/* ---- names of shards ---- */

/* A shard is a file of the same directory: a path would reach whatever the index's author likes. */
static gpusnap_status check_shard_name(
	const char *name, size_t length, const struct gsn_weight_entry *entry, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES], quoted_tensor[GSN_QUOTE_BYTES];

	if (*name && strlen(name) == length && !strchr(name, '/') && strcmp(name, ".") != 0 &&
		strcmp(name, "..") != 0)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"shard '%s' of tensor '%s' is not a plain file name; shards lie beside the index",
		gsn_quote(name, length, quoted),
		gsn_quote(entry->tensor, entry->tensor_length, quoted_tensor));
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Runs of the same shard share one string, so that few are left to sort. */
static gpusnap_status list_shards(struct gsn_weight_map *map, gpusnap_error *err)
{
	size_t runs = 0, distinct = 0;

	map->shards = gsn_alloc(map->count, sizeof *map->shards);
	if (!map->shards)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the names of shards");
	for (size_t i = 0; i < map->count; i++)
		if (i == 0 || map->entries[i].shard != map->entries[i - 1].shard)
			map->shards[runs++] = map->entries[i].shard;
	qsort(map->shards, runs, sizeof *map->shards, compare_text);
	for (size_t i = 0; i < runs; i++)
		if (i == 0 || strcmp(map->shards[i], map->shards[distinct - 1]) != 0)
			map->shards[distinct++] = map->shards[i];
	map->shard_count = distinct;
	return GPUSNAP_OK;
}

/* ---- the JSON ---- */

static gpusnap_status make_room(struct parse *parse)
{
	struct gsn_weight_map *map = parse->map;
	size_t room = map->room ? 2 * map->room : 256;
	void *grown;

	if (map->count < map->room)
		return GPUSNAP_OK;
	grown = gsn_grow(map->entries, map->room, room, sizeof *map->entries);
	if (!grown)
		return gsn_fail(
			parse->err, GPUSNAP_E_NOMEM, "no memory for an index of %zu tensors", room);
	map->entries = grown;
	map->room = room;
	return GPUSNAP_OK;
}

static gpusnap_status parse_shard(struct parse *parse, struct gsn_weight_entry *entry)
{
	const struct gsn_weight_map *map = parse->map;
	const char *before = map->count ? map->entries[map->count - 1].shard : NULL;
	char *name = map->text + parse->used;
	char quoted[GSN_QUOTE_BYTES];
	gpusnap_status st;
	size_t length;

	if (gsn_scan_peek(&parse->scan) != '"')
		return gsn_fail(parse->err, GPUSNAP_E_FORMAT,
			MAP_KEY " of tensor '%s' is not a string",
			gsn_quote(entry->tensor, entry->tensor_length, quoted));
	st = gsn_scan_string(&parse->scan, "the name of a shard", name, &length);
	if (!st)
		st = check_shard_name(name, length, entry, parse->err);
	if (st)
		return st;
	if (before && strcmp(before, name) == 0) {
		entry->shard = before;
		return GPUSNAP_OK;
	}
	entry->shard = name;
	parse->used += length + 1;
	return GPUSNAP_OK;
}

static gpusnap_status parse_entry(struct parse *parse)
{
	struct gsn_weight_entry *entry;
	gpusnap_status st = make_room(parse);

	if (st)
		return st;
	entry = &parse->map->entries[parse->map->count];
	entry->tensor = parse->map->text + parse->used;
	st = gsn_scan_key(&parse->scan, parse->map->text + parse->used, &entry->tensor_length);
	if (st)
		return st;
	parse->used += entry->tensor_length + 1;
	st = parse_shard(parse, entry);
	if (!st)
		parse->map->count++;
	return st;
}

static gpusnap_status parse_map(struct parse *parse)
{
	gpusnap_status st = gsn_scan_enter(&parse->scan, '{', "an object as " MAP_KEY);
	bool more = true;

	if (!st && parse->seen)
		st = gsn_fail(parse->err, GPUSNAP_E_FORMAT, MAP_KEY " is there twice");
	parse->seen = true;
	while (!st && more) {
		st = gsn_scan_next(&parse->scan, &more);
		if (!st && more)
			st = parse_entry(parse);
	}
	return st;
}

static gpusnap_status parse_member(struct parse *parse)
{
	const char *key = parse->map->text + parse->used;
	gpusnap_status st = gsn_scan_key(&parse->scan, parse->map->text + parse->used, NULL);

	if (st)
		return st;
	return strcmp(key, MAP_KEY) == 0 ? parse_map(parse) : gsn_scan_skip(&parse->scan);
}

static gpusnap_status parse_all(struct parse *parse)
{
	gpusnap_status st = gsn_scan_enter(&parse->scan, '{', "an index, which begins with '{',");
	bool more = true;

	while (!st && more) {
		st = gsn_scan_next(&parse->scan, &more);
		if (!st && more)
			st = parse_member(parse);
	}
	if (!st)
		st = gsn_scan_end(&parse->scan);
	if (!st && parse->map->count == 0)
		st = gsn_fail(parse->err, GPUSNAP_E_FORMAT,
			"it has no " MAP_KEY " object that names a tensor");
	return st;
}

gpusnap_status gsn_weight_map_parse(
	const char *json, size_t bytes, struct gsn_weight_map *ret_map, gpusnap_error *err)
{
	struct gsn_weight_map map = {.text = gsn_alloc(bytes, 1)};
	struct parse parse = {.map = &map, .err = err};
	gpusnap_status st;

	if (!map.text)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for an index of %zu bytes", bytes);
	gsn_scan_init(&parse.scan, json, bytes, 0, err);
	st = parse_all(&parse);
	if (!st)
		st = list_shards(&map, err);
	if (st)
		gsn_weight_map_release(&map);
	else
		*ret_map = map;
	return st;
}

void gsn_weight_map_release(struct gsn_weight_map *map)
{
	gsn_free(map->text);
	gsn_free(map->entries);
	gsn_free((void *)map->shards);
	memset(map, 0, sizeof *map);
}
