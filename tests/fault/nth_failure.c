/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The n-th call to the system fails, once and for ever: n = 1 and on, until a job gets through
 * without meeting it. Every kind of call, every job, both kinds of engine. A job then does its
 * work all the same, or gives one clear error and leaves everything as it was: the target, live
 * state, the folder, and as many open descriptors as before.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <gpusnap/snapshot.h>

#include "snapshot/save.h"
#include "tests/support/call_fault.h"
#include "tests/support/file.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* Two leaves and a bit, which make three blocks of a file. */
enum { STATE_BYTES = 140000, TRIES_MAX = 4000 };

static char memory_root[PATH_MAX], disk_root[PATH_MAX];

struct fixture {
	gpusnap_device *device;
	gpusnap_registry *registry;
	uint32_t region;
	uint8_t live[STATE_BYTES], image[STATE_BYTES]; /* as saved in old.gsnap: `image` */
	char folder[PATH_MAX], old[PATH_MAX], other[PATH_MAX];
	uint8_t *old_file;
	size_t old_length;
	gpusnap_io_options io;
	bool dear;
	unsigned long met, survived; /* failures, and jobs that did their work all the same */
};

/* ---- fixture ---- */

static void fixture_open(struct fixture *f, const char *root, gpusnap_io_engine engine)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
	uint64_t random = 7, bytes = 66000;
	gpusnap_error err;

	tempdir_make(f->folder, root);
	tempdir_join(f->old, f->folder, "old.gsnap");
	tempdir_join(f->other, f->folder, "other");
	ck_ok(gpusnap_device_open("host", &f->device, &err));
	ck_ok(gpusnap_registry_create(f->device, NULL, &f->registry, &err));
	options.tag = "weights";
	ck_ok(gpusnap_region_adopt(
		f->registry, (uintptr_t)f->live, STATE_BYTES, &options, &f->region, &err));
	buffer.name = "w";
	buffer.dtype = GPUSNAP_U8;
	buffer.rank = 1;
	buffer.shape = &bytes;
	buffer.region = f->region;
	ck_ok(gpusnap_buffer_register(f->registry, &buffer, &err));
	random_fill(&random, f->image, STATE_BYTES);
	memcpy(f->live, f->image, STATE_BYTES);
	ck_ok(gpusnap_save(f->registry, f->old, NULL, NULL, &err));
	f->old_file = read_file(f->old, &f->old_length);
	f->io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	f->io.engine = engine;
	f->io.depth = 2;
	f->io.block_bytes = 64 << 10;
	f->met = f->survived = 0;
}

static void fixture_close(struct fixture *f)
{
	gpusnap_registry_free(f->registry);
	gpusnap_device_close(f->device);
	free(f->old_file);
	tempdir_remove(f->folder);
}

static void scribble(struct fixture *f)
{
	for (size_t i = 0; i < STATE_BYTES; i++)
		f->live[i] = (uint8_t)~f->image[i];
}

static bool old_is_untouched(const struct fixture *f)
{
	size_t length;
	uint8_t *bytes = read_file(f->old, &length);
	bool same = length == f->old_length && memcmp(bytes, f->old_file, length) == 0;

	free(bytes);
	return same;
}

static int open_descriptors(void)
{
	DIR *stream = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(stream);
	while (readdir(stream))
		count++;
	(void)closedir(stream);
	return count;
}

/* ---- jobs: what is run, what holds after a failure, what holds after success ---- */

struct job {
	const char *name;
	gpusnap_status (*run)(struct fixture *f, gpusnap_error *err);
	void (*failed)(struct fixture *f, const gpusnap_error *err);
	void (*succeeded)(struct fixture *f);
};

/* Whatever a file holds now, it is a whole snapshot of `bytes`. */
static void expect_snapshot(struct fixture *f, const char *path, const uint8_t *bytes)
{
	gpusnap_registry *registry;
	gpusnap_region_info info;
	gpusnap_error err;

	ck_ok(gpusnap_registry_from_snapshot(f->device, path, NULL, NULL, &registry, NULL, &err));
	ck_ok(gpusnap_region_at(registry, 0, &info, &err));
	ck_assert_mem_eq((void *)(uintptr_t)info.address, bytes, STATE_BYTES);
	gpusnap_registry_free(registry);
}

static gpusnap_status save(struct fixture *f, const struct gsn_fs *fs, const char *path,
	gpusnap_save_options options, gpusnap_error *err)
{
	options.struct_size = sizeof options;
	options.io = f->io;
	return gsn_save_on(fs, f->registry, path, &options, NULL, err);
}

static gpusnap_status run_save(struct fixture *f, gpusnap_error *err)
{
	return save(f, &gsn_fs_posix, f->other, (gpusnap_save_options){0}, err);
}

