/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restores into memory that the host addresses: from the page cache and from the ring, of whatever
 * buffers, and with every fault on the way. What fails leaves poison, never a part of the file.
 */
#include "snapshot/host_refill.h"

#include <string.h>

#include <gpusnap/snapshot.h>

#include "snapshot/registry_state.h"
#include "tests/support/flip.h"
#include "tests/support/live_state.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

enum { BUFFERS = 300, LEAVES = 32, POISON = 0xa5 };

static char disk[PATH_MAX], memory[PATH_MAX];
static gpusnap_error err;

struct fixture {
	gpusnap_device *device;
	struct live_state state;
	char path[PATH_MAX];
};

/* 2 MiB: one large buffer, then small ones at odd offsets, with bytes between them. */
static void fixture_open(struct fixture *f, const char *folder, const char *name)
{
	uint64_t random = 61, offset = (LEAVES / 2) * LEAF + 13;
	uint32_t region;
	char buffer[16];

	tempdir_join(f->path, folder, name);
	ck_ok(gpusnap_device_open("host", &f->device, &err));
	live_open(&f->state, f->device);
	region = live_region(&f->state, "weights", LEAVES * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&f->state, "large", region, 0, (LEAVES / 2) * LEAF);
	for (unsigned i = 0; i < BUFFERS; i++) {
		uint64_t bytes = 1 + random_below(&random, i % 10 ? 500 : 2 * LEAF);

		if (offset + bytes > LEAVES * LEAF)
			break;
		(void)snprintf(buffer, sizeof buffer, "small.%u", i);
		live_buffer(&f->state, buffer, region, offset, bytes);
		offset += bytes + random_below(&random, 3);
	}
	live_remember(&f->state);
	ck_ok(gpusnap_save(f->state.registry, f->path, NULL, NULL, &err));
}

static void fixture_close(struct fixture *f)
{
	live_close(&f->state);
	gpusnap_device_close(f->device);
	(void)unlink(f->path);
}

static gpusnap_region_state state_of(const struct fixture *f)
{
	gpusnap_region_info info;

	ck_ok(gpusnap_region_at(f->state.registry, 0, &info, &err));
	return info.state;
}

static void check_poisoned(const struct fixture *f)
{
	const uint8_t *bytes = live_bytes(f->state.registry, 0);

	ck_assert_int_eq(state_of(f), GPUSNAP_REGION_DISCARDED);
	for (uint64_t i = 0; i < LEAVES * LEAF; i++)
		ck_assert_msg(
			bytes[i] == POISON, "byte %llu is %02x", (unsigned long long)i, bytes[i]);
}

static gpusnap_io_report restore(struct fixture *f, const gpusnap_io_options *io)
{
	gpusnap_restore_report report;

	live_scribble(f->state.registry);
	ck_ok(gpusnap_restore(f->state.registry, f->path, io, &report, &err));
	ck_assert(live_equals(&f->state, f->state.registry));
	ck_assert_uint_eq(report.state_bytes, LEAVES * LEAF);
	return report.io;
}

/* ---- where the bytes come from ---- */

START_TEST(a_file_in_memory_is_read_by_threads)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	gpusnap_io_report report;
	struct fixture f;

	fixture_open(&f, memory, "cached.gsnap");
	gsn_staging_source_release(&f.state.registry->staging);
	report = restore(&f, NULL);
	ck_assert_str_eq(report.engine, "threads");
	ck_assert(!report.direct);
	ck_assert_uint_eq(report.block_bytes, 256 << 10);
	ck_assert_ptr_nonnull(strstr(report.reason, "first choice for cached I/O; tmpfs"));
	io.engine = GPUSNAP_IO_THREADS;
	io.block_bytes = LEAF;
	report = restore(&f, &io);
	ck_assert_uint_eq(report.block_bytes, LEAF);
	ck_assert_ptr_nonnull(strstr(report.reason, "it was asked for"));
	ck_assert_ptr_null(f.state.registry->staging.kept); /* nobody needed a ring */
	fixture_close(&f);
}
END_TEST

START_TEST(another_engine_reads_through_the_ring)
{
	static const uint64_t blocks[] = {LEAF, 3 * LEAF, 4 << 20};
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	gpusnap_io_report report;
	struct fixture f;

	fixture_open(&f, memory, "ring.gsnap");
	io.engine = GPUSNAP_IO_URING;
	if (gpusnap_io_probe(memory, &io, &report, &err))
		io.engine = GPUSNAP_IO_MMAP; /* io_uring is not allowed here */
	for (size_t i = 0; io.engine == GPUSNAP_IO_URING && i < sizeof blocks / sizeof blocks[0];
		i++) {
		io.block_bytes = blocks[i]; /* leaves are cut where blocks end */
		ck_assert_str_eq(restore(&f, &io).engine, "uring");
	}
	fixture_close(&f);
}
END_TEST

/* Have this share of the file in the page cache, from its beginning; false where that is not had.
 */
static bool keep_cached(const char *path, int percent)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), got;
	struct gsn_direct_choice choice;
	uint8_t *room = malloc(LEAVES * LEAF);
	uint64_t bytes = LEAVES * LEAF / 100 * (unsigned)percent;

	ck_assert_int_ge(fd, 0);
	ck_assert_ptr_nonnull(room);
	ck_assert_int_eq(fsync(fd), 0);
	ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0); /* no reading ahead */
	if (bytes)
		ck_assert_int_eq(pread(fd, room, bytes, 0), (ssize_t)bytes);
	got = gsn_direct_resident(fd, &choice);
	free(room);
	ck_assert_int_eq(close(fd), 0);
	return got >= percent - 5 && got <= percent + 5;
}

