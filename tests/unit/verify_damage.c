/* SPDX-License-Identifier: Apache-2.0 */
/* Verification of files and of live state: each damaged leaf is named, and nothing else. */
#include <string.h>

#include <gpusnap/snapshot.h>

#include "tests/support/flip.h"
#include "tests/support/live_state.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

static char folder[PATH_MAX];

struct saved {
	gpusnap_device *device;
	struct live_state state;
	char path[PATH_MAX];
};

static void saved_open(struct saved *saved, const char *name)
{
	gpusnap_error err;
	uint64_t random = 11;
	uint32_t id;

	tempdir_join(saved->path, folder, name);
	ck_ok(gpusnap_device_open(test_device(), &saved->device, &err));
	live_open(&saved->state, saved->device);
	id = live_region(&saved->state, "weights", 9 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&saved->state, "w13", id, 4096, 3 * LEAF + 77);
	live_buffer(&saved->state, "empty", id, 4096, 0);
	live_buffer(&saved->state, "w2", id, 4 * LEAF, 4 * LEAF);
	ck_ok(gpusnap_save(saved->state.registry, saved->path, NULL, NULL, &err));
}

static void saved_close(struct saved *saved)
{
	live_close(&saved->state);
	gpusnap_device_close(saved->device);
	(void)unlink(saved->path);
}

static void check_one(const gpusnap_damage *damage, const char *name, uint64_t leaf, uint64_t count,
	uint64_t file_offset)
{
	ck_assert_uint_eq(damage->count, 1);
	ck_assert_str_eq(damage->items[0].buffer, name);
	ck_assert_uint_eq(damage->items[0].leaf, leaf);
	ck_assert_uint_eq(damage->items[0].leaf_count, count);
	ck_assert_uint_eq(damage->items[0].file_offset, file_offset);
}

static void verify_file(gpusnap_snapshot *snapshot, gpusnap_damage *ret_damage)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	gpusnap_io_report report;
	gpusnap_error err;

	io.block_bytes = 64 << 10;
	io.depth = 3;
	ck_ok(gpusnap_snapshot_verify(snapshot, &io, ret_damage, &report, &err));
}

START_TEST(one_flip_in_each_leaf_of_a_file_is_named)
{
	struct saved saved;
	gpusnap_snapshot *snapshot;
	uint64_t random = random_seed(13), flips = 0;
	gpusnap_damage damage;
	gpusnap_error err;
	int fd;

	saved_open(&saved, "leaves.gsnap");
	fd = open(saved.path, O_RDWR | O_CLOEXEC);
	ck_ok(gpusnap_snapshot_open(saved.path, &snapshot, &err));
	for (size_t i = 0; i < gpusnap_snapshot_entry_count(snapshot); i++) {
		const gpusnap_snapshot_entry *entry = gpusnap_snapshot_entry_at(snapshot, i);

		for (uint64_t leaf = 0; leaf < entry->leaf_count; leaf++) {
			uint64_t begin = entry->file_offset + leaf * LEAF;
			uint64_t rest = entry->bytes - leaf * LEAF;
			uint64_t at = begin + random_below(&random, rest < LEAF ? rest : LEAF);

			unsigned bit = (unsigned)random_below(&random, 8);

			flip_bit(fd, at, bit);
			verify_file(snapshot, &damage);
			check_one(&damage, entry->name, leaf, 1, begin);
			gpusnap_damage_release(&damage);
			flip_bit(fd, at, bit);
			flips++;
		}
	}
	(void)printf("damage: %llu leaves named, one flip each\n", (unsigned long long)flips);
	verify_file(snapshot, &damage);
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	ck_assert_int_eq(close(fd), 0);
	saved_close(&saved);
}
END_TEST

/* ---- bytes that are right, in the wrong place ---- */

/* A file with buffers "a" and "b" of two leaves and a bit each. */
static void twins_open(struct saved *saved, const char *name)
{
	const uint64_t bytes = 2 * LEAF + 5;
	gpusnap_error err;
	uint64_t random = 17;
	uint32_t id;

	tempdir_join(saved->path, folder, name);
	ck_ok(gpusnap_device_open("host", &saved->device, &err));
	live_open(&saved->state, saved->device);
	id = live_region(&saved->state, "weights", 5 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&saved->state, "a", id, 0, bytes);
	live_buffer(&saved->state, "b", id, bytes, bytes);
	ck_ok(gpusnap_save(saved->state.registry, saved->path, NULL, NULL, &err));
}

