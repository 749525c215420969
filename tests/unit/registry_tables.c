/* SPDX-License-Identifier: Apache-2.0 */
/* Regions, buffers, views and records: what may be registered, what is found, what is refused. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <gpusnap/registry.h>

#include "snapshot/registry_state.h"
#include "tests/support/suite.h"

enum { MIB = 1 << 20 };

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

static uint32_t reserve(struct fixture *f, const char *tag, uint64_t bytes)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;
	uint32_t id;

	options.tag = tag;
	ck_ok(gpusnap_region_reserve(f->registry, bytes, &options, &id, &err));
	return id;
}

static gpusnap_buffer_options bytes_at(
	uint32_t region, const char *name, uint64_t offset, const uint64_t *size)
{
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;

	options.name = name;
	options.dtype = GPUSNAP_U8;
	options.rank = 1;
	options.shape = size;
	options.region = region;
	options.offset = offset;
	return options;
}

static void name_bytes(
	struct fixture *f, uint32_t region, const char *name, uint64_t offset, uint64_t size)
{
	gpusnap_buffer_options options = bytes_at(region, name, offset, &size);
	gpusnap_error err;

	ck_ok(gpusnap_buffer_register(f->registry, &options, &err));
}

static gpusnap_status try_name(struct fixture *f, uint32_t region, const char *name,
	uint64_t offset, uint64_t size, gpusnap_error *err)
{
	gpusnap_buffer_options options = bytes_at(region, name, offset, &size);

	return gpusnap_buffer_register(f->registry, &options, err);
}

START_TEST(ranks_are_checked_against_their_sizes)
{
	gpusnap_registry_options options = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_registry *registry;
	gpusnap_device *device;
	gpusnap_error err;

	ck_ok(gpusnap_device_open("host", &device, &err));
	options.ep_rank = 4;
	options.ep_size = 4;
	ck_fails(gpusnap_registry_create(device, &options, &registry, &err), GPUSNAP_E_INVALID,
		"ep_rank is 4 but ep_size is 4");
	options.ep_rank = 3;
	options.tp_rank = 1;
	ck_fails(gpusnap_registry_create(device, &options, &registry, &err), GPUSNAP_E_INVALID,
		"tp_rank is 1 but tp_size is 1");
	options.tp_rank = 0;
	ck_ok(gpusnap_registry_create(device, &options, &registry, &err));
	ck_assert_ptr_eq(gpusnap_registry_device(registry), device);
	ck_assert_uint_eq(registry->options.tp_size, 1);
	gpusnap_registry_free(registry);
	gpusnap_registry_free(NULL);
	gpusnap_device_close(device);
}
END_TEST

START_TEST(reserved_region_is_rounded_zeroed_and_unclaimed)
{
	struct fixture f = open_fixture();
	gpusnap_device_properties properties;
	gpusnap_region_info info;
	gpusnap_error err;
	uint32_t id = reserve(&f, "weights", 5);
	const uint8_t *bytes;

	ck_ok(gpusnap_device_query(f.device, &properties, &err));
	ck_ok(gpusnap_region_get(f.registry, id, &info, &err));
	ck_assert_uint_eq(info.id, 1);
	ck_assert_str_eq(info.tag, "weights");
	ck_assert_uint_eq(info.bytes, properties.granule_bytes);
	ck_assert_uint_eq(info.resident_bytes, info.bytes);
	ck_assert_uint_eq(info.unclaimed_bytes, info.bytes);
	ck_assert_int_eq(info.state, GPUSNAP_REGION_RESIDENT);
	ck_assert_int_eq(info.policy, GPUSNAP_POLICY_KEEP);
	ck_assert_int_eq(info.unclaimed, GPUSNAP_POLICY_KEEP);
	ck_assert(info.managed);
	ck_assert_ptr_null(info.backing);
	bytes = (const uint8_t *)(uintptr_t)info.address;
	for (uint64_t i = 0; i < info.bytes; i++)
		ck_assert_uint_eq(bytes[i], 0);
	close_fixture(&f);
}
END_TEST

START_TEST(region_options_are_checked)
{
	struct fixture f = open_fixture();
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;
	uint32_t id = 77;

	ck_fails(gpusnap_region_reserve(f.registry, 1, &options, &id, &err), GPUSNAP_E_INVALID,
		"a region needs a name");
	options.tag = "w";
	ck_fails(gpusnap_region_reserve(f.registry, 0, &options, &id, &err), GPUSNAP_E_INVALID,
		"region 'w': size is 0");
	ck_fails(gpusnap_region_reserve(f.registry, UINT64_MAX, &options, &id, &err),
		GPUSNAP_E_INVALID, "overflow");
	options.policy = (gpusnap_policy)9;
	ck_fails(gpusnap_region_reserve(f.registry, 1, &options, &id, &err), GPUSNAP_E_INVALID,
		"policy 9 is none of");
	options.policy = GPUSNAP_POLICY_KEEP;
	options.unclaimed_set = true;
	options.unclaimed = (gpusnap_policy)8;
	ck_fails(gpusnap_region_reserve(f.registry, 1, &options, &id, &err), GPUSNAP_E_INVALID,
		"unclaimed policy 8");
	ck_assert_uint_eq(id, 77);
	ck_assert_uint_eq(gpusnap_region_count(f.registry), 0);
	close_fixture(&f);
}
END_TEST

START_TEST(unclaimed_policy_follows_the_policy_unless_set)
{
	struct fixture f = open_fixture();
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_region_info info;
	gpusnap_error err;
	uint32_t id;

	options.tag = "kv";
	options.policy = GPUSNAP_POLICY_DISCARD;
	ck_ok(gpusnap_region_reserve(f.registry, 1, &options, &id, &err));
	ck_ok(gpusnap_region_get(f.registry, id, &info, &err));
	ck_assert_int_eq(info.unclaimed, GPUSNAP_POLICY_DISCARD);
	options.unclaimed_set = true;
	options.unclaimed = GPUSNAP_POLICY_KEEP;
	ck_ok(gpusnap_region_reserve(f.registry, 1, &options, &id, &err));
	ck_ok(gpusnap_region_get(f.registry, id, &info, &err));
	ck_assert_int_eq(info.policy, GPUSNAP_POLICY_DISCARD);
	ck_assert_int_eq(info.unclaimed, GPUSNAP_POLICY_KEEP);
	close_fixture(&f);
}
END_TEST

START_TEST(adopted_regions_may_not_overlap_and_are_left_alone)
{
	struct fixture f = open_fixture();
	static uint8_t memory[4096];
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_address at = (gpusnap_address)(uintptr_t)memory;
	gpusnap_region_info info;
	gpusnap_error err;
	uint32_t first, second;
	uint64_t offset;

	memset(memory, 7, sizeof memory);
	options.tag = "mine";
	ck_ok(gpusnap_region_adopt(f.registry, at + 100, 1000, &options, &first, &err));
	ck_ok(gpusnap_region_get(f.registry, first, &info, &err));
	ck_assert(!info.managed);
	ck_assert_uint_eq(info.bytes, 1000);
	options.tag = "other";
	ck_fails(gpusnap_region_adopt(f.registry, at, 101, &options, &second, &err),
		GPUSNAP_E_INVALID, "region 'other' [0x");
	ck_assert_ptr_nonnull(strstr(err.message, "overlaps region 1 'mine'"));
	ck_fails(gpusnap_region_adopt(f.registry, at + 1099, 1, &options, &second, &err),
		GPUSNAP_E_INVALID, "overlaps region 1 'mine'");
	ck_fails(gpusnap_region_adopt(f.registry, 0, 1, &options, &second, &err), GPUSNAP_E_INVALID,
		"no memory can lie at 0x0");
	ck_fails(gpusnap_region_adopt(f.registry, UINT64_MAX, 2, &options, &second, &err),
		GPUSNAP_E_INVALID, "no memory can lie");
	ck_ok(gpusnap_region_adopt(f.registry, at, 100, &options, &second, &err));
	ck_ok(gpusnap_region_adopt(f.registry, at + 1100, 1, &options, &second, &err));
	ck_fails(gpusnap_region_alloc(f.registry, first, 8, 0, &offset, &err), GPUSNAP_E_INVALID,
		"adopted");
	ck_ok(gpusnap_region_free(f.registry, first, &err));
	close_fixture(&f);
	for (size_t i = 0; i < sizeof memory; i++)
		ck_assert_uint_eq(memory[i], 7);
}
END_TEST

START_TEST(alloc_hands_out_bytes_in_order_and_never_named_ones)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", MIB);
	gpusnap_region_info info;
	gpusnap_error err;
	uint64_t offset;

	ck_ok(gpusnap_region_get(f.registry, id, &info, &err));
	ck_ok(gpusnap_region_alloc(f.registry, id, 10, 0, &offset, &err));
	ck_assert_uint_eq(offset, 0);
	ck_ok(gpusnap_region_alloc(f.registry, id, 10, 1, &offset, &err));
	ck_assert_uint_eq(offset, 10);
	ck_ok(gpusnap_region_alloc(f.registry, id, 10, 4096, &offset, &err));
	ck_assert_uint_eq(offset, 4096);
	name_bytes(&f, id, "far", 8192, 100);
	ck_ok(gpusnap_region_alloc(f.registry, id, 1, 1, &offset, &err));
	ck_assert_uint_eq(offset, 8292);
	ck_fails(gpusnap_region_alloc(f.registry, id, 8, 3, &offset, &err), GPUSNAP_E_INVALID,
		"alignment 3 is no power of two");
	ck_fails(gpusnap_region_alloc(f.registry, id, info.bytes, 1, &offset, &err),
		GPUSNAP_E_LIMIT, "is full: 8293 of");
	ck_fails(gpusnap_region_alloc(f.registry, id, UINT64_MAX, 1, &offset, &err),
		GPUSNAP_E_LIMIT, "is full");
	ck_ok(gpusnap_region_alloc(f.registry, id, info.bytes - 8293, 1, &offset, &err));
	ck_fails(gpusnap_region_alloc(f.registry, id, 1, 1, &offset, &err), GPUSNAP_E_LIMIT,
		"is full");
	ck_fails(gpusnap_region_alloc(f.registry, 9, 1, 1, &offset, &err), GPUSNAP_E_INVALID,
		"no region has id 9");
	close_fixture(&f);
}
END_TEST

START_TEST(overlap_is_refused_with_both_names_and_ranges)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", MIB);
	uint32_t other = reserve(&f, "v", MIB);
	static const uint64_t clash[][2] = {
		{99, 2}, {100, 1}, {100, 50}, {149, 1}, {120, 5}, {0, 1000}, {149, 100}};
	gpusnap_error err;

	name_bytes(&f, id, "a", 100, 50);
	for (size_t i = 0; i < sizeof clash / sizeof clash[0]; i++) {
		char range[64];

		(void)snprintf(range, sizeof range,
			"buffer 'b' [%" PRIu64 ", %" PRIu64 ") overlaps", clash[i][0],
			clash[i][0] + clash[i][1]);
		ck_fails(try_name(&f, id, "b", clash[i][0], clash[i][1], &err), GPUSNAP_E_INVALID,
			range);
		ck_assert_ptr_nonnull(strstr(err.message, "buffer 'a' [100, 150) in region 1"));
	}
	name_bytes(&f, id, "before", 0, 100);
	name_bytes(&f, id, "after", 150, 1);
	name_bytes(&f, other, "same place, other region", 100, 50);
	name_bytes(&f, id, "empty", 120, 0);
	ck_assert_uint_eq(gpusnap_buffer_count(f.registry), 5);
	close_fixture(&f);
}
END_TEST

START_TEST(bad_buffers_are_refused_and_change_nothing)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", 4096);
	uint64_t size = 16;
	gpusnap_region_info info;
	gpusnap_buffer_options options;
	gpusnap_error err;

	ck_ok(gpusnap_region_get(f.registry, id, &info, &err));
	name_bytes(&f, id, "a", 0, 16);
	ck_fails(try_name(&f, id, "a", 16, 16, &err), GPUSNAP_E_INVALID, "named 'a' already");
	ck_fails(try_name(&f, id, "", 16, 16, &err), GPUSNAP_E_INVALID, "needs a name");
	ck_fails(try_name(&f, id, NULL, 16, 16, &err), GPUSNAP_E_INVALID, "needs a name");
	ck_fails(try_name(&f, id, "gpusnap.raw/1/0", 16, 16, &err), GPUSNAP_E_INVALID, "reserved");
	ck_fails(try_name(&f, id, "__metadata__", 16, 16, &err), GPUSNAP_E_INVALID, "safetensors");
	ck_fails(try_name(&f, id, "b", info.bytes, 1, &err), GPUSNAP_E_INVALID, "leaves region 1");
	ck_fails(try_name(&f, id, "b", 16, (uint64_t)1 << 60, &err), GPUSNAP_E_INVALID,
		"leaves region 1");
	ck_fails(try_name(&f, id + 1, "b", 16, 16, &err), GPUSNAP_E_INVALID, "no region has id 2");
	options = bytes_at(id, "b", 16, &size);
	options.dtype = GPUSNAP_DTYPE_COUNT;
	ck_fails(gpusnap_buffer_register(f.registry, &options, &err), GPUSNAP_E_INVALID, "dtype");
	options = bytes_at(id, "b", 16, &size);
	options.role = (gpusnap_role)99;
	ck_fails(gpusnap_buffer_register(f.registry, &options, &err), GPUSNAP_E_INVALID, "role 99");
	options = bytes_at(id, "b", 16, NULL);
	ck_fails(
		gpusnap_buffer_register(f.registry, &options, &err), GPUSNAP_E_INVALID, "no shape");
	size = UINT64_MAX;
	options = bytes_at(id, "b", 16, &size);
	options.dtype = GPUSNAP_F32;
	ck_fails(gpusnap_buffer_register(f.registry, &options, &err), GPUSNAP_E_INVALID,
		"buffer 'b'");
	ck_assert_int_eq(err.status, GPUSNAP_E_INVALID);
	ck_assert_uint_eq(gpusnap_buffer_count(f.registry), 1);
	close_fixture(&f);
}
END_TEST

/* What a registry holds must fit into a plan: a snapshot that cannot be opened is no snapshot. */
START_TEST(what_no_plan_can_hold_is_refused)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", 4096);
	char name[GPUSNAP_NAME_MAX + 2] = "";
	uint64_t shape[GPUSNAP_RANK_MAX + 1];
	gpusnap_buffer_options options = bytes_at(id, "deep", 16, shape);
	gpusnap_error err;

	memset(name, 'n', GPUSNAP_NAME_MAX + 1);
	ck_fails(try_name(&f, id, name, 0, 1, &err), GPUSNAP_E_INVALID, "4097 bytes, at most 4096");
	name[GPUSNAP_NAME_MAX] = '\0';
	ck_ok(try_name(&f, id, name, 0, 1, &err));
	for (size_t i = 0; i <= GPUSNAP_RANK_MAX; i++)
		shape[i] = 1;
	options.rank = GPUSNAP_RANK_MAX + 1;
	ck_fails(gpusnap_buffer_register(f.registry, &options, &err), GPUSNAP_E_INVALID,
		"rank 65, at most 64");
	options.rank = GPUSNAP_RANK_MAX;
	ck_ok(gpusnap_buffer_register(f.registry, &options, &err));
	close_fixture(&f);
}
END_TEST

