/* SPDX-License-Identifier: Apache-2.0 */
/* From tensors to the bytes of a safetensors header: checked, measured, then written at once. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/base/utf8.h"
#include "formats/safetensors_header.h"

/* Counts when `bytes` is NULL, so that one function measures and writes. */
struct output {
	uint8_t *bytes;
	uint64_t length;
};

static void put(struct output *output, const char *text, size_t length)
{
	if (output->bytes)
		memcpy(output->bytes + output->length, text, length);
	output->length += length;
}

static void put_text(struct output *output, const char *text)
{
	put(output, text, strlen(text));
}

static void put_number(struct output *output, uint64_t number)
{
	char text[21];

	(void)snprintf(text, sizeof text, "%" PRIu64, number);
	put_text(output, text);
}

static bool needs_escape(char c)
{
	return c == '"' || c == '\\' || (uint8_t)c < 0x20;
}

static void put_escape(struct output *output, char c)
{
	char escape[7];

	if ((uint8_t)c < 0x20)
		(void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
	else
		(void)snprintf(escape, sizeof escape, "\\%c", c);
	put_text(output, escape);
}

static void put_string(struct output *output, const char *text, size_t length)
{
	size_t begin = 0;

	put(output, "\"", 1);
	for (size_t i = 0; i < length; i++) {
		if (!needs_escape(text[i]))
			continue;
		put(output, text + begin, i - begin);
		put_escape(output, text[i]);
		begin = i + 1;
	}
	put(output, text + begin, length - begin);
	put(output, "\"", 1);
}

static void put_metadata(struct output *output, const gpusnap_metadata *metadata, size_t count)
{
	put_text(output, "\"" GSN_HEADER_METADATA_KEY "\":{");
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			put(output, ",", 1);
		put_string(output, metadata[i].key, strlen(metadata[i].key));
		put(output, ":", 1);
		put_string(output, metadata[i].value, strlen(metadata[i].value));
	}
	put(output, "}", 1);
}

static void put_tensor(struct output *output, const gpusnap_tensor *tensor)
{
	put_string(output, tensor->name, tensor->name_length);
	put_text(output, ":{\"dtype\":\"");
	put_text(output, gpusnap_dtype_name(tensor->dtype));
	put_text(output, "\",\"shape\":[");
	for (uint32_t i = 0; i < tensor->rank; i++) {
		if (i > 0)
			put(output, ",", 1);
		put_number(output, tensor->shape[i]);
	}
	put_text(output, "],\"data_offsets\":[");
	put_number(output, tensor->begin);
	put(output, ",", 1);
	put_number(output, tensor->end);
	put_text(output, "]}");
}

struct content {
	const gpusnap_tensor *tensors;
	size_t tensor_count;
	const gpusnap_metadata *metadata;
	size_t metadata_count;
};

static void put_json(struct output *output, const struct content *content)
{
	put(output, "{", 1);
	if (content->metadata_count)
		put_metadata(output, content->metadata, content->metadata_count);
	for (size_t i = 0; i < content->tensor_count; i++) {
		if (i > 0 || content->metadata_count)
			put(output, ",", 1);
		put_tensor(output, &content->tensors[i]);
	}
	put(output, "}", 1);
}

static gpusnap_status check_fields(const gpusnap_tensor *tensor, uint64_t begin, gpusnap_error *err)
{
	if ((unsigned)tensor->dtype >= GPUSNAP_DTYPE_COUNT)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "dtype %d is none", (int)tensor->dtype);
	if (tensor->rank > GPUSNAP_RANK_MAX)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%" PRIu32 " dimensions, at most %u are allowed", tensor->rank,
			GPUSNAP_RANK_MAX);
	if (!gsn_utf8_valid(tensor->name, tensor->name_length))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "the name is not UTF-8");
	if (tensor->name_length == strlen(GSN_HEADER_METADATA_KEY) &&
		memcmp(tensor->name, GSN_HEADER_METADATA_KEY, tensor->name_length) == 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "the format reserves this name");
	if (tensor->begin != begin)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"begins at data byte %" PRIu64 ", the one before ends at %" PRIu64,
			tensor->begin, begin);
	return gsn_tensor_check_size(tensor, err);
}

