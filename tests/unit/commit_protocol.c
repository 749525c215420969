/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/commit.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/support/file.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum { BYTES = 8192 };

static char root[PATH_MAX];

/* Every test runs with and without unnamed temporary files. */
static int no_unnamed(const struct gsn_fs *fs, int directory, mode_t mode)
{
	(void)fs;
	(void)directory;
	(void)mode;
	return -EOPNOTSUPP;
}

static struct gsn_fs fs_variant(int variant)
{
	struct gsn_fs fs = gsn_fs_posix;

	if (variant)
		fs.open_unnamed = no_unnamed;
	return fs;
}
enum { VARIANT_COUNT = 2 };

struct place {
	char folder[PATH_MAX];
	char target[PATH_MAX];
};

static void place_make(struct place *place)
{
	tempdir_make(place->folder, root);
	tempdir_join(place->target, place->folder, "state.gsnap");
}

static void write_data(const struct gsn_commit *commit, char value)
{
	char bytes[BYTES];

	memset(bytes, value, sizeof bytes);
	ck_assert_int_eq(pwrite(commit->fd, bytes, sizeof bytes, 0), BYTES);
}

static void check_content(const char *path, char value, size_t length)
{
	size_t got;
	uint8_t *bytes = read_file(path, &got);

	ck_assert_uint_eq(got, length);
	for (size_t i = 0; i < got; i++)
		ck_assert_int_eq(bytes[i], value);
	free(bytes);
}

static mode_t mode_of(const char *path)
{
	struct stat file;

	ck_assert_int_eq(stat(path, &file), 0);
	return file.st_mode & 0777;
}

START_TEST(the_name_appears_at_finish_and_not_before)
{
	struct gsn_fs fs = fs_variant(_i);
	struct gsn_commit commit = GSN_COMMIT_INIT;
	struct place place;
	gpusnap_error err;

	place_make(&place);
	(void)umask(027);
	ck_ok(gsn_commit_begin(&commit, &fs, place.target, false, BYTES, &err));
	write_data(&commit, 'n');
	ck_assert_int_eq(access(place.target, F_OK), -1);
	ck_ok(gsn_commit_finish(&commit, BYTES - 7, &err));
	gsn_commit_end(&commit);
	check_content(place.target, 'n', BYTES - 7);
	ck_assert_int_eq(mode_of(place.target), 0640);
	ck_assert_int_eq(tempdir_count(place.folder), 1);
}
END_TEST

START_TEST(an_existing_file_stays_without_replace)
{
	struct gsn_fs fs = fs_variant(_i);
	struct gsn_commit commit = GSN_COMMIT_INIT;
	struct place place;
	gpusnap_error err;

	place_make(&place);
	file_write(place.target, "ooo", 3);
	ck_fails(gsn_commit_begin(&commit, &fs, place.target, false, BYTES, &err), GPUSNAP_E_IO,
		"exists; ask to replace it (--replace)");
	ck_assert_int_eq(err.os_errno, EEXIST);
	gsn_commit_end(&commit);
	check_content(place.target, 'o', 3);
	ck_assert_int_eq(tempdir_count(place.folder), 1);
}
END_TEST

START_TEST(a_file_that_came_meanwhile_stays_without_replace)
{
	struct gsn_fs fs = fs_variant(_i);
	struct gsn_commit commit = GSN_COMMIT_INIT;
	struct place place;
	gpusnap_error err;

	place_make(&place);
	ck_ok(gsn_commit_begin(&commit, &fs, place.target, false, BYTES, &err));
	write_data(&commit, 'n');
	file_write(place.target, "ooo", 3);
	ck_fails(gsn_commit_finish(&commit, BYTES, &err), GPUSNAP_E_IO,
		"exists; ask to replace it (--replace)");
	ck_assert_int_eq(err.os_errno, EEXIST);
	gsn_commit_end(&commit);
	check_content(place.target, 'o', 3);
	ck_assert_int_eq(tempdir_count(place.folder), 1);
}
END_TEST

