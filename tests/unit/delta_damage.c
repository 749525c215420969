/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damage of a chain: a flip in every leaf of every file is told by buffer, leaf, file and offset to
 * whoever reads it, and to nobody else; a parent that is missing, moved, another, damaged or in a
 * circle is named, with the leaf that is missed.
 */
#include <errno.h>
#include <string.h>

#include "snapshot/snapshot_file.h"
#include "tests/support/delta_chain.h"
#include "tests/support/flip.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

enum { LINKS = 4, RESTORE_EVERY = 5 };

static char folder[PATH_MAX];
static gpusnap_error err;

struct scene {
	gpusnap_device *device;
	struct live_state state;
	struct delta_chain chain;
	uint64_t random;
};

static void scene_open(struct scene *scene, uint64_t seed)
{
	*scene =
		(struct scene){.chain = {.state = &scene->state, .folder = folder}, .random = seed};
	ck_ok(gpusnap_device_open("host", &scene->device, &err));
	live_random(&scene->state, scene->device, seed);
	for (int i = 0; i < LINKS; i++) {
		chain_add(&scene->chain);
		live_bytes(scene->state.registry, 0)[0] ^= 1; /* no link is without a leaf */
		chain_change(&scene->chain, &scene->random);
	}
}

static void scene_close(struct scene *scene)
{
	chain_close(&scene->chain);
	live_close(&scene->state);
	gpusnap_device_close(scene->device);
}

/* ---- data ---- */

static void check_verify(gpusnap_snapshot *snapshot, const gpusnap_snapshot_entry *entry,
	uint64_t leaf, const struct gsn_location *at)
{
	gpusnap_damage damage;

	ck_ok(gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, &err));
	ck_assert_uint_eq(damage.count, entry ? 1 : 0);
	if (entry) {
		ck_assert_str_eq(damage.items[0].buffer, entry->name);
		ck_assert_uint_eq(damage.items[0].leaf, leaf);
		ck_assert_uint_eq(damage.items[0].leaf_count, 1);
		ck_assert_str_eq(damage.items[0].file, at->path);
		ck_assert_uint_eq(damage.items[0].file_offset, at->offset);
	}
	gpusnap_damage_release(&damage);
}

/* Restore, extract and flatten say the same words. */
static void check_readers(const struct scene *scene, gpusnap_snapshot *snapshot,
	const gpusnap_snapshot_entry *entry, uint64_t leaf, const struct gsn_location *at)
{
	gpusnap_extract_options options = GPUSNAP_EXTRACT_OPTIONS_INIT;
	char path[PATH_MAX], where[PATH_MAX + 16], which[128];

	(void)snprintf(where, sizeof where, "'%s': buffer '%s'", at->path, entry->name);
	(void)snprintf(which, sizeof which, "leaf %llu (", (unsigned long long)leaf);
	tempdir_join(path, folder, "out");
	ck_fails(gpusnap_restore_snapshot(scene->state.registry, snapshot, NULL, NULL, &err),
		GPUSNAP_E_CORRUPT, where);
	ck_assert_ptr_nonnull(strstr(err.message, which));
	ck_assert_uint_eq(err.offset, at->offset);
	ck_fails(gpusnap_snapshot_flatten(snapshot, path, NULL, NULL, &err), GPUSNAP_E_CORRUPT,
		where);
	ck_assert_uint_eq(err.offset, at->offset);
	ck_fails(gpusnap_snapshot_extract(snapshot, entry->name, path, &options, NULL, &err),
		GPUSNAP_E_CORRUPT, where);
	ck_assert_ptr_nonnull(strstr(err.message, which));
	ck_assert_int_ne(access(path, F_OK), 0);
}

/* Flip a bit of one leaf as `snapshot` finds it. */
static void damage_leaf(struct scene *scene, gpusnap_snapshot *snapshot,
	const gpusnap_snapshot_entry *entry, uint64_t leaf)
{
	uint64_t bytes = entry->bytes - leaf * LEAF < LEAF ? entry->bytes - leaf * LEAF : LEAF;
	struct gsn_location at =
		gsn_snapshot_locate(snapshot, gsn_snapshot_leaf_place(snapshot, entry, leaf));
	uint64_t byte = at.offset + random_below(&scene->random, bytes);
	unsigned bit = (unsigned)random_below(&scene->random, 8);

	flip_bit_of(at.path, byte, bit);
	check_verify(snapshot, entry, leaf, &at);
	if (random_below(&scene->random, RESTORE_EVERY) == 0)
		check_readers(scene, snapshot, entry, leaf, &at);
	flip_bit_of(at.path, byte, bit);
}

