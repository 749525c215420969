/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <gpusnap/dtype.h>

#include "tests/support/suite.h"

START_TEST(there_are_22_dtypes_and_each_name_leads_back)
{
	gpusnap_dtype dtype;
	gpusnap_error err;

	ck_assert_int_eq(GPUSNAP_DTYPE_COUNT, 22);
	for (int i = 0; i < GPUSNAP_DTYPE_COUNT; i++) {
		ck_ok(gpusnap_dtype_parse(gpusnap_dtype_name((gpusnap_dtype)i), &dtype, &err));
		ck_assert_int_eq(dtype, i);
	}
}
END_TEST

/* Widths as the format's documentation gives them, not as the table under test does. */
START_TEST(widths_are_those_of_the_format)
{
	static const struct {
		const char *name;
		uint32_t bits;
	} rows[] = {{"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8}, {"U8", 8}, {"I8", 8},
		{"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
		{"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},
		{"I32", 32}, {"U32", 32}, {"F32", 32}, {"C64", 64}, {"F64", 64}, {"I64", 64},
		{"U64", 64}};
	gpusnap_dtype dtype;
	gpusnap_error err;

	ck_assert_uint_eq(sizeof rows / sizeof rows[0], GPUSNAP_DTYPE_COUNT);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		ck_ok(gpusnap_dtype_parse(rows[i].name, &dtype, &err));
		ck_assert_uint_eq(gpusnap_dtype_bits(dtype), rows[i].bits);
	}
}
END_TEST

START_TEST(other_spellings_are_refused_and_the_right_one_is_named)
{
	static const char *const wrong[] = {"", "F", "F3", "F128", "C128", "F32 ", "FP32", "F6",
		"F8", "float32", "F8_E4M3FN", "BFLOAT16", "\x1b[2J"};
	gpusnap_dtype dtype = GPUSNAP_U16;
	gpusnap_error err;

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		ck_fails(gpusnap_dtype_parse(wrong[i], &dtype, &err), GPUSNAP_E_FORMAT,
			"unknown dtype");
	ck_assert_ptr_null(strchr(err.message, 0x1b));
	ck_fails(gpusnap_dtype_parse("bf16", &dtype, &err), GPUSNAP_E_FORMAT, "'BF16'");
	ck_assert_int_eq(dtype, GPUSNAP_U16);
}
END_TEST

START_TEST(bytes_of_a_tensor_are_elements_times_width)
{
	const uint64_t cube[] = {3, 5, 7};
	const uint64_t four[] = {4};
	uint64_t bytes;
	gpusnap_error err;

	ck_ok(gpusnap_dtype_tensor_bytes(GPUSNAP_F32, 3, cube, &bytes, &err));
	ck_assert_uint_eq(bytes, 420);
	ck_ok(gpusnap_dtype_tensor_bytes(GPUSNAP_F64, 0, NULL, &bytes, &err));
	ck_assert_uint_eq(bytes, 8);
	ck_ok(gpusnap_dtype_tensor_bytes(GPUSNAP_F4, 1, four, &bytes, &err));
	ck_assert_uint_eq(bytes, 2);
	ck_ok(gpusnap_dtype_tensor_bytes(GPUSNAP_F6_E2M3, 1, four, &bytes, &err));
	ck_assert_uint_eq(bytes, 3);
}
END_TEST

START_TEST(parts_of_a_byte_are_refused)
{
	const uint64_t one[] = {1}, three[] = {3}, six[] = {6};
	uint64_t bytes = 77;
	gpusnap_error err;

	ck_fails(gpusnap_dtype_tensor_bytes(GPUSNAP_F4, 1, three, &bytes, &err), GPUSNAP_E_FORMAT,
		"3 elements of F4 are 12 bits");
	ck_fails(gpusnap_dtype_tensor_bytes(GPUSNAP_F4, 0, one, &bytes, &err), GPUSNAP_E_FORMAT,
		"1 elements of F4 are 4 bits");
	ck_fails(gpusnap_dtype_tensor_bytes(GPUSNAP_F6_E3M2, 1, six, &bytes, &err),
		GPUSNAP_E_FORMAT, "6 elements of F6_E3M2 are 36 bits");
	ck_assert_uint_eq(bytes, 77);
}
END_TEST

START_TEST(products_overflow_from_left_to_right)
{
	const uint64_t half = UINT64_C(1) << 63;
	const uint64_t zero_first[] = {0, half, half}, zero_last[] = {half, half, 0};
	const uint64_t most[] = {UINT64_MAX / 8}, more[] = {UINT64_MAX / 8 + 1};
	uint64_t bytes = 77;
	gpusnap_error err;

	ck_ok(gpusnap_dtype_tensor_bytes(GPUSNAP_U8, 3, zero_first, &bytes, &err));
	ck_assert_uint_eq(bytes, 0);
	ck_fails(gpusnap_dtype_tensor_bytes(GPUSNAP_U8, 3, zero_last, &bytes, &err),
		GPUSNAP_E_FORMAT, "overflows 64 bits at dimension 1 of 3");
	ck_ok(gpusnap_dtype_tensor_bytes(GPUSNAP_U8, 1, most, &bytes, &err));
	ck_assert_uint_eq(bytes, UINT64_MAX / 8);
	ck_fails(gpusnap_dtype_tensor_bytes(GPUSNAP_U8, 1, more, &bytes, &err), GPUSNAP_E_FORMAT,
		"overflow 64 bits");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		there_are_22_dtypes_and_each_name_leads_back,
		widths_are_those_of_the_format,
		other_spellings_are_refused_and_the_right_one_is_named,
		bytes_of_a_tensor_are_elements_times_width,
		parts_of_a_byte_are_refused,
		products_overflow_from_left_to_right,
	};

	return RUN_SUITE("dtype_rules", tests);
}
