/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that are read back: what the disk made of the file is found before it has its name. */
#include <errno.h>
#include <string.h>

#include <gpusnap/snapshot.h>

#include "snapshot/save.h"
#include "tests/support/file.h"
#include "tests/support/flip.h"
#include "tests/support/flipping_fs.h"
#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

static char disk[PATH_MAX];
static char memory[PATH_MAX]; /* tmpfs: no O_DIRECT there */

struct scene {
	struct flipping_fs flipping;
	gpusnap_device *device;
	struct live_state state;
	gpusnap_save_options options;
	char path[PATH_MAX];
};

static void scene_open(struct scene *scene, const char *folder)
{
	gpusnap_error err;
	uint64_t random = 31;
	uint32_t id;

	scene->flipping = flipping_fs_make();
	scene->options = (gpusnap_save_options)GPUSNAP_SAVE_OPTIONS_INIT;
	scene->options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	scene->options.io.block_bytes = 128 << 10;
	scene->options.replace = true;
	scene->options.read_back = true;
	tempdir_join(scene->path, folder, "state.gsnap");
	ck_ok(gpusnap_device_open(test_device(), &scene->device, &err));
	live_open(&scene->state, scene->device);
	id = live_region(&scene->state, "weights", 8 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&scene->state, "w", id, 4096, 3 * LEAF + 77);
	live_buffer(&scene->state, "empty", id, 4096, 0);
	live_buffer(&scene->state, "v", id, 4 * LEAF, 4 * LEAF);
}

static void scene_close(struct scene *scene)
{
	live_close(&scene->state);
	gpusnap_device_close(scene->device);
	(void)unlink(scene->path);
}

static gpusnap_status scene_save(
	struct scene *scene, gpusnap_save_report *ret_report, gpusnap_error *err)
{
	return gsn_save_on(&scene->flipping.table, scene->state.registry, scene->path,
		&scene->options, ret_report, err);
}

/* A flip at `offset` must be found and named, and the old file left alone. */
static void check_flip(struct scene *scene, uint64_t offset, const char *text)
{
	static const char old[] = "old";
	gpusnap_error err;
	size_t length;
	uint8_t *bytes;

	file_write(scene->path, old, sizeof old);
	scene->flipping.flips = true;
	scene->flipping.offset = offset;
	scene->flipping.bit = (unsigned)(offset % 8);
	ck_fails(scene_save(scene, NULL, &err), GPUSNAP_E_CORRUPT, text);
	ck_assert_ptr_nonnull(strstr(err.message, scene->path));
	ck_assert_uint_le(err.offset, offset);
	ck_assert_uint_lt(offset - err.offset, LEAF);
	bytes = read_file(scene->path, &length);
	ck_assert_uint_eq(length, sizeof old);
	ck_assert_int_eq(memcmp(bytes, old, sizeof old), 0);
	free(bytes);
}

static void check_entry(struct scene *scene, const gpusnap_snapshot_entry *entry)
{
	char text[160];

	for (uint64_t leaf = 0; leaf < entry->leaf_count; leaf++) {
		uint64_t begin = entry->file_offset + leaf * LEAF;

		(void)snprintf(text, sizeof text,
			"'%s', leaf %llu (file offset %llu) and 0 more leaves", entry->name,
			(unsigned long long)leaf, (unsigned long long)begin);
		check_flip(
			scene, begin + (leaf * 7919) % (entry->bytes - leaf * LEAF) % LEAF, text);
	}
}

static void flip_everywhere(const char *folder)
{
	gpusnap_snapshot *snapshot;
	const gpusnap_seal *seal;
	struct scene scene;
	gpusnap_error err;

	scene_open(&scene, folder);
	ck_ok(scene_save(&scene, NULL, &err));
	ck_ok(gpusnap_snapshot_open(scene.path, &snapshot, &err));
	seal = gpusnap_snapshot_seal(snapshot);
	for (size_t i = 0; i < gpusnap_snapshot_entry_count(snapshot); i++)
		check_entry(&scene, gpusnap_snapshot_entry_at(snapshot, i));
	check_flip(&scene, 0, "'header', leaf 0 (file offset 0)");
	check_flip(&scene, seal->header_bytes - 1, "'header', leaf 0 (file offset 0)");
	check_flip(&scene, seal->file_bytes - GPUSNAP_SEAL_BYTES - 1, "'gpusnap.leaves', leaf 0");
	check_flip(&scene, seal->file_bytes - 1, "'gpusnap.seal', leaf 0");
	gpusnap_snapshot_close(snapshot);
	ck_assert_int_eq(tempdir_count(folder), 1);
	scene_close(&scene);
}

