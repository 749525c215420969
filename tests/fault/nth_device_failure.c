/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The n-th call of a kind to the device fails, once and for ever, under a save, a replace, a
 * read-back, a delta and a restore: the error is the device's, no file and no folder is changed,
 * no memory stays pinned, and what was overwritten is not usable.
 */
#include <stdio.h>
#include <string.h>

#include <gpusnap/snapshot.h>

#include "snapshot/registry_state.h"
#include "tests/support/file.h"
#include "tests/support/state_fixture.h"
#include "tests/support/tempdir.h"

enum { CALLS_MAX = 10000 };

static char root[PATH_MAX];

struct fixture {
	struct state state;
	char folder[PATH_MAX], old[PATH_MAX], other[PATH_MAX];
	uint8_t *old_file;
	size_t old_length;
};

static void fixture_open(struct fixture *f)
{
	gpusnap_error err;

	tempdir_make(f->folder, root);
	tempdir_join(f->old, f->folder, "old.gsnap");
	tempdir_join(f->other, f->folder, "other.gsnap");
	state_open(&f->state, NULL, NULL);
	ck_ok(gpusnap_save(f->state.registry, f->old, NULL, NULL, &err));
	f->old_file = read_file(f->old, &f->old_length);
}

static void fixture_close(struct fixture *f)
{
	free(f->old_file);
	state_close(&f->state);
}

/* ---- jobs ---- */

static gpusnap_status save(
	struct fixture *f, const char *path, gpusnap_save_options options, gpusnap_error *err)
{
	options.struct_size = sizeof options;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.block_bytes = 64 << 10;
	options.io.depth = 2;
	return gpusnap_save(f->state.registry, path, &options, NULL, err);
}

static gpusnap_status run_save(struct fixture *f, gpusnap_error *err)
{
	return save(f, f->other, (gpusnap_save_options){0}, err);
}

static gpusnap_status run_replace(struct fixture *f, gpusnap_error *err)
{
	return save(f, f->old, (gpusnap_save_options){.replace = true}, err);
}

static gpusnap_status run_read_back(struct fixture *f, gpusnap_error *err)
{
	return save(f, f->other, (gpusnap_save_options){.read_back = true}, err);
}

static gpusnap_status run_delta(struct fixture *f, gpusnap_error *err)
{
	return save(f, f->other, (gpusnap_save_options){.parent = f->old}, err);
}

static gpusnap_status run_restore(struct fixture *f, gpusnap_error *err)
{
	return gpusnap_restore(f->state.registry, f->old, NULL, NULL, err);
}

static const struct job {
	const char *name;
	gpusnap_status (*run)(struct fixture *f, gpusnap_error *err);
} jobs[] = {
	{"save", run_save},
	{"save --replace", run_replace},
	{"save --read-back", run_read_back},
	{"save --parent", run_delta},
	{"restore", run_restore},
};
enum { JOBS = sizeof jobs / sizeof jobs[0] };

/* ---- the loop ---- */

static void check_files(const struct fixture *f)
{
	size_t length;
	uint8_t *bytes = read_file(f->old, &length);

	ck_assert_uint_eq(length, f->old_length);
	ck_assert_mem_eq(bytes, f->old_file, length);
	free(bytes);
	ck_assert_int_eq(tempdir_count(f->folder), 1);
}

/* A region is as it was, or nobody may use it. */
static void check_regions(struct fixture *f, const struct job *job)
{
	gpusnap_error err;

	for (size_t r = 0; r < STATE_REGIONS; r++) {
		gpusnap_region_info info = state_info(&f->state, r);

		if (info.state == GPUSNAP_REGION_RESIDENT) {
			state_check(&f->state, r);
			continue;
		}
		ck_assert(job->run == run_restore);
		ck_assert_int_eq(info.state, GPUSNAP_REGION_DISCARDED);
		ck_ok(gpusnap_region_rewritten(f->state.registry, f->state.regions[r], &err));
	}
	state_fill(&f->state, f->state.seed);
}

/* False when the job got through without meeting the failure. */
static bool fail_one(
	struct fixture *f, const struct job *job, enum faulty_call call, unsigned n, bool for_ever)
{
	struct faulty_device *faulty = &f->state.faulty;
	gpusnap_status status;
	gpusnap_error err;
	bool met;

	if (for_ever)
		faulty_arm_for_ever(faulty, call, n, GPUSNAP_E_DEVICE);
	else
		faulty_arm(faulty, call, n, GPUSNAP_E_DEVICE);
	status = job->run(f, &err);
	met = !faulty_is_armed(faulty);
	faulty_arm(faulty, FAULTY_ANY, 0, GPUSNAP_OK);
	/* What is kept for the next job would spare it the calls that are to fail. */
	gsn_staging_source_release(&f->state.registry->staging);
	ck_assert_uint_eq(faulty->pinned_blocks, 0);
	if (!met) {
		ck_assert_msg(!status, "%s: %s", job->name, err.message);
		return false;
	}
	ck_assert_msg(status == GPUSNAP_E_DEVICE, "%s, %s %u: %s", job->name,
		faulty_call_name(call), n, gpusnap_status_name(status));
	ck_assert_msg(strstr(err.message, "injected") != NULL, "%s", err.message);
	check_files(f);
	check_regions(f, job);
	return true;
}

static unsigned fail_each(
	struct fixture *f, const struct job *job, enum faulty_call call, bool for_ever)
{
	unsigned n = 1;

	while (fail_one(f, job, call, n, for_ever))
		ck_assert_uint_lt(++n, CALLS_MAX);
	/* What the last one has made goes, for the next to make it. */
	if (access(f->other, F_OK) == 0)
		ck_assert_int_eq(unlink(f->other), 0);
	file_write(f->old, f->old_file, f->old_length);
	return n - 1;
}

START_TEST(each_failing_device_call_is_reported_and_harmless)
{
	unsigned failures = 0, copies = 0;
	struct fixture f;

	fixture_open(&f);
	for (int i = 0; i < JOBS; i++) {
		for (int call = 0; call < FAULTY_CALLS; call++) {
			unsigned once = fail_each(&f, &jobs[i], (enum faulty_call)call, false);
			unsigned always = fail_each(&f, &jobs[i], (enum faulty_call)call, true);

			ck_assert_uint_eq(once, always);
			failures += once + always;
			copies += call == FAULTY_COPY ? once : 0;
		}
	}
	(void)printf("n-th device failure: %u in %d jobs\n", failures, JOBS);
	ck_assert_uint_ge(copies, JOBS);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {each_failing_device_call_is_reported_and_harmless};
	int result;

	tempdir_make(root, "/dev/shm");
	result = RUN_SUITE("nth_device_failure", tests);
	tempdir_remove(root);
	return result;
}