START_TEST(replace_keeps_the_old_file_until_finish_and_its_mode_after)
{
	struct gsn_fs fs = fs_variant(_i);
	struct gsn_commit commit = GSN_COMMIT_INIT;
	struct place place;
	gpusnap_error err;

	place_make(&place);
	file_write(place.target, "ooo", 3);
	ck_assert_int_eq(chmod(place.target, 0604), 0);
	ck_ok(gsn_commit_begin(&commit, &fs, place.target, true, BYTES, &err));
	write_data(&commit, 'n');
	check_content(place.target, 'o', 3);
	ck_ok(gsn_commit_finish(&commit, BYTES, &err));
	gsn_commit_end(&commit);
	check_content(place.target, 'n', BYTES);
	ck_assert_int_eq(mode_of(place.target), 0604);
	ck_assert_int_eq(tempdir_count(place.folder), 1);
}
END_TEST

START_TEST(giving_up_leaves_nothing)
{
	struct gsn_fs fs = fs_variant(_i);
	struct gsn_commit commit = GSN_COMMIT_INIT;
	struct place place;
	gpusnap_error err;

	place_make(&place);
	ck_ok(gsn_commit_begin(&commit, &fs, place.target, false, BYTES, &err));
	write_data(&commit, 'n');
	gsn_commit_end(&commit);
	gsn_commit_end(&commit); /* harmless twice */
	ck_assert_int_eq(tempdir_count(place.folder), 0);
}
END_TEST

/* Fault injection: one operation fails, calls of interest are written down in order. */
static char journal[64];
static char failing;

static int note(char operation, int result)
{
	size_t length = strlen(journal);

	assert(length + 1 < sizeof journal);
	journal[length] = operation;
	return failing == operation ? -EIO : result;
}

static int noted_allocate(const struct gsn_fs *fs, int fd, uint64_t bytes)
{
	return note('a', gsn_fs_posix.allocate(fs, fd, bytes));
}

static int noted_truncate(const struct gsn_fs *fs, int fd, uint64_t bytes)
{
	return note('t', gsn_fs_posix.truncate(fs, fd, bytes));
}

static int noted_fsync(const struct gsn_fs *fs, int fd)
{
	return note('s', gsn_fs_posix.fsync(fs, fd));
}

static int noted_fsync_directory(const struct gsn_fs *fs, int directory)
{
	return note('d', gsn_fs_posix.fsync_directory(fs, directory));
}

static int noted_link_unnamed(const struct gsn_fs *fs, int fd, int directory, const char *name)
{
	int result = note('l', 0);

	return result ? result : gsn_fs_posix.link_unnamed(fs, fd, directory, name);
}

static int noted_rename_noreplace(
	const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	int result = note('n', 0);

	return result ? result : gsn_fs_posix.rename_noreplace(fs, directory, from, to);
}

static int noted_rename(const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	int result = note('r', 0);

	return result ? result : gsn_fs_posix.rename(fs, directory, from, to);
}

static struct gsn_fs noted_fs(int variant, char fails)
{
	struct gsn_fs fs = fs_variant(variant);

	fs.allocate = noted_allocate;
	fs.truncate = noted_truncate;
	fs.fsync = noted_fsync;
	fs.fsync_directory = noted_fsync_directory;
	fs.link_unnamed = noted_link_unnamed;
	fs.rename_noreplace = noted_rename_noreplace;
	fs.rename = noted_rename;
	memset(journal, 0, sizeof journal);
	failing = fails;
	return fs;
}

static gpusnap_status commit_new(
	const struct gsn_fs *fs, const char *target, bool replace, gpusnap_error *err)
{
	struct gsn_commit commit = GSN_COMMIT_INIT;
	gpusnap_status status = gsn_commit_begin(&commit, fs, target, replace, BYTES, err);

	if (!status) {
		write_data(&commit, 'n');
		status = gsn_commit_finish(&commit, BYTES, err);
	}
	gsn_commit_end(&commit);
	return status;
}

