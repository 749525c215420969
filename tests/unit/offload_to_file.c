/* SPDX-License-Identifier: Apache-2.0 */
/* Offload against a snapshot: when one may stand for live state, and the way back from it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "snapshot/registry_state.h"
#include "tests/support/state_fixture.h"
#include "tests/support/tempdir.h"

static char root[PATH_MAX];

struct saved {
	struct state state;
	char folder[PATH_MAX];
	char path[PATH_MAX];
};

static void save_to(struct saved *f, const char *path, bool replace)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_save_report report;
	gpusnap_error err;

	options.replace = replace;
	ck_ok(gpusnap_save(f->state.registry, path, &options, &report, &err));
}

static void open_saved(struct saved *f, const gpusnap_region_options *region)
{
	memset(f, 0, sizeof *f);
	tempdir_make(f->folder, root);
	tempdir_join(f->path, f->folder, "s");
	state_open(&f->state, NULL, region);
	save_to(f, f->path, false);
}

static void close_saved(struct saved *f)
{
	state_close(&f->state);
	(void)unlink(f->path);
	ck_assert_int_eq(rmdir(f->folder), 0);
}

static gpusnap_status offload(struct saved *f, gpusnap_backing backing,
	gpusnap_offload_report *report, gpusnap_error *err)
{
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;

	options.backing = backing;
	return gpusnap_offload(f->state.registry, &options, report, err);
}

static void offload_to_snapshot(struct saved *f, gpusnap_backing backing)
{
	gpusnap_offload_report report;
	char expected[PATH_MAX + 16];
	gpusnap_error err;

	(void)snprintf(expected, sizeof expected, "snapshot %s", f->path);
	ck_ok(offload(f, backing, &report, &err));
	ck_assert_str_eq(report.backing, expected);
	ck_assert_uint_eq(report.copied_bytes, 0);
	ck_assert_str_eq(state_info(&f->state, 0).backing, expected);
	ck_assert_uint_eq(f->state.faulty.pinned_blocks, f->state.registry->staging.kept != NULL);
	ck_assert_uint_eq(f->state.faulty.mapped_bytes, 0);
}

static void resume_all(struct saved *f)
{
	gpusnap_error err;

	ck_ok(gpusnap_resume(f->state.registry, NULL, NULL, &err));
	state_expect(&f->state, GPUSNAP_REGION_RESIDENT);
	for (size_t r = 0; r < STATE_REGIONS; r++)
		state_check(&f->state, r);
}

START_TEST(equal_snapshot_takes_the_place_of_a_copy)
{
	struct saved f;
	gpusnap_error err;
	char byte;

	open_saved(&f, NULL);
	offload_to_snapshot(&f, GPUSNAP_BACKING_SNAPSHOT);
	ck_fails(gpusnap_buffer_read(f.state.registry, "w0", 0, &byte, 1, &err), GPUSNAP_E_STATE,
		"is offloaded: not resident");
	ck_fails(gpusnap_save(f.state.registry, "/nowhere/x", NULL, NULL, &err), GPUSNAP_E_STATE,
		"is offloaded");
	resume_all(&f);
	offload_to_snapshot(&f, GPUSNAP_BACKING_AUTO);
	resume_all(&f);
	close_saved(&f);
}
END_TEST

START_TEST(changed_leaf_is_named_and_auto_takes_the_arena)
{
	struct saved f;
	gpusnap_offload_report report;
	gpusnap_error err;

	open_saved(&f, NULL);
	state_bytes(&f.state, 1)[STATE_BUFFER_OFFSET + 65536] ^= 0x80;
	ck_fails(offload(&f, GPUSNAP_BACKING_SNAPSHOT, &report, &err), GPUSNAP_E_STATE,
		"buffer 'w1' leaf 1 of 2 has changed since snapshot '");
	state_expect(&f.state, GPUSNAP_REGION_RESIDENT);
	ck_ok(offload(&f, GPUSNAP_BACKING_AUTO, &report, &err));
	ck_assert_str_eq(report.backing, "arena");
	ck_ok(gpusnap_resume(f.state.registry, NULL, NULL, &err));
	state_bytes(&f.state, 1)[STATE_BUFFER_OFFSET + 65536] ^= 0x80;
	state_check(&f.state, 1);
	/* As it was saved: the snapshot stands for it again, and the arena's memory is not kept. */
	offload_to_snapshot(&f, GPUSNAP_BACKING_AUTO);
	resume_all(&f);
	close_saved(&f);
}
END_TEST

