/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <gpusnap/safetensors.h>

#include "formats/base/bytes.h"
#include "tests/support/file.h"
#include "tests/support/header_check.h"
#include "tests/support/suite.h"

/* A file with this JSON and `data_bytes` zeros; the caller frees it. */
static uint8_t *make_file(
	const char *json, size_t json_bytes, size_t data_bytes, size_t *ret_length)
{
	uint8_t *bytes = calloc(8 + json_bytes + data_bytes, 1);

	ck_assert_ptr_nonnull(bytes);
	gsn_put_le64(bytes, json_bytes);
	memcpy(bytes + 8, json, json_bytes);
	*ret_length = 8 + json_bytes + data_bytes;
	return bytes;
}

static gpusnap_status open_json_n(const char *json, size_t json_bytes, size_t data_bytes,
	gpusnap_header **out, gpusnap_error *err)
{
	size_t length;
	uint8_t *bytes = make_file(json, json_bytes, data_bytes, &length);
	gpusnap_status status = header_open(bytes, length, out, err);

	free(bytes);
	return status;
}

static gpusnap_status open_json(
	const char *json, size_t data_bytes, gpusnap_header **out, gpusnap_error *err)
{
	return open_json_n(json, strlen(json), data_bytes, out, err);
}

static void check_case(const char *name, const char *expected)
{
	gpusnap_header *header = NULL;
	gpusnap_error err;
	gpusnap_status status;
	char path[512];
	uint8_t *bytes;
	size_t length;

	(void)snprintf(path, sizeof path, "%s/safetensors/%s", GPUSNAP_TEST_DATA, name);
	bytes = read_file(path, &length);
	status = header_open(bytes, length, &header, &err);
	if (strcmp(expected, "accept") == 0)
		ck_assert_msg(status == GPUSNAP_OK, "%s: refused: %s", name, err.message);
	else if (strcmp(expected, "reject") == 0)
		ck_assert_msg(status == GPUSNAP_E_FORMAT || status == GPUSNAP_E_UNSUPPORTED,
			"%s: %s", name, gpusnap_status_name(status));
	else
		ck_assert_str_eq(expected, "either");
	if (status)
		ck_assert_uint_gt(strlen(err.message), 10);
	gpusnap_header_free(header);
	free(bytes);
}

START_TEST(every_odd_file_gets_its_expected_answer)
{
	char line[256], name[128], expected[16];
	FILE *index = fopen(GPUSNAP_TEST_DATA "/safetensors/index.tsv", "r");
	int count = 0;

	ck_assert_ptr_nonnull(index);
	ck_assert_ptr_nonnull(fgets(line, sizeof line, index));
	while (fgets(line, sizeof line, index)) {
		ck_assert_int_eq(sscanf(line, "%127[^\t]\t%15[^\t]", name, expected), 2);
		check_case(name, expected);
		count++;
	}
	ck_assert_int_eq(fclose(index), 0);
	ck_assert_int_ge(count, 62);
}
END_TEST

#define T4 "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

