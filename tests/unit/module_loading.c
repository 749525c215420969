/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading of device modules, with modules made for this test. The program lies in a folder of its
 * own, with a whole libgpusnap-cuda.so and a libgpusnap-hip.so that is a text file beside it.
 */
#include <stdio.h>
#include <string.h>

#include <gpusnap/device.h>

#include "tests/support/suite.h"

#include "kernels/device_module.h"

#define MODULE(name) GPUSNAP_TEST_MODULES "/" name ".so"

START_TEST(a_module_beside_the_program_is_found_and_opened)
{
	gpusnap_device *device = NULL;
	gpusnap_error err;

	ck_ok(gpusnap_device_open("cuda:1", &device, &err));
	ck_assert_str_eq(device->name, "cuda:1");
	ck_assert_str_eq(device->ops->kind, "cuda");
	ck_assert_uint_eq(device->index, 1);
	gpusnap_device_close(device);
	device = NULL;
	ck_fails(gpusnap_device_open("cuda:2", &device, &err), GPUSNAP_E_NODEV,
		"'cuda:2': this machine has 2 'cuda' devices");
	ck_assert_ptr_null(device);
}
END_TEST

START_TEST(a_module_that_does_not_load_is_an_answer_with_the_reason)
{
	gpusnap_device *device = NULL;
	gpusnap_error err;

	ck_fails(gpusnap_device_open("hip:0", &device, &err), GPUSNAP_E_NODEV,
		"libgpusnap-hip.so: file too short");
	ck_assert_ptr_null(device);
}
END_TEST

START_TEST(a_faulty_module_is_refused_by_what_is_wrong_with_it)
{
	const struct gsn_device_ops *ops = NULL;
	gpusnap_error err;
	char wanted[64];

	(void)snprintf(wanted, sizeof wanted, "has ABI 4711, this build needs %u;", GSN_DEVICE_ABI);
	ck_fails(gsn_device_module_load(MODULE("fake-abi"), "cuda", &ops, &err),
		GPUSNAP_E_UNSUPPORTED, wanted);
	ck_fails(gsn_device_module_load(MODULE("fake-slots"), "cuda", &ops, &err),
		GPUSNAP_E_UNSUPPORTED, "does not provide 'query'");
	ck_fails(gsn_device_module_load(MODULE("fake-symbol"), "cuda", &ops, &err),
		GPUSNAP_E_UNSUPPORTED, "no symbol 'gpusnap_device_module'");
	ck_fails(gsn_device_module_load(MODULE("libgpusnap-cuda"), "hip", &ops, &err),
		GPUSNAP_E_UNSUPPORTED, "is for 'cuda', not for 'hip'");
	ck_fails(gsn_device_module_load(MODULE("fake-none"), "cuda", &ops, &err), GPUSNAP_E_NODEV,
		"fake-none.so");
	ck_assert_ptr_null(ops);
	ck_ok(gsn_device_module_load(MODULE("libgpusnap-cuda"), "cuda", &ops, &err));
	ck_assert_str_eq(ops->kind, "cuda");
}
END_TEST

START_TEST(the_host_table_is_whole)
{
	const struct gsn_device_ops *ops;
	gpusnap_error err;

	ck_ok(gsn_device_kind_open("host", &ops, &err));
	ck_ok(gsn_device_table_check(ops, "host", "host", &err));
}
END_TEST

START_TEST(a_table_without_any_one_of_its_slots_is_refused)
{
	enum { SLOT_BYTES = sizeof(void (*)(void)) };
	const struct gsn_device_ops *host;
	gpusnap_error err;

	ck_ok(gsn_device_kind_open("host", &host, &err));
	for (size_t at = offsetof(struct gsn_device_ops, count); at < sizeof *host;
		at += SLOT_BYTES) {
		struct gsn_device_ops table = *host;

		memset((char *)&table + at, 0, SLOT_BYTES);
		ck_fails(gsn_device_table_check(&table, "host", "made up", &err),
			GPUSNAP_E_UNSUPPORTED, "'made up' does not provide '");
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_module_beside_the_program_is_found_and_opened,
		a_module_that_does_not_load_is_an_answer_with_the_reason,
		a_faulty_module_is_refused_by_what_is_wrong_with_it,
		the_host_table_is_whole,
		a_table_without_any_one_of_its_slots_is_refused,
	};

	return RUN_SUITE("module_loading", tests);
}
