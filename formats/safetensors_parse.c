/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the JSON of a safetensors header to sorted, checked tensors. Everything that is allocated
 * is bounded by the length of the JSON, which the caller has read.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/json_scan.h"
#include "formats/safetensors_header.h"

struct parse {
	struct gsn_scan scan;
	gpusnap_header *header; /* its counts are what is filled so far */
	size_t tensor_room;
	size_t metadata_room;
	size_t dim_room;
	size_t dim_count;
	size_t text_used; /* of header->text, which has room for all strings of the JSON */
	bool has_metadata;
	gpusnap_error *err;
};

/* Fields of one tensor while they are read. */
struct fields {
	gpusnap_tensor tensor; /* shape still points to dims */
	bool has_dtype;
	bool has_shape;
	bool has_offsets;
	uint64_t dims[GPUSNAP_RANK_MAX];
};

/* The array with room for one more element: itself, or twice as large. NULL: no memory. */
static void *with_room(void *array, size_t count, size_t *room, size_t size, gpusnap_error *err)
{
	size_t larger = *room ? 2 * *room : 64;
	void *grown;

	if (count < *room)
		return array;
	grown = gsn_grow(array, *room, larger, size);
	if (grown)
		*room = larger;
	else
		(void)gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu header entries", larger);
	return grown;
}

/*
 * Strings are decoded to the end of header->text and then kept there or not. Each takes its length
 * and a NUL, and had two quotes in the JSON, so all of them fit.
 */
static char *text_end(const struct parse *parse)
{
	return parse->header->text + parse->text_used;
}

static const char *keep_text(struct parse *parse, size_t length)
{
	const char *text = text_end(parse);

	parse->text_used += length + 1;
	return text;
}

static bool is_text(const char *text, size_t length, const char *expected)
{
	return length == strlen(expected) && memcmp(text, expected, length) == 0;
}

static gpusnap_status parse_pair(struct parse *parse)
{
	gpusnap_header *header = parse->header;
	struct gsn_metadata_entry *entries = with_room(header->metadata, header->metadata_count,
		&parse->metadata_room, sizeof *entries, parse->err);
	struct gsn_metadata_entry *entry;
	gpusnap_status status;
	size_t length;

	if (!entries)
		return GPUSNAP_E_NOMEM;
	header->metadata = entries;
	entry = &entries[header->metadata_count];
	status = gsn_scan_key(&parse->scan, text_end(parse), &entry->key_length);
	if (status)
		return status;
	entry->pair.key = keep_text(parse, entry->key_length);
	status = gsn_scan_string(
		&parse->scan, "a string as metadata value", text_end(parse), &length);
	if (status)
		return status;
	entry->pair.value = keep_text(parse, length);
	header->metadata_count++;
	return GPUSNAP_OK;
}

static gpusnap_status parse_metadata(struct parse *parse)
{
	gpusnap_status status;
	bool more;

	if (parse->has_metadata)
		return gsn_fail_at(parse->err, GPUSNAP_E_FORMAT, gsn_scan_offset(&parse->scan),
			GSN_HEADER_METADATA_KEY " is there twice, again at byte %" PRIu64,
			gsn_scan_offset(&parse->scan));
	parse->has_metadata = true;
	if (gsn_scan_null(&parse->scan))
		return GPUSNAP_OK;
	status = gsn_scan_enter(&parse->scan, '{', "an object of strings as metadata");
	if (status)
		return status;
	for (;;) {
		status = gsn_scan_next(&parse->scan, &more);
		if (status || !more)
			return status;
		status = parse_pair(parse);
		if (status)
			return status;
	}
}

static gpusnap_status parse_dtype(struct parse *parse, struct fields *fields)
{
	size_t length;
	char quoted[GSN_QUOTE_BYTES];
	const char *text = text_end(parse);
	gpusnap_status status =
		gsn_scan_string(&parse->scan, "a string as dtype", text_end(parse), &length);

	if (status)
		return status;
	if (strlen(text) != length)
		return gsn_fail(parse->err, GPUSNAP_E_FORMAT, "unknown dtype '%s'",
			gsn_quote(text, length, quoted));
	return gpusnap_dtype_parse(text, &fields->tensor.dtype, parse->err);
}