static void swap_bytes(const char *path, uint64_t one, uint64_t other, size_t length)
{
	uint8_t *x = malloc(length), *y = malloc(length);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	ck_assert(x && y && fd >= 0);
	ck_assert_int_eq(pread(fd, x, length, (off_t)one), (ssize_t)length);
	ck_assert_int_eq(pread(fd, y, length, (off_t)other), (ssize_t)length);
	ck_assert_int_eq(pwrite(fd, y, length, (off_t)one), (ssize_t)length);
	ck_assert_int_eq(pwrite(fd, x, length, (off_t)other), (ssize_t)length);
	ck_assert_int_eq(close(fd), 0);
	free(x);
	free(y);
}

/* Of the buffer, `count` leaves are wrong, and `leaf` is the first. */
static void check_item(
	const gpusnap_damage *damage, const char *buffer, uint64_t leaf, uint64_t count)
{
	for (size_t i = 0; i < damage->count; i++) {
		if (strcmp(damage->items[i].buffer, buffer) != 0)
			continue;
		ck_assert_uint_eq(damage->items[i].leaf, leaf);
		ck_assert_uint_eq(damage->items[i].leaf_count, count);
		return;
	}
	ck_abort_msg("'%s' is not named", buffer);
}

static void check_swapped_leaves(gpusnap_snapshot *snapshot, unsigned x, unsigned y)
{
	const gpusnap_snapshot_entry *entries[] = {gpusnap_snapshot_entry_find(snapshot, "a"),
		gpusnap_snapshot_entry_find(snapshot, "b")};
	const gpusnap_snapshot_entry *one = entries[x / 2], *other = entries[y / 2];
	uint64_t at = one->file_offset + x % 2 * LEAF, to = other->file_offset + y % 2 * LEAF;
	gpusnap_damage damage;

	swap_bytes(gpusnap_snapshot_path(snapshot), at, to, LEAF);
	verify_file(snapshot, &damage);
	ck_assert_uint_eq(damage.count, one == other ? 1 : 2);
	check_item(&damage, one->name, x % 2, one == other ? 2 : 1);
	if (one != other)
		check_item(&damage, other->name, y % 2, 1);
	gpusnap_damage_release(&damage);
	swap_bytes(gpusnap_snapshot_path(snapshot), at, to, LEAF);
}

START_TEST(two_leaves_that_changed_places_are_both_named)
{
	enum { WHOLE_LEAVES = 4 };
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	struct saved saved;
	gpusnap_error err;

	twins_open(&saved, "leaves_swapped.gsnap");
	ck_ok(gpusnap_snapshot_open(saved.path, &snapshot, &err));
	for (unsigned x = 0; x < WHOLE_LEAVES; x++)
		for (unsigned y = x + 1; y < WHOLE_LEAVES; y++)
			check_swapped_leaves(snapshot, x, y);
	verify_file(snapshot, &damage);
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	saved_close(&saved);
}
END_TEST

START_TEST(two_buffers_that_changed_places_are_both_named)
{
	const gpusnap_snapshot_entry *a, *b;
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	struct saved saved;
	gpusnap_error err;

	twins_open(&saved, "buffers_swapped.gsnap");
	ck_ok(gpusnap_snapshot_open(saved.path, &snapshot, &err));
	a = gpusnap_snapshot_entry_find(snapshot, "a");
	b = gpusnap_snapshot_entry_find(snapshot, "b");
	swap_bytes(saved.path, a->file_offset, b->file_offset, (size_t)a->bytes);
	verify_file(snapshot, &damage);
	ck_assert_uint_eq(damage.count, 2);
	check_item(&damage, "a", 0, 3);
	check_item(&damage, "b", 0, 3);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	saved_close(&saved);
}
END_TEST

START_TEST(all_damage_is_listed_by_buffer)
{
	struct saved saved;
	gpusnap_snapshot *snapshot;
	const gpusnap_snapshot_entry *w13, *w2;
	gpusnap_damage damage;
	gpusnap_error err;

	saved_open(&saved, "many.gsnap");
	ck_ok(gpusnap_snapshot_open(saved.path, &snapshot, &err));
	w13 = gpusnap_snapshot_entry_find(snapshot, "w13");
	w2 = gpusnap_snapshot_entry_find(snapshot, "w2");
	flip_bit_of(saved.path, w13->file_offset + 3 * LEAF + 76, 7);
	flip_bit_of(saved.path, w2->file_offset + LEAF, 0);
	flip_bit_of(saved.path, w2->file_offset + 3 * LEAF - 1, 0);
	verify_file(snapshot, &damage);
	ck_assert_uint_eq(damage.count, 2);
	ck_assert_uint_eq(damage.bytes, 9 * LEAF);
	ck_assert_uint_eq(damage.buffers, gpusnap_snapshot_entry_count(snapshot));
	for (size_t i = 0; i < 2; i++) {
		const gpusnap_damage_item *item = &damage.items[i];
		bool is_w2 = strcmp(item->buffer, "w2") == 0;

		ck_assert_uint_eq(item->leaf, is_w2 ? 1 : 3);
		ck_assert_uint_eq(item->leaf_count, is_w2 ? 2 : 1);
	}
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	saved_close(&saved);
}
END_TEST

