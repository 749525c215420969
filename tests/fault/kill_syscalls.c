/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 before and after every system call of a save. A tracer (ptrace) lets the saving process
 * run from one system call to the next, in all of its threads, and kills it at the n-th stop: at
 * an entry the call is not made any more, at an exit it is done. n goes on until a save gets
 * through. Afterwards there is the old file or the new one, whole, and the next save needs no help
 * and leaves no litter.
 *
 * The tracer itself stays single-threaded: saving and judging happen in children. Exit status 77
 * (a skip) where tracing is not allowed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#include <gpusnap/snapshot.h>

#include "snapshot/save.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

/* Every STEP-th stop; sanitizers make a child tens of times dearer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEP = 17, POINTS_WANTED = 100 };
#else
enum { STEP = 1, POINTS_WANTED = 2000 };
#endif
enum {
	STATE_BYTES = 140000,
	SKIP = 77,
	SYSCALL_STOP = SIGTRAP | 0x80,
	SWEEPS_MAX = 2000,
	FILES = 2
};

static char memory_root[PATH_MAX], disk_root[PATH_MAX];

/* ---- what is saved ---- */

static uint8_t bytes_a[STATE_BYTES], bytes_b[STATE_BYTES];

struct owner {
	gpusnap_device *device;
	gpusnap_registry *registry;
};

/* In the child that saves, since it starts threads. */
static void owner_open(struct owner *owner, uint8_t *bytes)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;
	uint32_t region;

	options.tag = "weights";
	ck_ok(gpusnap_device_open("host", &owner->device, &err));
	ck_ok(gpusnap_registry_create(owner->device, NULL, &owner->registry, &err));
	ck_ok(gpusnap_region_adopt(
		owner->registry, (uintptr_t)bytes, STATE_BYTES, &options, &region, &err));
}

static void owner_close(struct owner *owner)
{
	gpusnap_registry_free(owner->registry);
	gpusnap_device_close(owner->device);
}

/* ---- ways to save ---- */