static int no_unnamed(const struct gsn_fs *fs, int directory, mode_t mode)
{
	(void)fs;
	(void)directory;
	(void)mode;
	return -EOPNOTSUPP;
}

static gpusnap_status run_named(struct fixture *f, gpusnap_error *err)
{
	struct gsn_fs fs = gsn_fs_posix;

	fs.open_unnamed = no_unnamed;
	return save(f, &fs, f->other, (gpusnap_save_options){0}, err);
}

static gpusnap_status run_replace(struct fixture *f, gpusnap_error *err)
{
	scribble(f);
	return save(f, &gsn_fs_posix, f->old, (gpusnap_save_options){.replace = true}, err);
}

static gpusnap_status run_read_back(struct fixture *f, gpusnap_error *err)
{
	scribble(f);
	return save(f, &gsn_fs_posix, f->old,
		(gpusnap_save_options){.replace = true, .read_back = true}, err);
}

/* One leaf of three differs from the parent's. */
static gpusnap_status run_delta(struct fixture *f, gpusnap_error *err)
{
	memcpy(f->live, f->image, STATE_BYTES);
	f->live[0] ^= 1;
	return save(f, &gsn_fs_posix, f->other, (gpusnap_save_options){.parent = f->old}, err);
}

/* The one failure behind the commit point: the file is there, and the error says so. */
static bool is_committed(const gpusnap_error *err)
{
	return strstr(err->message, "a crash may undo it") != NULL;
}

static void other_is_absent(struct fixture *f, const gpusnap_error *err)
{
	if (is_committed(err)) {
		expect_snapshot(f, f->other, f->live);
		ck_assert_int_eq(unlink(f->other), 0);
	}
	ck_assert_int_eq(access(f->other, F_OK), -1);
	ck_assert(old_is_untouched(f));
}

static void put_old_back(struct fixture *f)
{
	uint8_t scribbled[STATE_BYTES];

	memcpy(scribbled, f->live, STATE_BYTES);
	expect_snapshot(f, f->old, scribbled);
	file_write(f->old, f->old_file, f->old_length);
}

static void old_is_there(struct fixture *f, const gpusnap_error *err)
{
	if (is_committed(err))
		put_old_back(f);
	ck_assert(old_is_untouched(f));
}

static void other_is_saved(struct fixture *f)
{
	expect_snapshot(f, f->other, f->live);
	ck_assert_int_eq(unlink(f->other), 0);
}

static gpusnap_status run_verify(struct fixture *f, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	gpusnap_status status = gpusnap_snapshot_open(f->old, &snapshot, err);

	if (status)
		return status;
	status = gpusnap_snapshot_verify(snapshot, &f->io, &damage, NULL, err);
	gpusnap_snapshot_close(snapshot);
	if (status)
		return status;
	/* No false alarm: what could not be read is not damaged. */
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	return GPUSNAP_OK;
}

static void nothing_to_undo(struct fixture *f)
{
	ck_assert(old_is_untouched(f));
}

static gpusnap_status run_extract(struct fixture *f, gpusnap_error *err)
{
	gpusnap_extract_options options = GPUSNAP_EXTRACT_OPTIONS_INIT;
	gpusnap_snapshot *snapshot;
	gpusnap_status status = gpusnap_snapshot_open(f->old, &snapshot, err);

	if (status)
		return status;
	options.io = f->io;
	options.raw = true;
	status = gpusnap_snapshot_extract(snapshot, "w", f->other, &options, NULL, err);
	gpusnap_snapshot_close(snapshot);
	return status;
}

static void check_extracted(struct fixture *f)
{
	size_t length;
	uint8_t *bytes = read_file(f->other, &length);

	ck_assert_uint_eq(length, 66000);
	ck_assert_mem_eq(bytes, f->image, length);
	free(bytes);
	ck_assert_int_eq(unlink(f->other), 0);
}

static void extract_failed(struct fixture *f, const gpusnap_error *err)
{
	if (is_committed(err))
		check_extracted(f);
	ck_assert_int_eq(access(f->other, F_OK), -1);
}

static gpusnap_status run_restore(struct fixture *f, gpusnap_error *err)
{
	scribble(f);
	return gpusnap_restore(f->registry, f->old, &f->io, NULL, err);
}

