/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers that are wrong on purpose, each in one way that real ones have been: the check of
 * crash_model.c fails for every one of them, so it can fail.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/crash_lab.h"
#include "tests/support/suite.h"

enum { RANDOM_CHOICES = 40 };

static struct crash_fs *of(const struct gsn_fs *fs)
{
	return (struct crash_fs *)(uintptr_t)fs;
}

static int sync_nothing(const struct gsn_fs *fs, int fd)
{
	(void)fs;
	(void)fd;
	return 0;
}

static void no_fsync(struct crash_fs *fs)
{
	fs->table.fsync = sync_nothing;
}

static void no_fsync_of_the_folder(struct crash_fs *fs)
{
	fs->table.fsync_directory = sync_nothing;
}

static int sync_the_first_file(const struct gsn_fs *fs, int fd)
{
	(void)fd;
	crash_note(of(fs), (struct crash_op){.kind = CRASH_SYNC, .inode = 0});
	return 0;
}

static void fsync_of_another_file(struct crash_fs *fs)
{
	fs->table.fsync = sync_the_first_file;
}

static int sync_later(const struct gsn_fs *fs, int fd)
{
	of(fs)->kept.inode = crash_inode(of(fs), fd);
	return 0;
}

static int sync_folder_then_file(const struct gsn_fs *fs, int directory)
{
	(void)directory;
	crash_note(of(fs), (struct crash_op){.kind = CRASH_SYNC_FOLDER});
	crash_note(of(fs), (struct crash_op){.kind = CRASH_SYNC, .inode = of(fs)->kept.inode});
	return 0;
}

static void rename_before_fsync(struct crash_fs *fs)
{
	fs->table.fsync = sync_later;
	fs->table.fsync_directory = sync_folder_then_file;
}

static int unlink_then_rename(
	const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	(void)fs->unlink(fs, directory, to);
	return crash_operations.rename(fs, directory, from, to);
}

static void old_file_deleted_first(struct crash_fs *fs)
{
	fs->table.rename = unlink_then_rename;
}

static int create_target(const struct gsn_fs *fs, int directory, const char *name, mode_t mode)
{
	(void)name;
	(void)fs->unlink(fs, directory, CRASH_TARGET);
	return crash_operations.create(fs, directory, CRASH_TARGET, mode);
}

static int rename_nothing(const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	(void)fs;
	(void)directory;
	(void)from;
	(void)to;
	return 0;
}

static void written_in_place(struct crash_fs *fs)
{
	fs->named = true;
	fs->table.create = create_target;
	fs->table.rename = rename_nothing;
	fs->table.rename_noreplace = rename_nothing;
}

static int64_t write_unseen(struct crash_fs *fs, const struct gsn_ring_part *part)
{
	ssize_t moved = pwrite(part->fd, part->memory, part->length, (off_t)part->offset);

	(void)fs;
	return moved < 0 ? -errno : moved;
}

static void note_write(struct crash_fs *fs, const struct gsn_ring_part *part, uint64_t from,
	uint64_t bytes, bool later)
{
	struct crash_op op = {
		.kind = CRASH_WRITE,
		.inode = crash_inode(fs, part->fd),
		.offset = part->offset + from,
		.bytes = bytes,
		.data = part->memory + from,
	};

	if (!later) {
		crash_note(fs, op);
		return;
	}
	op.data = malloc((size_t)bytes);
	ck_assert_ptr_nonnull(op.data);
	memcpy(op.data, part->memory + from, (size_t)bytes);
	free(fs->kept.data);
	fs->kept = op;
}

static void note_kept_write(struct crash_fs *fs)
{
	if (fs->kept.data)
		crash_note(fs, fs->kept);
}

static int64_t write_the_end_first(struct crash_fs *fs, const struct gsn_ring_part *part)
{
	uint64_t head = part->length - GPUSNAP_SEAL_BYTES;

	note_write(fs, part, head, GPUSNAP_SEAL_BYTES, false);
	note_write(fs, part, 0, head, true);
	return write_unseen(fs, part);
}

static int sync_folder_then_write(const struct gsn_fs *fs, int directory)
{
	int result = crash_operations.fsync_directory(fs, directory);

	note_kept_write(of(fs));
	crash_note(of(fs), (struct crash_op){.kind = CRASH_SYNC, .inode = of(fs)->kept.inode});
	return result;
}

static void seal_before_data(struct crash_fs *fs)
{
	fs->transfer = write_the_end_first;
	fs->table.fsync_directory = sync_folder_then_write;
}

static int64_t write_later(struct crash_fs *fs, const struct gsn_ring_part *part)
{
	note_write(fs, part, 0, part->length, true);
	return write_unseen(fs, part);
}

static int sync_then_write(const struct gsn_fs *fs, int fd)
{
	int result = crash_operations.fsync(fs, fd);

	note_kept_write(of(fs));
	return result;
}

static void fsync_before_the_write_is_done(struct crash_fs *fs)
{
	fs->transfer = write_later;
	fs->table.fsync = sync_then_write;
}

static int64_t write_other_bytes(struct crash_fs *fs, const struct gsn_ring_part *part)
{
	/* The first byte behind a header of 4096: data, of which the digest is made by now. */
	if (part->op == GSN_RING_WRITE && part->offset == 0)
		part->memory[GSN_DIRECT_ALIGN] ^= 1;
	return crash_transfer(fs, part);
}

static void digest_of_the_wrong_bytes(struct crash_fs *fs)
{
	fs->transfer = write_other_bytes;
}