START_TEST(new_buffer_means_that_the_snapshot_does_not_fit)
{
	struct saved f;
	gpusnap_offload_report report;
	gpusnap_error err;

	open_saved(&f, NULL);
	ck_ok(gpusnap_buffer_unregister(f.state.registry, "w0", &err));
	ck_fails(offload(&f, GPUSNAP_BACKING_SNAPSHOT, &report, &err), GPUSNAP_E_STATE,
		"buffer 'gpusnap.raw/1/0' has 3 leaves, and 1 in snapshot");
	close_saved(&f);
}
END_TEST

START_TEST(held_file_survives_being_unlinked_and_replaced)
{
	struct saved f;

	open_saved(&f, NULL);
	offload_to_snapshot(&f, GPUSNAP_BACKING_SNAPSHOT);
	ck_assert_int_eq(unlink(f.path), 0);
	resume_all(&f);
	save_to(&f, f.path, false);
	offload_to_snapshot(&f, GPUSNAP_BACKING_SNAPSHOT);
	ck_assert_int_eq(unlink(f.path), 0);
	ck_assert_int_eq(symlink("/dev/null", f.path), 0);
	resume_all(&f);
	close_saved(&f);
}
END_TEST

START_TEST(replaced_or_missing_file_does_not_stand_for_live_state)
{
	struct saved f;
	gpusnap_registry *other;
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_restore_report restored;
	gpusnap_offload_report report;
	gpusnap_error err;

	open_saved(&f, NULL);
	/* Another process saves the same bytes there: another snapshot all the same. */
	ck_ok(gpusnap_registry_from_snapshot(
		&f.state.faulty.device, f.path, NULL, NULL, &other, &restored, &err));
	options.replace = true;
	ck_ok(gpusnap_save(other, f.path, &options, NULL, &err));
	gpusnap_registry_free(other);
	ck_fails(offload(&f, GPUSNAP_BACKING_SNAPSHOT, &report, &err), GPUSNAP_E_STATE,
		"it was replaced");
	ck_assert_int_eq(unlink(f.path), 0);
	ck_status(offload(&f, GPUSNAP_BACKING_SNAPSHOT, &report, &err), GPUSNAP_E_IO);
	ck_assert_ptr_nonnull(strstr(err.message, "the snapshot that live state stands on"));
	state_expect(&f.state, GPUSNAP_REGION_RESIDENT);
	ck_ok(offload(&f, GPUSNAP_BACKING_AUTO, &report, &err));
	ck_assert_str_eq(report.backing, "arena");
	resume_all(&f);
	close_saved(&f);
}
END_TEST

START_TEST(baseline_of_live_state_is_no_snapshot)
{
	struct saved f;
	gpusnap_baseline *baseline;
	gpusnap_offload_report report;
	gpusnap_error err;

	open_saved(&f, NULL);
	ck_ok(gpusnap_baseline_from_live(f.state.registry, &baseline, &err));
	gpusnap_registry_set_baseline(f.state.registry, baseline);
	ck_fails(offload(&f, GPUSNAP_BACKING_SNAPSHOT, &report, &err), GPUSNAP_E_STATE,
		"no snapshot stands for live state");
	close_saved(&f);
}
END_TEST