START_TEST(a_flip_in_each_leaf_is_named_with_its_file)
{
	struct scene scene;
	int leaves = 0;

	scene_open(&scene, random_seed(77));
	for (uint32_t link = 0; link < LINKS; link++) {
		gpusnap_snapshot *snapshot;

		ck_ok(gpusnap_snapshot_open(scene.chain.paths[link], &snapshot, &err));
		for (size_t i = 0; i < gpusnap_snapshot_entry_count(snapshot); i++) {
			const gpusnap_snapshot_entry *entry =
				gpusnap_snapshot_entry_at(snapshot, i);

			for (uint64_t leaf = 0; leaf < entry->leaf_count; leaf++, leaves++)
				damage_leaf(&scene, snapshot, entry, leaf);
		}
		check_verify(snapshot, NULL, 0, NULL);
		gpusnap_snapshot_close(snapshot);
	}
	(void)printf("%d leaves of %d links\n", leaves, LINKS);
	scene_close(&scene);
}
END_TEST

/* A leaf of the full file that a delta replaces is no concern of that delta. */
START_TEST(what_a_delta_replaces_may_be_damaged)
{
	gpusnap_snapshot *full, *delta;
	struct gsn_location at;
	struct scene scene;
	const gpusnap_snapshot_entry *entry;
	uint64_t leaf = 0;

	scene_open(&scene, 78);
	ck_ok(gpusnap_snapshot_open(scene.chain.paths[0], &full, &err));
	ck_ok(gpusnap_snapshot_open(scene.chain.paths[1], &delta, &err));
	ck_assert_uint_gt(scene.chain.reports[1].leaves_written, 0);
	entry = &delta->entries[delta->parts[0].entry];
	for (size_t i = 0; i < delta->part_count; i++)
		if (delta->parts[i].link == 0 && delta->parts[i].leaf_count) {
			entry = &delta->entries[delta->parts[i].entry];
			leaf = delta->parts[i].first_leaf;
		}
	entry = gpusnap_snapshot_entry_find(full, entry->name);
	at = gsn_snapshot_locate(full, gsn_snapshot_leaf_place(full, entry, leaf));
	flip_bit_of(at.path, at.offset, 3);
	check_verify(full, entry, leaf, &at);
	check_verify(delta, NULL, 0, NULL);
	gpusnap_snapshot_close(full);
	gpusnap_snapshot_close(delta);
	scene_close(&scene);
}
END_TEST

START_TEST(a_parent_cut_short_while_it_is_open_is_named)
{
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	struct scene scene;

	scene_open(&scene, 79);
	ck_ok(gpusnap_snapshot_open(scene.chain.paths[1], &snapshot, &err));
	ck_assert_int_eq(truncate(scene.chain.paths[0], 8192), 0);
	ck_fails(gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, &err), GPUSNAP_E_CORRUPT,
		"0.gsnap': ends at or before byte 8192");
	gpusnap_snapshot_close(snapshot);
	scene_close(&scene);
}
END_TEST

/* ---- structure ---- */

START_TEST(a_flip_in_the_structure_of_any_file_is_named)
{
	struct scene scene;

	scene_open(&scene, 80);
	for (uint32_t link = 0; link < LINKS; link++) {
		gpusnap_snapshot *whole, *snapshot;
		gpusnap_seal seal;

		ck_ok(gpusnap_snapshot_open(scene.chain.paths[link], &whole, &err));
		seal = *gpusnap_snapshot_seal(whole);
		gpusnap_snapshot_close(whole);
		for (uint64_t i = 0; i < 400; i++) {
			uint64_t end = GPUSNAP_SEAL_BYTES + 16 * seal.leaf_count;
			uint64_t byte = random_below(&scene.random, seal.header_bytes + end);

			if (byte >= seal.header_bytes)
				byte = seal.file_bytes - 1 - (byte - seal.header_bytes);
			flip_bit_of(scene.chain.paths[link], byte, (unsigned)i % 8);
			ck_assert_int_ne(gpusnap_snapshot_open(
						 scene.chain.paths[LINKS - 1], &snapshot, &err),
				GPUSNAP_OK);
			ck_assert(
				err.status == GPUSNAP_E_CORRUPT || err.status == GPUSNAP_E_FORMAT);
			ck_assert_ptr_nonnull(strstr(err.message, scene.chain.paths[link]));
			flip_bit_of(scene.chain.paths[link], byte, (unsigned)i % 8);
		}
	}
	scene_close(&scene);
}
END_TEST

