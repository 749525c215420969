/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of a save, an open, an extract, a verification, a restore and a flattening, of a
 * full snapshot and of a delta, fails once:
 * E_NOMEM, nothing is left behind, and the next call works.
 */
#include <string.h>

#include <gpusnap/snapshot.h>

#include "tests/support/alloc_fault.h"
#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

static char root[PATH_MAX];

struct fixture {
	gpusnap_device *device;
	struct live_state state;
	char folder[PATH_MAX], path[PATH_MAX];
	char parent[PATH_MAX]; /* of a delta at `path` */
};

static void fixture_open(struct fixture *f)
{
	gpusnap_error err;

	tempdir_make(f->folder, root);
	tempdir_join(f->path, f->folder, "state.gsnap");
	ck_ok(gpusnap_device_open("host", &f->device, &err));
	live_random(&f->state, f->device, 83);
}

static void fixture_close(struct fixture *f)
{
	live_close(&f->state);
	gpusnap_device_close(f->device);
}

/* One call of the operation; what it made is released again. */
typedef gpusnap_status operation(struct fixture *f, gpusnap_error *err);

static gpusnap_status save(struct fixture *f, gpusnap_error *err)
{
	return gpusnap_save(f->state.registry, f->path, NULL, NULL, err);
}

static gpusnap_status save_and_read_back(struct fixture *f, gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;

	options.replace = true;
	options.read_back = true;
	return gpusnap_save(f->state.registry, f->path, &options, NULL, err);
}

static gpusnap_status save_delta(struct fixture *f, gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;

	options.replace = true;
	options.parent = f->parent;
	return gpusnap_save(f->state.registry, f->path, &options, NULL, err);
}

static gpusnap_status flatten(struct fixture *f, gpusnap_error *err)
{
	char out[PATH_MAX];
	gpusnap_snapshot *snapshot;
	gpusnap_status status = gpusnap_snapshot_open(f->path, &snapshot, err);

	if (status)
		return status;
	tempdir_join(out, f->folder, "out");
	status = gpusnap_snapshot_flatten(snapshot, out, NULL, NULL, err);
	if (!status)
		ck_assert_int_eq(unlink(out), 0);
	gpusnap_snapshot_close(snapshot);
	return status;
}

static gpusnap_status extract(struct fixture *f, gpusnap_error *err)
{
	char out[PATH_MAX];
	gpusnap_snapshot *snapshot;
	gpusnap_status status = gpusnap_snapshot_open(f->path, &snapshot, err);

	if (status)
		return status;
	tempdir_join(out, f->folder, "out");
	status = gpusnap_snapshot_extract(
		snapshot, gpusnap_snapshot_entry_at(snapshot, 0)->name, out, NULL, NULL, err);
	if (!status)
		ck_assert_int_eq(unlink(out), 0);
	gpusnap_snapshot_close(snapshot);
	return status;
}

static gpusnap_status open_file(struct fixture *f, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_status status = gpusnap_snapshot_open(f->path, &snapshot, err);

	ck_assert((status == GPUSNAP_OK) == (snapshot != NULL));
	gpusnap_snapshot_close(snapshot);
	return status;
}

static gpusnap_status verify_file(struct fixture *f, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	gpusnap_status status = gpusnap_snapshot_open(f->path, &snapshot, err);

	if (status)
		return status;
	status = gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, err);
	if (!status)
		gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	return status;
}

static gpusnap_status verify_live(struct fixture *f, gpusnap_error *err)
{
	gpusnap_damage damage;
	gpusnap_status status = gpusnap_verify(f->state.registry, NULL, &damage, err);

	if (!status)
		gpusnap_damage_release(&damage);
	return status;
}

static gpusnap_status restore(struct fixture *f, gpusnap_error *err)
{
	return gpusnap_restore(f->state.registry, f->path, NULL, NULL, err);
}

static gpusnap_status restore_fresh(struct fixture *f, gpusnap_error *err)
{
	gpusnap_registry *registry = NULL;
	gpusnap_status status = gpusnap_registry_from_snapshot(
		f->device, f->path, NULL, NULL, &registry, NULL, err);

	ck_assert((status == GPUSNAP_OK) == (registry != NULL));
	gpusnap_registry_free(registry);
	return status;
}