START_TEST(names_must_be_utf8)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", 4096);
	static const char *const bad[] = {"\xff", "a\x80", "\xc0\xaf", "\xe0\x80\xaf",
		"\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x98", "\xc3", "\xf8\x88\x80\x80\x80"};
	static const char *const good[] = {"é", "€", "\xf0\x9f\x98\x80", "a b/c\t\"", "\x7f"};
	gpusnap_error err;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		ck_fails(try_name(&f, id, bad[i], 0, 1, &err), GPUSNAP_E_INVALID, "not UTF-8");
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		name_bytes(&f, id, good[i], i, 1);
	close_fixture(&f);
}
END_TEST

static gpusnap_status try_mask(struct fixture *f, uint32_t id, gpusnap_mask_type mask,
	gpusnap_dtype dtype, uint64_t length, gpusnap_error *err)
{
	gpusnap_buffer_options options = bytes_at(id, "mask", 0, &length);

	options.role = GPUSNAP_ROLE_EXPERT_MASK;
	options.dtype = dtype;
	options.mask = mask;
	return gpusnap_buffer_register(f->registry, &options, err);
}

START_TEST(expert_masks_need_a_type_that_fits)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", 4096);
	gpusnap_mask_type none = {0};
	gpusnap_mask_type deepep = {.kind = GPUSNAP_MASK_DEEPEP,
		.experts = 128,
		.local = 32,
		.first = 32,
		.rank = 1,
		.world = 4};
	gpusnap_mask_type wrong;
	uint64_t size = 4;
	gpusnap_buffer_options options;
	gpusnap_buffer_info info;
	gpusnap_error err;

	ck_fails(try_mask(&f, id, none, GPUSNAP_I32, 33, &err), GPUSNAP_E_INVALID, "mask kind 0");
	wrong = deepep;
	wrong.rank = wrong.world;
	ck_fails(try_mask(&f, id, wrong, GPUSNAP_I32, 33, &err), GPUSNAP_E_INVALID, "rank 4 of");
	wrong = deepep;
	wrong.first = 100;
	ck_fails(try_mask(&f, id, wrong, GPUSNAP_I32, 33, &err), GPUSNAP_E_INVALID,
		"leaves the 128 experts");
	ck_fails(try_mask(&f, id, deepep, GPUSNAP_I64, 33, &err), GPUSNAP_E_INVALID,
		"dtype I32, not I64");
	ck_fails(try_mask(&f, id, deepep, GPUSNAP_I32, 128, &err), GPUSNAP_E_INVALID,
		"a deepep mask of 128 experts, 32 local, has shape [33]");
	ck_ok(try_mask(&f, id, deepep, GPUSNAP_I32, 33, &err));
	ck_ok(gpusnap_buffer_find(f.registry, "mask", &info, &err));
	ck_assert_int_eq(info.mask.kind, GPUSNAP_MASK_DEEPEP);
	ck_assert_uint_eq(info.mask.first, 32);
	ck_assert_uint_eq(info.mask.world, 4);
	ck_assert_uint_eq(info.bytes, 132);
	options = bytes_at(id, "weight", 512, &size);
	options.mask = deepep;
	ck_fails(gpusnap_buffer_register(f.registry, &options, &err), GPUSNAP_E_INVALID,
		"only role expert_mask takes one");
	close_fixture(&f);
}
END_TEST