/* JSON of a file with four data bytes that must be refused, and what the message must say. */
static const struct {
	const char *json;
	const char *says;
} bad_headers[] = {
	{"", "the shortest is 2"},
	{"  ", "expected a header, which begins with '{', at byte 10, found the end"},
	{"{", "the shortest is 2"},
	{"{}", "4 bytes too many"},
	{"{}x", "expected nothing but white space at the end at byte 10, found 'x'"},
	{"{\"t\":" T4 ",}", "expected a key in quotes at byte 62, found '}'"},
	{"{,\"t\":" T4 "}", "expected a key in quotes at byte 9"},
	{"{\"t\":" T4 "}{}", "expected nothing but white space"},
	{"{\"t\":" T4 "} {\"t\":" T4 "}", "expected nothing but white space"},
	{"{\"t\":" T4, "expected ',' or '}'"},
	{"{\"t\" " T4 "}", "expected ':'"},
	{"{t:" T4 "}", "expected a key in quotes at byte 9, found 't'"},
	{"{'t':" T4 "}", "expected a key in quotes"},
	{"[{\"t\":" T4 "}]", "which begins with '{'"},
	{"\"text\"", "which begins with '{'"},
	{"12", "found '12'"},
	{"true", "found 'true'"},
	{"/**/{\"t\":" T4 "}", "which begins with '{'"},
	{"{\"t\":" T4 "}//", "expected nothing but white space"},
	{"{\"t\":null}", "tensor 't': expected an object with dtype, shape and data_offsets"},
	{"{\"t\":1}", "expected an object"},
	{"{\"t\":\"F32\"}", "expected an object"},
	{"{\"t\":true}", "expected an object"},
	{"{\"t\":[]}", "expected an object"},
	{"{\"t\":{}}", "tensor 't': has no field 'dtype'"},
	/* fields missing, repeated, of other types */
	{"{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "has no field 'dtype'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", "has no field 'data_offsets'"},
	{"{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "has no field 'shape'"},
	{"{\"t\":{\"Dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "field 'dtype'"},
	{"{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
		"field 'dtype' is there twice"},
	{"{\"t\":{\"dtype\":\"F32\",\"\\u0064type\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
		"field 'dtype' is there twice"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}",
		"field 'shape' is there twice"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"data_offsets\":[0,4]}}",
		"field 'data_offsets' is there twice"},
	{"{\"t\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", "a string as dtype"},
	{"{\"t\":{\"dtype\":[\"F32\"],\"shape\":[1],\"data_offsets\":[0,4]}}", "a string as dtype"},
	{"{\"t\":{\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]}}",
		"a string as dtype"},
	{"{\"t\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "'F32'"},
	{"{\"t\":{\"dtype\":\"C128\",\"shape\":[0],\"data_offsets\":[0,0]}}",
		"unknown dtype 'C128'"},
	{"{\"t\":{\"dtype\":\"F32\\u0000\",\"shape\":[1],\"data_offsets\":[0,4]}}",
		"unknown dtype 'F32\\x00'"},
	{"{\"t\":{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]}}", "unknown dtype ''"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":null,\"data_offsets\":[0,4]}}",
		"an array of dimensions"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}",
		"an array of dimensions"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}",
		"an array of dimensions"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1,],\"data_offsets\":[0,4]}}", "found ']'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1 1],\"data_offsets\":[0,4]}}", "',' or ']'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}}", "a dimension"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "found '-1'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[-0],\"data_offsets\":[0,0]}}", "found '-0'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]}}", "found '01'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[+1],\"data_offsets\":[0,4]}}", "found '+1'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[0x1],\"data_offsets\":[0,4]}}", "',' or ']'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", "found '1.0'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]}}", "found '1e0'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1E0],\"data_offsets\":[0,4]}}", "found '1E0'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,4]}}", "found 'true'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}}",
		"found '18446744073709551616'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[18446744073709551617],\"data_offsets\":[0,4]}}",
		"a dimension from 0 to 2^64-1"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999999],\"data_offsets\":[0,4]}}",
		"a dimension from 0 to 2^64-1"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}",
		"overflows 64 bits at dimension 1 of 2"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}",
		"overflow 64 bits"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[]}}", "has 0 elements"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "has 1 elements"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}",
		"more than 2 elements"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,]}}",
		"more than 2 elements"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":null}}", "two offsets"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{\"0\":0}}}", "two offsets"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":\"0,4\"}}", "two offsets"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[\"0\",4]}}", "a data offset"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", "found '4.0'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", "found '-4'"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]}}",
		"a data offset from 0 to 2^64-1"},
	/* ranges that do not fit */
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
		"begins at data byte 4 and ends before, at 0"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
		"tensor 't': data_offsets span 4 bytes, dtype and shape need 8"},
	{"{\"t\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,4]}}", "need 8"},
	{"{\"t\":{\"dtype\":\"F6_E2M3\",\"shape\":[6],\"data_offsets\":[0,4]}}", "36 bits"},
	{"{\"t\":{\"dtype\":\"F6_E3M2\",\"shape\":[8],\"data_offsets\":[0,4]}}", "need 6"},
	{"{\"t\":{\"dtype\":\"F4\",\"shape\":[7],\"data_offsets\":[0,4]}}", "28 bits"},
	{"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
		"truncated: the tensors take 8 bytes, the file has 4"},
	{"{\"t\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", "1 bytes too many"},
	{"{\"t\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]}}",
		"tensor 't' begins at data byte 1, but what comes before ends at 0"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
	 "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]}}",
		"tensor 'b' begins at data byte 1, inside 'a', which ends at 2"},
	{"{\"a\":" T4 ",\"b\":" T4 "}", "tensor 'b' begins at data byte 0, inside 'a'"},
	{"{\"a\":" T4 ",\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
		"inside 'a'"},
	{"{\"a\":" T4 ",\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[5,5]}}", "a hole"},
	{"{\"a\":" T4 ",\"z\":{\"dtype\":\"U8\",\"shape\":[0],"
	 "\"data_offsets\":[18446744073709551615,18446744073709551615]}}",
		"a hole"},
	/* names that repeat */
	{"{\"t\":" T4 ",\"t\":" T4 "}", "tensor 't' is there twice, at data bytes 0 and 0"},
	{"{\"t\":" T4 ",\"\\u0074\":" T4 "}", "tensor 't' is there twice"},
	{"{\"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
	 "\"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
		"tensor '' is there twice, at data bytes 0 and 2"},
	/* metadata */
	{"{\"__metadata__\":{\"a\":1},\"t\":" T4 "}", "a string as metadata value"},
	{"{\"__metadata__\":{\"a\":null},\"t\":" T4 "}", "a string as metadata value"},
	{"{\"__metadata__\":{\"a\":{\"b\":\"c\"}},\"t\":" T4 "}", "a string as metadata value"},
	{"{\"__metadata__\":[],\"t\":" T4 "}", "an object of strings"},
	{"{\"__metadata__\":\"x\",\"t\":" T4 "}", "an object of strings"},
	{"{\"__metadata__\":false,\"t\":" T4 "}", "an object of strings"},
	{"{\"__metadata__\":{\"a\":\"b\",},\"t\":" T4 "}", "a key in quotes"},
	{"{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"},\"t\":" T4 "}",
		"metadata key 'a' is there twice"},
	{"{\"__metadata__\":null,\"__metadata__\":{},\"t\":" T4 "}", "__metadata__ is there twice"},
	{"{\"__metadata__\":" T4 "}", "a string as metadata value"},
	/* strings */
	{"{\"\\ud800\":" T4 "}", "the other half of a surrogate pair"},
	{"{\"\\udc00\":" T4 "}", "the other half of a surrogate pair"},
	{"{\"\\ud800\\u0041\":" T4 "}", "the low half of a surrogate pair"},
	{"{\"\\ud800x\":" T4 "}", "the other half of a surrogate pair"},
	{"{\"\\u12g4\":" T4 "}", "four hexadecimal digits"},
	{"{\"\\x41\":" T4 "}", "an escape of JSON"},
	{"{\"a\nb\":" T4 "}", "an escaped control character"},
	{"{\"\x80\":" T4 "}", "expected UTF-8 at byte 10, found '\\x80'"},
	{"{\"\xc0\xaf\":" T4 "}", "expected UTF-8"},
	{"{\"\xed\xa0\x80\":" T4 "}", "expected UTF-8"},
	{"{\"\xf4\x90\x80\x80\":" T4 "}", "expected UTF-8"},
	{"{\"\xe2\x82\":" T4 "}", "expected UTF-8"},
	{"\xef\xbb\xbf{\"t\":" T4 "}", "which begins with '{'"},
	{"{\"t\":" T4 "}\xff", "nothing but white space"},
	{"{\"t\":" T4 "}\x0b", "nothing but white space"},
	{"{\"t\xff\":" T4 "}", "expected UTF-8"},
};