/* Either nothing was overwritten, or nobody may use what there is. */
static void restore_failed(struct fixture *f, const gpusnap_error *failure)
{
	gpusnap_region_info info;
	gpusnap_error err;

	(void)failure;
	ck_ok(gpusnap_region_get(f->registry, f->region, &info, &err));
	if (info.state == GPUSNAP_REGION_RESIDENT) {
		for (size_t i = 0; i < STATE_BYTES; i++)
			ck_assert_uint_eq(f->live[i], (uint8_t)~f->image[i]);
		return;
	}
	ck_assert_int_eq(info.state, GPUSNAP_REGION_DISCARDED);
	ck_ok(gpusnap_region_rewritten(f->registry, f->region, &err));
}

static void restored(struct fixture *f)
{
	ck_assert_mem_eq(f->live, f->image, STATE_BYTES);
}

static gpusnap_status run_restore_fresh(struct fixture *f, gpusnap_error *err)
{
	gpusnap_registry *registry = NULL;
	gpusnap_region_info info;
	gpusnap_status status = gpusnap_registry_from_snapshot(
		f->device, f->old, NULL, &f->io, &registry, NULL, err);

	ck_assert((status == GPUSNAP_OK) == (registry != NULL));
	if (status)
		return status;
	ck_assert_int_eq(gpusnap_region_at(registry, 0, &info, err), GPUSNAP_OK);
	ck_assert_mem_eq((void *)(uintptr_t)info.address, f->image, STATE_BYTES);
	gpusnap_registry_free(registry);
	return GPUSNAP_OK;
}

static void nothing_is_left(struct fixture *f, const gpusnap_error *err)
{
	(void)f;
	(void)err;
}

static const struct job jobs[] = {
	{"save", run_save, other_is_absent, other_is_saved},
	{"save, named", run_named, other_is_absent, other_is_saved},
	{"save --parent", run_delta, other_is_absent, other_is_saved},
	{"save --replace", run_replace, old_is_there, put_old_back},
	{"save --read-back", run_read_back, old_is_there, put_old_back},
	{"verify", run_verify, nothing_is_left, nothing_to_undo},
	{"extract", run_extract, extract_failed, check_extracted},
	{"restore", run_restore, restore_failed, restored},
	{"restore afresh", run_restore_fresh, nothing_is_left, nothing_to_undo},
};
enum { JOBS = sizeof jobs / sizeof jobs[0] };

/* ---- the loop ---- */

static const int errors[] = {EIO, ENOSPC, ENOMEM, EINTR, EAGAIN, EPERM, 0};
/* Where a job is dear, under a sanitizer or on a disk that must sync: one of each way to act. */
static const int few_errors[] = {EIO, EINTR, 0};
static const int transfer_errors[] = {
	EIO, ENOSPC, EINTR, EAGAIN, SHORT_BY_ONE, SHORT_BY_HALF, SHORT_BY_ALL, 0};

static bool is_transfer(enum call call)
{
	return call == CALL_PREAD || call == CALL_PWRITE || call == CALL_WRITE;
}

/* A retry is right, so a single one of these is no failure at all. */
static bool must_be_survived(enum call call, int answer, bool persistent)
{
	return is_transfer(call) && !persistent &&
	       (answer == EINTR || answer == SHORT_BY_ONE || answer == SHORT_BY_HALF);
}

struct attempt {
	const struct job *job;
	enum call call;
	int answer;
	bool persistent;
	unsigned n;
};

static void check_error(const struct attempt *attempt, gpusnap_status status,
	const gpusnap_error *err, const struct fixture *f)
{
	bool names_it = strstr(err->message, f->folder) || strstr(err->message, "host device") ||
			attempt->call == CALL_GETRANDOM;

	ck_assert_int_eq(status, err->status);
	ck_assert_msg(names_it && !strchr(err->message, '\n'),
		"%s, %s %u, answer %d: the error names nothing, or has lines: %s",
		attempt->job->name, call_name(attempt->call), attempt->n, attempt->answer,
		err->message);
}

static void check_folder(const struct fixture *f, const struct attempt *attempt)
{
	ck_assert_msg(tempdir_count(f->folder) == 1, "%s, %s %u, answer %d leaves litter",
		attempt->job->name, call_name(attempt->call), attempt->n, attempt->answer);
}

/* False when the job got through without meeting the failure. */
static bool try(struct fixture *f, const struct attempt *attempt)
{
	int before = open_descriptors();
	gpusnap_status status;
	gpusnap_error err;
	bool met;

	call_fault_set(attempt->call, attempt->n, attempt->answer, attempt->persistent);
	status = attempt->job->run(f, &err);
	met = call_fault_clear();
	ck_assert_msg(!status || (met && !must_be_survived(attempt->call, attempt->answer,
						 attempt->persistent)),
		"%s, %s %u, answer %d: %s", attempt->job->name, call_name(attempt->call),
		attempt->n, attempt->answer, err.message);
	if (status) {
		check_error(attempt, status, &err, f);
		attempt->job->failed(f, &err);
	} else {
		attempt->job->succeeded(f);
	}
	check_folder(f, attempt);
	ck_assert_msg(open_descriptors() == before, "%s, %s %u, answer %d: descriptors leak",
		attempt->job->name, call_name(attempt->call), attempt->n, attempt->answer);
	f->met += met;
	f->survived += met && !status;
	return met;
}