START_TEST(a_file_that_is_partly_in_memory_goes_by_its_larger_part)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	gpusnap_io_report probe, report;
	struct fixture f;

	fixture_open(&f, disk, "partly.gsnap");
	ck_ok(gpusnap_io_probe(disk, NULL, &probe, &err));
	if (keep_cached(f.path, 85)) {
		report = restore(&f, NULL);
		ck_assert_str_eq(report.engine, "threads");
		ck_assert(!report.direct);
		ck_assert_ptr_nonnull(strstr(report.reason, "of the file is in the page cache"));
	}
	if (keep_cached(f.path, 50))
		ck_assert_int_eq(restore(&f, NULL).direct, probe.direct);
	if (keep_cached(f.path, 0))
		ck_assert_int_eq(restore(&f, NULL).direct, probe.direct);
	if (probe.direct && keep_cached(f.path, 85)) {
		io.direct = GPUSNAP_DIRECT_ON;
		ck_assert(restore(&f, &io).direct);
	}
	fixture_close(&f);
}
END_TEST

START_TEST(an_empty_state_is_restored)
{
	gpusnap_registry *fresh;
	struct fixture f;

	tempdir_join(f.path, memory, "empty.gsnap");
	ck_ok(gpusnap_device_open("host", &f.device, &err));
	live_open(&f.state, f.device);
	ck_ok(gpusnap_save(f.state.registry, f.path, NULL, NULL, &err));
	ck_ok(gpusnap_restore(f.state.registry, f.path, NULL, NULL, &err));
	ck_ok(gpusnap_registry_from_snapshot(f.device, f.path, NULL, NULL, &fresh, NULL, &err));
	gpusnap_registry_free(fresh);
	fixture_close(&f);
}
END_TEST

/* ---- faults ---- */

/* Of which entry, and where in the file, the byte in the middle of "large" is. */
static uint64_t middle_of_large(const char *path)
{
	gpusnap_snapshot *snapshot;
	uint64_t offset;

	ck_ok(gpusnap_snapshot_open(path, &snapshot, &err));
	offset = gpusnap_snapshot_entry_find(snapshot, "large")->file_offset + 9 * LEAF + 99;
	gpusnap_snapshot_close(snapshot);
	return offset;
}

static void check_damage(const char *folder, const gpusnap_io_options *io)
{
	struct fixture f;
	uint64_t offset;

	fixture_open(&f, folder, "damaged.gsnap");
	offset = middle_of_large(f.path);
	flip_bit_of(f.path, offset, 3);
	ck_fails(gpusnap_restore(f.state.registry, f.path, io, NULL, &err), GPUSNAP_E_CORRUPT,
		"buffer 'large' leaf 9 ");
	ck_assert_uint_eq(err.offset, offset - 99);
	check_poisoned(&f);
	flip_bit_of(f.path, offset, 3);
	(void)restore(&f, io);
	ck_assert_int_eq(state_of(&f), GPUSNAP_REGION_RESIDENT);
	fixture_close(&f);
}

START_TEST(one_wrong_leaf_is_named_and_all_is_poisoned)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;

	check_damage(memory, NULL);
	check_damage(disk, NULL);
	io.direct = GPUSNAP_DIRECT_OFF;
	io.block_bytes = LEAF;
	check_damage(disk, &io);
}
END_TEST

static void check_truncation(const char *folder, const gpusnap_io_options *io)
{
	gpusnap_snapshot *snapshot;
	struct fixture f;
	uint64_t length;

	fixture_open(&f, folder, "truncated.gsnap");
	length = middle_of_large(f.path);
	ck_ok(gpusnap_snapshot_open(f.path, &snapshot, &err));
	ck_assert_int_eq(truncate(f.path, (off_t)length), 0);
	ck_fails(gpusnap_restore_snapshot(f.state.registry, snapshot, io, NULL, &err),
		GPUSNAP_E_CORRUPT, "truncated since");
	ck_assert_ptr_nonnull(strstr(err.message, f.path));
	check_poisoned(&f);
	gpusnap_snapshot_close(snapshot);
	fixture_close(&f);
}

START_TEST(a_file_cut_off_under_a_restore_is_an_error_and_all_is_poisoned)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;

	check_truncation(memory, NULL);
	check_truncation(disk, NULL);
	io.engine = GPUSNAP_IO_THREADS;
	io.block_bytes = LEAF;
	check_truncation(memory, &io);
}
END_TEST

static int stop(void *user, uint64_t done, uint64_t total)
{
	ck_assert_uint_le(done, total);
	++*(int *)user;
	return 1;
}

START_TEST(a_cancelled_restore_leaves_poison)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	struct fixture f;
	int calls = 0;

	io.progress = stop;
	io.user = &calls;
	fixture_open(&f, memory, "cancelled.gsnap");
	ck_fails(gpusnap_restore(f.state.registry, f.path, &io, NULL, &err), GPUSNAP_E_IO,
		"cancelled by the caller");
	ck_assert_int_eq(calls, 1);
	check_poisoned(&f);
	(void)restore(&f, NULL);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_file_in_memory_is_read_by_threads,
		another_engine_reads_through_the_ring,
		a_file_that_is_partly_in_memory_goes_by_its_larger_part,
		an_empty_state_is_restored,
		one_wrong_leaf_is_named_and_all_is_poisoned,
		a_file_cut_off_under_a_restore_is_an_error_and_all_is_poisoned,
		a_cancelled_restore_leaves_poison,
	};
	int result;

	tempdir_make(disk, NULL);
	tempdir_make(memory, "/dev/shm");
	result = RUN_SUITE("restore_sources", tests);
	tempdir_remove(disk);
	tempdir_remove(memory);
	return result;
}
