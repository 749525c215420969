/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power cuts under the real writer (tests/support/crash_lab.h): after every step of a save,
 * everything that no fsync covers is applied, dropped, torn or garbage, and the real reader looks
 * at what is left.
 */
#include <stdio.h>
#include <string.h>

#include "tests/support/crash_lab.h"
#include "tests/support/suite.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RANDOM_CHOICES = 300, STATES_WANTED = 10000 };
#else
enum { RANDOM_CHOICES = 11000, STATES_WANTED = 100000 };
#endif

/* ---- life after the crash ---- */

static void save_after_crash(struct crash_trial *trial, const struct crash_image *image)
{
	static const struct crash_scenario again = {.named = true, .replace = true};
	struct crash_fs *fs = malloc(sizeof *fs);
	struct crash_file file = {NULL, 0, 0};
	uint8_t uuid[GPUSNAP_UUID_BYTES];
	gpusnap_error err;

	ck_assert_ptr_nonnull(fs);
	crash_open(fs, true);
	for (unsigned i = 0; i < CRASH_INODES; i++) {
		const struct crash_name *name = &image->folder.names[i];

		if (name->name[0])
			crash_add(fs, name->name, image->files[name->inode].bytes,
				image->files[name->inode].length);
	}
	ck_ok(crash_save(trial->lab, fs, trial->owners[CRASH_OLD].registry, &again, uuid, &err));
	ck_assert_uint_eq(crash_name_count(&fs->now), 1);
	file.bytes = crash_content(fs, (unsigned)crash_find(&fs->now, CRASH_TARGET), &file.length);
	ck_assert(crash_lab_accepts(trial->lab, &file, trial->uuids[CRASH_OLD]));
	ck_assert_mem_eq(trial->uuids[CRASH_OLD], uuid, sizeof uuid);
	free(file.bytes);
	crash_close(fs);
	free(fs);
}

static uint64_t save_after_each_point(struct crash_trial *trial)
{
	struct crash_image image = {.folder = {{{""}}}};
	uint64_t saves = 0;

	for (unsigned ops = 0; ops <= trial->fs.op_count; ops++) {
		struct crash_point point = crash_point_at(&trial->fs, ops);

		for (uint64_t names = 0; names < point.name_choices; names++) {
			struct crash_choice choice = crash_choice_of(&point, 0);

			choice.names = names;
			crash_image_make(&point, &choice, &image);
			save_after_crash(trial, &image);
			saves++;
		}
	}
	crash_image_free(&image);
	return saves;
}

/* ---- the real writer ---- */

START_TEST(after_a_power_cut_there_is_the_old_file_or_the_new_one)
{
	struct crash_trial *trial = malloc(sizeof *trial);
	struct crash_lab lab;
	int saves = 0;

	ck_assert_ptr_nonnull(trial);
	crash_lab_open(&lab);
	for (int i = 0; crash_scenarios[i].name; i++, saves++) {
		bool fails = crash_scenarios[i].cancel_at ||
			     (crash_scenarios[i].over && !crash_scenarios[i].replace);

		crash_trial_open(trial, &lab, &crash_scenarios[i], NULL);
		ck_assert_int_eq(trial->result, fails ? GPUSNAP_E_IO : GPUSNAP_OK);
		crash_trial_check(trial, RANDOM_CHOICES);
		ck_assert_msg(trial->violations == 0, "%s", trial->first);
		crash_trial_close(trial);
	}
	(void)printf("crash model: %llu states after %llu steps of %d saves; %llu files read\n",
		(unsigned long long)lab.states.count, (unsigned long long)lab.points, saves,
		(unsigned long long)lab.files_read);
	ck_assert_uint_ge(lab.states.count, STATES_WANTED);
	crash_lab_close(&lab);
	free(trial);
}
END_TEST

START_TEST(after_a_power_cut_the_next_save_needs_no_help)
{
	struct crash_trial *trial = malloc(sizeof *trial);
	uint64_t saves = 0;
	struct crash_lab lab;

	ck_assert_ptr_nonnull(trial);
	crash_lab_open(&lab);
	for (int i = 0; crash_scenarios[i].name; i++) {
		crash_trial_open(trial, &lab, &crash_scenarios[i], NULL);
		saves += save_after_each_point(trial);
		crash_trial_close(trial);
	}
	(void)printf("crash model: %llu saves after a crash\n", (unsigned long long)saves);
	crash_lab_close(&lab);
	free(trial);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		after_a_power_cut_there_is_the_old_file_or_the_new_one,
		after_a_power_cut_the_next_save_needs_no_help,
	};

	return RUN_SUITE("crash_model", tests);
}
