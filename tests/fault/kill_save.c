/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 at random moments of a save over an existing file: afterwards there is the old file or
 *the new one, whole, and the next save works. The saver is this program again, so that it dies with
 * its threads and requests under way.
 *
 *	test_fault_kill_save child PATH NAMED	saves state B over PATH for ever
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <gpusnap/snapshot.h>

#include "snapshot/save.h"
#include "tests/support/live_state.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

enum { ROUNDS = 200, SWEEPS_MAX = 500, STATE_A = 51, STATE_B = 52, READY_FD = 3 };
/* Longer than a save of these states takes, so that kills fall into all of it. */
#define DELAY_MAX_NS 6000000u

static char root[PATH_MAX];
static const char *self;

static int no_unnamed(const struct gsn_fs *fs, int directory, mode_t mode)
{
	(void)fs;
	(void)directory;
	(void)mode;
	return -EOPNOTSUPP;
}

/* Half of the rounds do without unnamed temporary files, where a kill can leave a name behind. */
static struct gsn_fs fs_of(bool named)
{
	struct gsn_fs fs = gsn_fs_posix;

	if (named)
		fs.open_unnamed = no_unnamed;
	return fs;
}

static gpusnap_status save(
	gpusnap_registry *registry, const char *path, bool named, gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	struct gsn_fs fs = fs_of(named);

	options.replace = true;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.block_bytes = 64 << 10;
	options.io.depth = 4;
	return gsn_save_on(&fs, registry, path, &options, NULL, err);
}

static int child(const char *path, bool named)
{
	gpusnap_device *device;
	struct live_state state;
	gpusnap_error err;

	if (gpusnap_device_open("host", &device, &err))
		return EXIT_FAILURE;
	live_random(&state, device, STATE_B);
	/* Tell the parent after the first, so that it meets saves under way. */
	if (save(state.registry, path, named, &err) || write(READY_FD, "s", 1) != 1)
		return EXIT_FAILURE;
	while (!save(state.registry, path, named, &err))
		;
	return EXIT_FAILURE;
}

static pid_t start_child(const char *path, bool named)
{
	int ends[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)dup2(ends[1], READY_FD);
		(void)execl(self, self, "child", path, named ? "named" : "unnamed", (char *)NULL);
		_exit(EXIT_FAILURE);
	}
	ck_assert_int_eq(close(ends[1]), 0);
	ck_assert_int_eq(read(ends[0], &byte, 1), 1);
	ck_assert_int_eq(close(ends[0]), 0);
	return pid;
}

static void kill_after(pid_t pid, uint64_t delay_ns)
{
	struct timespec delay = {0, (long)delay_ns};
	int status;

	(void)nanosleep(&delay, NULL);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status), "the saving child failed by itself");
}

/* The file verifies, and holds one of the two states. */
static void check_old_or_new(
	const char *path, const struct live_state *a, const struct live_state *b)
{
	gpusnap_registry *restored;
	gpusnap_error err;

	ck_ok(gpusnap_registry_from_snapshot(
		gpusnap_registry_device(a->registry), path, NULL, NULL, &restored, NULL, &err));
	ck_assert(live_equals(a, restored) || live_equals(b, restored));
	gpusnap_registry_free(restored);
}

static void round_of(const char *folder, bool named, uint64_t delay_ns, struct live_state *a,
	const struct live_state *b)
{
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, folder, "state.gsnap");
	kill_after(start_child(path, named), delay_ns);
	check_old_or_new(path, a, b);
	ck_ok(save(a->registry, path, named, &err));
	check_old_or_new(path, a, a);
	/* The kernel may hold a dead writer's file, and its lock, until its last request is done.
	 */
	for (int tries = 0; tempdir_count(folder) > 1; tries++) {
		ck_assert_msg(tries < SWEEPS_MAX, "litter outlives later saves");
		(void)nanosleep(&(struct timespec){0, 1000000}, NULL);
		ck_ok(save(a->registry, path, named, &err));
	}
}

START_TEST(after_a_kill_there_is_the_old_file_or_the_new_one)
{
	uint64_t random = random_seed(53);
	gpusnap_device *device;
	struct live_state a, b;
	char folder[PATH_MAX], path[PATH_MAX];
	gpusnap_error err;

	tempdir_make(folder, root);
	tempdir_join(path, folder, "state.gsnap");
	ck_ok(gpusnap_device_open("host", &device, &err));
	live_random(&a, device, STATE_A);
	live_random(&b, device, STATE_B);
	ck_ok(save(a.registry, path, false, &err));
	for (int i = 0; i < ROUNDS; i++)
		round_of(folder, i % 2, random_below(&random, DELAY_MAX_NS), &a, &b);
	live_close(&b);
	live_close(&a);
	gpusnap_device_close(device);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {after_a_kill_there_is_the_old_file_or_the_new_one};
	int result;

	if (argc == 4 && strcmp(argv[1], "child") == 0)
		return child(argv[2], strcmp(argv[3], "named") == 0);
	self = argv[0];
	tempdir_make(root, NULL);
	result = RUN_SUITE("kill_save", tests);
	tempdir_remove(root);
	return result;
}