START_TEST(a_flip_on_the_way_to_the_disk_is_named_and_the_target_stays)
{
	flip_everywhere(disk);
}
END_TEST

START_TEST(a_flip_is_found_without_direct_io_too)
{
	flip_everywhere(memory);
}
END_TEST

START_TEST(without_read_back_the_same_flip_comes_to_the_name)
{
	gpusnap_damage damage;
	gpusnap_snapshot *snapshot;
	struct scene scene;
	gpusnap_error err;

	scene_open(&scene, disk);
	scene.options.read_back = false;
	ck_ok(scene_save(&scene, NULL, &err));
	ck_ok(gpusnap_snapshot_open(scene.path, &snapshot, &err));
	scene.flipping.offset = gpusnap_snapshot_entry_at(snapshot, 0)->file_offset;
	gpusnap_snapshot_close(snapshot);
	scene.flipping.flips = true;
	ck_ok(scene_save(&scene, NULL, &err));
	ck_ok(gpusnap_snapshot_open(scene.path, &snapshot, &err));
	ck_ok(gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, &err));
	ck_assert_uint_eq(damage.count, 1);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	scene_close(&scene);
}
END_TEST

START_TEST(the_file_is_synced_dropped_from_the_cache_and_read_before_it_has_its_name)
{
	char journal[FLIPPING_JOURNAL] = "";
	struct scene scene;
	gpusnap_error err;

	scene_open(&scene, disk);
	scene.options.replace = false;
	scene.flipping.journal = journal;
	ck_ok(scene_save(&scene, NULL, &err));
	ck_assert_str_eq(journal, "socld");
	scene_close(&scene);
}
END_TEST

START_TEST(the_report_says_how_it_was_read)
{
	gpusnap_save_report report;
	struct scene scene;
	gpusnap_error err;

	scene_open(&scene, memory);
	ck_ok(scene_save(&scene, &report, &err));
	ck_assert_ptr_nonnull(strstr(report.read_back, "through the page cache"));
	ck_assert_ptr_nonnull(strstr(report.read_back, "tmpfs"));
	scene.options.read_back = false;
	ck_ok(scene_save(&scene, &report, &err));
	ck_assert_str_eq(report.read_back, "");
	scene_close(&scene);
	scene_open(&scene, disk);
	scene.options.io.direct = GPUSNAP_DIRECT_OFF;
	ck_ok(scene_save(&scene, &report, &err));
	ck_assert_ptr_nonnull(strstr(report.read_back, "through the page cache"));
	ck_assert_ptr_nonnull(strstr(report.read_back, "cached I/O was asked for"));
	scene.options.io.direct = GPUSNAP_DIRECT_ON;
	if (scene_save(&scene, &report, &err) == GPUSNAP_OK)
		ck_assert_str_eq(report.read_back, "direct I/O");
	else
		ck_assert_int_eq(err.status, GPUSNAP_E_UNSUPPORTED);
	scene_close(&scene);
}
END_TEST

static int cannot_open(const struct gsn_fs *fs, int fd)
{
	(void)fs;
	(void)fd;
	return -EMFILE;
}

START_TEST(a_file_that_cannot_be_read_back_is_not_saved)
{
	struct scene scene;
	gpusnap_error err;

	scene_open(&scene, disk);
	scene.flipping.table.open_again = cannot_open;
	ck_fails(scene_save(&scene, NULL, &err), GPUSNAP_E_LIMIT, "cannot open it again");
	ck_assert_int_eq(err.os_errno, EMFILE);
	ck_assert_int_eq(tempdir_count(disk), 0);
	scene_close(&scene);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_flip_on_the_way_to_the_disk_is_named_and_the_target_stays,
		a_flip_is_found_without_direct_io_too,
		without_read_back_the_same_flip_comes_to_the_name,
		the_file_is_synced_dropped_from_the_cache_and_read_before_it_has_its_name,
		the_report_says_how_it_was_read,
		a_file_that_cannot_be_read_back_is_not_saved,
	};
	int status;

	tempdir_make(disk, NULL);
	tempdir_make(memory, "/dev/shm");
	status = RUN_SUITE("save_read_back", tests);
	tempdir_remove(disk);
	tempdir_remove(memory);
	return status;
}