START_TEST(data_is_durable_before_the_name_and_the_name_before_success)
{
	static const char *const expected[VARIANT_COUNT][2] = {
		{"atsld", "atslrd"}, {"atsnd", "atsrd"}};
	struct gsn_fs fs;
	struct place place;
	gpusnap_error err;

	for (int replace = 0; replace < 2; replace++) {
		place_make(&place);
		fs = noted_fs(_i, 0);
		ck_ok(commit_new(&fs, place.target, replace, &err));
		ck_assert_str_eq(journal, expected[_i][replace]);
	}
}
END_TEST

START_TEST(a_failing_step_leaves_the_old_file_and_no_litter)
{
	struct gsn_fs fs;
	struct place place;
	gpusnap_error err;

	for (const char *step = "atslr"; *step; step++) {
		place_make(&place);
		file_write(place.target, "ooo", 3);
		fs = noted_fs(_i, *step);
		if (_i && *step == 'l')
			continue; /* a named file is renamed, never linked */
		ck_fails(commit_new(&fs, place.target, true, &err), GPUSNAP_E_IO, place.target);
		ck_assert_int_eq(err.os_errno, EIO);
		check_content(place.target, 'o', 3);
		ck_assert_int_eq(tempdir_count(place.folder), 1);
	}
}
END_TEST

START_TEST(a_failed_fsync_is_not_tried_again)
{
	struct gsn_fs fs = noted_fs(_i, 's');
	struct place place;
	gpusnap_error err;

	place_make(&place);
	ck_fails(commit_new(&fs, place.target, false, &err), GPUSNAP_E_IO, "fsync");
	ck_assert_str_eq(journal, "ats");
	ck_assert_int_eq(tempdir_count(place.folder), 0);
}
END_TEST

START_TEST(a_directory_that_cannot_be_synced_is_reported)
{
	struct gsn_fs fs = noted_fs(_i, 'd');
	struct place place;
	gpusnap_error err;

	place_make(&place);
	ck_fails(commit_new(&fs, place.target, false, &err), GPUSNAP_E_IO, "crash may undo it");
	check_content(place.target, 'n', BYTES);
}
END_TEST

START_TEST(litter_of_a_dead_writer_is_removed_and_a_live_one_kept)
{
	struct gsn_fs named = fs_variant(1), fs = fs_variant(_i);
	struct gsn_commit living = GSN_COMMIT_INIT;
	char dead[PATH_MAX], other[PATH_MAX];
	struct place place;
	gpusnap_error err;

	place_make(&place);
	tempdir_join(dead, place.folder, ".state.gsnap.gpusnap-12-0123456789abcdef.tmp");
	tempdir_join(other, place.folder, ".other.gsnap.gpusnap-12-0123456789abcdef.tmp");
	file_write(dead, "x", 1);
	file_write(other, "x", 1);
	ck_ok(gsn_commit_begin(&living, &named, place.target, false, BYTES, &err));
	ck_ok(commit_new(&fs, place.target, false, &err));
	ck_assert_int_eq(access(dead, F_OK), -1);
	ck_assert_int_eq(access(other, F_OK), 0);
	ck_assert_int_eq(tempdir_count(place.folder), 3);
	gsn_commit_end(&living);
	ck_assert_int_eq(tempdir_count(place.folder), 2);
}
END_TEST

