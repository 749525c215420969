/* SPDX-License-Identifier: Apache-2.0 */
/* Differences of two snapshots, leaf by leaf and name by name. */
#include <string.h>

#include <gpusnap/snapshot.h>

#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

static char folder[PATH_MAX];

static gpusnap_snapshot *save_and_open(struct live_state *state, const char *name)
{
	gpusnap_snapshot *snapshot;
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, folder, name);
	(void)unlink(path);
	ck_ok(gpusnap_save(state->registry, path, NULL, NULL, &err));
	ck_ok(gpusnap_snapshot_open(path, &snapshot, &err));
	return snapshot;
}

static const gpusnap_difference *find(const gpusnap_differences *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->items[i].name, name) == 0)
			return &list->items[i];
	return NULL;
}

static void check(const gpusnap_differences *list, const char *name, const char *what,
	uint64_t leaves, uint64_t bytes)
{
	const gpusnap_difference *item = find(list, name);

	ck_assert_msg(item != NULL, "no difference of '%s'", name);
	ck_assert_str_eq(item->what, what);
	ck_assert_uint_eq(item->leaves_changed, leaves);
	ck_assert_uint_eq(item->bytes_changed, bytes);
}

START_TEST(each_kind_of_difference_is_told)
{
	gpusnap_snapshot *first, *second;
	gpusnap_differences list;
	gpusnap_device *device;
	struct live_state state;
	uint64_t random = 17;
	gpusnap_error err;
	uint32_t id;

	ck_ok(gpusnap_device_open(test_device(), &device, &err));
	live_open(&state, device);
	id = live_region(&state, "weights", 10 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&state, "same", id, 0, LEAF);
	live_buffer(&state, "changed", id, LEAF, 2 * LEAF + 10);
	live_buffer(&state, "resized", id, 4 * LEAF, LEAF);
	live_buffer(&state, "gone", id, 5 * LEAF, 100);
	first = save_and_open(&state, "first.gsnap");
	live_bytes(state.registry, 0)[LEAF + 3] ^= 1;
	live_bytes(state.registry, 0)[3 * LEAF + 9] ^= 1; /* its last, short leaf */
	ck_ok(gpusnap_buffer_unregister(state.registry, "resized", &err));
	ck_ok(gpusnap_buffer_unregister(state.registry, "gone", &err));
	live_buffer(&state, "resized", id, 4 * LEAF, 2 * LEAF);
	live_buffer(&state, "new", id, 6 * LEAF, 3 * LEAF);
	second = save_and_open(&state, "second.gsnap");
	ck_ok(gpusnap_snapshot_diff(first, second, &list, &err));
	ck_assert_ptr_null(find(&list, "same"));
	check(&list, "changed", "content", 2, LEAF + 10);
	check(&list, "resized", "shape", 2, 2 * LEAF);
	check(&list, "gone", "only in first", 1, 100);
	check(&list, "new", "only in second", 3, 3 * LEAF);
	gpusnap_differences_release(&list);
	ck_assert_uint_eq(list.count, 0);
	ck_ok(gpusnap_snapshot_diff(second, second, &list, &err));
	ck_assert_uint_eq(list.count, 0);
	gpusnap_differences_release(&list);
	gpusnap_snapshot_close(first);
	gpusnap_snapshot_close(second);
	live_close(&state);
	gpusnap_device_close(device);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {each_kind_of_difference_is_told};
	int result;

	tempdir_make(folder, NULL);
	result = RUN_SUITE("snapshot_diff", tests);
	tempdir_remove(folder);
	return result;
}
