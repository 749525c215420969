/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's words, policies and roles, and the names of raw ranges. */
#include <string.h>

#include <gpusnap/plan.h>

#include "tests/support/suite.h"

static gpusnap_error err;

START_TEST(raw_names_are_parsed_exactly)
{
	static const char *const wrong[] = {"", "gpusnap.raw", "gpusnap.raw/", "gpusnap.raw/1",
		"gpusnap.raw/1/", "gpusnap.raw//1", "gpusnap.raw/1/-1", "gpusnap.raw/1/+1",
		"gpusnap.raw/1/ 1", "gpusnap.raw/00/1", "gpusnap.raw/1/01", "gpusnap.raw/1/1x",
		"gpusnap.raw/4294967296/1", "gpusnap.raw/1/18446744073709551616",
		"xgpusnap.raw/1/1"};
	uint32_t region = 5;
	uint64_t offset = 6;

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		ck_assert(!gpusnap_raw_name_parse(wrong[i], &region, &offset));
	ck_assert_uint_eq(region, 5);
	ck_assert_uint_eq(offset, 6);
	ck_assert(gpusnap_raw_name_parse("gpusnap.raw/0/0", &region, &offset));
	ck_assert(region == 0 && offset == 0);
	ck_assert(gpusnap_raw_name_parse(
		"gpusnap.raw/4294967295/18446744073709551615", &region, &offset));
	ck_assert(region == UINT32_MAX && offset == UINT64_MAX);
}
END_TEST

START_TEST(words_are_spelled_and_parsed)
{
	gpusnap_policy policy;
	gpusnap_role role;

#define CHECK_POLICY(name, constant)                                                               \
	ck_assert_str_eq(gpusnap_policy_name(GPUSNAP_POLICY_##constant), #name);                   \
	ck_ok(gpusnap_policy_parse(#name, &policy, &err));                                         \
	ck_assert_int_eq((int)policy, GPUSNAP_POLICY_##constant);
	GPUSNAP_POLICY_MAP(CHECK_POLICY)
#undef CHECK_POLICY
#define CHECK_ROLE(name, constant)                                                                 \
	ck_assert_str_eq(gpusnap_role_name(GPUSNAP_ROLE_##constant), #name);                       \
	ck_ok(gpusnap_role_parse(#name, &role, &err));                                             \
	ck_assert_int_eq((int)role, GPUSNAP_ROLE_##constant);
	GPUSNAP_ROLE_MAP(CHECK_ROLE)
#undef CHECK_ROLE
	ck_fails(gpusnap_policy_parse("Keep", &policy, &err), GPUSNAP_E_FORMAT, "'Keep'");
	ck_fails(gpusnap_role_parse("", &role, &err), GPUSNAP_E_FORMAT, "role ''");
	ck_assert_str_eq(gpusnap_policy_name((gpusnap_policy)99), "unknown");
	ck_assert_str_eq(gpusnap_role_name((gpusnap_role)99), "unknown");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		raw_names_are_parsed_exactly,
		words_are_spelled_and_parsed,
	};

	return RUN_SUITE("plan_words", tests);
}