START_TEST(each_kind_of_fault_is_refused_and_named)
{
	gpusnap_header *header = NULL;
	gpusnap_error err;

	for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
		gpusnap_status status = open_json(bad_headers[i].json, 4, &header, &err);

		ck_assert_msg(status == GPUSNAP_E_FORMAT, "%s: %s", bad_headers[i].json,
			gpusnap_status_name(status));
		ck_assert_msg(strstr(err.message, bad_headers[i].says) != NULL,
			"%s: '%s' lacks '%s'", bad_headers[i].json, err.message,
			bad_headers[i].says);
		ck_assert_ptr_null(header);
		ck_status(open_json(bad_headers[i].json, 4, &header, NULL), status);
	}
}
END_TEST

#define U8_FIELDS "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]"

/* JSON of a file with four data bytes that must be accepted. */
static const char *const good_headers[] = {
	"{\"t\":" T4 "}",
	" \t\r\n{\"t\":" T4 "}",
	"{\"t\":" T4 "} \t\r\n ",
	" { \"t\" : { \"dtype\" : \"F32\" , \"shape\" : [ 1 ] , \"data_offsets\" : [ 0 , 4 ] } } ",
	"{\"t\":{\"data_offsets\":[0,4],\"shape\":[1],\"dtype\":\"F32\"}}",
	"{\"t\":{\"dtype\":\"F\\u00332\",\"\\u0073hape\":[],\"data_offsets\":[0,4]}}",
	"{\"__metadata__\":{},\"t\":" T4 "}",
	"{\"__metadata__\":null,\"t\":" T4 "}",
	"{\"t\":" T4 ",\"__metadata__\":{\"\":\"\",\"a\":\"\\u0000\"}}",
	"{\"__Metadata__\":" T4 "}",
	"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"b\":" T4
	",\"c\":{\"dtype\":\"U8\",\"shape\":[0,7],\"data_offsets\":[4,4]}}",
	"{\"a\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[4,4]},"
	"\"b\":{\"dtype\":\"BOOL\",\"shape\":[0],\"data_offsets\":[4,4]},\"c\":" T4 "}",
	"{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]},"
	"\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
	"{\"t\":{\"dtype\":\"F4\",\"shape\":[2,2,2],\"data_offsets\":[0,4]}}",
	"{\"t\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]},"
	"\"u\":{\"dtype\":\"F8_E5M2\",\"shape\":[1],\"data_offsets\":[3,4]}}",
	"{\"t\":{" U8_FIELDS ",\"x\":null,\"y\":true,\"z\":false,\"x\":0}}",
	"{\"t\":{\"x\":{\"a\":[1,2,{\"b\":[]},{}],\"c\":\"\\ud83d\\ude00\"}," U8_FIELDS "}}",
	"{\"t\":{" U8_FIELDS ",\"x\":[-0,-0.0,1e5,1E-400,18446744073709551616,0.5e+3,-7]}}",
	"{\"t\":{" U8_FIELDS ",\"x\":1.7976931348623157e308,\"y\":0e999999999999999999999}}",
	"{\"t\":{" U8_FIELDS ",\"x\":0.00000000000000000001e327}}",
};