static gpusnap_status check_tensors(const struct content *content, gpusnap_error *err)
{
	const gpusnap_tensor **by_name;
	char quoted[GSN_QUOTE_BYTES];
	gpusnap_status status = GPUSNAP_OK;
	uint64_t end = 0;

	for (size_t i = 0; i < content->tensor_count; i++) {
		const gpusnap_tensor *tensor = &content->tensors[i];

		status = check_fields(tensor, end, err);
		if (status) {
			gsn_error_prefix(err, "tensor '%s'",
				gsn_quote(tensor->name, tensor->name_length, quoted));
			return status;
		}
		end = tensor->end;
	}
	by_name = gsn_alloc(content->tensor_count, sizeof(gpusnap_tensor *));
	if (!by_name)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for an index of %zu tensors",
			content->tensor_count);
	status = gsn_tensors_by_name(content->tensors, content->tensor_count, by_name, err);
	gsn_free(by_name);
	return status;
}

static int compare_pairs(const void *a, const void *b)
{
	const gpusnap_metadata *const *left = a;
	const gpusnap_metadata *const *right = b;

	return strcmp((*left)->key, (*right)->key);
}

static gpusnap_status check_distinct(
	const struct content *content, const gpusnap_metadata **sorted, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (size_t i = 0; i < content->metadata_count; i++)
		sorted[i] = &content->metadata[i];
	qsort(sorted, content->metadata_count, sizeof(gpusnap_metadata *), compare_pairs);
	for (size_t i = 1; i < content->metadata_count; i++)
		if (compare_pairs(&sorted[i - 1], &sorted[i]) == 0)
			return gsn_fail(err, GPUSNAP_E_FORMAT, "metadata key '%s' is there twice",
				gsn_quote(sorted[i]->key, strlen(sorted[i]->key), quoted));
	return GPUSNAP_OK;
}

static gpusnap_status check_metadata(const struct content *content, gpusnap_error *err)
{
	const gpusnap_metadata **sorted;
	char quoted[GSN_QUOTE_BYTES];
	gpusnap_status status;

	for (size_t i = 0; i < content->metadata_count; i++) {
		const gpusnap_metadata *pair = &content->metadata[i];

		if (!gsn_utf8_valid(pair->key, strlen(pair->key)) ||
			!gsn_utf8_valid(pair->value, strlen(pair->value)))
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"metadata '%s': key or value is not UTF-8",
				gsn_quote(pair->key, strlen(pair->key), quoted));
	}
	sorted = gsn_alloc(content->metadata_count, sizeof(gpusnap_metadata *));
	if (!sorted)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for an index of %zu metadata keys",
			content->metadata_count);
	status = check_distinct(content, sorted, err);
	gsn_free(sorted);
	return status;
}

/* Length of the JSON with its padding. */
static gpusnap_status measure(const struct content *content, uint32_t alignment,
	uint64_t *ret_json_bytes, gpusnap_error *err)
{
	struct output output = {NULL, GSN_HEADER_LENGTH_BYTES};

	put_json(&output, content);
	*ret_json_bytes = gsn_align_up(output.length, alignment) - GSN_HEADER_LENGTH_BYTES;
	if (*ret_json_bytes > GPUSNAP_HEADER_JSON_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"header of %zu tensors takes %" PRIu64
			" bytes, the format allows %u; spread the tensors over more files",
			content->tensor_count, *ret_json_bytes, GPUSNAP_HEADER_JSON_MAX);
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_header_build(const gpusnap_tensor *tensors, size_t tensor_count,
	const gpusnap_metadata *metadata, size_t metadata_count, uint32_t alignment,
	uint8_t **ret_bytes, uint64_t *ret_length, gpusnap_error *err)
{
	const struct content content = {tensors, tensor_count, metadata, metadata_count};
	struct output output = {NULL, GSN_HEADER_LENGTH_BYTES};
	uint64_t json_bytes, total;
	gpusnap_status status;

	if (!alignment || (alignment & (alignment - 1)))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"header alignment %" PRIu32 " is no power of two", alignment);
	status = check_tensors(&content, err);
	if (!status)
		status = check_metadata(&content, err);
	if (!status)
		status = measure(&content, alignment, &json_bytes, err);
	if (status)
		return status;
	total = GSN_HEADER_LENGTH_BYTES + json_bytes;
	output.bytes = gsn_alloc((size_t)total, 1);
	if (!output.bytes)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for a header of %" PRIu64 " bytes", total);
	gsn_put_le64(output.bytes, json_bytes);
	put_json(&output, &content);
	memset(output.bytes + output.length, ' ', (size_t)(total - output.length));
	*ret_bytes = output.bytes;
	*ret_length = total;
	return GPUSNAP_OK;
}

void gpusnap_header_bytes_free(uint8_t *bytes)
{
	gsn_free(bytes);
}
