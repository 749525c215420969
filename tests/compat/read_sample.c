/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_sample FILE...: for each file one line of JSON, {"tensors": [{"name", "dtype", "shape",
 * "digest"}...], "metadata": {...}} or {"error": MESSAGE}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpusnap/digest.h>
#include <gpusnap/json.h>

#include "tests/support/file.h"
#include "tests/support/header_check.h"

static void must(gpusnap_status status)
{
	if (status) {
		(void)fprintf(stderr, "read_sample: %s\n", gpusnap_status_text(status));
		exit(EXIT_FAILURE);
	}
}

static gpusnap_json *describe_tensor(const gpusnap_tensor *tensor, const uint8_t *data)
{
	gpusnap_json *shape = gpusnap_json_pack("[]");
	char digest[GPUSNAP_DIGEST_TEXT];

	for (uint32_t i = 0; i < tensor->rank; i++)
		must(gpusnap_json_append(
			shape, gpusnap_json_pack("I", (long long)tensor->shape[i])));
	(void)gpusnap_digest_format(
		gpusnap_digest_of(data + tensor->begin, (size_t)(tensor->end - tensor->begin)),
		digest);
	return gpusnap_json_pack("{s:s%,s:s,s:o,s:s}", "name", tensor->name, tensor->name_length,
		"dtype", gpusnap_dtype_name(tensor->dtype), "shape", shape, "digest", digest);
}

static gpusnap_json *describe_file(const gpusnap_header *header, const uint8_t *bytes)
{
	gpusnap_json *tensors = gpusnap_json_pack("[]");
	gpusnap_json *metadata = gpusnap_json_pack("{}");

	for (size_t i = 0; i < gpusnap_header_tensor_count(header); i++)
		must(gpusnap_json_append(
			tensors, describe_tensor(gpusnap_header_tensor(header, i),
					 bytes + gpusnap_header_data_offset(header))));
	for (size_t i = 0; i < gpusnap_header_metadata_count(header); i++) {
		const gpusnap_metadata *pair = gpusnap_header_metadata_at(header, i);

		must(gpusnap_json_set(metadata, pair->key, gpusnap_json_pack("s", pair->value)));
	}
	return gpusnap_json_pack("{s:o,s:o}", "tensors", tensors, "metadata", metadata);
}

static void print_file(const char *path)
{
	gpusnap_header *header = NULL;
	gpusnap_json *answer;
	gpusnap_error err;
	size_t length;
	uint8_t *bytes = read_file(path, &length);
	char *text;

	if (header_open(bytes, length, &header, &err))
		answer = gpusnap_json_pack("{s:s}", "error", err.message);
	else
		answer = describe_file(header, bytes);
	text = gpusnap_json_dump(answer);
	must(text ? GPUSNAP_OK : GPUSNAP_E_NOMEM);
	(void)puts(text);
	gpusnap_text_free(text);
	gpusnap_json_free(answer);
	gpusnap_header_free(header);
	free(bytes);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		print_file(argv[i]);
	return EXIT_SUCCESS;
}