START_TEST(unusual_but_valid_headers_are_accepted)
{
	gpusnap_error err;

	for (size_t i = 0; i < sizeof good_headers / sizeof good_headers[0]; i++) {
		gpusnap_header *header = NULL;
		gpusnap_status status = open_json(good_headers[i], 4, &header, &err);

		ck_assert_msg(status == GPUSNAP_OK, "%s: %s", good_headers[i], err.message);
		gpusnap_header_free(header);
	}
}
END_TEST

/* Values of a field that is ignored: still no JSON, or not what the official reader takes. */
static const char *const bad_values[] = {"", "nul", "nullx", "NaN", "Infinity", "-", "-a", ".5",
	"5.", "1e", "1e+", "00", "-01", "0x1", "1e309", "-1e309", "17976931348623159e292", "[1,]",
	"[", "{\"a\"}", "{\"a\":}", "{1:2}", "{\"a\":1,}", "\"", "\"\\\"", "\"\t\"", "tru", "[}",
	"]", "'x'", "1 2"};

START_TEST(ignored_fields_must_be_json_all_the_same)
{
	gpusnap_header *header = NULL;
	gpusnap_error err;
	char json[256];

	for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++) {
		(void)snprintf(
			json, sizeof json, "{\"t\":{%s,\"x\":%s}}", U8_FIELDS, bad_values[i]);
		ck_fails(open_json(json, 4, &header, &err), GPUSNAP_E_FORMAT, "tensor 't'");
	}
}
END_TEST

/* Root and tensor are two levels; serde_json's limit is 127. */
START_TEST(nesting_is_followed_to_127_levels)
{
	enum { INNER = 125 };
	gpusnap_header *header = NULL;
	gpusnap_error err;
	char nest[2 * INNER + 3], json[512];

	memset(nest, '[', INNER);
	memset(nest + INNER, ']', INNER);
	nest[2 * INNER] = '\0';
	(void)snprintf(json, sizeof json, "{\"t\":{%s,\"x\":%s}}", U8_FIELDS, nest);
	ck_ok(open_json(json, 4, &header, &err));
	gpusnap_header_free(header);
	(void)snprintf(json, sizeof json, "{\"t\":{%s,\"x\":[%s]}}", U8_FIELDS, nest);
	ck_fails(open_json(json, 4, &header, &err), GPUSNAP_E_FORMAT, "nested deeper than 127");
}
END_TEST