START_TEST(reads_and_writes_stay_inside_their_buffer)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", 4096);
	char text[8] = "";
	gpusnap_error err;

	name_bytes(&f, id, "a", 64, 8);
	ck_ok(gpusnap_buffer_write(f.registry, "a", 2, "hello", 6, &err));
	ck_ok(gpusnap_buffer_read(f.registry, "a", 2, text, 6, &err));
	ck_assert_str_eq(text, "hello");
	ck_ok(gpusnap_buffer_read(f.registry, "a", 8, text, 0, &err));
	ck_fails(gpusnap_buffer_read(f.registry, "a", 3, text, 6, &err), GPUSNAP_E_INVALID,
		"6 bytes at offset 3 leave its 8 bytes");
	ck_fails(gpusnap_buffer_write(f.registry, "a", 9, text, 0, &err), GPUSNAP_E_INVALID,
		"leave its 8 bytes");
	ck_fails(gpusnap_buffer_write(f.registry, "a", UINT64_MAX, text, 2, &err),
		GPUSNAP_E_INVALID, "leave its 8 bytes");
	ck_fails(gpusnap_buffer_read(f.registry, "b", 0, text, 1, &err), GPUSNAP_E_INVALID,
		"no buffer is named 'b'");
	close_fixture(&f);
}
END_TEST