static int sync_fails_unnoticed(const struct gsn_fs *fs, int fd)
{
	crash_note(of(fs), (struct crash_op){.kind = CRASH_LOSE, .inode = crash_inode(of(fs), fd)});
	return 0;
}

static void fsync_error_ignored(struct crash_fs *fs)
{
	fs->table.fsync = sync_fails_unnoticed;
}

static int sync_twice(const struct gsn_fs *fs, int fd)
{
	(void)sync_fails_unnoticed(fs, fd);
	return crash_operations.fsync(fs, fd);
}

static void fsync_tried_again(struct crash_fs *fs)
{
	fs->table.fsync = sync_twice;
}

static int64_t write_half(struct crash_fs *fs, const struct gsn_ring_part *part)
{
	struct gsn_ring_part half = *part;

	half.length /= 2;
	(void)crash_transfer(fs, &half);
	return part->length;
}

static void short_write_ignored(struct crash_fs *fs)
{
	fs->transfer = write_half;
}

static int64_t write_nothing(struct crash_fs *fs, const struct gsn_ring_part *part)
{
	(void)fs;
	return part->length;
}

static void write_error_ignored(struct crash_fs *fs)
{
	fs->transfer = write_nothing;
}

static int see_no_file(
	const struct gsn_fs *fs, int directory, const char *name, struct stat *ret_status)
{
	(void)fs;
	(void)directory;
	(void)name;
	(void)ret_status;
	return -ENOENT;
}

static int link_over(const struct gsn_fs *fs, int fd, int directory, const char *name)
{
	(void)fs->unlink(fs, directory, name);
	return crash_operations.link_unnamed(fs, fd, directory, name);
}

static void old_file_replaced_unasked(struct crash_fs *fs)
{
	fs->table.status_at = see_no_file;
	fs->table.rename_noreplace = crash_operations.rename;
	fs->table.link_unnamed = link_over;
}

static int cut_nothing(const struct gsn_fs *fs, int fd, uint64_t bytes)
{
	(void)fs;
	(void)fd;
	(void)bytes;
	return 0;
}

static void file_not_cut_to_its_length(struct crash_fs *fs)
{
	fs->table.truncate = cut_nothing;
}

static int rename_later(const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	struct crash_op *kept = &of(fs)->kept;

	(void)directory;
	memcpy(kept->from, from, strlen(from) + 1);
	memcpy(kept->to, to, strlen(to) + 1);
	return 0;
}

static int sync_folder_then_rename(const struct gsn_fs *fs, int directory)
{
	struct crash_op *kept = &of(fs)->kept;
	int result = crash_operations.fsync_directory(fs, directory);

	if (result || !kept->from[0])
		return result; /* a link is no rename */
	return crash_operations.rename(fs, directory, kept->from, kept->to);
}

static void folder_synced_before_the_rename(struct crash_fs *fs)
{
	fs->table.rename = rename_later;
	fs->table.rename_noreplace = rename_later;
	fs->table.fsync_directory = sync_folder_then_rename;
}

static const struct mutant {
	const char *name;
	void (*mutate)(struct crash_fs *fs);
} mutants[] = {
	{"no fsync", no_fsync},
	{"no fsync of the folder", no_fsync_of_the_folder},
	{"fsync of another file", fsync_of_another_file},
	{"rename before fsync", rename_before_fsync},
	{"old file deleted first", old_file_deleted_first},
	{"written in place", written_in_place},
	{"seal before data", seal_before_data},
	{"fsync before the write is done", fsync_before_the_write_is_done},
	{"digest of the wrong bytes", digest_of_the_wrong_bytes},
	{"fsync error ignored", fsync_error_ignored},
	{"fsync tried again after an error", fsync_tried_again},
	{"short write ignored", short_write_ignored},
	{"write error ignored", write_error_ignored},
	{"old file replaced unasked", old_file_replaced_unasked},
	{"file not cut to its length", file_not_cut_to_its_length},
	{"folder synced before the rename", folder_synced_before_the_rename},
};
enum { MUTANTS = sizeof mutants / sizeof mutants[0] };

static bool is_caught(const struct mutant *mutant, struct crash_lab *lab, struct crash_trial *trial)
{
	uint64_t violations = 0;

	/* The small ones: wrong in one block is wrong enough. */
	for (int i = 0; crash_scenarios[i].name && !violations; i++) {
		if (crash_scenarios[i].large || crash_scenarios[i].read_back)
			continue;
		crash_trial_open(trial, lab, &crash_scenarios[i], mutant->mutate);
		crash_trial_check(trial, RANDOM_CHOICES);
		violations = trial->violations;
		if (violations)
			(void)printf("%s: %s\n", mutant->name, trial->first);
		crash_trial_close(trial);
	}
	return violations > 0;
}

START_TEST(a_wrong_writer_is_caught)
{
	const struct mutant *mutant = &mutants[_i];
	struct crash_trial *trial = malloc(sizeof *trial);
	struct crash_lab lab;

	ck_assert_ptr_nonnull(trial);
	crash_lab_open(&lab);
	ck_assert_msg(is_caught(mutant, &lab, trial), "not caught: %s", mutant->name);
	crash_lab_close(&lab);
	free(trial);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wrong_writers");
	TCase *cases = tcase_create("wrong_writers");
	SRunner *runner;
	int failed;

	tcase_set_timeout(cases, 60);
	tcase_add_loop_test(cases, a_wrong_writer_is_caught, 0, MUTANTS);
	suite_add_tcase(suite, cases);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