START_TEST(rank_goes_to_64)
{
	const gpusnap_tensor *tensor;
	gpusnap_header *header = NULL;
	gpusnap_error err;
	char dims[2 * 65], json[512];

	for (int i = 0; i < 65; i++)
		memcpy(dims + 2 * i, "1,", 2);
	(void)snprintf(json, sizeof json, "{\"t\":{\"dtype\":\"F32\",\"shape\":[%.*s],%s}}", 127,
		dims, "\"data_offsets\":[0,4]");
	ck_ok(open_json(json, 4, &header, &err));
	tensor = gpusnap_header_tensor(header, 0);
	ck_assert_uint_eq(tensor->rank, 64);
	ck_assert_uint_eq(tensor->shape[63], 1);
	gpusnap_header_free(header);
	(void)snprintf(json, sizeof json, "{\"t\":{\"dtype\":\"F32\",\"shape\":[%.*s],%s}}", 129,
		dims, "\"data_offsets\":[0,4]");
	ck_fails(open_json(json, 4, &header, &err), GPUSNAP_E_UNSUPPORTED,
		"more than 64 dimensions");
}
END_TEST

START_TEST(nul_padding_is_refused)
{
	static const char json[] = "{\"t\":" T4 "}\0\0\0";
	gpusnap_header *header = NULL;
	gpusnap_error err;

	ck_fails(open_json_n(json, sizeof json, 4, &header, &err), GPUSNAP_E_FORMAT,
		"nothing but white space");
}
END_TEST

START_TEST(what_the_file_really_is_is_said)
{
	static const struct {
		const char *begin;
		const char *says;
	} rows[] = {{"version https://git-lfs.github.com/spec/v1\noid sha256:", "git lfs pull"},
		{"<!DOCTYPE html><html><head>", "an HTML page"},
		{"<!doctype HTML>", "an HTML page"}, {"<HTML lang=en>", "an HTML page"},
		{"<?xml version='1.0'?>", "an XML text"},
		{"\x1f\x8b\x08\x08\x12\x34\x56\x78\x9a", "gzip"},
		{"PK\x03\x04\x14\x08\x08\x08 ", "a zip archive"}, {"GGUF\x03\x01\x01\x01 ", "GGUF"},
		{"\x80\x02}q\x01(X\x05", "a pickle"},
		{"\x80\x04\x95\x10\x01\x01\x01\x01\x01", "a pickle"},
		{"\x28\xb5\x2f\xfd\x24\x01\x01\x01", "zstd"},
		{"{\"weight_map\": {}}", "a JSON text"}, {"{\n  \"metadata\": {", "a JSON text"},
		{"\x89HDF\r\n\x1a\n", "HDF5"}, {"\x93NUMPY\x01\x01v", "NumPy"},
		{"no idea what this is", "header length would be"}};
	uint64_t json_bytes = 77;
	gpusnap_error err;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		ck_fails(gpusnap_header_measure((const uint8_t *)rows[i].begin,
				 strlen(rows[i].begin), 5000, &json_bytes, &err),
			GPUSNAP_E_FORMAT, rows[i].says);
	ck_assert_uint_eq(json_bytes, 77);
}
END_TEST

START_TEST(measure_checks_the_length_against_the_file)
{
	uint8_t prefix[8];
	uint64_t json_bytes;
	gpusnap_error err;

	gsn_put_le64(prefix, 92);
	ck_ok(gpusnap_header_measure(prefix, 8, 100, &json_bytes, &err));
	ck_assert_uint_eq(json_bytes, 92);
	ck_fails(gpusnap_header_measure(prefix, 8, 99, &json_bytes, &err), GPUSNAP_E_FORMAT,
		"the header says 92 bytes, the file has 91 after the length");
	gsn_put_le64(prefix, GPUSNAP_HEADER_JSON_MAX);
	ck_ok(gpusnap_header_measure(prefix, 8, UINT64_MAX, &json_bytes, &err));
	gsn_put_le64(prefix, GPUSNAP_HEADER_JSON_MAX + 1);
	ck_fails(gpusnap_header_measure(prefix, 8, UINT64_MAX, &json_bytes, &err), GPUSNAP_E_FORMAT,
		"would be 100000001 bytes, the format allows 100000000");
	ck_fails(gpusnap_header_measure(prefix, 0, 0, &json_bytes, &err), GPUSNAP_E_FORMAT,
		"0 bytes");
	ck_fails(gpusnap_header_measure(prefix, 7, 7, &json_bytes, &err), GPUSNAP_E_FORMAT,
		"7 bytes");
	ck_fails(gpusnap_header_measure(prefix, 7, 8, &json_bytes, &err), GPUSNAP_E_INVALID,
		"prefix of 7 bytes");
	ck_fails(gpusnap_header_measure(prefix, 8, 7, &json_bytes, &err), GPUSNAP_E_INVALID,
		"of a file of 7");
}
END_TEST