START_TEST(leaves_are_the_digests_of_live_bytes)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", MIB);
	enum { BYTES = 2 * 65536 + 5 };
	static uint8_t content[BYTES];
	gpusnap_digest leaves[3], whole;
	gpusnap_error err;

	for (size_t i = 0; i < BYTES; i++)
		content[i] = (uint8_t)(i * 31 + i / 256);
	name_bytes(&f, id, "a", 3, BYTES);
	ck_ok(gpusnap_buffer_write(f.registry, "a", 0, content, BYTES, &err));
	ck_ok(gpusnap_buffer_leaves(f.registry, "a", leaves, &err));
	for (size_t i = 0; i < 3; i++) {
		whole = gpusnap_digest_of(content + i * 65536, i < 2 ? 65536 : 5);
		ck_assert_mem_eq(&leaves[i], &whole, sizeof whole);
	}
	close_fixture(&f);
}
END_TEST

START_TEST(unregistered_bytes_become_unclaimed_and_views_go)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", 4096);
	uint64_t shape = 2;
	int64_t stride = 1;
	gpusnap_view_options view = GPUSNAP_VIEW_OPTIONS_INIT;
	gpusnap_region_info before, info;
	gpusnap_buffer_info found;
	gpusnap_error err;

	name_bytes(&f, id, "a", 0, 100);
	name_bytes(&f, id, "b", 100, 100);
	name_bytes(&f, id, "c", 200, 100);
	ck_ok(gpusnap_region_get(f.registry, id, &before, &err));
	ck_assert_uint_eq(before.unclaimed_bytes, before.bytes - 300);
	view = (gpusnap_view_options){.struct_size = sizeof view,
		.name = "v",
		.buffer = "b",
		.dtype = GPUSNAP_U8,
		.rank = 1,
		.shape = &shape,
		.strides = &stride};
	ck_ok(gpusnap_view_register(f.registry, &view, &err));
	ck_ok(gpusnap_buffer_unregister(f.registry, "b", &err));
	ck_fails(gpusnap_buffer_unregister(f.registry, "b", &err), GPUSNAP_E_INVALID,
		"no buffer is named 'b'");
	ck_ok(gpusnap_region_get(f.registry, id, &info, &err));
	ck_assert_uint_eq(info.unclaimed_bytes, before.unclaimed_bytes + 100);
	ck_assert_uint_eq(f.registry->view_count, 0);
	ck_ok(gpusnap_buffer_at(f.registry, 1, &found, &err));
	ck_assert_str_eq(found.name, "c");
	ck_fails(gpusnap_buffer_at(f.registry, 2, &found, &err), GPUSNAP_E_INVALID, "position 2");
	name_bytes(&f, id, "v", 100, 100);
	close_fixture(&f);
}
END_TEST

