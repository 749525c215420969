/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges: every byte of every region once, under the right name and policy. */
#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "snapshot/ranges.h"
#include "tests/support/suite.h"

struct fixture {
	gpusnap_device *device;
	gpusnap_registry *registry;
};

static struct fixture open_fixture(void)
{
	struct fixture f;
	gpusnap_error err;

	ck_ok(gpusnap_device_open("host", &f.device, &err));
	ck_ok(gpusnap_registry_create(f.device, NULL, &f.registry, &err));
	return f;
}

static void close_fixture(struct fixture *f)
{
	gpusnap_registry_free(f->registry);
	gpusnap_device_close(f->device);
}

static uint32_t adopt(struct fixture *f, void *memory, uint64_t bytes, gpusnap_policy policy,
	gpusnap_policy unclaimed)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;
	uint32_t id;

	options.tag = "memory";
	options.policy = policy;
	options.unclaimed_set = true;
	options.unclaimed = unclaimed;
	ck_ok(gpusnap_region_adopt(f->registry, (uintptr_t)memory, bytes, &options, &id, &err));
	return id;
}

static void name_bytes(
	struct fixture *f, uint32_t region, const char *name, uint64_t offset, uint64_t size)
{
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_error err;

	options.name = name;
	options.dtype = GPUSNAP_U8;
	options.rank = 1;
	options.shape = &size;
	options.region = region;
	options.offset = offset;
	ck_ok(gpusnap_buffer_register(f->registry, &options, &err));
}

static size_t cut(struct fixture *f, struct gsn_range **ret_ranges)
{
	gpusnap_error err;
	size_t count;

	ck_ok(gsn_registry_ranges(f->registry, ret_ranges, &count, &err));
	return count;
}

static void expect(const struct gsn_range *range, const char *name, uint64_t offset, uint64_t bytes,
	gpusnap_policy policy)
{
	ck_assert_str_eq(gsn_range_name(range), name);
	ck_assert_uint_eq(range->offset, offset);
	ck_assert_uint_eq(range->bytes, bytes);
	ck_assert_int_eq(range->policy, policy);
	ck_assert_uint_eq(gsn_range_address(range), range->region->address + offset);
}

START_TEST(empty_registry_has_no_ranges)
{
	struct fixture f = open_fixture();
	struct gsn_range *ranges;

	ck_assert_uint_eq(cut(&f, &ranges), 0);
	gsn_free(ranges);
	close_fixture(&f);
}
END_TEST

START_TEST(gaps_get_reserved_names_and_the_unclaimed_policy)
{
	struct fixture f = open_fixture();
	static uint8_t memory[2][1000];
	uint32_t first = adopt(&f, memory[0], 1000, GPUSNAP_POLICY_KEEP, GPUSNAP_POLICY_ZERO);
	uint32_t second = adopt(&f, memory[1], 1000, GPUSNAP_POLICY_DISCARD, GPUSNAP_POLICY_KEEP);
	struct gsn_range *r;

	name_bytes(&f, first, "b", 500, 500);
	name_bytes(&f, second, "c", 0, 1000);
	name_bytes(&f, first, "a", 100, 10);
	ck_assert_uint_eq(cut(&f, &r), 5);
	expect(&r[0], "gpusnap.raw/1/0", 0, 100, GPUSNAP_POLICY_ZERO);
	expect(&r[1], "a", 100, 10, GPUSNAP_POLICY_KEEP);
	expect(&r[2], "gpusnap.raw/1/110", 110, 390, GPUSNAP_POLICY_ZERO);
	expect(&r[3], "b", 500, 500, GPUSNAP_POLICY_KEEP);
	expect(&r[4], "c", 0, 1000, GPUSNAP_POLICY_DISCARD);
	gsn_free(r);
	close_fixture(&f);
}
END_TEST

START_TEST(region_without_buffers_is_one_raw_range)
{
	struct fixture f = open_fixture();
	static uint8_t memory[64];
	struct gsn_range *r;

	(void)adopt(&f, memory, 64, GPUSNAP_POLICY_DISCARD, GPUSNAP_POLICY_KEEP);
	ck_assert_uint_eq(cut(&f, &r), 1);
	expect(&r[0], "gpusnap.raw/1/0", 0, 64, GPUSNAP_POLICY_KEEP);
	gsn_free(r);
	close_fixture(&f);
}
END_TEST