static gpusnap_status parse_shape(struct parse *parse, struct fields *fields)
{
	gpusnap_status status =
		gsn_scan_enter(&parse->scan, '[', "an array of dimensions as shape");
	bool more;

	fields->tensor.rank = 0;
	while (!status) {
		status = gsn_scan_next(&parse->scan, &more);
		if (status || !more)
			break;
		if (fields->tensor.rank == GPUSNAP_RANK_MAX)
			return gsn_fail_at(parse->err, GPUSNAP_E_UNSUPPORTED,
				gsn_scan_offset(&parse->scan),
				"more than %u dimensions, which this build does not read",
				GPUSNAP_RANK_MAX);
		status = gsn_scan_u64(&parse->scan, "a dimension from 0 to 2^64-1",
			&fields->dims[fields->tensor.rank]);
		fields->tensor.rank++;
	}
	return status;
}

static gpusnap_status parse_offsets(struct parse *parse, struct fields *fields)
{
	uint64_t *const ends[] = {&fields->tensor.begin, &fields->tensor.end};
	gpusnap_status status =
		gsn_scan_enter(&parse->scan, '[', "an array of two offsets as data_offsets");
	bool more;

	for (int i = 0; !status && i < 2; i++) {
		status = gsn_scan_next(&parse->scan, &more);
		if (!status && !more)
			return gsn_fail_at(parse->err, GPUSNAP_E_FORMAT,
				gsn_scan_offset(&parse->scan),
				"data_offsets has %d elements, it must have 2", i);
		if (!status)
			status = gsn_scan_u64(
				&parse->scan, "a data offset from 0 to 2^64-1", ends[i]);
	}
	if (status)
		return status;
	status = gsn_scan_next(&parse->scan, &more);
	if (!status && more)
		return gsn_fail_at(parse->err, GPUSNAP_E_FORMAT, gsn_scan_offset(&parse->scan),
			"data_offsets has more than 2 elements");
	return status;
}

static gpusnap_status parse_field(struct parse *parse, struct fields *fields)
{
	static const struct {
		const char *name;
		gpusnap_status (*parse)(struct parse *parse, struct fields *fields);
	} known[] = {
		{"dtype", parse_dtype}, {"shape", parse_shape}, {"data_offsets", parse_offsets}};
	bool *const has[] = {&fields->has_dtype, &fields->has_shape, &fields->has_offsets};
	size_t length;
	gpusnap_status status = gsn_scan_key(&parse->scan, text_end(parse), &length);

	if (status)
		return status;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		if (!is_text(text_end(parse), length, known[i].name))
			continue;
		if (*has[i])
			return gsn_fail_at(parse->err, GPUSNAP_E_FORMAT,
				gsn_scan_offset(&parse->scan), "field '%s' is there twice",
				known[i].name);
		*has[i] = true;
		return known[i].parse(parse, fields);
	}
	return gsn_scan_skip(&parse->scan);
}

static gpusnap_status parse_fields(struct parse *parse, struct fields *fields)
{
	gpusnap_status status =
		gsn_scan_enter(&parse->scan, '{', "an object with dtype, shape and data_offsets");
	bool more = true;

	while (!status && more) {
		status = gsn_scan_next(&parse->scan, &more);
		if (!status && more)
			status = parse_field(parse, fields);
	}
	if (status)
		return status;
	if (!fields->has_dtype || !fields->has_shape || !fields->has_offsets)
		return gsn_fail(parse->err, GPUSNAP_E_FORMAT, "has no field '%s'",
			!fields->has_dtype   ? "dtype"
			: !fields->has_shape ? "shape"
					     : "data_offsets");
	fields->tensor.shape = fields->dims;
	return gsn_tensor_check_size(&fields->tensor, parse->err);
}

static gpusnap_status keep_dims(struct parse *parse, const struct fields *fields)
{
	for (uint32_t i = 0; i < fields->tensor.rank; i++) {
		uint64_t *dims = with_room(parse->header->dims, parse->dim_count, &parse->dim_room,
			sizeof *dims, parse->err);

		if (!dims)
			return GPUSNAP_E_NOMEM;
		parse->header->dims = dims;
		dims[parse->dim_count++] = fields->dims[i];
	}
	return GPUSNAP_OK;
}