static gpusnap_status try_view(struct fixture *f, const char *name, const char *buffer,
	uint64_t offset, uint32_t rank, const uint64_t *shape, const int64_t *strides,
	gpusnap_error *err)
{
	gpusnap_view_options view = GPUSNAP_VIEW_OPTIONS_INIT;

	view.name = name;
	view.buffer = buffer;
	view.dtype = GPUSNAP_F32;
	view.offset = offset;
	view.rank = rank;
	view.shape = shape;
	view.strides = strides;
	return gpusnap_view_register(f->registry, &view, err);
}

START_TEST(views_stay_inside_their_buffer)
{
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", 4096);
	uint64_t rows[] = {3, 4};
	int64_t dense[] = {4, 1};
	int64_t transposed[] = {1, 3};
	int64_t backwards[] = {-4, 1};
	int64_t too_far[] = {5, 1};
	int64_t wild[] = {INT64_MIN, INT64_MAX};
	uint64_t empty[] = {0, UINT64_MAX};
	gpusnap_error err;

	name_bytes(&f, id, "b", 0, 48);
	ck_ok(try_view(&f, "dense", "b", 0, 2, rows, dense, &err));
	ck_ok(try_view(&f, "transposed", "b", 0, 2, rows, transposed, &err));
	ck_ok(try_view(&f, "backwards", "b", 32, 2, rows, backwards, &err));
	ck_ok(try_view(&f, "empty", "b", 48, 2, empty, wild, &err));
	ck_ok(try_view(&f, "scalar", "b", 44, 0, NULL, NULL, &err));
	ck_fails(try_view(&f, "x", "b", 4, 2, rows, dense, &err), GPUSNAP_E_INVALID,
		"view 'x' at offset 4 leaves buffer 'b' of 48 bytes");
	ck_fails(try_view(&f, "x", "b", 0, 2, rows, too_far, &err), GPUSNAP_E_INVALID, "leaves");
	ck_fails(try_view(&f, "x", "b", 28, 2, rows, backwards, &err), GPUSNAP_E_INVALID, "leaves");
	ck_fails(try_view(&f, "x", "b", 0, 2, rows, wild, &err), GPUSNAP_E_INVALID, "leaves");
	ck_fails(try_view(&f, "x", "b", 45, 0, NULL, NULL, &err), GPUSNAP_E_INVALID, "leaves");
	ck_fails(try_view(&f, "x", "b", UINT64_MAX, 0, NULL, NULL, &err), GPUSNAP_E_INVALID,
		"leaves");
	ck_fails(try_view(&f, "x", "none", 0, 2, rows, dense, &err), GPUSNAP_E_INVALID,
		"no buffer is named 'none'");
	ck_fails(try_view(&f, "b", "b", 0, 2, rows, dense, &err), GPUSNAP_E_INVALID, "already");
	ck_fails(try_view(&f, "dense", "b", 0, 2, rows, dense, &err), GPUSNAP_E_INVALID, "already");
	ck_fails(try_view(&f, "x", "b", 0, 1, NULL, NULL, &err), GPUSNAP_E_INVALID, "no shape");
	ck_fails(try_name(&f, id, "dense", 64, 4, &err), GPUSNAP_E_INVALID,
		"a view is named 'dense'");
	ck_assert_uint_eq(f.registry->view_count, 5);
	close_fixture(&f);
}
END_TEST

