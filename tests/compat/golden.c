/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every golden snapshot is answered as its name says: by the functions of formats alone, and what
 * only a chain shows, when the file is opened with its parents.
 */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <gpusnap/moe.h>
#include <gpusnap/probe.h>
#include <gpusnap/snapshot.h>

#include "tests/support/file.h"
#include "tests/support/gsnap_make.h"
#include "tests/support/suite.h"

#define GOLDEN GPUSNAP_TEST_DATA "/../../formats/golden/"

static gpusnap_error err;

static bool is_golden(const struct dirent *entry)
{
	return strstr(entry->d_name, ".gsnap") != NULL;
}

/* "corrupt__data.gsnap" -> GPUSNAP_E_CORRUPT. */
static gpusnap_status expected_status(const char *name)
{
	const char *end = strstr(name, "__");
	char text[32] = "E_";
	size_t length;

	ck_assert_msg(end != NULL, "%s has no status in its name", name);
	length = (size_t)(end - name);
	ck_assert_uint_lt(length, sizeof text - 3);
	for (size_t i = 0; i < length; i++)
		text[2 + i] = (char)toupper((unsigned char)name[i]);
	return gpusnap_status_from_name(text);
}

static gpusnap_status read_golden(const char *folder, const char *name, gpusnap_plan **ret_plan)
{
	char path[PATH_MAX];
	size_t length;
	uint8_t *bytes;
	gpusnap_status status;

	ck_assert_int_lt(snprintf(path, sizeof path, GOLDEN "%s/%s", folder, name), PATH_MAX);
	bytes = read_file(path, &length);
	status = read_gsnap(bytes, length, NULL, ret_plan, &err);
	free(bytes);
	return status;
}

/* As read_golden(), then with the chain. */
static gpusnap_status open_golden(const char *folder, const char *name)
{
	char path[PATH_MAX];
	gpusnap_snapshot *snapshot;
	gpusnap_status status = read_golden(folder, name, NULL);

	if (status)
		return status;
	ck_assert_int_lt(snprintf(path, sizeof path, GOLDEN "%s/%s", folder, name), PATH_MAX);
	status = gpusnap_snapshot_open(path, &snapshot, &err);
	if (!status)
		gpusnap_snapshot_close(snapshot);
	return status;
}

START_TEST(a_golden_chain_gives_each_state)
{
	static const char *const names[] = {"leaves", "delta_1", "delta_2"};
	gpusnap_snapshot *links[3];
	gpusnap_differences differences;
	gpusnap_damage damage;
	char path[PATH_MAX];

	for (int i = 0; i < 3; i++) {
		(void)snprintf(path, sizeof path, GOLDEN "good/%s.gsnap", names[i]);
		ck_ok(gpusnap_snapshot_open(path, &links[i], &err));
		ck_assert_uint_eq(gpusnap_snapshot_link_count(links[i]), i + 1);
		ck_ok(gpusnap_snapshot_verify(links[i], NULL, &damage, NULL, &err));
		ck_assert_uint_eq(damage.count, 0);
		gpusnap_damage_release(&damage);
	}
	ck_ok(gpusnap_snapshot_diff(links[0], links[2], &differences, &err));
	ck_assert_uint_eq(differences.count, 2);
	ck_assert_uint_eq(differences.items[0].leaves_changed, 1);
	ck_assert_uint_eq(differences.items[1].bytes_changed, 1000);
	gpusnap_differences_release(&differences);
	for (int i = 0; i < 3; i++)
		gpusnap_snapshot_close(links[i]);
}
END_TEST

START_TEST(good_files_are_read)
{
	DIR *folder = opendir(GOLDEN "good");
	struct dirent *entry;
	int count = 0;

	ck_assert_ptr_nonnull(folder);
	while ((entry = readdir(folder)) != NULL) {
		if (!is_golden(entry))
			continue;
		ck_ok(open_golden("good", entry->d_name));
		count++;
	}
	ck_assert_int_eq(closedir(folder), 0);
	ck_assert_int_ge(count, 10);
}
END_TEST

START_TEST(bad_files_are_answered_as_their_names_say)
{
	DIR *folder = opendir(GOLDEN "bad");
	struct dirent *entry;
	int count = 0;

	ck_assert_ptr_nonnull(folder);
	while ((entry = readdir(folder)) != NULL) {
		gpusnap_status expected, got;

		if (!is_golden(entry))
			continue;
		expected = expected_status(entry->d_name);
		ck_assert_int_lt((int)expected, 0);
		got = open_golden("bad", entry->d_name);
		ck_assert_msg(got == expected, "%s: %s (%s)", entry->d_name,
			gpusnap_status_name(got), got ? err.message : "read");
		ck_assert_msg(err.message[0] != '\0', "%s: no message", entry->d_name);
		count++;
	}
	ck_assert_int_eq(closedir(folder), 0);
	ck_assert_int_ge(count, 60);
}
END_TEST

START_TEST(records_of_a_golden_file_are_read)
{
	gpusnap_plan *plan;
	gpusnap_moe_model *model;
	gpusnap_probe *probe;

	ck_ok(read_golden("good", "two_regions.gsnap", &plan));
	ck_ok(gpusnap_moe_model_decode(gpusnap_json_get(plan->records, "model"), &model, &err));
	ck_ok(gpusnap_probe_decode(gpusnap_json_get(plan->records, "probe"), &probe, &err));
	ck_assert_uint_eq(model->layers[0].mask.first, 3);
	ck_assert(model->layers[0].norm_epsilon == 0.0009765625f);
	ck_assert_uint_eq(probe->layers[0].local_assignments, 33);
	ck_assert_uint_eq(plan->buffer_count, 6);
	ck_assert_uint_eq(plan->view_count, 3);
	gpusnap_moe_model_free(model);
	gpusnap_probe_free(probe);
	gpusnap_plan_free(plan);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		good_files_are_read,
		bad_files_are_answered_as_their_names_say,
		records_of_a_golden_file_are_read,
		a_golden_chain_gives_each_state,
	};

	return RUN_SUITE("golden", tests);
}
