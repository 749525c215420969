/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include <gpusnap/safetensors.h>

#include "formats/base/bytes.h"
#include "tests/support/file.h"
#include "tests/support/header_check.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { TENSORS_MAX = 24, NAME_MAX_BYTES = 64, METADATA_MAX = 5 };

struct sample {
	char names[TENSORS_MAX][NAME_MAX_BYTES];
	uint64_t shapes[TENSORS_MAX][8];
	gpusnap_tensor tensors[TENSORS_MAX];
	size_t tensor_count;
	char keys[METADATA_MAX][16];
	char values[METADATA_MAX][NAME_MAX_BYTES];
	gpusnap_metadata metadata[METADATA_MAX];
	size_t metadata_count;
	uint32_t alignment;
	uint8_t *bytes;
	uint64_t length;
	uint64_t data_bytes;
};

/* Text with what JSON has to escape and UTF-8 of every length; `unique` makes it so. */
static size_t random_text(uint64_t *random, char *text, unsigned unique, int with_nul)
{
	static const char *const pieces[] = {"a", "\"", "\\", "/", "\n", "\x01", "\x1f", "\x7f",
		"\xc2\x80", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xef\xbf\xbf", ".weight", " ", "{",
		"]", "\\u0041"};
	size_t length = (size_t)sprintf(text, "%u", unique);

	for (uint64_t i = random_below(random, 6); i > 0; i--) {
		const char *piece = pieces[random_below(random, sizeof pieces / sizeof pieces[0])];

		memcpy(text + length, piece, strlen(piece));
		length += strlen(piece);
	}
	if (with_nul && random_below(random, 8) == 0)
		text[length++] = '\0';
	text[length] = '\0';
	return length;
}

/* A shape whose size is a whole number of bytes; dimensions of 0 and 1 are frequent. */
static uint64_t random_shape(uint64_t *random, gpusnap_tensor *tensor, uint64_t *shape)
{
	uint64_t bytes;

	do {
		tensor->dtype = (gpusnap_dtype)random_below(random, GPUSNAP_DTYPE_COUNT);
		tensor->rank = (uint32_t)random_below(random, 6);
		for (uint32_t i = 0; i < tensor->rank; i++)
			shape[i] = random_below(random, 1 + random_below(random, 9));
	} while (gpusnap_dtype_tensor_bytes(tensor->dtype, tensor->rank, shape, &bytes, NULL));
	tensor->shape = shape;
	return bytes;
}

static void make_sample(uint64_t *random, struct sample *sample)
{
	gpusnap_error err;
	uint64_t end = 0;

	memset(sample, 0, sizeof *sample);
	sample->tensor_count = (size_t)random_below(random, TENSORS_MAX + 1);
	for (size_t i = 0; i < sample->tensor_count; i++) {
		gpusnap_tensor *tensor = &sample->tensors[i];

		tensor->name = sample->names[i];
		tensor->name_length = random_text(random, sample->names[i], (unsigned)i, 1);
		tensor->begin = end;
		end += random_shape(random, tensor, sample->shapes[i]);
		tensor->end = end;
	}
	sample->metadata_count = (size_t)random_below(random, METADATA_MAX + 1);
	for (size_t i = 0; i < sample->metadata_count; i++) {
		(void)random_text(random, sample->values[i], (unsigned)random_below(random, 3), 0);
		(void)sprintf(sample->keys[i], "k%zu", sample->metadata_count - i);
		sample->metadata[i] = (gpusnap_metadata){sample->keys[i], sample->values[i]};
	}
	sample->alignment = UINT32_C(1) << random_below(random, 13);
	sample->data_bytes = end;
	ck_ok(gpusnap_header_build(sample->tensors, sample->tensor_count, sample->metadata,
		sample->metadata_count, sample->alignment, &sample->bytes, &sample->length, &err));
}

static const gpusnap_tensor *find_whole(const gpusnap_header *header, const gpusnap_tensor *wanted)
{
	for (size_t i = 0; i < gpusnap_header_tensor_count(header); i++) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(header, i);

		if (tensor->name_length == wanted->name_length &&
			memcmp(tensor->name, wanted->name, wanted->name_length) == 0)
			return tensor;
	}
	return NULL;
}

static void check_same(const gpusnap_header *header, const struct sample *sample)
{
	ck_assert_uint_eq(gpusnap_header_tensor_count(header), sample->tensor_count);
	for (size_t i = 0; i < sample->tensor_count; i++) {
		const gpusnap_tensor *wanted = &sample->tensors[i];
		const gpusnap_tensor *tensor = find_whole(header, wanted);

		ck_assert_ptr_nonnull(tensor);
		ck_assert_int_eq(tensor->dtype, wanted->dtype);
		ck_assert_uint_eq(tensor->rank, wanted->rank);
		ck_assert_mem_eq(tensor->shape, wanted->shape, 8 * wanted->rank);
		ck_assert_uint_eq(tensor->begin, wanted->begin);
		ck_assert_uint_eq(tensor->end, wanted->end);
	}
	ck_assert_uint_eq(gpusnap_header_metadata_count(header), sample->metadata_count);
	for (size_t i = 0; i < sample->metadata_count; i++)
		ck_assert_str_eq(
			gpusnap_header_metadata(header, sample->keys[i]), sample->values[i]);
}

static gpusnap_status parse_sample(
	const struct sample *sample, uint64_t file_bytes, gpusnap_header **out, gpusnap_error *err)
{
	return gpusnap_header_parse(
		(const char *)sample->bytes + 8, sample->length - 8, file_bytes, out, err);
}