START_TEST(records_are_replaced_removed_and_shared)
{
	struct fixture f = open_fixture();
	gpusnap_json *value = gpusnap_json_pack("{s:i}", "layers", 3);
	gpusnap_json *got;
	gpusnap_error err;

	ck_assert_ptr_null(gpusnap_record_get(f.registry, "model"));
	ck_ok(gpusnap_record_set(f.registry, "model", NULL, &err));
	ck_ok(gpusnap_record_set(f.registry, "model", value, &err));
	gpusnap_json_free(value);
	got = gpusnap_record_get(f.registry, "model");
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(got, "layers"), 0), 3);
	gpusnap_json_free(got);
	ck_ok(gpusnap_record_set(f.registry, "model", NULL, &err));
	ck_assert_ptr_null(gpusnap_record_get(f.registry, "model"));
	ck_fails(gpusnap_record_set(f.registry, "", NULL, &err), GPUSNAP_E_INVALID, "needs a name");
	close_fixture(&f);
}
END_TEST

START_TEST(freed_region_takes_its_buffers_with_it)
{
	struct fixture f = open_fixture();
	uint32_t first = reserve(&f, "a", 4096);
	uint32_t second = reserve(&f, "b", 4096);
	gpusnap_region_info info;
	gpusnap_buffer_info buffer;
	gpusnap_error err;

	name_bytes(&f, first, "x", 0, 8);
	name_bytes(&f, second, "y", 0, 8);
	name_bytes(&f, first, "z", 8, 8);
	ck_ok(gpusnap_region_free(f.registry, first, &err));
	ck_fails(gpusnap_region_free(f.registry, first, &err), GPUSNAP_E_INVALID, "no region has");
	ck_assert_uint_eq(gpusnap_buffer_count(f.registry), 1);
	ck_ok(gpusnap_buffer_find(f.registry, "y", &buffer, &err));
	ck_ok(gpusnap_region_at(f.registry, 0, &info, &err));
	ck_assert_uint_eq(info.id, second);
	ck_fails(gpusnap_region_at(f.registry, 1, &info, &err), GPUSNAP_E_INVALID, "position 1");
	ck_assert_uint_eq(reserve(&f, "c", 4096), 3);
	close_fixture(&f);
}
END_TEST

