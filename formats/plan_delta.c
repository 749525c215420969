/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's member "delta": which leaves of which entries the file holds, and of what parent. */
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/fields.h"
#include "formats/plan_parts.h"

bool gpusnap_delta_name_parse(const char *name, uint64_t *ret_entry)
{
	static const char prefix[] = "gpusnap.delta/";
	uint64_t entry;

	if (strncmp(name, prefix, sizeof prefix - 1) != 0)
		return false;
	name += sizeof prefix - 1;
	if (!gsn_parse_decimal(&name, UINT64_MAX, &entry) || *name != '\0')
		return false;
	*ret_entry = entry;
	return true;
}

uint64_t gpusnap_delta_leaf_count(const gpusnap_delta_entry *entry)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < entry->run_count; i++)
		count += entry->changed[i].count;
	return count;
}

uint64_t gpusnap_delta_bytes(const gpusnap_delta_entry *entry)
{
	uint64_t bytes = gpusnap_delta_leaf_count(entry) * GPUSNAP_LEAF_BYTES;
	uint64_t all = gpusnap_leaf_count(entry->bytes);
	const gpusnap_delta_run *last;

	if (!entry->run_count)
		return 0;
	last = &entry->changed[entry->run_count - 1];
	return last->first + last->count == all ? bytes - (all * GPUSNAP_LEAF_BYTES - entry->bytes)
						: bytes;
}

/* ---- writing ---- */

static gpusnap_json *encode_changed(const gpusnap_delta_entry *entry)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < entry->run_count; i++) {
		const gpusnap_delta_run *run = &entry->changed[i];

		if (gpusnap_json_append(
			    list, gpusnap_json_pack("[o, o]", gsn_u64_encode(run->first),
					  gsn_u64_encode(run->count)))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static gpusnap_json *encode_entries(const gpusnap_plan_delta *delta)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < delta->entry_count; i++) {
		const gpusnap_delta_entry *entry = &delta->entries[i];

		if (gpusnap_json_append(
			    list, gpusnap_json_pack("{s:s, s:o, s:o}", "name", entry->name, "bytes",
					  gsn_u64_encode(entry->bytes), "changed",
					  encode_changed(entry)))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

gpusnap_json *gsn_delta_encode(const gpusnap_plan_delta *delta)
{
	return gpusnap_json_pack("{s:s, s:I, s:o}", "parent", delta->parent, "depth",
		(long long)delta->depth, "entries", encode_entries(delta));
}

/* ---- reading ---- */

/* A name and no path, so that a file cannot send its reader elsewhere. */
static gpusnap_status decode_parent(
	const gpusnap_json *json, gpusnap_plan_delta *delta, gpusnap_error *err)
{
	gpusnap_status status = gsn_field_copy(json, "parent", &delta->parent, err);
	char quoted[GSN_QUOTE_BYTES];

	if (status)
		return status;
	if (strchr(delta->parent, '/') || strcmp(delta->parent, ".") == 0 ||
		strcmp(delta->parent, "..") == 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'parent' is '%s', expected a file name without directory",
			gsn_quote(delta->parent, strlen(delta->parent), quoted));
	return GPUSNAP_OK;
}

static gpusnap_status decode_depth(
	const gpusnap_json *json, gpusnap_plan_delta *delta, gpusnap_error *err)
{
	gpusnap_status status = gsn_field_u32(json, "depth", 1, UINT32_MAX, &delta->depth, err);

	if (status)
		return status;
	if (delta->depth > GPUSNAP_DELTA_DEPTH_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"depth is %u, at most %u; flatten the parent (gpusnap flatten) and save "
			"again",
			delta->depth, GPUSNAP_DELTA_DEPTH_MAX);
	return GPUSNAP_OK;
}

static gpusnap_status decode_run(
	const gpusnap_json *json, gpusnap_delta_run *run, gpusnap_error *err)
{
	int64_t first, count;
	gpusnap_status status;

	if (gpusnap_json_kind_of(json) != GPUSNAP_JSON_ARRAY || gpusnap_json_size(json) != 2)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is no [first, count]");
	status = gsn_item_i64(json, 0, 0, INT64_MAX, &first, err);
	if (!status)
		status = gsn_item_i64(json, 1, 1, INT64_MAX, &count, err);
	if (status)
		return status;
	*run = (gpusnap_delta_run){.first = (uint64_t)first, .count = (uint64_t)count};
	return GPUSNAP_OK;
}

/* `runs_left` is what the limit of all entries together leaves for this one. */
static gpusnap_status decode_changed(const gpusnap_json *json, gpusnap_delta_entry *entry,
	uint32_t *runs_left, gpusnap_error *err)
{
	gpusnap_json *list;
	gpusnap_status status = gsn_field_array(json, "changed", 0, *runs_left, &list, err);

	if (status)
		return status;
	entry->run_count = (uint32_t)gpusnap_json_size(list);
	entry->changed = gsn_alloc(entry->run_count, sizeof *entry->changed);
	if (!entry->changed)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %u runs of leaves", entry->run_count);
	for (uint32_t i = 0; i < entry->run_count && !status; i++) {
		status = decode_run(gpusnap_json_at(list, i), &entry->changed[i], err);
		if (status)
			gsn_error_prefix(err, "'changed' at position %u", i);
	}
	*runs_left -= entry->run_count;
	return status;
}

static gpusnap_status decode_entry(const gpusnap_json *json, gpusnap_delta_entry *entry,
	uint32_t *runs_left, gpusnap_error *err)
{
	gpusnap_status status = gsn_field_copy(json, "name", &entry->name, err);

	if (!status)
		status = gsn_field_u64(json, "bytes", 0, INT64_MAX, &entry->bytes, err);
	if (!status)
		status = decode_changed(json, entry, runs_left, err);
	return status;
}

static gpusnap_status decode_entries(
	const gpusnap_json *json, gpusnap_plan_delta *delta, gpusnap_error *err)
{
	uint32_t runs_left = GPUSNAP_DELTA_RUNS_MAX;
	gpusnap_json *list;
	gpusnap_status status =
		gsn_field_array(json, "entries", 0, GPUSNAP_DELTA_ENTRIES_MAX, &list, err);

	if (status)
		return status;
	delta->entry_count = (uint32_t)gpusnap_json_size(list);
	delta->entries = gsn_alloc(delta->entry_count, sizeof *delta->entries);
	if (!delta->entries)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %u entries", delta->entry_count);
	for (uint32_t i = 0; i < delta->entry_count && !status; i++) {
		status =
			decode_entry(gpusnap_json_at(list, i), &delta->entries[i], &runs_left, err);
		if (status)
			gsn_error_prefix(err, "entry at position %u", i);
	}
	return status;
}

gpusnap_status gsn_delta_decode(
	const gpusnap_json *json, gpusnap_plan_delta **ret_delta, gpusnap_error *err)
{
	gpusnap_plan_delta *delta = gsn_alloc(1, sizeof *delta);
	gpusnap_status status;

	if (!delta)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a delta");
	*ret_delta = delta;
	status = decode_parent(json, delta, err);
	if (!status)
		status = decode_depth(json, delta, err);
	if (!status)
		status = decode_entries(json, delta, err);
	return status;
}

void gsn_delta_free(gpusnap_plan_delta *delta)
{
	if (!delta)
		return;
	for (uint32_t i = 0; delta->entries && i < delta->entry_count; i++) {
		gsn_free(delta->entries[i].name);
		gsn_free(delta->entries[i].changed);
	}
	gsn_free(delta->entries);
	gsn_free(delta->parent);
	gsn_free(delta);
}
