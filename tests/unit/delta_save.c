/* SPDX-License-Identifier: Apache-2.0 */
/* Saving deltas: what they hold, what they refuse, and the full snapshot that they stand for. */
#include <string.h>

#include "formats/base/bytes.h"
#include "snapshot/delta_layout.h"
#include "tests/support/delta_chain.h"
#include "tests/support/file.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

static char folder[PATH_MAX];
static gpusnap_error err;

/* A region of 12 leaves: w of 8 and a short one, then unclaimed bytes, then v of 2. */
struct scene {
	gpusnap_device *device;
	struct live_state state;
	struct delta_chain chain;
	uint8_t *bytes;
};

static void scene_open(struct scene *scene)
{
	uint64_t random = 5;
	uint32_t id;

	*scene = (struct scene){.chain = {.state = &scene->state, .folder = folder}};
	ck_ok(gpusnap_device_open("host", &scene->device, &err));
	live_open(&scene->state, scene->device);
	id = live_region(&scene->state, "weights", 12 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&scene->state, "w", id, 0, 8 * LEAF + 100);
	live_buffer(&scene->state, "v", id, 10 * LEAF, 2 * LEAF);
	live_remember(&scene->state);
	scene->bytes = live_bytes(scene->state.registry, 0);
	chain_add(&scene->chain);
}

static void scene_close(struct scene *scene)
{
	chain_close(&scene->chain);
	live_close(&scene->state);
	gpusnap_device_close(scene->device);
}

static uint64_t file_size(const char *path)
{
	struct stat file;

	ck_assert_int_eq(stat(path, &file), 0);
	return (uint64_t)file.st_size;
}

static gpusnap_status save(const struct scene *scene, const char *name, const char *parent)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	char path[PATH_MAX];

	tempdir_join(path, folder, name);
	options.parent = parent;
	options.replace = true;
	return gpusnap_save(scene->state.registry, path, &options, NULL, &err);
}

START_TEST(changed_leaves_are_written_and_no_others)
{
	struct scene scene;
	const gpusnap_save_report *report;

	scene_open(&scene);
	report = &scene.chain.reports[1];
	chain_add(&scene.chain);
	ck_assert_uint_eq(report->depth, 1);
	ck_assert_uint_eq(report->leaves_written, 0);
	ck_assert_uint_eq(report->leaves, 13);
	ck_assert(gpusnap_digest_equal(report->parent_root, scene.chain.reports[0].root));
	ck_assert_uint_eq(file_size(scene.chain.paths[1]), report->io.bytes);
	ck_assert_uint_lt(report->io.bytes, LEAF);
	scene.bytes[3 * LEAF] ^= 1;
	scene.bytes[4 * LEAF] ^= 1;
	scene.bytes[8 * LEAF + 99] ^= 1;  /* the short leaf of w */
	scene.bytes[8 * LEAF + 100] ^= 1; /* unclaimed */
	chain_add(&scene.chain);
	ck_assert_uint_eq(scene.chain.reports[2].leaves_written, 4);
	ck_assert_uint_gt(scene.chain.reports[2].io.bytes, 3 * LEAF + 100);
	ck_assert_uint_lt(scene.chain.reports[2].io.bytes, 3 * LEAF + 100 + 4 * UINT64_C(4096));
	scene_close(&scene);
}
END_TEST

START_TEST(what_is_not_the_parents_own_is_listed_and_refused)
{
	struct scene scene;
	char target[PATH_MAX];

	scene_open(&scene);
	tempdir_join(target, folder, "refused.gsnap");
	ck_ok(gpusnap_buffer_unregister(scene.state.registry, "v", &err));
	live_buffer(&scene.state, "u", 1, 10 * LEAF, 2 * LEAF);
	ck_fails(save(&scene, "refused.gsnap", scene.chain.paths[0]), GPUSNAP_E_MISMATCH,
		"buffer 'u' is not in the snapshot; buffer 'v' is missing here");
	ck_assert_int_ne(access(target, F_OK), 0);
	ck_ok(gpusnap_buffer_unregister(scene.state.registry, "u", &err));
	live_buffer(&scene.state, "v", 1, 10 * LEAF, LEAF);
	ck_fails(save(&scene, "refused.gsnap", scene.chain.paths[0]), GPUSNAP_E_MISMATCH,
		"buffer 'v': shape [65536] here, [131072] in the snapshot");
	ck_fails(save(&scene, "refused.gsnap", "/none.gsnap"), GPUSNAP_E_IO, "/none.gsnap");
	ck_assert_int_ne(access(target, F_OK), 0);
	scene_close(&scene);
}
END_TEST