START_TEST(a_quarter_of_a_million_buffers_in_any_order)
{
	enum { COUNT = 250000 };
	struct fixture f = open_fixture();
	uint32_t id = reserve(&f, "w", (uint64_t)COUNT * 8);
	gpusnap_buffer_info info;
	gpusnap_error err;
	char name[32];

	for (uint64_t i = 0; i < COUNT; i++) {
		uint64_t at = i * 99991 % COUNT; /* prime: a permutation */

		(void)snprintf(name, sizeof name, "layer.%llu", (unsigned long long)at);
		name_bytes(&f, id, name, at * 8, 8);
	}
	ck_fails(try_name(&f, id, "clash", 1000003, 1, &err), GPUSNAP_E_INVALID,
		"overlaps buffer 'layer.125000' [1000000, 1000008)");
	ck_ok(gpusnap_buffer_find(f.registry, "layer.249999", &info, &err));
	ck_assert_uint_eq(info.offset, (uint64_t)249999 * 8);
	for (uint64_t i = 0; i < COUNT; i += 50) {
		(void)snprintf(name, sizeof name, "layer.%llu", (unsigned long long)i);
		ck_ok(gpusnap_buffer_unregister(f.registry, name, &err));
	}
	ck_assert_uint_eq(gpusnap_buffer_count(f.registry), COUNT - COUNT / 50);
	ck_fails(gpusnap_buffer_find(f.registry, "layer.50", &info, &err), GPUSNAP_E_INVALID,
		"no buffer");
	close_fixture(&f);
}
END_TEST