START_TEST(a_file_that_shrinks_meanwhile_is_an_error)
{
	struct saved saved;
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	gpusnap_error err;

	saved_open(&saved, "shrunk.gsnap");
	ck_ok(gpusnap_snapshot_open(saved.path, &snapshot, &err));
	ck_assert_int_eq(truncate(saved.path, (off_t)(3 * LEAF)), 0);
	ck_fails(gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, &err), GPUSNAP_E_CORRUPT,
		"ends at");
	gpusnap_snapshot_close(snapshot);
	saved_close(&saved);
}
END_TEST

START_TEST(live_damage_is_named_with_its_place_in_the_file)
{
	struct saved saved;
	gpusnap_snapshot *snapshot;
	const gpusnap_snapshot_entry *entry;
	gpusnap_damage damage;
	gpusnap_error err;

	saved_open(&saved, "live.gsnap");
	ck_ok(gpusnap_snapshot_open(saved.path, &snapshot, &err));
	entry = gpusnap_snapshot_entry_find(snapshot, "w2");
	live_bytes(saved.state.registry, 0)[4 * LEAF + 2 * LEAF + 5] ^= 4;
	ck_ok(gpusnap_verify(saved.state.registry, NULL, &damage, &err));
	check_one(&damage, "w2", 2, 1, entry->file_offset + 2 * LEAF);
	gpusnap_damage_release(&damage);
	/* Bytes that nobody named count as well. */
	live_bytes(saved.state.registry, 0)[4 * LEAF + 2 * LEAF + 5] ^= 4;
	live_bytes(saved.state.registry, 0)[0] ^= 1;
	entry = gpusnap_snapshot_entry_find(snapshot, "gpusnap.raw/1/0");
	ck_ok(gpusnap_verify(saved.state.registry, NULL, &damage, &err));
	check_one(&damage, "gpusnap.raw/1/0", 0, 1, entry->file_offset);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	saved_close(&saved);
}
END_TEST

START_TEST(what_cannot_be_verified_is_an_error)
{
	struct saved saved;
	gpusnap_damage damage;
	gpusnap_error err;

	saved_open(&saved, "errors.gsnap");
	live_buffer(&saved.state, "late", 1, 0, 16);
	ck_fails(gpusnap_verify(saved.state.registry, NULL, &damage, &err), GPUSNAP_E_MISMATCH,
		"'late' is not in the baseline");
	ck_ok(gpusnap_buffer_unregister(saved.state.registry, "late", &err));
	ck_ok(gpusnap_buffer_unregister(saved.state.registry, "empty", &err));
	ck_fails(gpusnap_verify(saved.state.registry, NULL, &damage, &err), GPUSNAP_E_MISMATCH,
		"1 of the baseline's");
	ck_ok(gpusnap_offload(saved.state.registry, NULL, NULL, &err));
	ck_fails(gpusnap_verify(saved.state.registry, NULL, &damage, &err), GPUSNAP_E_STATE,
		"is offloaded");
	gpusnap_registry_set_baseline(saved.state.registry, NULL);
	ck_fails(gpusnap_verify(saved.state.registry, NULL, &damage, &err), GPUSNAP_E_STATE,
		"nothing to verify against");
	saved_close(&saved);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		one_flip_in_each_leaf_of_a_file_is_named,
		two_leaves_that_changed_places_are_both_named,
		two_buffers_that_changed_places_are_both_named,
		all_damage_is_listed_by_buffer,
		a_file_that_shrinks_meanwhile_is_an_error,
		live_damage_is_named_with_its_place_in_the_file,
		what_cannot_be_verified_is_an_error,
	};
	int result;

	tempdir_make(folder, NULL);
	result = RUN_SUITE("verify_damage", tests);
	tempdir_remove(folder);
	return result;
}
