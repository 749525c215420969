/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_sample FILE: writes a safetensors file with every dtype of the format and prints what is
 * in it, a JSON array of {"name", "dtype", "shape", "digest"}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpusnap/digest.h>
#include <gpusnap/json.h>
#include <gpusnap/safetensors.h>

#include "tests/support/random.h"

enum { TENSORS = GPUSNAP_DTYPE_COUNT + 4, DATA_MAX = 1 << 16 };

struct sample {
	gpusnap_tensor tensors[TENSORS];
	uint64_t data_bytes;
	uint8_t data[DATA_MAX];
};

static void fail(const char *what)
{
	(void)fprintf(stderr, "write_sample: %s\n", what);
	exit(EXIT_FAILURE);
}

static void add(struct sample *sample, gpusnap_tensor *tensor, uint64_t *random)
{
	uint64_t bytes;

	if (gpusnap_dtype_tensor_bytes(tensor->dtype, tensor->rank, tensor->shape, &bytes, NULL) ||
		sample->data_bytes + bytes > DATA_MAX)
		fail("a tensor does not fit");
	tensor->name_length = strlen(tensor->name);
	tensor->begin = sample->data_bytes;
	tensor->end = sample->data_bytes + bytes;
	random_fill(random, sample->data + tensor->begin, (size_t)bytes);
	if (tensor->dtype == GPUSNAP_BOOL)
		for (uint64_t i = tensor->begin; i < tensor->end; i++)
			sample->data[i] &= 1;
	sample->data_bytes = tensor->end;
}

static void fill(struct sample *sample)
{
	static const uint64_t shape[] = {2, 3, 4}, empty[] = {0, 5}, odd[] = {7};
	static const char *const names[] = {
		"", "\xe2\x82\xac \"quoted\" \\ \n", "../../odd", "scalar"};
	uint64_t random = 11;

	for (int i = 0; i < GPUSNAP_DTYPE_COUNT; i++) {
		gpusnap_tensor *tensor = &sample->tensors[i];

		*tensor = (gpusnap_tensor){.name = gpusnap_dtype_name((gpusnap_dtype)i),
			.dtype = (gpusnap_dtype)i,
			.rank = 3,
			.shape = shape};
		add(sample, tensor, &random);
	}
	for (size_t i = 0; i < 4; i++) {
		gpusnap_tensor *tensor = &sample->tensors[GPUSNAP_DTYPE_COUNT + i];
		const uint64_t *shapes[] = {empty, odd, odd, empty};
		const uint32_t ranks[] = {2, 1, 1, 0};

		*tensor = (gpusnap_tensor){.name = names[i],
			.dtype = GPUSNAP_U8,
			.rank = ranks[i],
			.shape = shapes[i]};
		add(sample, tensor, &random);
	}
}

static void write_file(const struct sample *sample, const char *path)
{
	const gpusnap_metadata metadata[] = {{"format", "np"}, {"\xe2\x82\xac", "\"\\\n"}};
	FILE *file = fopen(path, "wb");
	gpusnap_error err;
	uint64_t length;
	uint8_t *header;

	if (gpusnap_header_build(
		    sample->tensors, TENSORS, metadata, 2, 4096, &header, &length, &err))
		fail(err.message);
	if (!file || fwrite(header, 1, (size_t)length, file) != length ||
		fwrite(sample->data, 1, (size_t)sample->data_bytes, file) != sample->data_bytes ||
		fclose(file))
		fail("cannot write the file");
	gpusnap_header_bytes_free(header);
}

static gpusnap_json *describe(const struct sample *sample, const gpusnap_tensor *tensor)
{
	gpusnap_json *shape = gpusnap_json_pack("[]");
	char digest[GPUSNAP_DIGEST_TEXT];

	for (uint32_t i = 0; i < tensor->rank; i++)
		if (gpusnap_json_append(shape, gpusnap_json_pack("I", (long long)tensor->shape[i])))
			fail("no memory");
	(void)gpusnap_digest_format(gpusnap_digest_of(sample->data + tensor->begin,
					    (size_t)(tensor->end - tensor->begin)),
		digest);
	return gpusnap_json_pack("{s:s,s:s,s:o,s:s}", "name", tensor->name, "dtype",
		gpusnap_dtype_name(tensor->dtype), "shape", shape, "digest", digest);
}

int main(int argc, char **argv)
{
	static struct sample sample;
	gpusnap_json *list = gpusnap_json_pack("[]");
	char *text;

	if (argc != 2)
		fail("usage: write_sample FILE");
	fill(&sample);
	write_file(&sample, argv[1]);
	for (size_t i = 0; i < TENSORS; i++)
		if (gpusnap_json_append(list, describe(&sample, &sample.tensors[i])))
			fail("no memory");
	text = gpusnap_json_dump(list);
	(void)puts(text);
	gpusnap_text_free(text);
	gpusnap_json_free(list);
	return EXIT_SUCCESS;
}