START_TEST(the_ninth_delta_is_refused_with_the_remedy)
{
	gpusnap_snapshot *snapshot;
	gpusnap_flatten_options options = GPUSNAP_FLATTEN_OPTIONS_INIT;
	struct scene scene;

	scene_open(&scene);
	while (scene.chain.count < CHAIN_LINKS_MAX) {
		scene.bytes[scene.chain.count * LEAF] ^= 1;
		chain_add(&scene.chain);
	}
	ck_fails(save(&scene, "ninth.gsnap", scene.chain.paths[8]), GPUSNAP_E_LIMIT,
		"a delta of it would have 9, at most 8; make a full one of it (gpusnap flatten)");
	options.replace = true;
	ck_ok(gpusnap_snapshot_open(scene.chain.paths[8], &snapshot, &err));
	ck_ok(gpusnap_snapshot_flatten(snapshot, scene.chain.paths[8], &options, NULL, &err));
	gpusnap_snapshot_close(snapshot);
	ck_ok(save(&scene, "ninth.gsnap", scene.chain.paths[8]));
	scene_close(&scene);
}
END_TEST

START_TEST(no_file_of_the_chain_is_replaced)
{
	gpusnap_flatten_options options = GPUSNAP_FLATTEN_OPTIONS_INIT;
	gpusnap_snapshot *snapshot;
	struct scene scene;
	char link[PATH_MAX];
	uint64_t before;

	scene_open(&scene);
	chain_add(&scene.chain);
	before = file_size(scene.chain.paths[0]);
	ck_fails(save(&scene, "0.gsnap", scene.chain.paths[1]), GPUSNAP_E_INVALID,
		"which deltas need as their parent");
	ck_fails(save(&scene, "1.gsnap", scene.chain.paths[1]), GPUSNAP_E_INVALID,
		"which deltas need as their parent");
	tempdir_join(link, folder, "link.gsnap");
	ck_assert_int_eq(symlink(scene.chain.paths[0], link), 0);
	ck_ok(save(&scene, "2.gsnap", link));
	options.replace = true;
	ck_ok(gpusnap_snapshot_open(scene.chain.paths[1], &snapshot, &err));
	ck_fails(gpusnap_snapshot_flatten(snapshot, scene.chain.paths[0], &options, NULL, &err),
		GPUSNAP_E_INVALID, "which deltas need as their parent");
	gpusnap_snapshot_close(snapshot);
	ck_assert_uint_eq(file_size(scene.chain.paths[0]), before);
	(void)unlink(link);
	scene_close(&scene);
}
END_TEST

/* ---- flatten ---- */

/* The root that a full file would have with another identifier. */
static gpusnap_digest root_with_uuid(const char *path, const uint8_t uuid[GPUSNAP_UUID_BYTES])
{
	gpusnap_snapshot *snapshot;
	gpusnap_seal seal;
	char old[37], new[37];
	size_t length;
	uint8_t *bytes = read_file(path, &length), *at;

	ck_ok(gpusnap_snapshot_open(path, &snapshot, &err));
	seal = *gpusnap_snapshot_seal(snapshot);
	gpusnap_snapshot_close(snapshot);
	(void)gpusnap_uuid_format(seal.uuid, old);
	(void)gpusnap_uuid_format(uuid, new);
	at = memmem(bytes, seal.header_bytes, old, 36);
	ck_assert_ptr_nonnull(at);
	memcpy(at, new, 36);
	seal.header = gpusnap_digest_of(bytes, seal.header_bytes);
	free(bytes);
	return gpusnap_digest_root(
		seal.version, seal.header, seal.leaves, seal.file_bytes, seal.parent_root);
}