START_TEST(only_regular_files_are_replaced)
{
	struct gsn_fs fs = fs_variant(_i);
	char link[PATH_MAX], directory[PATH_MAX], fifo[PATH_MAX];
	struct place place;
	gpusnap_error err;

	place_make(&place);
	tempdir_join(link, place.folder, "link");
	tempdir_join(directory, place.folder, "directory");
	tempdir_join(fifo, place.folder, "fifo");
	ck_assert_int_eq(symlink("nowhere", link), 0);
	ck_assert_int_eq(mkdir(directory, 0700), 0);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	ck_fails(commit_new(&fs, link, true, &err), GPUSNAP_E_INVALID, "symbolic link");
	ck_fails(commit_new(&fs, directory, true, &err), GPUSNAP_E_INVALID, "not a regular file");
	ck_fails(commit_new(&fs, fifo, true, &err), GPUSNAP_E_INVALID, "not a regular file");
	ck_assert_int_eq(tempdir_count(place.folder), 3);
	tempdir_remove(place.folder);
}
END_TEST

START_TEST(paths_that_name_no_file_are_refused)
{
	static const char *const paths[] = {"", ".", "..", "/", "folder/", "folder/."};
	gpusnap_error err;

	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
		ck_fails(commit_new(&gsn_fs_posix, paths[i], false, &err), GPUSNAP_E_INVALID,
			"names no file");
	ck_fails(commit_new(&gsn_fs_posix, "/nonexistent/folder/file", false, &err), GPUSNAP_E_IO,
		"'/nonexistent/folder'");
	ck_assert_int_eq(err.os_errno, ENOENT);
}
END_TEST

START_TEST(the_longest_name_that_fits_can_be_saved)
{
	struct gsn_fs fs = fs_variant(_i);
	char name[256], target[PATH_MAX];
	struct place place;
	gpusnap_error err;

	place_make(&place);
	memset(name, 'a', 255);
	name[255] = 0;
	tempdir_join(target, place.folder, name);
	ck_ok(commit_new(&fs, target, false, &err));
	ck_ok(commit_new(&fs, target, true, &err));
	ck_assert_int_eq(tempdir_count(place.folder), 1);
}
END_TEST

START_TEST(a_read_only_folder_is_one_clear_error)
{
	struct gsn_fs fs = fs_variant(_i);
	struct place place;
	gpusnap_error err;

	place_make(&place);
	ck_assert_int_eq(chmod(root, 0755), 0);
	ck_assert_int_eq(chmod(place.folder, 0555), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(seteuid(65534), 0); /* root may write everywhere */
	ck_fails(commit_new(&fs, place.target, false, &err), GPUSNAP_E_IO, "Permission denied");
	ck_assert_ptr_nonnull(strstr(err.message, place.target));
	ck_assert_int_eq(err.os_errno, EACCES);
	ck_assert_int_eq(tempdir_count(place.folder), 0);
	/* As it was, and traceable again, or the leak check cannot run. */
	ck_assert_int_eq(seteuid(getuid()), 0);
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
}
END_TEST

static SRunner *make_runner(void)
{
	const TTest *const tests[] = {
		the_name_appears_at_finish_and_not_before,
		an_existing_file_stays_without_replace,
		a_file_that_came_meanwhile_stays_without_replace,
		replace_keeps_the_old_file_until_finish_and_its_mode_after,
		giving_up_leaves_nothing,
		data_is_durable_before_the_name_and_the_name_before_success,
		a_failing_step_leaves_the_old_file_and_no_litter,
		a_failed_fsync_is_not_tried_again,
		a_directory_that_cannot_be_synced_is_reported,
		litter_of_a_dead_writer_is_removed_and_a_live_one_kept,
		only_regular_files_are_replaced,
		the_longest_name_that_fits_can_be_saved,
		a_read_only_folder_is_one_clear_error,
	};
	Suite *suite = suite_create("commit");
	TCase *cases = tcase_create("commit");

	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		tcase_add_loop_test(cases, tests[i], 0, VARIANT_COUNT);
	tcase_add_test(cases, paths_that_name_no_file_are_refused);
	suite_add_tcase(suite, cases);
	return srunner_create(suite);
}

int main(void)
{
	SRunner *runner;
	int failed;

	tempdir_make(root, NULL);
	runner = make_runner();
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	tempdir_remove(root);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
