/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full disk: a small tmpfs, mounted in a mount namespace of our own. Exit status 77 (a skip)
 * where that is not allowed.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>

#include <gpusnap/snapshot.h>

#include "snapshot/save.h"
#include "tests/support/file.h"
#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum { DISK_BYTES = 1 << 20, STATE_BYTES = 4 << 20, SKIP = 77 };

static char disk[PATH_MAX];

static int no_allocate(const struct gsn_fs *fs, int fd, uint64_t bytes)
{
	(void)fs;
	(void)fd;
	(void)bytes;
	return -EOPNOTSUPP;
}

/* Without fallocate the disk fills up while the pipeline is running. */
static struct gsn_fs fs_of(bool allocates)
{
	struct gsn_fs fs = gsn_fs_posix;

	if (!allocates)
		fs.allocate = no_allocate;
	return fs;
}

struct fixture {
	gpusnap_device *device;
	struct live_state state;
	char path[PATH_MAX];
};

static void fixture_open(struct fixture *f)
{
	uint64_t random = 61;
	gpusnap_error err;

	tempdir_join(f->path, disk, "state.gsnap");
	ck_ok(gpusnap_device_open("host", &f->device, &err));
	live_open(&f->state, f->device);
	(void)live_region(&f->state, "weights", STATE_BYTES, GPUSNAP_POLICY_KEEP, &random);
}

static void fixture_close(struct fixture *f)
{
	live_close(&f->state);
	gpusnap_device_close(f->device);
	(void)unlink(f->path);
}

static const struct mode {
	gpusnap_io_engine engine;
	bool allocates;
} modes[] = {
	{GPUSNAP_IO_THREADS, true},
	{GPUSNAP_IO_THREADS, false},
	{GPUSNAP_IO_URING, true},
	{GPUSNAP_IO_URING, false},
};
enum { MODE_COUNT = sizeof modes / sizeof modes[0] };

static gpusnap_status save(struct fixture *f, const struct mode *mode, gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	struct gsn_fs fs = fs_of(mode->allocates);

	options.replace = true;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.engine = mode->engine;
	options.io.block_bytes = 64 << 10;
	return gsn_save_on(&fs, f->state.registry, f->path, &options, NULL, err);
}

START_TEST(no_room_is_said_and_nothing_is_left)
{
	struct fixture f;
	gpusnap_error err;

	fixture_open(&f);
	ck_fails(save(&f, &modes[_i], &err), GPUSNAP_E_IO, "No space left");
	ck_assert_int_eq(err.os_errno, ENOSPC);
	ck_assert_ptr_nonnull(strstr(err.message, f.path));
	ck_assert_int_eq(tempdir_count(disk), 0);
	fixture_close(&f);
}
END_TEST

START_TEST(no_room_for_the_new_file_leaves_the_old_one)
{
	struct fixture f;
	gpusnap_error err;
	uint8_t *bytes;
	size_t length;

	fixture_open(&f);
	file_write(f.path, "old", 3);
	ck_fails(save(&f, &modes[_i], &err), GPUSNAP_E_IO, "No space left");
	bytes = read_file(f.path, &length);
	ck_assert_uint_eq(length, 3);
	ck_assert_int_eq(memcmp(bytes, "old", 3), 0);
	free(bytes);
	ck_assert_int_eq(tempdir_count(disk), 1);
	fixture_close(&f);
}
END_TEST

static bool mount_disk(void)
{
	char options[32];

	(void)snprintf(options, sizeof options, "size=%d", DISK_BYTES);
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("tmpfs", disk, "tmpfs", 0, options) == 0;
}

static int run(void)
{
	Suite *suite = suite_create("full_disk");
	TCase *cases = tcase_create("full_disk");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(cases, no_room_is_said_and_nothing_is_left, 0, MODE_COUNT);
	tcase_add_loop_test(cases, no_room_for_the_new_file_leaves_the_old_one, 0, MODE_COUNT);
	suite_add_tcase(suite, cases);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(void)
{
	int result = SKIP;

	tempdir_make(disk, NULL);
	if (mount_disk()) {
		result = run();
		(void)umount(disk);
	} else {
		(void)fprintf(stderr, "cannot mount a tmpfs here: %s\n", strerror(errno));
	}
	(void)rmdir(disk);
	return result;
}