START_TEST(a_flattened_chain_is_the_file_of_a_full_save)
{
	gpusnap_flatten_report report;
	gpusnap_snapshot *snapshot;
	struct scene scene;
	char flat[PATH_MAX], full[PATH_MAX];
	gpusnap_digest wanted;

	scene_open(&scene);
	for (int i = 0; i < 3; i++) {
		scene.bytes[(uint64_t)i * 3 * LEAF + 7] ^= 1;
		chain_add(&scene.chain);
	}
	tempdir_join(flat, folder, "flat.gsnap");
	tempdir_join(full, folder, "full.gsnap");
	ck_ok(save(&scene, "full.gsnap", NULL));
	ck_ok(gpusnap_snapshot_open(scene.chain.paths[3], &snapshot, &err));
	ck_ok(gpusnap_snapshot_flatten(snapshot, flat, NULL, &report, &err));
	wanted = root_with_uuid(full, gpusnap_snapshot_seal(snapshot)->uuid);
	ck_assert(gpusnap_digest_equal(report.root, wanted));
	ck_assert_uint_eq(file_size(flat), file_size(full));
	ck_fails(
		gpusnap_snapshot_flatten(snapshot, flat, NULL, NULL, &err), GPUSNAP_E_IO, "exists");
	gpusnap_snapshot_close(snapshot);
	(void)unlink(flat);
	scene_close(&scene);
}
END_TEST

START_TEST(a_full_snapshot_is_flattened_to_the_same_bytes)
{
	gpusnap_snapshot *snapshot;
	struct scene scene;
	char flat[PATH_MAX];
	size_t length, flat_length;
	uint8_t *bytes, *flat_bytes;

	scene_open(&scene);
	tempdir_join(flat, folder, "copy.gsnap");
	ck_ok(gpusnap_snapshot_open(scene.chain.paths[0], &snapshot, &err));
	ck_ok(gpusnap_snapshot_flatten(snapshot, flat, NULL, NULL, &err));
	gpusnap_snapshot_close(snapshot);
	bytes = read_file(scene.chain.paths[0], &length);
	flat_bytes = read_file(flat, &flat_length);
	ck_assert_uint_eq(length, flat_length);
	ck_assert(memcmp(bytes, flat_bytes, length) == 0);
	free(bytes);
	free(flat_bytes);
	(void)unlink(flat);
	scene_close(&scene);
}
END_TEST

/* ---- state that changes under the writer ---- */

/* The thread sanitizer ends a program for what this test is about. */
#if defined(__SANITIZE_THREAD__)
enum { MAY_RACE = 0 };
#else
enum { MAY_RACE = 1 };
#endif

static int scribble_progress(void *user, uint64_t bytes_done, uint64_t bytes_total)
{
	struct scene *scene = user;

	(void)bytes_done;
	(void)bytes_total;
	memset(scene->bytes, 0x77, 12 * LEAF);
	return 0;
}

START_TEST(leaves_that_change_meanwhile_are_whole)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	struct scene scene;
	char path[PATH_MAX];

	if (!MAY_RACE)
		return;
	scene_open(&scene);
	tempdir_join(path, folder, "meanwhile.gsnap");
	scene.bytes[2 * LEAF] ^= 1;
	options.parent = scene.chain.paths[0];
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.block_bytes = LEAF;
	options.io.progress = scribble_progress;
	options.io.user = &scene;
	ck_ok(gpusnap_save(scene.state.registry, path, &options, NULL, &err));
	ck_ok(gpusnap_snapshot_open(path, &snapshot, &err));
	ck_ok(gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, &err));
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	ck_ok(gpusnap_restore_snapshot(scene.state.registry, snapshot, NULL, NULL, &err));
	/* What the digest pass found unchanged is the parent's, whatever happened later. */
	ck_assert(memcmp(scene.bytes, scene.chain.images[0][0], 2 * LEAF) == 0);
	ck_assert(
		memcmp(scene.bytes + 3 * LEAF, scene.chain.images[0][0] + 3 * LEAF, 9 * LEAF) == 0);
	gpusnap_snapshot_close(snapshot);
	scene_close(&scene);
}
END_TEST

/* ---- more runs than a plan may have ---- */

static bool is_written(const struct gsn_layout *layout, uint64_t leaf)
{
	for (size_t i = 0; i < layout->segment_count; i++) {
		const struct gsn_segment *segment = &layout->segments[i];

		if (leaf >= segment->first_leaf &&
			leaf < segment->first_leaf + gpusnap_leaf_count(segment->bytes))
			return true;
	}
	return false;
}