/* How often the job makes the call. */
static unsigned fail_each(struct fixture *f, struct attempt attempt)
{
	for (attempt.n = 1; try(f, &attempt); attempt.n++)
		ck_assert_uint_lt(attempt.n, TRIES_MAX);
	return attempt.n - 1;
}

static unsigned fail_call(struct fixture *f, enum call call)
{
	const int *answer = f->dear ? few_errors : errors;
	unsigned calls = 0;

	if (is_transfer(call))
		answer = transfer_errors;
	for (; *answer; answer++) {
		for (int persistent = 0; persistent < 2; persistent++) {
			for (int i = 0; i < JOBS; i++) {
				struct attempt attempt = {&jobs[i], call, *answer, persistent, 1};

				calls += fail_each(f, attempt);
			}
		}
	}
	return calls;
}

/* A way to run the jobs, and the calls that fail there and must have been made. */
struct way {
	const char *name;
	gpusnap_io_engine engine;
	bool on_disk;
	enum call calls[CALLS + 1]; /* ends with CALLS */
};

static void fail_all(const struct way *way)
{
	struct fixture *f = malloc(sizeof *f);

	ck_assert_ptr_nonnull(f);
	fixture_open(f, way->on_disk ? disk_root : memory_root, way->engine);
	f->dear = SANITIZED || way->on_disk;
	for (const enum call *call = way->calls; *call != CALLS; call++) {
		unsigned calls = fail_call(f, *call);

		/* What a disk, a container or a kernel does without, is not called there. */
		ck_assert_msg(calls > 0 || way->on_disk, "%s was never called", call_name(*call));
	}
	(void)printf("n-th failure (%s): %lu failures met in %d jobs, %lu of them survived\n",
		way->name, f->met, JOBS, f->survived);
	fixture_close(f);
	free(f);
}

START_TEST(each_failing_call_is_survived_or_reported_by_worker_threads)
{
	static const struct way way = {"threads", GPUSNAP_IO_THREADS, false,
		{CALL_OPEN, CALL_OPENAT, CALL_FSTAT, CALL_FSTATAT, CALL_FALLOCATE, CALL_FTRUNCATE,
			CALL_FCHMOD, CALL_FCNTL, CALL_FSYNC, CALL_LINKAT, CALL_RENAMEAT,
			CALL_RENAMEAT2, CALL_GETRANDOM, CALL_MMAP, CALL_THREAD, CALL_PREAD,
			CALL_PWRITE, CALL_WRITE, CALLS}};

	fail_all(&way);
}
END_TEST

START_TEST(each_failing_call_is_survived_or_reported_by_io_uring)
{
	static const struct way way = {"io_uring", GPUSNAP_IO_URING, false,
		{CALL_MMAP, CALL_URING_SETUP, CALL_URING_REGISTER_MEMORY, CALL_URING_REGISTER_FILE,
			CALL_URING_SUBMIT, CALLS}};

	fail_all(&way);
}
END_TEST

START_TEST(each_failing_call_is_survived_or_reported_on_a_disk)
{
	static const struct way way = {"first choice, on a disk", GPUSNAP_IO_AUTO, true,
		{CALL_STATX, CALL_FCNTL, CALL_FSYNC, CALL_URING_SETUP, CALL_URING_REGISTER_MEMORY,
			CALL_URING_SUBMIT, CALL_SYSCALL, CALL_PREAD, CALL_PWRITE, CALLS}};

	fail_all(&way);
}
END_TEST

START_TEST(each_failing_call_is_survived_or_reported_by_linux_aio)
{
	static const struct way way = {
		"Linux AIO, on a disk", GPUSNAP_IO_AIO, true, {CALL_SYSCALL, CALLS}};

	fail_all(&way);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		each_failing_call_is_survived_or_reported_by_worker_threads,
		each_failing_call_is_survived_or_reported_by_io_uring,
		each_failing_call_is_survived_or_reported_on_a_disk,
		each_failing_call_is_survived_or_reported_by_linux_aio,
	};
	int result;

	tempdir_make(memory_root, "/dev/shm");
	tempdir_make(disk_root, NULL);
	result = RUN_SUITE("nth_failure", tests);
	tempdir_remove(memory_root);
	tempdir_remove(disk_root);
	return result;
}