/* ---- parents ---- */

static gpusnap_status open_in(
	const struct scene *scene, uint32_t link, const char *directory, gpusnap_snapshot **out)
{
	gpusnap_snapshot_open_options options = GPUSNAP_SNAPSHOT_OPEN_OPTIONS_INIT;

	options.parent_dirs = &directory;
	options.parent_dir_count = directory ? 1 : 0;
	return gpusnap_snapshot_open_with(scene->chain.paths[link], &options, out, &err);
}

START_TEST(a_parent_is_found_by_its_root)
{
	char other[PATH_MAX], moved[PATH_MAX], renamed[PATH_MAX];
	gpusnap_snapshot *snapshot;
	struct scene scene;

	scene_open(&scene, 81);
	tempdir_join(other, folder, "other");
	ck_assert_int_eq(mkdir(other, 0700), 0);
	tempdir_join(moved, other, "1.gsnap");
	tempdir_join(renamed, other, "whatever");
	ck_assert_int_eq(rename(scene.chain.paths[1], moved), 0);
	ck_fails(open_in(&scene, 2, NULL, &snapshot), GPUSNAP_E_IO,
		"2.gsnap': its parent '1.gsnap' is missing; root ");
	ck_assert_ptr_nonnull(strstr(err.message, " leaf "));
	ck_assert_ptr_nonnull(strstr(err.message, "--parent-dir"));
	ck_assert_int_eq(err.os_errno, ENOENT);
	/* The parent of the one that has moved is where it was, beside the first. */
	ck_ok(open_in(&scene, 2, other, &snapshot));
	ck_assert_str_eq(gpusnap_snapshot_link_path(snapshot, 1), moved);
	gpusnap_snapshot_close(snapshot);
	ck_assert_int_eq(rename(scene.chain.paths[0], renamed), 0);
	ck_ok(open_in(&scene, 2, other, &snapshot));
	ck_assert_str_eq(gpusnap_snapshot_link_path(snapshot, 2), renamed);
	ck_assert_ptr_null(gpusnap_snapshot_link_path(snapshot, 3));
	gpusnap_snapshot_close(snapshot);
	ck_fails(open_in(&scene, 2, "/none/such", &snapshot), GPUSNAP_E_IO, "/none/such");
	tempdir_remove(other);
	scene_close(&scene);
}
END_TEST

START_TEST(another_file_under_the_parents_name_is_refused)
{
	gpusnap_snapshot *snapshot;
	char kept[PATH_MAX];
	struct scene scene;

	scene_open(&scene, 82);
	tempdir_join(kept, folder, "kept");
	ck_assert_int_eq(rename(scene.chain.paths[0], kept), 0);
	ck_ok(gpusnap_save(scene.state.registry, scene.chain.paths[0], NULL, NULL, &err));
	ck_fails(open_in(&scene, 1, NULL, &snapshot), GPUSNAP_E_MISMATCH,
		"0.gsnap' is another snapshot, of root ");
	ck_ok(open_in(&scene, 1, folder, &snapshot));
	ck_assert_str_eq(gpusnap_snapshot_link_path(snapshot, 1), kept);
	gpusnap_snapshot_close(snapshot);
	/* A text under that name. */
	file_write(scene.chain.paths[0], "no snapshot at all", 18);
	ck_fails(open_in(&scene, 1, NULL, &snapshot), GPUSNAP_E_FORMAT, "parent of '");
	(void)unlink(kept);
	scene_close(&scene);
}
END_TEST

START_TEST(a_delta_under_its_parents_name_is_a_cycle)
{
	gpusnap_snapshot *snapshot;
	struct scene scene;

	scene_open(&scene, 83);
	ck_assert_int_eq(rename(scene.chain.paths[1], scene.chain.paths[0]), 0);
	ck_fails(open_in(&scene, 0, NULL, &snapshot), GPUSNAP_E_FORMAT, "a cycle");
	scene_close(&scene);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_flip_in_each_leaf_is_named_with_its_file,
		what_a_delta_replaces_may_be_damaged,
		a_parent_cut_short_while_it_is_open_is_named,
		a_flip_in_the_structure_of_any_file_is_named,
		a_parent_is_found_by_its_root,
		another_file_under_the_parents_name_is_refused,
		a_delta_under_its_parents_name_is_a_cycle,
	};
	int result;

	tempdir_make(folder, NULL);
	result = RUN_SUITE("delta_damage", tests);
	tempdir_remove(folder);
	return result;
}
