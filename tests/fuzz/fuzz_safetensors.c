/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the input is a whole safetensors file. What is accepted must be sound, and building
 * a header from it must give one that is accepted again.
 */
#include <gpusnap/safetensors.h>

#include "tests/support/header_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void rebuild(const gpusnap_header *header)
{
	size_t count = gpusnap_header_tensor_count(header);
	const gpusnap_tensor *tensors = count ? gpusnap_header_tensor(header, 0) : NULL;
	uint64_t data_bytes = count ? tensors[count - 1].end : 0;
	gpusnap_header *again = NULL;
	uint64_t length;
	uint8_t *bytes;

	assert(gpusnap_header_build(tensors, count, NULL, 0, 64, &bytes, &length, NULL) ==
		GPUSNAP_OK);
	assert(gpusnap_header_parse((const char *)bytes + 8, length - 8, length + data_bytes,
		       &again, NULL) == GPUSNAP_OK);
	assert(gpusnap_header_tensor_count(again) == count);
	header_check(again, length + data_bytes);
	gpusnap_header_free(again);
	gpusnap_header_bytes_free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	gpusnap_header *header = NULL;
	gpusnap_error err;

	if (header_open(data, size, &header, &err) == GPUSNAP_OK) {
		header_check(header, size);
		rebuild(header);
	} else {
		assert(err.status != GPUSNAP_OK && err.message[0]);
	}
	gpusnap_header_free(header);
	return 0;
}
