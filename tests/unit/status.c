/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "tests/support/suite.h"

START_TEST(every_status_has_a_name_that_leads_back)
{
#define CHECK_STATUS(name, number, exit_status, text)                                              \
	ck_assert_int_eq(gpusnap_status_from_name(#name), GPUSNAP_##name);                         \
	ck_assert_str_eq(gpusnap_status_name((gpusnap_status)(number)), #name);                    \
	ck_assert_str_eq(gpusnap_status_text(GPUSNAP_##name), text);                               \
	ck_assert_int_eq(gpusnap_status_exit(GPUSNAP_##name), exit_status);
	GPUSNAP_STATUS_MAP(CHECK_STATUS)
#undef CHECK_STATUS
	ck_assert_str_eq(gpusnap_status_name((gpusnap_status)-99), "E_UNKNOWN");
	ck_assert_int_eq(gpusnap_status_from_name("nonsense"), GPUSNAP_E_INVALID);
}
END_TEST

START_TEST(failure_records_message_and_offset)
{
	gpusnap_error err;

	ck_fails(gsn_fail_at(&err, GPUSNAP_E_FORMAT, 4096, "leaf %d", 3), GPUSNAP_E_FORMAT,
		"leaf 3");
	ck_assert_uint_eq(err.offset, 4096);
	gsn_error_prefix(&err, "buffer '%s'", "w13");
	ck_assert_str_eq(err.message, "buffer 'w13': leaf 3");
	ck_assert_int_eq(gsn_fail(NULL, GPUSNAP_E_IO, "nobody listens"), GPUSNAP_E_IO);
}
END_TEST

START_TEST(options_refuse_unknown_bytes_and_accept_shorter_structs)
{
	struct small {
		size_t struct_size;
		int a;
	} small = {sizeof small, 7}, known;
	struct large {
		struct small base;
		uint64_t later;
	} large = {{sizeof large, 8}, 0};
	gpusnap_error err;

	ck_ok(gsn_options_copy(&known, sizeof known, &small, "test", &err));
	ck_assert_int_eq(known.a, 7);
	ck_ok(gsn_options_copy(&known, sizeof known, &large, "test", &err));
	ck_assert_int_eq(known.a, 8);
	large.later = 1;
	ck_fails(gsn_options_copy(&known, sizeof known, &large, "test", &err),
		GPUSNAP_E_UNSUPPORTED, "byte 16 is set");
	small.struct_size = 0;
	ck_fails(gsn_options_copy(&known, sizeof known, &small, "test", &err), GPUSNAP_E_INVALID,
		"struct_size is 0");
	ck_ok(gsn_options_copy(&known, sizeof known, NULL, "test", &err));
	ck_assert_int_eq(known.a, 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_status_has_a_name_that_leads_back,
		failure_records_message_and_offset,
		options_refuse_unknown_bytes_and_accept_shorter_structs,
	};

	return RUN_SUITE("status", tests);
}
