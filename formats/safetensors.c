/* SPDX-License-Identifier: Apache-2.0 */
/* Access to a parsed safetensors header, and the length check that comes before parsing. */
#include <gpusnap/safetensors.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/safetensors_header.h"

static gpusnap_status fail_measure(const uint8_t *prefix, size_t prefix_bytes, uint64_t file_bytes,
	uint64_t json_bytes, gpusnap_error *err)
{
	const char *is = gsn_recognise_file(prefix, prefix_bytes);

	if (is)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "no safetensors file: this is %s", is);
	if (file_bytes < GSN_HEADER_LENGTH_BYTES)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"no safetensors file: it has %" PRIu64
			" bytes, and the header length alone takes 8",
			file_bytes);
	if (json_bytes > GPUSNAP_HEADER_JSON_MAX)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"no safetensors file: its header length would be %" PRIu64
			" bytes, the format allows %u",
			json_bytes, GPUSNAP_HEADER_JSON_MAX);
	if (json_bytes < 2)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"no safetensors file: header length %" PRIu64 ", the shortest is 2 ('{}')",
			json_bytes);
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"truncated: the header says %" PRIu64 " bytes, the file has %" PRIu64
		" after the length; fetch it again",
		json_bytes, file_bytes - GSN_HEADER_LENGTH_BYTES);
}

gpusnap_status gpusnap_header_measure(const uint8_t *prefix, size_t prefix_bytes,
	uint64_t file_bytes, uint64_t *ret_json_bytes, gpusnap_error *err)
{
	uint64_t json_bytes = 0;

	if (prefix_bytes > file_bytes ||
		prefix_bytes < gsn_min(file_bytes, GSN_HEADER_LENGTH_BYTES))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"header prefix of %zu bytes, of a file of %" PRIu64, prefix_bytes,
			file_bytes);
	if (file_bytes >= GSN_HEADER_LENGTH_BYTES)
		json_bytes = gsn_le64(prefix);
	if (file_bytes < GSN_HEADER_LENGTH_BYTES || json_bytes < 2 ||
		json_bytes > GPUSNAP_HEADER_JSON_MAX ||
		json_bytes > file_bytes - GSN_HEADER_LENGTH_BYTES)
		return fail_measure(prefix, prefix_bytes, file_bytes, json_bytes, err);
	*ret_json_bytes = json_bytes;
	return GPUSNAP_OK;
}

uint64_t gpusnap_header_data_offset(const gpusnap_header *header)
{
	return header->data_offset;
}

size_t gpusnap_header_tensor_count(const gpusnap_header *header)
{
	return header->tensor_count;
}

const gpusnap_tensor *gpusnap_header_tensor(const gpusnap_header *header, size_t index)
{
	return index < header->tensor_count ? &header->tensors[index] : NULL;
}

int gsn_name_compare(const char *a, size_t a_length, const char *b, size_t b_length)
{
	int order = memcmp(a, b, a_length < b_length ? a_length : b_length);

	return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int compare_names(const void *a, const void *b)
{
	const gpusnap_tensor *const *left = a;
	const gpusnap_tensor *const *right = b;

	return gsn_name_compare(
		(*left)->name, (*left)->name_length, (*right)->name, (*right)->name_length);
}

gpusnap_status gsn_tensors_by_name(const gpusnap_tensor *tensors, size_t count,
	const gpusnap_tensor **by_name, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (size_t i = 0; i < count; i++)
		by_name[i] = &tensors[i];
	qsort(by_name, count, sizeof(gpusnap_tensor *), compare_names);
	for (size_t i = 1; i < count; i++)
		if (compare_names(&by_name[i - 1], &by_name[i]) == 0)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"tensor '%s' is there twice, at data bytes %" PRIu64
				" and %" PRIu64,
				gsn_quote(by_name[i]->name, by_name[i]->name_length, quoted),
				by_name[i - 1]->begin, by_name[i]->begin);
	return GPUSNAP_OK;
}

gpusnap_status gsn_tensor_check_size(const gpusnap_tensor *tensor, gpusnap_error *err)
{
	uint64_t bytes;
	gpusnap_status status =
		gpusnap_dtype_tensor_bytes(tensor->dtype, tensor->rank, tensor->shape, &bytes, err);

	if (status)
		return status;
	if (tensor->begin > tensor->end)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"begins at data byte %" PRIu64 " and ends before, at %" PRIu64,
			tensor->begin, tensor->end);
	if (tensor->end - tensor->begin != bytes)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"data_offsets span %" PRIu64 " bytes, dtype and shape need %" PRIu64,
			tensor->end - tensor->begin, bytes);
	return GPUSNAP_OK;
}

const gpusnap_tensor *gpusnap_header_find(const gpusnap_header *header, const char *name)
{
	const gpusnap_tensor wanted = {.name = name, .name_length = strlen(name)};
	const gpusnap_tensor *key = &wanted;
	const gpusnap_tensor **found = bsearch(&key, header->by_name, header->tensor_count,
		sizeof(gpusnap_tensor *), compare_names);

	return found ? *found : NULL;
}

static int compare_key(const void *key, const void *entry)
{
	const struct gsn_metadata_entry *member = entry;

	return gsn_name_compare(key, strlen(key), member->pair.key, member->key_length);
}

const char *gpusnap_header_metadata(const gpusnap_header *header, const char *key)
{
	const struct gsn_metadata_entry *found;

	if (!header->metadata_count)
		return NULL; /* there is no array to search */
	found = bsearch(key, header->metadata, header->metadata_count, sizeof header->metadata[0],
		compare_key);
	return found ? found->pair.value : NULL;
}

size_t gpusnap_header_metadata_count(const gpusnap_header *header)
{
	return header->metadata_count;
}

const gpusnap_metadata *gpusnap_header_metadata_at(const gpusnap_header *header, size_t index)
{
	return index < header->metadata_count ? &header->metadata[index].pair : NULL;
}

void gpusnap_header_free(gpusnap_header *header)
{
	if (!header)
		return;
	gsn_free(header->tensors);
	gsn_free(header->by_name);
	gsn_free(header->metadata);
	gsn_free(header->dims);
	gsn_free(header->text);
	gsn_free(header);
}