START_TEST(empty_buffers_are_listed_and_open_no_gap)
{
	struct fixture f = open_fixture();
	static uint8_t memory[64];
	uint32_t id = adopt(&f, memory, 64, GPUSNAP_POLICY_KEEP, GPUSNAP_POLICY_KEEP);
	struct gsn_range *r;

	name_bytes(&f, id, "whole", 0, 64);
	name_bytes(&f, id, "front", 0, 0);
	name_bytes(&f, id, "middle", 32, 0);
	name_bytes(&f, id, "end", 64, 0);
	ck_assert_uint_eq(cut(&f, &r), 4);
	expect(&r[0], "front", 0, 0, GPUSNAP_POLICY_KEEP);
	expect(&r[1], "whole", 0, 64, GPUSNAP_POLICY_KEEP);
	expect(&r[2], "middle", 32, 0, GPUSNAP_POLICY_KEEP);
	expect(&r[3], "end", 64, 0, GPUSNAP_POLICY_KEEP);
	gsn_free(r);
	close_fixture(&f);
}
END_TEST

/* A linear congruential generator is enough to place buffers; the seed is fixed. */
static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

START_TEST(any_layout_covers_every_byte_once)
{
	enum { BYTES = 5000, REGIONS = 3 };
	static uint8_t memory[REGIONS][BYTES];
	uint32_t random = 12345;

	for (int round = 0; round < 50; round++) {
		struct fixture f = open_fixture();
		struct gsn_range *r;
		uint64_t unclaimed[REGIONS] = {0};
		size_t count, at = 0;
		char name[32];

		for (int i = 0; i < REGIONS; i++)
			(void)adopt(&f, memory[i], BYTES, GPUSNAP_POLICY_KEEP, GPUSNAP_POLICY_KEEP);
		for (int i = 0; i < 60; i++) {
			gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
			uint64_t size = next_random(&random) % 300;

			(void)snprintf(name, sizeof name, "b%d", i);
			options.name = name;
			options.dtype = GPUSNAP_U8;
			options.rank = 1;
			options.shape = &size;
			options.region = 1 + next_random(&random) % REGIONS;
			options.offset = next_random(&random) % BYTES;
			/* Some overlap or leave the region: refused, and that is all right. */
			if (gpusnap_buffer_register(f.registry, &options, NULL))
				continue;
		}
		count = cut(&f, &r);
		for (uint32_t i = 0; i < REGIONS; i++) {
			gpusnap_region_info info;
			uint64_t end = 0;
			gpusnap_error err;

			for (; at < count && r[at].region->id == i + 1; at++) {
				if (r[at].bytes == 0)
					continue;
				ck_assert_uint_eq(r[at].offset, end);
				end += r[at].bytes;
				unclaimed[i] += r[at].buffer ? 0 : r[at].bytes;
			}
			ck_assert_uint_eq(end, BYTES);
			ck_ok(gpusnap_region_at(f.registry, i, &info, &err));
			ck_assert_uint_eq(info.unclaimed_bytes, unclaimed[i]);
		}
		ck_assert_uint_eq(at, count);
		gsn_free(r);
		close_fixture(&f);
	}
}
END_TEST

START_TEST(digests_of_many_ranges_come_one_after_the_other)
{
	enum { BYTES = 200000 };
	struct fixture f = open_fixture();
	static uint8_t memory[BYTES];
	uint32_t id = adopt(&f, memory, BYTES, GPUSNAP_POLICY_KEEP, GPUSNAP_POLICY_KEEP);
	gpusnap_digest leaves[6];
	gpusnap_error err;
	struct gsn_range *r;
	size_t leaf = 0;

	for (size_t i = 0; i < BYTES; i++)
		memory[i] = (uint8_t)(i * 7 + i / 251);
	name_bytes(&f, id, "a", 10, 65536);
	name_bytes(&f, id, "none", 70000, 0);
	name_bytes(&f, id, "b", 70000, 65537);
	ck_assert_uint_eq(cut(&f, &r), 6);
	ck_assert_uint_eq(gsn_ranges_leaf_count(r, 6), 6);
	ck_ok(gsn_ranges_digest(f.registry, r, 6, leaves, &err));
	for (size_t i = 0; i < 6; i++)
		for (uint64_t at = 0; at < r[i].bytes; at += GPUSNAP_LEAF_BYTES, leaf++) {
			uint64_t rest = r[i].bytes - at;
			gpusnap_digest want = gpusnap_digest_of(memory + r[i].offset + at,
				rest < GPUSNAP_LEAF_BYTES ? rest : GPUSNAP_LEAF_BYTES);

			ck_assert_mem_eq(&leaves[leaf], &want, sizeof want);
		}
	ck_assert_uint_eq(leaf, 6);
	gsn_free(r);
	close_fixture(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		empty_registry_has_no_ranges,
		gaps_get_reserved_names_and_the_unclaimed_policy,
		region_without_buffers_is_one_raw_range,
		empty_buffers_are_listed_and_open_no_gap,
		any_layout_covers_every_byte_once,
		digests_of_many_ranges_come_one_after_the_other,
	};

	return RUN_SUITE("range_layout", tests);
}
