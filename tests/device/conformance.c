/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every device kind must do, through its table only. The device's name is the argument; a
 * device that is not there is a skip.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/device_calls.h"
#include "tests/device/support.h"

START_TEST(mapped_memory_is_zero_and_unmapping_loses_it)
{
	struct fixture f = open_fixture();
	gpusnap_address at = reserve(&f, 4);
	uint64_t bytes = 4 * f.granule;
	gpusnap_error err;

	map(&f, at, 4);
	ck_assert_filled(&f, at, bytes, 0);
	ck_ok(gsn_device_fill_sync(f.device, at, 0xa5, bytes, &err));
	ck_assert_filled(&f, at, bytes, 0xa5);
	unmap(&f, at, 4);
	map(&f, at, 4);
	ck_assert_filled(&f, at, bytes, 0);
	unmap(&f, at, 4);
	f.ops->release(f.context, at, bytes);
	close_fixture(&f);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		mapped_memory_is_zero_and_unmapping_loses_it,
	};

	choose_device(argc, argv);
	return RUN_SUITE("conformance", tests);
}
