/* SPDX-License-Identifier: Apache-2.0 */
/* Baselines: of a file, of live state, and the registry's own. */
#include <string.h>

#include <gpusnap/snapshot.h>

#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

static char folder[PATH_MAX];

struct fixture {
	gpusnap_device *device;
	struct live_state state;
	char path[PATH_MAX];
};

static void fixture_open(struct fixture *f)
{
	uint64_t random = 19;
	gpusnap_error err;
	uint32_t id;

	tempdir_join(f->path, folder, "baseline.gsnap");
	(void)unlink(f->path);
	ck_ok(gpusnap_device_open("host", &f->device, &err));
	live_open(&f->state, f->device);
	id = live_region(&f->state, "weights", 4 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&f->state, "w", id, 0, 2 * LEAF + 1);
}

static void fixture_close(struct fixture *f)
{
	live_close(&f->state);
	gpusnap_device_close(f->device);
}

static size_t damage_of(struct fixture *f, const gpusnap_baseline *baseline)
{
	gpusnap_damage damage;
	gpusnap_error err;
	size_t count;

	ck_ok(gpusnap_verify(f->state.registry, baseline, &damage, &err));
	count = damage.count;
	gpusnap_damage_release(&damage);
	return count;
}

START_TEST(of_live_state_equals_that_of_its_snapshot_leaf_by_leaf)
{
	gpusnap_baseline *live, *file;
	gpusnap_snapshot *snapshot;
	const gpusnap_digest *a, *b;
	uint64_t a_count, b_count;
	struct fixture f;
	gpusnap_error err;

	fixture_open(&f);
	ck_ok(gpusnap_baseline_from_live(f.state.registry, &live, &err));
	ck_ok(gpusnap_save(f.state.registry, f.path, NULL, NULL, &err));
	ck_ok(gpusnap_snapshot_open(f.path, &snapshot, &err));
	ck_ok(gpusnap_baseline_from_snapshot(snapshot, &file, &err));
	ck_assert(gpusnap_digest_equal(
		gpusnap_baseline_root(file), gpusnap_snapshot_seal(snapshot)->root));
	gpusnap_snapshot_close(snapshot);
	a = gpusnap_baseline_leaves(live, "w", &a_count);
	b = gpusnap_baseline_leaves(file, "w", &b_count);
	ck_assert_uint_eq(a_count, 3);
	ck_assert_uint_eq(b_count, 3);
	ck_assert_int_eq(memcmp(a, b, 3 * sizeof *a), 0);
	ck_assert_ptr_null(gpusnap_baseline_leaves(file, "v", NULL));
	ck_assert_uint_eq(damage_of(&f, live), 0);
	ck_assert_uint_eq(damage_of(&f, file), 0);
	live_bytes(f.state.registry, 0)[2 * LEAF] ^= 1;
	ck_assert_uint_eq(damage_of(&f, live), 1);
	ck_assert_uint_eq(damage_of(&f, file), 1);
	gpusnap_baseline_free(live);
	gpusnap_baseline_free(file);
	fixture_close(&f);
}
END_TEST

START_TEST(the_live_root_changes_with_any_byte_and_name)
{
	gpusnap_baseline *before, *after;
	struct fixture f;
	gpusnap_error err;

	fixture_open(&f);
	ck_ok(gpusnap_baseline_from_live(f.state.registry, &before, &err));
	ck_ok(gpusnap_baseline_from_live(f.state.registry, &after, &err));
	ck_assert(
		gpusnap_digest_equal(gpusnap_baseline_root(before), gpusnap_baseline_root(after)));
	gpusnap_baseline_free(after);
	live_bytes(f.state.registry, 0)[4 * LEAF - 1] ^= 1;
	ck_ok(gpusnap_baseline_from_live(f.state.registry, &after, &err));
	ck_assert(
		!gpusnap_digest_equal(gpusnap_baseline_root(before), gpusnap_baseline_root(after)));
	gpusnap_baseline_free(after);
	live_bytes(f.state.registry, 0)[4 * LEAF - 1] ^= 1;
	ck_ok(gpusnap_buffer_unregister(f.state.registry, "w", &err));
	live_buffer(&f.state, "x", 1, 0, 2 * LEAF + 1);
	ck_ok(gpusnap_baseline_from_live(f.state.registry, &after, &err));
	ck_assert(
		!gpusnap_digest_equal(gpusnap_baseline_root(before), gpusnap_baseline_root(after)));
	gpusnap_baseline_free(after);
	gpusnap_baseline_free(before);
	fixture_close(&f);
}
END_TEST

START_TEST(save_and_restore_set_the_registrys_own)
{
	gpusnap_save_report report;
	struct fixture f;
	gpusnap_error err;

	fixture_open(&f);
	ck_assert_ptr_null(gpusnap_registry_baseline(f.state.registry));
	ck_ok(gpusnap_save(f.state.registry, f.path, NULL, &report, &err));
	ck_assert(gpusnap_digest_equal(
		gpusnap_baseline_root(gpusnap_registry_baseline(f.state.registry)), report.root));
	gpusnap_registry_set_baseline(f.state.registry, NULL);
	ck_ok(gpusnap_restore(f.state.registry, f.path, NULL, NULL, &err));
	ck_assert(gpusnap_digest_equal(
		gpusnap_baseline_root(gpusnap_registry_baseline(f.state.registry)), report.root));
	ck_assert_uint_eq(damage_of(&f, NULL), 0);
	fixture_close(&f);
}
END_TEST

START_TEST(records_are_those_of_its_moment)
{
	gpusnap_baseline *baseline;
	struct fixture f;
	gpusnap_json *record;
	gpusnap_error err;

	fixture_open(&f);
	record = gpusnap_json_pack("{s:i}", "steps", 4);
	ck_ok(gpusnap_record_set(f.state.registry, "probe", record, &err));
	gpusnap_json_free(record);
	ck_ok(gpusnap_baseline_from_live(f.state.registry, &baseline, &err));
	record = gpusnap_json_pack("{s:i}", "steps", 5);
	ck_ok(gpusnap_record_set(f.state.registry, "probe", record, &err));
	gpusnap_json_free(record);
	record = gpusnap_baseline_record(baseline, "probe");
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(record, "steps"), 0), 4);
	gpusnap_json_free(record);
	ck_assert_ptr_null(gpusnap_baseline_record(baseline, "model"));
	gpusnap_baseline_free(baseline);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		of_live_state_equals_that_of_its_snapshot_leaf_by_leaf,
		the_live_root_changes_with_any_byte_and_name,
		save_and_restore_set_the_registrys_own,
		records_are_those_of_its_moment,
	};
	int result;

	tempdir_make(folder, NULL);
	result = RUN_SUITE("baseline_use", tests);
	tempdir_remove(folder);
	return result;
}