static void *count_regions(void *registry)
{
	return (void *)(uintptr_t)gpusnap_region_count(registry);
}

START_TEST(hold_nests_and_keeps_other_threads_out)
{
	struct fixture f = open_fixture();
	pthread_t thread;
	void *count;

	gpusnap_registry_hold(f.registry);
	gpusnap_registry_hold(f.registry);
	ck_assert_int_eq(pthread_create(&thread, NULL, count_regions, f.registry), 0);
	(void)reserve(&f, "a", 1);
	gpusnap_registry_release(f.registry);
	(void)reserve(&f, "b", 1);
	gpusnap_registry_release(f.registry);
	ck_assert_int_eq(pthread_join(thread, &count), 0);
	ck_assert_uint_eq((uintptr_t)count, 2);
	close_fixture(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		ranks_are_checked_against_their_sizes,
		reserved_region_is_rounded_zeroed_and_unclaimed,
		region_options_are_checked,
		unclaimed_policy_follows_the_policy_unless_set,
		adopted_regions_may_not_overlap_and_are_left_alone,
		alloc_hands_out_bytes_in_order_and_never_named_ones,
		overlap_is_refused_with_both_names_and_ranges,
		bad_buffers_are_refused_and_change_nothing,
		what_no_plan_can_hold_is_refused,
		names_must_be_utf8,
		expert_masks_need_a_type_that_fits,
		reads_and_writes_stay_inside_their_buffer,
		leaves_are_the_digests_of_live_bytes,
		unregistered_bytes_become_unclaimed_and_views_go,
		views_stay_inside_their_buffer,
		records_are_replaced_removed_and_shared,
		freed_region_takes_its_buffers_with_it,
		a_quarter_of_a_million_buffers_in_any_order,
		hold_nests_and_keeps_other_threads_out,
	};

	return RUN_SUITE("registry_tables", tests);
}