START_TEST(device_with_memory_of_its_own_prefers_the_arena)
{
	struct saved f;
	gpusnap_offload_report report;
	gpusnap_error err;

	open_saved(&f, NULL);
	f.state.faulty.ops.caps &= ~(uint32_t)GSN_CAP_HOST_ADDRESSABLE;
	ck_ok(offload(&f, GPUSNAP_BACKING_AUTO, &report, &err));
	ck_assert_str_eq(report.backing, "arena");
	resume_all(&f);
	offload_to_snapshot(&f, GPUSNAP_BACKING_SNAPSHOT);
	resume_all(&f);
	close_saved(&f);
}
END_TEST

static void flip_byte(const char *path, uint64_t offset)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)offset), 1);
	byte ^= 0x20;
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
	ck_assert_int_eq(fsync(fd), 0);
	(void)close(fd);
}

static uint64_t offset_in_file(const struct saved *f, const char *name)
{
	gpusnap_snapshot *snapshot;
	uint64_t offset;
	gpusnap_error err;

	ck_ok(gpusnap_snapshot_open(f->path, &snapshot, &err));
	ck_assert_ptr_nonnull(gpusnap_snapshot_entry_find(snapshot, name));
	offset = gpusnap_snapshot_entry_find(snapshot, name)->file_offset;
	gpusnap_snapshot_close(snapshot);
	return offset;
}

START_TEST(damaged_snapshot_is_named_and_nothing_becomes_usable)
{
	struct saved f;
	uint64_t offset;
	gpusnap_error err;

	open_saved(&f, NULL);
	offset = offset_in_file(&f, "w1") + 65536 + 3;
	offload_to_snapshot(&f, GPUSNAP_BACKING_SNAPSHOT);
	flip_byte(f.path, offset);
	ck_fails(gpusnap_resume(f.state.registry, NULL, NULL, &err), GPUSNAP_E_CORRUPT,
		"buffer 'w1' leaf 1");
	state_expect(&f.state, GPUSNAP_REGION_OFFLOADED);
	ck_assert_uint_eq(f.state.faulty.mapped_bytes, 0);
	flip_byte(f.path, offset);
	resume_all(&f);
	close_saved(&f);
}
END_TEST

START_TEST(every_failure_of_a_resume_leaves_everything_offloaded)
{
	struct saved f;

	open_saved(&f, NULL);
	for (unsigned n = 1;; n++) {
		gpusnap_error err;
		gpusnap_status s;

		offload_to_snapshot(&f, GPUSNAP_BACKING_SNAPSHOT);
		faulty_arm(&f.state.faulty, FAULTY_ANY, n, GPUSNAP_E_DEVICE);
		s = gpusnap_resume(f.state.registry, NULL, NULL, &err);
		if (s == GPUSNAP_OK && faulty_is_armed(&f.state.faulty)) {
			ck_assert_uint_gt(n, 10);
			break;
		}
		if (s) {
			ck_assert_int_eq(s, GPUSNAP_E_DEVICE);
			state_expect(&f.state, GPUSNAP_REGION_OFFLOADED);
			ck_assert_uint_eq(f.state.faulty.mapped_bytes, 0);
			resume_all(&f);
		}
		state_check(&f.state, 0);
		state_check(&f.state, 1);
	}
	faulty_arm(&f.state.faulty, FAULTY_ANY, 0, GPUSNAP_OK);
	close_saved(&f);
}
END_TEST

START_TEST(unclaimed_bytes_follow_their_own_policy)
{
	struct saved f;
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_damage damage;
	gpusnap_error err;
	const uint8_t *bytes;

	options.unclaimed_set = true;
	options.unclaimed = GPUSNAP_POLICY_ZERO;
	open_saved(&f, &options);
	offload_to_snapshot(&f, GPUSNAP_BACKING_SNAPSHOT);
	ck_ok(gpusnap_resume(f.state.registry, NULL, NULL, &err));
	bytes = state_bytes(&f.state, 0);
	for (size_t i = 0; i < STATE_BUFFER_OFFSET; i++)
		ck_assert_uint_eq(bytes[i], 0);
	ck_assert_uint_eq(bytes[STATE_REGION_BYTES - 1], 0);
	ck_ok(gpusnap_verify(f.state.registry, NULL, &damage, &err));
	ck_assert_uint_eq(damage.count, 0);
	ck_assert_uint_eq(damage.buffers, 2);
	gpusnap_damage_release(&damage);
	close_saved(&f);
}
END_TEST

