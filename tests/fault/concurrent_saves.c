/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves and their neighbours at the same time: several to one name, readers during a replace, an
 * application that writes to what is being saved. Every file that comes to a name is whole, and
 * its leaf digests are of the bytes in it.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <gpusnap/snapshot.h>

#include "snapshot/save.h"
#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 10, REPLACES = 30, SAVES_DURING_WRITES = 5 };
#else
enum { ROUNDS = 50, REPLACES = 200, SAVES_DURING_WRITES = 30 };
#endif
enum { SAVERS = 3, APPLICATION_BYTES = 4 << 20 };

static char root[PATH_MAX];

/* ---- one saver among several ---- */

struct saver {
	gpusnap_device *device;
	struct live_state state;
	const char *path;
	bool named, replace;
	pthread_barrier_t *start;
	gpusnap_status status;
	gpusnap_error err;
};

static int no_unnamed(const struct gsn_fs *fs, int directory, mode_t mode)
{
	(void)fs;
	(void)directory;
	(void)mode;
	return -EOPNOTSUPP;
}

static gpusnap_status save(struct saver *saver, gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	struct gsn_fs fs = gsn_fs_posix;

	if (saver->named)
		fs.open_unnamed = no_unnamed;
	options.replace = saver->replace;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.block_bytes = 64 << 10;
	options.io.depth = 2;
	return gsn_save_on(&fs, saver->state.registry, saver->path, &options, NULL, err);
}

static void saver_open(struct saver *saver, const char *path, uint64_t seed)
{
	gpusnap_error err;

	*saver = (struct saver){.path = path};
	ck_ok(gpusnap_device_open("host", &saver->device, &err));
	live_random(&saver->state, saver->device, seed);
}

static void saver_close(struct saver *saver)
{
	live_close(&saver->state);
	gpusnap_device_close(saver->device);
}

/* The saver whose state the file holds, whole. */
static const struct saver *owner_of(const char *path, const struct saver *savers, int count)
{
	const struct saver *owner = NULL;
	gpusnap_registry *restored;
	gpusnap_error err;

	ck_ok(gpusnap_registry_from_snapshot(
		savers[0].device, path, NULL, NULL, &restored, NULL, &err));
	for (int i = 0; i < count && !owner; i++)
		if (live_equals(&savers[i].state, restored))
			owner = &savers[i];
	gpusnap_registry_free(restored);
	return owner;
}

static void *save_once(void *argument)
{
	struct saver *saver = argument;

	(void)pthread_barrier_wait(saver->start);
	saver->status = save(saver, &saver->err);
	return NULL;
}

static void save_at_once(struct saver *savers, bool named, bool replace)
{
	pthread_t threads[SAVERS];
	pthread_barrier_t start;

	ck_assert_int_eq(pthread_barrier_init(&start, NULL, SAVERS), 0);
	for (int i = 0; i < SAVERS; i++) {
		savers[i].start = &start;
		savers[i].named = named;
		savers[i].replace = replace;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, save_once, &savers[i]), 0);
	}
	for (int i = 0; i < SAVERS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	(void)pthread_barrier_destroy(&start);
}

static void check_one_winner(const struct saver *savers, const char *path)
{
	const struct saver *winner = NULL;

	for (int i = 0; i < SAVERS; i++) {
		if (savers[i].status == GPUSNAP_OK) {
			ck_assert_ptr_null(winner);
			winner = &savers[i];
			continue;
		}
		ck_assert_int_eq(savers[i].status, GPUSNAP_E_IO);
		ck_assert_int_eq(savers[i].err.os_errno, EEXIST);
	}
	ck_assert_ptr_nonnull(winner);
	ck_assert_ptr_eq(owner_of(path, savers, SAVERS), winner);
}

static void check_all_won(const struct saver *savers, const char *path)
{
	for (int i = 0; i < SAVERS; i++)
		ck_assert_msg(savers[i].status == GPUSNAP_OK, "%s", savers[i].err.message);
	ck_assert_ptr_nonnull(owner_of(path, savers, SAVERS));
}

START_TEST(saves_to_one_name_at_once_do_not_mix)
{
	struct saver savers[SAVERS];
	char folder[PATH_MAX], path[PATH_MAX];

	tempdir_make(folder, root);
	tempdir_join(path, folder, "state.gsnap");
	for (int i = 0; i < SAVERS; i++)
		saver_open(&savers[i], path, 100 + (uint64_t)i);
	for (int round = 0; round < ROUNDS; round++) {
		bool named = round % 2;

		save_at_once(savers, named, false);
		check_one_winner(savers, path);
		save_at_once(savers, named, true);
		check_all_won(savers, path);
		ck_assert_int_eq(tempdir_count(folder), 1);
		ck_assert_int_eq(unlink(path), 0);
	}
	(void)printf("concurrent saves: %d rounds of %d savers\n", 2 * ROUNDS, SAVERS);
	for (int i = 0; i < SAVERS; i++)
		saver_close(&savers[i]);
}
END_TEST

/* ---- a reader during replaces ---- */

struct replacer {
	struct saver *savers;
	atomic_bool done;
};

static void *replace_for_long(void *argument)
{
	struct replacer *replacer = argument;

	for (int i = 0; i < REPLACES; i++) {
		struct saver *saver = &replacer->savers[i % 2];

		saver->named = i / 2 % 2;
		saver->status = save(saver, &saver->err);
		if (saver->status)
			break;
	}
	atomic_store(&replacer->done, true);
	return NULL;
}