/* Append the tensor and its dimensions; its shape pointer is set when all dims are known. */
static gpusnap_status keep_tensor(struct parse *parse, const struct fields *fields)
{
	gpusnap_header *header = parse->header;
	gpusnap_tensor *tensors = with_room(header->tensors, header->tensor_count,
		&parse->tensor_room, sizeof *tensors, parse->err);

	if (!tensors)
		return GPUSNAP_E_NOMEM;
	header->tensors = tensors;
	tensors[header->tensor_count] = fields->tensor;
	tensors[header->tensor_count++].shape = NULL;
	return keep_dims(parse, fields);
}

static gpusnap_status parse_tensor(struct parse *parse, const char *name, size_t length)
{
	struct fields fields = {.tensor = {.name = name, .name_length = length}};
	uint64_t offset = gsn_scan_offset(&parse->scan);
	char quoted[GSN_QUOTE_BYTES];
	gpusnap_status status = parse_fields(parse, &fields);

	if (!status)
		return keep_tensor(parse, &fields);
	gsn_error_prefix(parse->err, "tensor '%s'", gsn_quote(name, length, quoted));
	if (parse->err && parse->err->offset == 0)
		parse->err->offset = offset;
	return status;
}

static gpusnap_status parse_entry(struct parse *parse)
{
	size_t length;
	gpusnap_status status = gsn_scan_key(&parse->scan, text_end(parse), &length);

	if (status)
		return status;
	if (is_text(text_end(parse), length, GSN_HEADER_METADATA_KEY))
		return parse_metadata(parse);
	return parse_tensor(parse, keep_text(parse, length), length);
}

static gpusnap_status parse_all(struct parse *parse)
{
	gpusnap_status status =
		gsn_scan_enter(&parse->scan, '{', "a header, which begins with '{',");
	bool more = true;

	while (!status && more) {
		status = gsn_scan_next(&parse->scan, &more);
		if (!status && more)
			status = parse_entry(parse);
	}
	return status ? status : gsn_scan_end(&parse->scan);
}

static int compare_positions(const void *a, const void *b)
{
	const gpusnap_tensor *left = a;
	const gpusnap_tensor *right = b;

	if (left->begin != right->begin)
		return left->begin < right->begin ? -1 : 1;
	if (left->end != right->end)
		return left->end < right->end ? -1 : 1;
	return gsn_name_compare(left->name, left->name_length, right->name, right->name_length);
}

static gpusnap_status fail_tiling(const gpusnap_tensor *before, const gpusnap_tensor *tensor,
	uint64_t data_offset, gpusnap_error *err)
{
	uint64_t end = before ? before->end : 0;
	char quoted[GSN_QUOTE_BYTES], quoted_before[GSN_QUOTE_BYTES];

	gsn_quote(tensor->name, tensor->name_length, quoted);
	if (tensor->begin > end)
		return gsn_fail_at(err, GPUSNAP_E_FORMAT, data_offset + end,
			"tensor '%s' begins at data byte %" PRIu64
			", but what comes before ends at %" PRIu64 ": a hole",
			quoted, tensor->begin, end);
	gsn_quote(before->name, before->name_length, quoted_before);
	return gsn_fail_at(err, GPUSNAP_E_FORMAT, data_offset + tensor->begin,
		"tensor '%s' begins at data byte %" PRIu64 ", inside '%s', which ends at %" PRIu64,
		quoted, tensor->begin, quoted_before, end);
}