/* Every second leaf of w changed: 5 runs, of which only `most` may be. */
static void check_runs(struct scene *scene, gpusnap_snapshot *parent, uint64_t most)
{
	char name[] = "0.gsnap";
	const struct gsn_delta_parent against = {parent, name, 1, most};
	const uint64_t first = gpusnap_snapshot_entry_find(parent, "w")->first_leaf;
	struct gsn_layout layout;

	ck_ok(gsn_layout_init_entries(&layout, scene->state.registry, &err));
	memcpy(layout.leaves, gpusnap_snapshot_leaves(parent), 16 * layout.leaf_count);
	for (uint64_t i = 0; i < 9; i += 2)
		layout.leaves[first + i].bytes[0] ^= 1;
	ck_ok(gsn_delta_layout(&layout, scene->state.registry, &against, &err));
	ck_assert_uint_ge(layout.segment_count, 1);
	ck_assert_uint_le(layout.segment_count, most);
	for (uint64_t i = 0; i < 9; i += 2)
		ck_assert(is_written(&layout, first + i));
	gsn_layout_release(&layout);
}

/* Two entries changed, and one run at most. */
static void check_no_runs(struct scene *scene, gpusnap_snapshot *parent)
{
	char name[] = "0.gsnap";
	const struct gsn_delta_parent against = {parent, name, 1, 1};
	struct gsn_layout layout;

	ck_ok(gsn_layout_init_entries(&layout, scene->state.registry, &err));
	ck_fails(gsn_delta_layout(&layout, scene->state.registry, &against, &err), GPUSNAP_E_LIMIT,
		"save in full");
	gsn_layout_release(&layout);
}

START_TEST(too_many_runs_are_joined_over_small_gaps)
{
	gpusnap_snapshot *parent;
	struct scene scene;

	scene_open(&scene);
	ck_ok(gpusnap_snapshot_open(scene.chain.paths[0], &parent, &err));
	for (uint64_t most = 1; most <= 6; most++)
		check_runs(&scene, parent, most);
	check_no_runs(&scene, parent);
	gpusnap_snapshot_close(parent);
	scene_close(&scene);
}
END_TEST

/* ---- the baseline that a delta leaves behind ---- */

START_TEST(state_is_offloaded_against_a_delta)
{
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_save_options elsewhere = GPUSNAP_SAVE_OPTIONS_INIT;
	char other[PATH_MAX], path[PATH_MAX];
	struct scene scene;
	gpusnap_damage damage;

	scene_open(&scene);
	scene.bytes[5 * LEAF] ^= 1;
	tempdir_join(other, folder, "elsewhere");
	ck_assert_int_eq(mkdir(other, 0700), 0);
	tempdir_join(path, other, "delta.gsnap");
	elsewhere.parent = scene.chain.paths[0];
	ck_ok(gpusnap_save(scene.state.registry, path, &elsewhere, NULL, &err));
	live_remember(&scene.state);
	options.backing = GPUSNAP_BACKING_SNAPSHOT;
	ck_ok(gpusnap_offload(scene.state.registry, &options, NULL, &err));
	ck_ok(gpusnap_resume(scene.state.registry, NULL, NULL, &err));
	ck_assert(live_equals(&scene.state, scene.state.registry));
	ck_ok(gpusnap_verify(scene.state.registry, NULL, &damage, &err));
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	tempdir_remove(other);
	scene_close(&scene);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		changed_leaves_are_written_and_no_others,
		what_is_not_the_parents_own_is_listed_and_refused,
		the_ninth_delta_is_refused_with_the_remedy,
		no_file_of_the_chain_is_replaced,
		a_flattened_chain_is_the_file_of_a_full_save,
		a_full_snapshot_is_flattened_to_the_same_bytes,
		leaves_that_change_meanwhile_are_whole,
		too_many_runs_are_joined_over_small_gaps,
		state_is_offloaded_against_a_delta,
	};
	int result;

	tempdir_make(folder, NULL);
	result = RUN_SUITE("delta_save", tests);
	tempdir_remove(folder);
	return result;
}
