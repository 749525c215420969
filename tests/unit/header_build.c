/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <gpusnap/safetensors.h>

#include "tests/support/suite.h"

static const uint64_t two[] = {2};

/* An U8 tensor of two bytes at `begin`. */
static gpusnap_tensor pair_at(const char *name, uint64_t begin)
{
	return (gpusnap_tensor){.name = name,
		.name_length = strlen(name),
		.dtype = GPUSNAP_U8,
		.rank = 1,
		.shape = two,
		.begin = begin,
		.end = begin + 2};
}

static gpusnap_status build(const gpusnap_tensor *tensors, size_t count, gpusnap_error *err)
{
	uint8_t *bytes = NULL;
	uint64_t length = 0;
	gpusnap_status status =
		gpusnap_header_build(tensors, count, NULL, 0, 8, &bytes, &length, err);

	ck_assert_int_eq(bytes != NULL, status == GPUSNAP_OK);
	gpusnap_header_bytes_free(bytes);
	return status;
}

START_TEST(bytes_are_those_of_the_format)
{
	static const char expected[] =
		"{\"__metadata__\":{\"format\":\"pt\",\"a\\\"\":\"\\u0001\\\\\"},"
		"\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
		"\"\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[2,6]}}";
	const gpusnap_metadata metadata[] = {{"format", "pt"}, {"a\"", "\x01\\"}};
	gpusnap_tensor tensors[] = {
		pair_at("w", 0), {.name = "", .dtype = GPUSNAP_F32, .begin = 2, .end = 6}};
	uint64_t length;
	uint8_t *bytes;
	gpusnap_error err;

	ck_ok(gpusnap_header_build(tensors, 2, metadata, 2, 4096, &bytes, &length, &err));
	ck_assert_uint_eq(length, 4096);
	ck_assert_mem_eq(bytes, "\xf8\x0f\0\0\0\0\0\0", 8);
	ck_assert_mem_eq(bytes + 8, expected, strlen(expected));
	for (size_t i = 8 + strlen(expected); i < length; i++)
		ck_assert_int_eq(bytes[i], ' ');
	gpusnap_header_bytes_free(bytes);
	ck_ok(gpusnap_header_build(tensors, 2, metadata, 2, 1, &bytes, &length, &err));
	ck_assert_uint_eq(length, 8 + strlen(expected));
	gpusnap_header_bytes_free(bytes);
	ck_ok(gpusnap_header_build(NULL, 0, NULL, 0, 1, &bytes, &length, &err));
	ck_assert_uint_eq(length, 10);
	ck_assert_mem_eq(bytes, "\2\0\0\0\0\0\0\0{}", 10);
	gpusnap_header_bytes_free(bytes);
}
END_TEST

START_TEST(tensors_that_do_not_tile_are_refused)
{
	gpusnap_tensor tensors[] = {pair_at("a", 0), pair_at("b", 2)};
	gpusnap_error err;

	ck_ok(build(tensors, 2, &err));
	tensors[1] = pair_at("b", 3);
	ck_fails(build(tensors, 2, &err), GPUSNAP_E_FORMAT,
		"tensor 'b': begins at data byte 3, the one before ends at 2");
	tensors[1] = pair_at("b", 1);
	ck_fails(build(tensors, 2, &err), GPUSNAP_E_FORMAT, "begins at data byte 1");
	tensors[0] = pair_at("a", 1);
	ck_fails(build(tensors, 1, &err), GPUSNAP_E_FORMAT, "tensor 'a': begins at data byte 1");
	tensors[0] = pair_at("a", 0);
	tensors[0].end = 3;
	ck_fails(build(tensors, 1, &err), GPUSNAP_E_FORMAT,
		"tensor 'a': data_offsets span 3 bytes, dtype and shape need 2");
	ck_assert_int_eq(err.status, GPUSNAP_E_FORMAT);
}
END_TEST