START_TEST(parse_gives_back_what_build_was_given)
{
	uint64_t seed = random_seed(3), random = seed;
	struct sample sample;

	for (int round = 0; round < 1000; round++) {
		gpusnap_header *header = NULL;
		gpusnap_error err;
		uint8_t *again;
		uint64_t length;

		make_sample(&random, &sample);
		ck_assert_uint_eq(sample.length % sample.alignment, 0);
		ck_assert_msg(parse_sample(&sample, sample.length + sample.data_bytes, &header,
				      &err) == GPUSNAP_OK,
			"round %d, seed %llu: %s", round, (unsigned long long)seed, err.message);
		check_same(header, &sample);
		header_check(header, sample.length + sample.data_bytes);
		ck_ok(gpusnap_header_build(sample.tensors, sample.tensor_count, sample.metadata,
			sample.metadata_count, sample.alignment, &again, &length, &err));
		ck_assert_uint_eq(length, sample.length);
		ck_assert_mem_eq(again, sample.bytes, length);
		gpusnap_header_bytes_free(again);
		gpusnap_header_bytes_free(sample.bytes);
		gpusnap_header_free(header);
	}
}
END_TEST

START_TEST(only_the_exact_file_length_is_accepted)
{
	uint64_t random = random_seed(4);
	struct sample sample;
	gpusnap_error err;

	for (int round = 0; round < 100; round++) {
		uint64_t exact;

		make_sample(&random, &sample);
		exact = sample.length + sample.data_bytes;
		for (uint64_t length = sample.length; length < exact + 9; length++) {
			gpusnap_header *header = NULL;
			gpusnap_status status = parse_sample(&sample, length, &header, &err);

			ck_assert_int_eq(status, length == exact ? GPUSNAP_OK : GPUSNAP_E_FORMAT);
			gpusnap_header_free(header);
		}
		gpusnap_header_bytes_free(sample.bytes);
	}
}
END_TEST

/* The whole file, data included, to be damaged. */
static uint8_t *whole_file(uint64_t seed, size_t *ret_length)
{
	struct sample sample;
	uint8_t *bytes;

	make_sample(&seed, &sample);
	*ret_length = (size_t)(sample.length + sample.data_bytes);
	bytes = calloc(*ret_length, 1);
	ck_assert_ptr_nonnull(bytes);
	memcpy(bytes, sample.bytes, (size_t)sample.length);
	gpusnap_header_bytes_free(sample.bytes);
	return bytes;
}

START_TEST(every_truncation_is_refused)
{
	gpusnap_header *header = NULL;
	gpusnap_error err;

	for (uint64_t seed = 0; seed < 12; seed++) {
		size_t length;
		uint8_t *bytes = whole_file(seed, &length);

		ck_ok(header_open(bytes, length, &header, &err));
		gpusnap_header_free(header);
		header = NULL;
		for (size_t cut = 0; cut < length; cut++) {
			ck_assert_int_eq(header_open(bytes, cut, &header, &err), GPUSNAP_E_FORMAT);
			ck_assert_ptr_null(header);
		}
		free(bytes);
	}
}
END_TEST

/* A shorter length field over the same bytes: what follows is then taken for data. */
START_TEST(a_header_cut_short_by_its_length_is_refused)
{
	gpusnap_header *header = NULL;
	gpusnap_error err;
	size_t length;
	uint8_t *bytes = whole_file(7, &length);
	uint64_t json_bytes = gsn_le64(bytes);

	while (bytes[8 + json_bytes - 1] == ' ')
		json_bytes--;
	while (json_bytes-- > 0) {
		gsn_put_le64(bytes, json_bytes);
		ck_assert_int_eq(header_open(bytes, length, &header, &err), GPUSNAP_E_FORMAT);
	}
	free(bytes);
}
END_TEST

/* Every one-bit flip of `bytes`: an answer, and a sound header when it is yes. */
static void flip_all(uint8_t *bytes, size_t length)
{
	for (size_t bit = 0; bit < 8 * length; bit++) {
		gpusnap_header *header = NULL;
		gpusnap_error err;

		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (header_open(bytes, length, &header, &err) == GPUSNAP_OK)
			header_check(header, length);
		else
			ck_assert(err.status == GPUSNAP_E_FORMAT ||
				  err.status == GPUSNAP_E_UNSUPPORTED);
		gpusnap_header_free(header);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

START_TEST(every_bit_flip_of_a_built_file_is_answered)
{
	for (uint64_t seed = 100; seed < 102; seed++) {
		size_t length;
		uint8_t *bytes = whole_file(seed, &length);

		flip_all(bytes, length);
		free(bytes);
	}
}
END_TEST

START_TEST(every_bit_flip_of_the_odd_files_is_answered)
{
	DIR *folder = opendir(GPUSNAP_TEST_DATA "/safetensors");
	struct dirent *entry;
	char path[512];
	int count = 0;

	ck_assert_ptr_nonnull(folder);
	while ((entry = readdir(folder))) {
		size_t length;
		uint8_t *bytes;

		if (!strstr(entry->d_name, ".safetensors"))
			continue;
		(void)snprintf(
			path, sizeof path, GPUSNAP_TEST_DATA "/safetensors/%s", entry->d_name);
		bytes = read_file(path, &length);
		/* The file of rank 100,000 would take minutes and tell nothing new. */
		if (length < 8192) {
			flip_all(bytes, length);
			count++;
		}
		free(bytes);
	}
	ck_assert_int_eq(closedir(folder), 0);
	ck_assert_int_ge(count, 60);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		parse_gives_back_what_build_was_given,
		only_the_exact_file_length_is_accepted,
		every_truncation_is_refused,
		a_header_cut_short_by_its_length_is_refused,
		every_bit_flip_of_a_built_file_is_answered,
		every_bit_flip_of_the_odd_files_is_answered,
	};

	return RUN_SUITE("header_roundtrip", tests);
}