/* Every open finds a file, whole, and goes on reading that one whatever comes to its name. */
static void read_whole(const char *path)
{
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	gpusnap_error err;

	ck_ok(gpusnap_snapshot_open(path, &snapshot, &err));
	ck_ok(gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, &err));
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
}

START_TEST(a_reader_meets_whole_files_while_they_are_replaced)
{
	char folder[PATH_MAX], path[PATH_MAX];
	struct saver savers[2];
	struct replacer replacer = {.savers = savers};
	unsigned reads = 0;
	pthread_t thread;
	gpusnap_error err;

	tempdir_make(folder, root);
	tempdir_join(path, folder, "state.gsnap");
	for (int i = 0; i < 2; i++) {
		saver_open(&savers[i], path, 200 + (uint64_t)i);
		savers[i].replace = true;
	}
	ck_ok(save(&savers[0], &err));
	ck_assert_int_eq(pthread_create(&thread, NULL, replace_for_long, &replacer), 0);
	for (bool last = false; !last; reads++) {
		last = atomic_load(&replacer.done);
		read_whole(path);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_msg(savers[i].status == GPUSNAP_OK, "%s", savers[i].err.message);
	(void)printf("concurrent saves: %u reads during %d replaces\n", reads, REPLACES);
	ck_assert_ptr_nonnull(owner_of(path, savers, 2));
	ck_assert_int_eq(tempdir_count(folder), 1);
	saver_close(&savers[0]);
	saver_close(&savers[1]);
}
END_TEST

/* ---- an application that does not rest ---- */

/* Another process, so that the race is one of memory and not of the program's own threads. */
struct application {
	uint8_t *bytes; /* shared with it */
	pid_t pid;
	gpusnap_device *device;
	gpusnap_registry *registry;
};

static _Noreturn void write_for_ever(volatile uint8_t *bytes)
{
	for (uint32_t n = 1;; n++)
		bytes[n * UINT32_C(2654435761) % APPLICATION_BYTES] += 1;
}

static void application_open(struct application *app)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;
	uint32_t region;

	app->bytes = mmap(
		NULL, APPLICATION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(app->bytes, MAP_FAILED);
	app->pid = fork();
	ck_assert_int_ge(app->pid, 0);
	if (app->pid == 0)
		write_for_ever(app->bytes);
	options.tag = "weights";
	ck_ok(gpusnap_device_open("host", &app->device, &err));
	ck_ok(gpusnap_registry_create(app->device, NULL, &app->registry, &err));
	ck_ok(gpusnap_region_adopt(
		app->registry, (uintptr_t)app->bytes, APPLICATION_BYTES, &options, &region, &err));
}

static void application_close(struct application *app)
{
	gpusnap_registry_free(app->registry);
	gpusnap_device_close(app->device);
	ck_assert_int_eq(kill(app->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(app->pid, NULL, 0), app->pid);
	ck_assert_int_eq(munmap(app->bytes, APPLICATION_BYTES), 0);
}

/* Saves full snapshots and, from the first on, deltas of it; how many leaves were changing. */
static uint64_t save_and_read(struct application *app, const char *path, const char *parent)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_save_report report;
	gpusnap_error err;

	options.replace = true;
	options.parent = parent;
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.block_bytes = 256 << 10;
	ck_ok(gpusnap_save(app->registry, path, &options, &report, &err));
	read_whole(path);
	return report.leaves_written;
}

START_TEST(digests_are_of_what_was_written_while_the_application_writes)
{
	char folder[PATH_MAX], full[PATH_MAX], delta[PATH_MAX];
	struct application app;
	uint64_t leaves = 0;

	tempdir_make(folder, root);
	tempdir_join(full, folder, "full.gsnap");
	tempdir_join(delta, folder, "delta.gsnap");
	application_open(&app);
	for (int i = 0; i < SAVES_DURING_WRITES; i++) {
		(void)save_and_read(&app, full, NULL);
		leaves += save_and_read(&app, delta, full);
	}
	application_close(&app);
	(void)printf("concurrent saves: %d saves of changing state; %llu leaves of deltas\n",
		2 * SAVES_DURING_WRITES, (unsigned long long)leaves);
	/* Else nothing was written meanwhile, and nothing is proved. */
	ck_assert_uint_gt(leaves, 0);
}
END_TEST

static gpusnap_status is_busy(void *user, gpusnap_error *err)
{
	(void)user;
	(void)err;
	return GPUSNAP_E_BUSY;
}

START_TEST(a_busy_application_is_not_saved)
{
	gpusnap_registry_options options = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_registry *registry;
	gpusnap_device *device;
	char folder[PATH_MAX], path[PATH_MAX];
	gpusnap_error err;

	tempdir_make(folder, root);
	tempdir_join(path, folder, "state.gsnap");
	options.quiesce = is_busy;
	ck_ok(gpusnap_device_open("host", &device, &err));
	ck_ok(gpusnap_registry_create(device, &options, &registry, &err));
	ck_fails(gpusnap_save(registry, path, NULL, NULL, &err), GPUSNAP_E_BUSY,
		"try again when the application is at rest");
	ck_assert_int_eq(tempdir_count(folder), 0);
	gpusnap_registry_free(registry);
	gpusnap_device_close(device);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		digests_are_of_what_was_written_while_the_application_writes,
		saves_to_one_name_at_once_do_not_mix,
		a_reader_meets_whole_files_while_they_are_replaced,
		a_busy_application_is_not_saved,
	};
	int result;

	tempdir_make(root, "/dev/shm");
	result = RUN_SUITE("concurrent_saves", tests);
	tempdir_remove(root);
	return result;
}