START_TEST(names_that_a_reader_would_refuse_are_refused)
{
	gpusnap_tensor tensors[] = {pair_at("a", 0), pair_at("a", 2)};
	gpusnap_error err;

	ck_fails(build(tensors, 2, &err), GPUSNAP_E_FORMAT, "tensor 'a' is there twice");
	tensors[1] = pair_at("__metadata__", 2);
	ck_fails(build(tensors, 2, &err), GPUSNAP_E_FORMAT, "reserves this name");
	tensors[1] = pair_at("\xff", 2);
	ck_fails(
		build(tensors, 2, &err), GPUSNAP_E_FORMAT, "tensor '\\xff': the name is not UTF-8");
	tensors[1].name = "a\0";
	tensors[1].name_length = 2;
	ck_ok(build(tensors, 2, &err));
}
END_TEST

START_TEST(metadata_that_a_reader_would_refuse_is_refused)
{
	const gpusnap_metadata twice[] = {{"k", "1"}, {"j", ""}, {"k", "2"}};
	const gpusnap_metadata bad_value[] = {{"k", "\xc3"}}, bad_key[] = {{"\xed\xa0\x80", "v"}};
	uint8_t *bytes;
	uint64_t length;
	gpusnap_error err;

	ck_fails(gpusnap_header_build(NULL, 0, twice, 3, 8, &bytes, &length, &err),
		GPUSNAP_E_FORMAT, "metadata key 'k' is there twice");
	ck_fails(gpusnap_header_build(NULL, 0, bad_value, 1, 8, &bytes, &length, &err),
		GPUSNAP_E_FORMAT, "not UTF-8");
	ck_fails(gpusnap_header_build(NULL, 0, bad_key, 1, 8, &bytes, &length, &err),
		GPUSNAP_E_FORMAT, "not UTF-8");
}
END_TEST

START_TEST(wrong_arguments_are_refused)
{
	gpusnap_tensor tensor = pair_at("a", 0);
	uint8_t *bytes;
	uint64_t length;
	gpusnap_error err;

	ck_fails(gpusnap_header_build(&tensor, 1, NULL, 0, 0, &bytes, &length, &err),
		GPUSNAP_E_INVALID, "alignment 0");
	ck_fails(gpusnap_header_build(&tensor, 1, NULL, 0, 24, &bytes, &length, &err),
		GPUSNAP_E_INVALID, "alignment 24");
	tensor.dtype = GPUSNAP_DTYPE_COUNT;
	ck_fails(build(&tensor, 1, &err), GPUSNAP_E_FORMAT, "dtype 22");
	tensor = pair_at("a", 0);
	tensor.rank = 65;
	ck_fails(build(&tensor, 1, &err), GPUSNAP_E_FORMAT, "65 dimensions");
}
END_TEST

/* One value of 100 million bytes: refused by size before anything of that size is allocated. */
START_TEST(headers_over_the_limit_of_the_format_are_refused)
{
	const size_t overhead = strlen("{\"__metadata__\":{\"k\":\"\"}}");
	size_t room = GPUSNAP_HEADER_JSON_MAX - overhead;
	char *value = malloc(room + 2);
	const gpusnap_metadata metadata = {"k", value};
	uint8_t *bytes;
	uint64_t length;
	gpusnap_error err;

	ck_assert_ptr_nonnull(value);
	memset(value, 'x', room + 1);
	value[room + 1] = '\0';
	ck_fails(gpusnap_header_build(NULL, 0, &metadata, 1, 8, &bytes, &length, &err),
		GPUSNAP_E_LIMIT, "takes 100000008 bytes, the format allows 100000000");
	value[room] = '\0';
	ck_ok(gpusnap_header_build(NULL, 0, &metadata, 1, 8, &bytes, &length, &err));
	ck_assert_uint_eq(length, 8 + GPUSNAP_HEADER_JSON_MAX);
	gpusnap_header_bytes_free(bytes);
	free(value);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		bytes_are_those_of_the_format,
		tensors_that_do_not_tile_are_refused,
		names_that_a_reader_would_refuse_are_refused,
		metadata_that_a_reader_would_refuse_is_refused,
		wrong_arguments_are_refused,
		headers_over_the_limit_of_the_format_are_refused,
	};

	return RUN_SUITE("header_build", tests);
}