START_TEST(names_with_nul_are_compared_whole)
{
	gpusnap_header *header = NULL;
	const gpusnap_tensor *tensor;
	gpusnap_error err;

	ck_ok(open_json("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
			"\"a\\u0000c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
			"\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]},"
			"\"__metadata__\":{\"k\\u0000\":\"1\",\"k\":\"2\"}}",
		4, &header, &err));
	tensor = gpusnap_header_find(header, "a");
	ck_assert_ptr_nonnull(tensor);
	ck_assert_uint_eq(tensor->begin, 2);
	tensor = gpusnap_header_tensor(header, 1);
	ck_assert_uint_eq(tensor->name_length, 3);
	ck_assert_mem_eq(tensor->name, "a\0c", 4);
	ck_assert_str_eq(gpusnap_header_metadata(header, "k"), "2");
	gpusnap_header_free(header);
}
END_TEST

START_TEST(access_by_position_by_name_and_to_metadata)
{
	gpusnap_header *header = NULL;
	gpusnap_error err;

	ck_ok(open_json("{\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
			"\"b\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[1,1]},"
			"\"a\":{\"dtype\":\"BF16\",\"shape\":[0,3],\"data_offsets\":[1,1]},"
			"\"y\":{\"dtype\":\"U8\",\"shape\":[3,1],\"data_offsets\":[1,4]},"
			"\"__metadata__\":{\"format\":\"pt\",\"a\":\"\\\"\\n\\u20ac\"}}",
		4, &header, &err));
	ck_assert_uint_eq(gpusnap_header_tensor_count(header), 4);
	ck_assert_str_eq(gpusnap_header_tensor(header, 0)->name, "z");
	ck_assert_str_eq(gpusnap_header_tensor(header, 1)->name, "a");
	ck_assert_str_eq(gpusnap_header_tensor(header, 2)->name, "b");
	ck_assert_str_eq(gpusnap_header_tensor(header, 3)->name, "y");
	ck_assert_ptr_null(gpusnap_header_tensor(header, 4));
	ck_assert_ptr_eq(gpusnap_header_find(header, "y"), gpusnap_header_tensor(header, 3));
	ck_assert_int_eq(gpusnap_header_find(header, "a")->dtype, GPUSNAP_BF16);
	ck_assert_uint_eq(gpusnap_header_find(header, "a")->shape[1], 3);
	ck_assert_ptr_null(gpusnap_header_find(header, "x"));
	ck_assert_ptr_null(gpusnap_header_find(header, ""));
	ck_assert_str_eq(gpusnap_header_metadata(header, "format"), "pt");
	ck_assert_str_eq(gpusnap_header_metadata(header, "a"), "\"\n\xe2\x82\xac");
	ck_assert_ptr_null(gpusnap_header_metadata(header, "forma"));
	ck_assert_uint_eq(gpusnap_header_metadata_count(header), 2);
	ck_assert_str_eq(gpusnap_header_metadata_at(header, 0)->key, "a");
	ck_assert_ptr_null(gpusnap_header_metadata_at(header, 2));
	gpusnap_header_free(header);
	gpusnap_header_free(NULL);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_odd_file_gets_its_expected_answer,
		each_kind_of_fault_is_refused_and_named,
		unusual_but_valid_headers_are_accepted,
		ignored_fields_must_be_json_all_the_same,
		nesting_is_followed_to_127_levels,
		rank_goes_to_64,
		nul_padding_is_refused,
		what_the_file_really_is_is_said,
		measure_checks_the_length_against_the_file,
		names_with_nul_are_compared_whole,
		access_by_position_by_name_and_to_metadata,
	};

	return RUN_SUITE("header_faults", tests);
}