static gpusnap_status live_baseline(struct fixture *f, gpusnap_error *err)
{
	gpusnap_baseline *baseline = NULL;
	gpusnap_status status = gpusnap_baseline_from_live(f->state.registry, &baseline, err);

	ck_assert((status == GPUSNAP_OK) == (baseline != NULL));
	gpusnap_baseline_free(baseline);
	return status;
}

/* Fail each allocation in turn, or each and all after it; how many there were. */
static long fail_in_turn(struct fixture *f, operation *run, int files, bool for_ever)
{
	gpusnap_error err;
	gpusnap_status status;
	long n;

	for (n = 0;; n++) {
		if (for_ever)
			alloc_fault_set_for_ever(n);
		else
			alloc_fault_set(n);
		status = run(f, &err);
		if (!alloc_fault_hit())
			break;
		alloc_fault_set(-1);
		ck_assert_msg(status == GPUSNAP_E_NOMEM, "allocation %ld: %s %s", n,
			gpusnap_status_name(status), status ? err.message : "");
		ck_assert_int_eq(tempdir_count(f->folder), files);
	}
	alloc_fault_set(-1);
	ck_assert_msg(status == GPUSNAP_OK, "%s", err.message);
	return n;
}

/* `files` are in the folder after a failure. */
static long fail_each(struct fixture *f, operation *run, int files)
{
	long n = fail_in_turn(f, run, files, false);

	/* That has got through: what it made goes, so that it can fail again. */
	if (tempdir_count(f->folder) > files)
		ck_assert_int_eq(unlink(f->path), 0);
	ck_assert_int_eq(fail_in_turn(f, run, files, true), n);
	return n;
}

START_TEST(each_failing_allocation_is_reported_and_harmless)
{
	struct fixture f;

	fixture_open(&f);
	ck_assert_int_gt(fail_each(&f, save, 0), 10);
	ck_assert_int_eq(tempdir_count(f.folder), 1);
	ck_assert_int_gt(fail_each(&f, save_and_read_back, 1), 20);
	ck_assert_int_eq(tempdir_count(f.folder), 1);
	ck_assert_int_gt(fail_each(&f, open_file, 1), 5);
	ck_assert_int_gt(fail_each(&f, extract, 1), 10);
	ck_assert_int_gt(fail_each(&f, verify_file, 1), 10);
	ck_assert_int_gt(fail_each(&f, verify_live, 1), 3);
	ck_assert_int_gt(fail_each(&f, live_baseline, 1), 3);
	ck_assert_int_gt(fail_each(&f, restore, 1), 10);
	ck_assert(live_equals(&f.state, f.state.registry));
	ck_assert_int_gt(fail_each(&f, restore_fresh, 1), 20);
	fixture_close(&f);
}
END_TEST

/* state.gsnap becomes the parent of delta.gsnap, in which a byte of each region has changed. */
static void take_delta(struct fixture *f)
{
	gpusnap_error err;

	tempdir_join(f->parent, f->folder, "state.gsnap");
	tempdir_join(f->path, f->folder, "delta.gsnap");
	ck_ok(gpusnap_save(f->state.registry, f->parent, NULL, NULL, &err));
	for (uint32_t i = 0; i < f->state.region_count; i++)
		live_bytes(f->state.registry, i)[0] ^= 1;
	live_remember(&f->state);
}

START_TEST(each_failing_allocation_of_a_chain_is_reported_and_harmless)
{
	struct fixture f;

	fixture_open(&f);
	take_delta(&f);
	ck_assert_int_gt(fail_each(&f, save_delta, 1), 20);
	ck_assert_int_eq(tempdir_count(f.folder), 2);
	ck_assert_int_gt(fail_each(&f, open_file, 2), 20);
	ck_assert_int_gt(fail_each(&f, extract, 2), 25);
	ck_assert_int_gt(fail_each(&f, verify_file, 2), 25);
	ck_assert_int_gt(fail_each(&f, flatten, 2), 25);
	ck_assert_int_gt(fail_each(&f, restore, 2), 25);
	ck_assert(live_equals(&f.state, f.state.registry));
	ck_assert_int_gt(fail_each(&f, restore_fresh, 2), 30);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		each_failing_allocation_is_reported_and_harmless,
		each_failing_allocation_of_a_chain_is_reported_and_harmless,
	};
	int result;

	tempdir_make(root, NULL);
	result = RUN_SUITE("snapshot_memory", tests);
	tempdir_remove(root);
	return result;
}
