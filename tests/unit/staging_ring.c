/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of staging rings: pinned once, kept for the next ring, given back in the end. */
#include "snapshot/staging.h"

#include <string.h>

#include "tests/support/faulty_device.h"
#include "tests/support/suite.h"

enum { BLOCK = 1 << 20, EXTRA = 2 };

static gpusnap_error err;

static void open_ring(struct gsn_staging *staging, struct gsn_staging_source *source,
	uint32_t depth, uint64_t block_bytes)
{
	gpusnap_io_options io = {.depth = depth, .block_bytes = block_bytes};

	*staging = (struct gsn_staging)GSN_STAGING_INIT;
	ck_ok(gsn_staging_open(staging, source, &io, EXTRA, UINT64_C(1) << 40, &err));
}

START_TEST(what_one_ring_gives_back_serves_the_next)
{
	struct gsn_staging_source source = {NULL};
	struct faulty_device faulty;
	struct gsn_staging staging;
	uint8_t *memory;

	faulty_open(&faulty, test_device());
	source.device = &faulty.device;
	open_ring(&staging, &source, 8, BLOCK);
	memory = staging.memory;
	ck_assert_ptr_null(source.kept);
	gsn_staging_close(&staging);
	ck_assert_ptr_eq(source.kept, memory);

	open_ring(&staging, &source, 2, BLOCK);
	ck_assert_ptr_eq(staging.memory, memory);
	ck_assert_uint_eq(gsn_staging_bytes(&staging), (2 + EXTRA) * (uint64_t)BLOCK);
	gsn_staging_close(&staging);
	ck_assert_uint_eq(source.kept_bytes, (8 + EXTRA) * (uint64_t)BLOCK);
	ck_assert_uint_eq(faulty.pinned_blocks, 1);

	gsn_staging_source_release(&source);
	ck_assert_uint_eq(faulty.pinned_blocks, 0);
	faulty_close(&faulty);
}
END_TEST

START_TEST(a_larger_ring_takes_its_place_and_a_very_large_one_is_not_kept)
{
	struct gsn_staging_source source = {NULL};
	struct faulty_device faulty;
	struct gsn_staging staging;

	faulty_open(&faulty, test_device());
	source.device = &faulty.device;
	open_ring(&staging, &source, 2, BLOCK);
	gsn_staging_close(&staging);
	open_ring(&staging, &source, 8, BLOCK);
	ck_assert_uint_eq(faulty.pinned_blocks, 1);
	gsn_staging_close(&staging);
	ck_assert_uint_eq(source.kept_bytes, (8 + EXTRA) * (uint64_t)BLOCK);

	open_ring(&staging, &source, 1024, BLOCK);
	ck_assert_uint_le(gsn_staging_bytes(&staging), GSN_STAGING_BYTES_MAX);
	gsn_staging_close(&staging);
	ck_assert_ptr_null(source.kept);
	ck_assert_uint_eq(faulty.pinned_blocks, 0);
	faulty_close(&faulty);
}
END_TEST

START_TEST(no_memory_leaves_nothing_behind)
{
	gpusnap_io_options io = {.depth = 8, .block_bytes = BLOCK};
	struct gsn_staging staging = GSN_STAGING_INIT;
	struct gsn_staging_source source = {NULL};
	struct faulty_device faulty;

	faulty_open(&faulty, test_device());
	source.device = &faulty.device;
	faulty_arm(&faulty, FAULTY_ANY, 1, GPUSNAP_E_NOMEM);
	ck_status(gsn_staging_open(&staging, &source, &io, EXTRA, UINT64_C(1) << 40, &err),
		GPUSNAP_E_NOMEM);
	gsn_staging_close(&staging);
	ck_assert_ptr_null(source.kept);
	faulty_close(&faulty);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		what_one_ring_gives_back_serves_the_next,
		a_larger_ring_takes_its_place_and_a_very_large_one_is_not_kept,
		no_memory_leaves_nothing_behind,
	};

	return RUN_SUITE("staging_ring", tests);
}
