/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_HEADER_CHECK_H
#define GPUSNAP_TEST_HEADER_CHECK_H
/* What must hold for every safetensors header that the parser accepts. For tests and fuzzing. */
#include <stdlib.h>
#include <string.h>

#include <gpusnap/safetensors.h>

#ifdef NDEBUG
#undef NDEBUG
#endif
#include <assert.h>

static inline void header_check_tensor(const gpusnap_header *header, const gpusnap_tensor *tensor)
{
	uint64_t bytes;

	assert((unsigned)tensor->dtype < GPUSNAP_DTYPE_COUNT);
	assert(tensor->rank <= GPUSNAP_RANK_MAX);
	assert(tensor->name[tensor->name_length] == '\0');
	assert(gpusnap_dtype_tensor_bytes(
		       tensor->dtype, tensor->rank, tensor->shape, &bytes, NULL) == GPUSNAP_OK);
	assert(tensor->begin <= tensor->end && tensor->end - tensor->begin == bytes);
	if (strlen(tensor->name) == tensor->name_length)
		assert(gpusnap_header_find(header, tensor->name) == tensor);
}

/* The tensors tile the data section of a file of `file_bytes`. */
static inline void header_check(const gpusnap_header *header, uint64_t file_bytes)
{
	uint64_t end = 0;

	for (size_t i = 0; i < gpusnap_header_tensor_count(header); i++) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(header, i);

		header_check_tensor(header, tensor);
		assert(tensor->begin == end);
		end = tensor->end;
	}
	assert(gpusnap_header_data_offset(header) + end == file_bytes);
	for (size_t i = 0; i < gpusnap_header_metadata_count(header); i++) {
		const gpusnap_metadata *pair = gpusnap_header_metadata_at(header, i);

		assert(strlen(pair->key) + strlen(pair->value) < file_bytes);
	}
}

/*
 * Both steps over a whole file in memory. The JSON is copied to memory of its own size, so that
 * ASan sees every read beyond it.
 */
static inline gpusnap_status header_open(
	const uint8_t *bytes, size_t length, gpusnap_header **out, gpusnap_error *err)
{
	uint64_t json_bytes;
	gpusnap_status status =
		gpusnap_header_measure(bytes, length < 64 ? length : 64, length, &json_bytes, err);
	char *json;

	if (status)
		return status;
	json = malloc((size_t)json_bytes);
	assert(json && json_bytes <= length - 8);
	memcpy(json, bytes + 8, (size_t)json_bytes);
	status = gpusnap_header_parse(json, json_bytes, length, out, err);
	free(json);
	return status;
}

#endif
