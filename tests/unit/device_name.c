/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <gpusnap/device.h>

#include "kernels/device_ops.h"
#include "tests/support/suite.h"

START_TEST(host_is_always_there_and_describes_itself)
{
	gpusnap_device_properties properties;
	gpusnap_device *device;
	gpusnap_error err;

	ck_ok(gpusnap_device_open("host", &device, &err));
	ck_ok(gpusnap_device_query(device, &properties, &err));
	ck_assert_str_eq(properties.name, "host");
	ck_assert_msg(strstr(properties.description, "CPU") != NULL, "%s", properties.description);
	ck_assert_uint_gt(properties.memory_bytes, 0);
	ck_assert_uint_gt(properties.free_bytes, 0);
	ck_assert_uint_le(properties.free_bytes, properties.memory_bytes);
	ck_assert_uint_gt(properties.granule_bytes, 0);
	gpusnap_device_close(device);
	gpusnap_device_close(NULL);
}
END_TEST

START_TEST(every_other_spelling_is_refused_and_quoted)
{
	static const char *const names[] = {"", "Host", "host:0", "host ", " host", "cuda",
		"cuda:", "cuda:-1", "cuda:+1", "cuda:01", "cuda:0 ", "cuda: 0", "cuda:0x1",
		"cuda:10000", "cuda:18446744073709551616", "cudax:0", "hip", "hip:", "rocm:0",
		"gpu", "0"};
	gpusnap_device *device = NULL;
	gpusnap_error err;
	char quoted[80];

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		(void)snprintf(quoted, sizeof quoted, "'%s'", names[i]);
		ck_fails(gpusnap_device_open(names[i], &device, &err), GPUSNAP_E_INVALID, quoted);
	}
	ck_fails(gpusnap_device_open(NULL, &device, &err), GPUSNAP_E_INVALID, "name is NULL");
	ck_fails(gpusnap_device_open("host", NULL, &err), GPUSNAP_E_INVALID, "out is NULL");
	ck_assert_ptr_null(device);
}
END_TEST

START_TEST(a_kind_without_its_module_is_an_answer_that_names_the_module)
{
	gpusnap_device *device = NULL;
	gpusnap_error err;

	ck_fails(gpusnap_device_open("cuda:0", &device, &err), GPUSNAP_E_NODEV,
		"libgpusnap-cuda.so");
	ck_fails(gpusnap_device_open("hip:9999", &device, &err), GPUSNAP_E_NODEV,
		"libgpusnap-hip.so");
	ck_assert_ptr_null(device);
}
END_TEST

START_TEST(kinds_are_listed_host_first)
{
	const struct gsn_device_ops *ops;
	gpusnap_error err;
	uint32_t count;

	ck_assert_str_eq(gsn_device_kind_name(0), "host");
	ck_assert_str_eq(gsn_device_kind_name(1), "cuda");
	ck_assert_str_eq(gsn_device_kind_name(2), "hip");
	ck_assert_ptr_null(gsn_device_kind_name(3));
	ck_ok(gsn_device_kind_open("host", &ops, &err));
	ck_ok(ops->count(&count, &err));
	ck_assert_uint_eq(count, 1);
	ck_fails(gsn_device_kind_open("hip", &ops, &err), GPUSNAP_E_NODEV, "libgpusnap-hip.so");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		host_is_always_there_and_describes_itself,
		every_other_spelling_is_refused_and_quoted,
		a_kind_without_its_module_is_an_answer_that_names_the_module,
		kinds_are_listed_host_first,
	};

	return RUN_SUITE("device_name", tests);
}