static const struct way {
	const char *name;
	bool named, over, read_back;
	bool delta;   /* of a parent in the same folder */
	bool on_disk; /* where direct I/O may be had; otherwise in memory, which is fast */
	gpusnap_io_engine engine;
} ways[] = {
	{.name = "full, threads", .engine = GPUSNAP_IO_THREADS},
	{.name = "full, named, threads", .named = true, .engine = GPUSNAP_IO_THREADS},
	{.name = "full, uring", .engine = GPUSNAP_IO_URING},
	{.name = "full, named, uring", .named = true, .engine = GPUSNAP_IO_URING},
	{.name = "replace, threads", .over = true, .engine = GPUSNAP_IO_THREADS},
	{.name = "replace, named, threads",
		.named = true,
		.over = true,
		.engine = GPUSNAP_IO_THREADS},
	{.name = "replace, uring", .over = true, .engine = GPUSNAP_IO_URING},
	{.name = "delta", .delta = true, .engine = GPUSNAP_IO_THREADS},
	{.name = "delta, named, uring", .named = true, .delta = true, .engine = GPUSNAP_IO_URING},
	{.name = "delta, replace",
		.named = true,
		.over = true,
		.delta = true,
		.engine = GPUSNAP_IO_THREADS},
	{.name = "replace, on disk", .over = true, .on_disk = true},
	{.name = "replace, read back",
		.named = true,
		.over = true,
		.read_back = true,
		.engine = GPUSNAP_IO_THREADS},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static int no_unnamed(const struct gsn_fs *fs, int directory, mode_t mode)
{
	(void)fs;
	(void)directory;
	(void)mode;
	return -EOPNOTSUPP;
}

struct place {
	char folder[PATH_MAX], path[PATH_MAX], parent[PATH_MAX];
};

static gpusnap_status save(const struct owner *owner, const struct place *place,
	const struct way *way, bool replace, gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	struct gsn_fs fs = gsn_fs_posix;

	if (way->named)
		fs.open_unnamed = no_unnamed;
	options.replace = replace;
	options.read_back = way->read_back;
	options.parent = way->delta ? place->parent : NULL;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.engine = way->engine;
	options.io.block_bytes = 64 << 10;
	options.io.depth = 2;
	return gsn_save_on(&fs, owner->registry, place->path, &options, NULL, err);
}

/* ---- the victim and its tracer ---- */

/* Stops twice: to be traced from here on, and when the save begins. */
static _Noreturn void run_victim(const struct place *place, const struct way *way)
{
	struct owner owner;
	gpusnap_error err;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(EXIT_FAILURE);
	(void)raise(SIGSTOP);
	owner_open(&owner, bytes_b);
	(void)raise(SIGSTOP);
	_exit(save(&owner, place, way, way->over, &err) ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* The victim, stopped for the first time. */
static pid_t start_victim(const struct place *place, const struct way *way)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		run_victim(place, way);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert_int_eq(ptrace(PTRACE_SETOPTIONS, pid, NULL,
				 PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL),
		0);
	return pid;
}

/* Reap every thread of a process that dies or is dead. */
static int reap_all(pid_t pid)
{
	int status, last = 0;
	pid_t which;

	while ((which = waitpid(-1, &status, __WALL)) > 0)
		if (which == pid && (WIFEXITED(status) || WIFSIGNALED(status)))
			last = status;
	return last;
}

/* A signal that the victim is to get; stops of the tracing itself are none. */
static long signal_of(int status)
{
	int sig = WSTOPSIG(status);

	return sig == SYSCALL_STOP || sig == SIGTRAP || sig == SIGSTOP ? 0 : sig;
}

/* True when it was killed at the n-th stop of its save; false when it had fewer and got through. */
static bool kill_at(pid_t pid, unsigned n)
{
	bool saving = false;
	unsigned stops = 0;
	int status;

	ck_assert_int_eq(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
	for (;;) {
		pid_t which = waitpid(-1, &status, __WALL);

		ck_assert_int_gt(which, 0);
		if (which == pid && WIFEXITED(status)) {
			ck_assert_int_eq(WEXITSTATUS(status), EXIT_SUCCESS);
			return false;
		}
		if (!WIFSTOPPED(status))
			continue; /* one of its threads has ended */
		saving |= which == pid && WSTOPSIG(status) == SIGSTOP;
		if (saving && WSTOPSIG(status) == SYSCALL_STOP && ++stops == n)
			break;
		(void)ptrace(PTRACE_SYSCALL, which, NULL, (void *)signal_of(status));
	}
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	status = reap_all(pid);
	/* The last stop of all has no exit: the process is gone by then. */
	return WIFSIGNALED(status);
}

/* ---- what it left ---- */

/* 'a', 'b', or '-' for no file; anything else ends the test. */
static char content_of(const struct owner *reader, const char *path)
{
	gpusnap_registry *restored;
	gpusnap_region_info info;
	gpusnap_error err;
	char found;

	if (access(path, F_OK) != 0)
		return '-';
	ck_ok(gpusnap_registry_from_snapshot(
		reader->device, path, NULL, NULL, &restored, NULL, &err));
	ck_ok(gpusnap_region_at(restored, 0, &info, &err));
	found = memcmp((void *)(uintptr_t)info.address, bytes_a, STATE_BYTES) == 0 ? 'a' : 'b';
	if (found == 'b')
		ck_assert_mem_eq((void *)(uintptr_t)info.address, bytes_b, STATE_BYTES);
	gpusnap_registry_free(restored);
	return found;
}

static void judge(const struct place *place, const struct way *way, bool killed)
{
	struct owner owner;
	gpusnap_error err;
	char found;

	owner_open(&owner, bytes_a);
	found = content_of(&owner, place->path);
	ck_assert_msg(found == 'b' || (killed && found == (way->over ? 'a' : '-')),
		"%s: found '%c'", way->name, found);
	ck_ok(save(&owner, place, way, true, &err));
	/* The kernel may hold a dead writer's file, and its lock, until its last request is done.
	 */
	for (int tries = 0; tempdir_count(place->folder) > FILES; tries++) {
		ck_assert_msg(tries < SWEEPS_MAX, "%s: litter outlives later saves", way->name);
		(void)nanosleep(&(struct timespec){0, 100000}, NULL);
		ck_ok(save(&owner, place, way, true, &err));
	}
	ck_assert_int_eq(content_of(&owner, place->path), 'a');
	owner_close(&owner);
}

/* In a child, since it uses threads. Its exit is the verdict; Check prints what was wrong. */
static void judge_apart(const struct place *place, const struct way *way, bool killed)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		judge(place, way, killed);
		_exit(EXIT_SUCCESS);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
}

static unsigned kill_everywhere(const struct place *place, const struct way *way)
{
	unsigned points = 0;
	bool killed = true;

	for (unsigned n = 1; killed; n += STEP) {
		if (!way->over)
			(void)unlink(place->path);
		killed = kill_at(start_victim(place, way), n);
		judge_apart(place, way, killed);
		points += killed;
	}
	return points;
}

static void save_twice(const struct place *place)
{
	struct place parent = *place;
	struct owner owner;
	gpusnap_error err;

	memcpy(parent.path, place->parent, sizeof parent.path);
	owner_open(&owner, bytes_a);
	ck_ok(save(&owner, &parent, &ways[0], false, &err));
	ck_ok(save(&owner, place, &ways[0], false, &err));
	owner_close(&owner);
}

/* A folder with a snapshot of state a at the target's name and another to be a parent. */
static void place_make(struct place *place, const struct way *way)
{
	pid_t pid;

	tempdir_make(place->folder, way->on_disk ? disk_root : memory_root);
	tempdir_join(place->path, place->folder, "state.gsnap");
	tempdir_join(place->parent, place->folder, "parent.gsnap");
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		save_twice(place);
		_exit(EXIT_SUCCESS);
	}
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(tempdir_count(place->folder), FILES);
}

START_TEST(killed_at_any_system_call_a_save_leaves_the_old_file_or_the_new_one)
{
	struct place place;
	uint64_t random = 1;
	unsigned points = 0;

	random_fill(&random, bytes_a, STATE_BYTES);
	memcpy(bytes_b, bytes_a, STATE_BYTES);
	bytes_b[1] ^= 1; /* one leaf of three, for deltas */
	for (int i = 0; i < WAYS; i++) {
		unsigned of_way;

		place_make(&place, &ways[i]);
		of_way = kill_everywhere(&place, &ways[i]);
		(void)printf("kill -9: %u points of a save (%s)\n", of_way, ways[i].name);
		points += of_way;
	}
	(void)printf("kill -9: %u points\n", points);
	ck_assert_uint_ge(points, POINTS_WANTED);
}
END_TEST

/* A seccomp filter or a security module may refuse it. */
static bool may_trace(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == EXIT_SUCCESS;
}

int main(void)
{
	const TTest *const tests[] = {
		killed_at_any_system_call_a_save_leaves_the_old_file_or_the_new_one};
	int result;

	if (!may_trace()) {
		(void)fprintf(stderr, "tracing a child is not allowed here: skipped\n");
		return SKIP;
	}
	/* A child that ends must not print once more what its parent has in its buffer. */
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	tempdir_make(memory_root, "/dev/shm");
	tempdir_make(disk_root, NULL);
	result = RUN_SUITE("kill_syscalls", tests);
	tempdir_remove(memory_root);
	tempdir_remove(disk_root);
	return result;
}