START_TEST(restore_brings_offloaded_regions_back_and_drops_their_backing)
{
	struct saved f;
	gpusnap_restore_report report;
	gpusnap_offload_report offloaded;
	gpusnap_error err;

	open_saved(&f, NULL);
	offload_to_snapshot(&f, GPUSNAP_BACKING_SNAPSHOT);
	ck_ok(gpusnap_restore(f.state.registry, f.path, NULL, &report, &err));
	state_expect(&f.state, GPUSNAP_REGION_RESIDENT);
	ck_assert_ptr_null(state_info(&f.state, 0).backing);
	state_check(&f.state, 0);
	ck_ok(offload(&f, GPUSNAP_BACKING_ARENA, &offloaded, &err));
	ck_ok(gpusnap_restore(f.state.registry, f.path, NULL, &report, &err));
	state_check(&f.state, 1);
	/* The arena still holds these very bytes. */
	ck_ok(offload(&f, GPUSNAP_BACKING_ARENA, &offloaded, &err));
	ck_assert_uint_eq(offloaded.copied_bytes, 0);
	resume_all(&f);
	close_saved(&f);
}
END_TEST

static long resident_mib(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	long size, resident;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%ld %ld", &size, &resident), 2);
	(void)fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) >> 10) >> 10;
}

START_TEST(process_shrinks_by_the_size_of_the_state)
{
	enum { MIB = 96 };
	struct saved f;
	gpusnap_region_options region = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_region_info info;
	gpusnap_offload_report report;
	gpusnap_error err;
	long before;
	uint32_t id;

	open_saved(&f, NULL);
	region.tag = "large";
	ck_ok(gpusnap_region_reserve(f.state.registry, (uint64_t)MIB << 20, &region, &id, &err));
	ck_ok(gpusnap_region_get(f.state.registry, id, &info, &err));
	memset((void *)(uintptr_t)info.address, 0x77, info.bytes);
	/* An arena of an earlier offload counts as well: it must not stay. */
	ck_ok(offload(&f, GPUSNAP_BACKING_ARENA, &report, &err));
	ck_ok(gpusnap_resume(f.state.registry, NULL, NULL, &err));
	save_to(&f, f.path, true);
	before = resident_mib();
	offload_to_snapshot(&f, GPUSNAP_BACKING_AUTO);
	ck_assert_int_ge(before - resident_mib(), 2 * MIB - 8);
	ck_ok(gpusnap_resume(f.state.registry, NULL, NULL, &err));
	for (uint64_t i = 0; i < info.bytes; i += 4096)
		ck_assert_uint_eq(((const uint8_t *)(uintptr_t)info.address)[i], 0x77);
	close_saved(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		equal_snapshot_takes_the_place_of_a_copy,
		changed_leaf_is_named_and_auto_takes_the_arena,
		new_buffer_means_that_the_snapshot_does_not_fit,
		held_file_survives_being_unlinked_and_replaced,
		replaced_or_missing_file_does_not_stand_for_live_state,
		baseline_of_live_state_is_no_snapshot,
		device_with_memory_of_its_own_prefers_the_arena,
		damaged_snapshot_is_named_and_nothing_becomes_usable,
		every_failure_of_a_resume_leaves_everything_offloaded,
		unclaimed_bytes_follow_their_own_policy,
		restore_brings_offloaded_regions_back_and_drops_their_backing,
		process_shrinks_by_the_size_of_the_state,
	};

	int status;

	tempdir_make(root, NULL);
	status = RUN_SUITE("offload_to_file", tests);
	tempdir_remove(root);
	return status;
}