static gpusnap_status check_tiling(
	const gpusnap_header *header, uint64_t data_bytes, gpusnap_error *err)
{
	const gpusnap_tensor *before = NULL;
	uint64_t end = 0;

	for (size_t i = 0; i < header->tensor_count; i++) {
		if (header->tensors[i].begin != end)
			return fail_tiling(before, &header->tensors[i], header->data_offset, err);
		before = &header->tensors[i];
		end = before->end;
	}
	if (end > data_bytes)
		return gsn_fail_at(err, GPUSNAP_E_FORMAT, header->data_offset + data_bytes,
			"truncated: the tensors take %" PRIu64 " bytes, the file has %" PRIu64
			" after the header; fetch it again",
			end, data_bytes);
	if (end < data_bytes)
		return gsn_fail_at(err, GPUSNAP_E_FORMAT, header->data_offset + end,
			"%" PRIu64 " bytes too many: the tensors take %" PRIu64
			" bytes, the file has %" PRIu64 " after the header",
			data_bytes - end, end, data_bytes);
	return GPUSNAP_OK;
}

static int compare_entries(const void *a, const void *b)
{
	const struct gsn_metadata_entry *left = a;
	const struct gsn_metadata_entry *right = b;

	return gsn_name_compare(
		left->pair.key, left->key_length, right->pair.key, right->key_length);
}

static gpusnap_status sort_metadata(gpusnap_header *header, gpusnap_error *err)
{
	struct gsn_metadata_entry *entries = header->metadata;
	char quoted[GSN_QUOTE_BYTES];

	if (header->metadata_count)
		qsort(entries, header->metadata_count, sizeof *entries, compare_entries);
	for (size_t i = 1; i < header->metadata_count; i++)
		if (compare_entries(&entries[i - 1], &entries[i]) == 0)
			return gsn_fail(err, GPUSNAP_E_FORMAT, "metadata key '%s' is there twice",
				gsn_quote(entries[i].pair.key, entries[i].key_length, quoted));
	return GPUSNAP_OK;
}

/* Shapes point into dims, which is absent when there are only scalars. */
static void set_shapes(gpusnap_header *header)
{
	static const uint64_t none[1];
	const uint64_t *dims = header->dims ? header->dims : none;

	for (size_t i = 0; i < header->tensor_count; i++) {
		header->tensors[i].shape = dims;
		dims += header->tensors[i].rank;
	}
}

static gpusnap_status finish(gpusnap_header *header, uint64_t data_bytes, gpusnap_error *err)
{
	gpusnap_status status;

	set_shapes(header);
	if (header->tensor_count)
		qsort(header->tensors, header->tensor_count, sizeof header->tensors[0],
			compare_positions);
	header->by_name = gsn_alloc(header->tensor_count, sizeof(gpusnap_tensor *));
	if (!header->by_name)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for an index of %zu tensors",
			header->tensor_count);
	status = gsn_tensors_by_name(header->tensors, header->tensor_count, header->by_name, err);
	if (!status)
		status = sort_metadata(header, err);
	return status ? status : check_tiling(header, data_bytes, err);
}

gpusnap_status gpusnap_header_parse(const char *json, uint64_t json_bytes, uint64_t file_bytes,
	gpusnap_header **out, gpusnap_error *err)
{
	struct parse parse = {.err = err};
	gpusnap_header *header;
	gpusnap_status status;

	if (json_bytes > GPUSNAP_HEADER_JSON_MAX || file_bytes < GSN_HEADER_LENGTH_BYTES ||
		json_bytes > file_bytes - GSN_HEADER_LENGTH_BYTES)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"header of %" PRIu64 " bytes in a file of %" PRIu64
			"; gpusnap_header_measure() tells",
			json_bytes, file_bytes);
	header = gsn_alloc(1, sizeof *header);
	if (!header)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a header");
	parse.header = header;
	header->data_offset = GSN_HEADER_LENGTH_BYTES + json_bytes;
	header->text = gsn_alloc((size_t)json_bytes, 1);
	if (!header->text) {
		status = gsn_fail(err, GPUSNAP_E_NOMEM,
			"no memory for the strings of a header of %" PRIu64 " bytes", json_bytes);
		goto fail;
	}
	gsn_scan_init(&parse.scan, json, (size_t)json_bytes, GSN_HEADER_LENGTH_BYTES, err);
	status = parse_all(&parse);
	if (!status)
		status = finish(header, file_bytes - header->data_offset, err);
	if (status)
		goto fail;
	*out = header;
	return GPUSNAP_OK;
fail:
	gpusnap_header_free(header);
	return status;
}
