/* SPDX-License-Identifier: Apache-2.0 */
/* Round trips through a file: whatever the state, the engine, the block size, the file system. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <gpusnap/snapshot.h>

#include "snapshot/registry_state.h"
#include "snapshot/ring_state.h"
#include "snapshot/save.h"
#include "tests/support/faulty_device.h"
#include "tests/support/flip.h"
#include "tests/support/live_state.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

static char disk[PATH_MAX], memory[PATH_MAX];

static gpusnap_device *open_host(void)
{
	gpusnap_device *device;
	gpusnap_error err;

	ck_ok(gpusnap_device_open(test_device(), &device, &err));
	return device;
}

static gpusnap_region_state state_of(const gpusnap_registry *registry, uint32_t position)
{
	gpusnap_region_info info;
	gpusnap_error err;

	ck_ok(gpusnap_region_at(registry, position, &info, &err));
	return info.state;
}

static void check_undamaged(gpusnap_registry *registry)
{
	gpusnap_damage damage;
	gpusnap_error err;

	ck_ok(gpusnap_verify(registry, NULL, &damage, &err));
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
}

/* ---- round trips ---- */

static const struct mode {
	const char *folder;
	gpusnap_io_engine engine;
	gpusnap_io_direct direct;
	uint32_t depth;
	uint64_t block_bytes;
} modes[] = {
	{disk, GPUSNAP_IO_AUTO, GPUSNAP_DIRECT_AUTO, 0, 0},
	{disk, GPUSNAP_IO_URING, GPUSNAP_DIRECT_ON, 1, 64 << 10},
	{disk, GPUSNAP_IO_URING, GPUSNAP_DIRECT_ON, 4, 128 << 10},
	{disk, GPUSNAP_IO_URING, GPUSNAP_DIRECT_OFF, 3, 64 << 10},
	{disk, GPUSNAP_IO_THREADS, GPUSNAP_DIRECT_ON, 2, 64 << 10},
	{disk, GPUSNAP_IO_THREADS, GPUSNAP_DIRECT_OFF, 8, 256 << 10},
	{memory, GPUSNAP_IO_AUTO, GPUSNAP_DIRECT_AUTO, 2, 64 << 10},
	{memory, GPUSNAP_IO_URING, GPUSNAP_DIRECT_OFF, 2, 1 << 20},
	{memory, GPUSNAP_IO_THREADS, GPUSNAP_DIRECT_OFF, 1, 4 << 20},
};
enum { MODE_COUNT = sizeof modes / sizeof modes[0], SEEDS = 12 };

static gpusnap_save_options options_of(const struct mode *mode)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;

	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.engine = mode->engine;
	options.io.direct = mode->direct;
	options.io.depth = mode->depth;
	options.io.block_bytes = mode->block_bytes;
	return options;
}

static void check_file(const char *path, const gpusnap_io_options *io, uint64_t bytes)
{
	gpusnap_io_report report;
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	gpusnap_error err;
	struct stat file;

	ck_assert_int_eq(stat(path, &file), 0);
	ck_assert_uint_eq((uint64_t)file.st_size, bytes);
	ck_ok(gpusnap_snapshot_open(path, &snapshot, &err));
	ck_ok(gpusnap_snapshot_verify(snapshot, io, &damage, &report, &err));
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
}

static void round_trip(const struct mode *mode, uint64_t seed)
{
	gpusnap_save_options options = options_of(mode);
	gpusnap_device *device = open_host();
	gpusnap_restore_report restored;
	gpusnap_save_report saved;
	gpusnap_registry *fresh;
	struct live_state state;
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, mode->folder, "round.gsnap");
	(void)unlink(path);
	live_random(&state, device, seed);
	ck_ok(gpusnap_save(state.registry, path, &options, &saved, &err));
	check_file(path, &options.io, saved.io.bytes);
	check_undamaged(state.registry);
	live_scribble(state.registry);
	ck_ok(gpusnap_restore(state.registry, path, &options.io, &restored, &err));
	ck_assert_msg(live_equals(&state, state.registry), "seed %llu", (unsigned long long)seed);
	ck_assert(gpusnap_digest_equal(saved.root, restored.root));
	ck_assert_uint_eq(saved.state_bytes, restored.state_bytes);
	check_undamaged(state.registry);
	ck_ok(gpusnap_registry_from_snapshot(
		device, path, NULL, &options.io, &fresh, &restored, &err));
	ck_assert_msg(live_equals(&state, fresh), "seed %llu", (unsigned long long)seed);
	check_undamaged(fresh);
	gpusnap_registry_free(fresh);
	live_close(&state);
	gpusnap_device_close(device);
}

/* TMPDIR may lie where direct I/O cannot be had; then asking for it must say so. */
static bool is_refused(const struct mode *mode)
{
	gpusnap_save_options options = options_of(mode);
	gpusnap_io_report report;
	gpusnap_error err;

	options.io.direct = GPUSNAP_DIRECT_AUTO;
	ck_ok(gpusnap_io_probe(mode->folder, &options.io, &report, &err));
	if (mode->direct != GPUSNAP_DIRECT_ON || report.direct)
		return false;
	options.io.direct = GPUSNAP_DIRECT_ON;
	ck_fails(gpusnap_io_probe(mode->folder, &options.io, &report, &err), GPUSNAP_E_UNSUPPORTED,
		"direct I/O was asked for");
	return true;
}

START_TEST(what_is_saved_comes_back)
{
	uint64_t seed = random_seed(1);

	if (is_refused(&modes[_i]))
		return;
	for (uint64_t i = 0; i < SEEDS; i++)
		round_trip(&modes[_i], seed + i);
	ck_assert_int_eq(tempdir_count(modes[_i].folder), 1);
}
END_TEST

START_TEST(a_registry_without_regions_can_be_saved)
{
	gpusnap_device *device = open_host();
	gpusnap_save_options options = options_of(&modes[0]);
	gpusnap_save_report report;
	gpusnap_registry *fresh;
	struct live_state state;
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, disk, "empty.gsnap");
	live_open(&state, device);
	ck_ok(gpusnap_save(state.registry, path, &options, &report, &err));
	ck_assert_uint_eq(report.state_bytes, 0);
	ck_ok(gpusnap_registry_from_snapshot(device, path, NULL, NULL, &fresh, NULL, &err));
	ck_assert_uint_eq(gpusnap_region_count(fresh), 0);
	gpusnap_registry_free(fresh);
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

START_TEST(the_report_says_what_was_done)
{
	gpusnap_device *device = open_host();
	uint64_t random = 5;
	gpusnap_save_options options = options_of(&modes[2]);
	gpusnap_save_report report;
	struct live_state state;
	char path[PATH_MAX];
	gpusnap_error err;
	uint32_t id;

	tempdir_join(path, disk, "report.gsnap");
	live_open(&state, device);
	id = live_region(&state, "weights", 4 << 20, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&state, "w", id, 4096, 3 << 20);
	ck_ok(gpusnap_save(state.registry, path, &options, &report, &err));
	ck_assert_uint_eq(report.state_bytes, 4 << 20);
	ck_assert_uint_eq(report.unclaimed_bytes, 1 << 20);
	ck_assert_str_eq(report.io.engine, "uring");
	ck_assert(report.io.direct);
	ck_assert_uint_eq(report.io.depth, 4);
	ck_assert_uint_eq(report.io.block_bytes, 128 << 10);
	ck_assert(report.io.seconds > 0);
	ck_assert_uint_eq(report.uuid[6] >> 4, 4);
	ck_assert_str_eq(state.registry->origin.path, path);
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

/* ---- policies ---- */

static gpusnap_status refill_with_sevens(
	void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	(void)err;
	++*(int *)user;
	memset((void *)(uintptr_t)address, 7, bytes);
	return GPUSNAP_OK;
}

static uint32_t region_with_refill(struct live_state *state, int *calls)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;
	uint32_t id;

	options.tag = "cuda_graph";
	options.policy = GPUSNAP_POLICY_RECOMPUTE;
	options.refill = refill_with_sevens;
	options.user = calls;
	ck_ok(gpusnap_region_reserve(state->registry, LEAF, &options, &id, &err));
	return id;
}

START_TEST(each_policy_gets_what_it_was_promised)
{
	gpusnap_device *device = open_host();
	struct live_state state;
	char path[PATH_MAX];
	uint64_t random = 9;
	gpusnap_save_report report;
	gpusnap_registry *fresh;
	gpusnap_error err;
	int refills = 0;

	tempdir_join(path, disk, "policies.gsnap");
	live_open(&state, device);
	(void)live_region(&state, "weights", LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&state, "zeroed",
		live_region(&state, "scratch", LEAF, GPUSNAP_POLICY_ZERO, &random), 0, 100);
	(void)live_region(&state, "kv_cache", LEAF, GPUSNAP_POLICY_DISCARD, &random);
	(void)region_with_refill(&state, &refills);
	ck_ok(gpusnap_save(state.registry, path, NULL, &report, &err));
	ck_assert_uint_eq(report.state_bytes, LEAF);
	live_remember(&state);
	live_scribble(state.registry);
	ck_ok(gpusnap_restore(state.registry, path, NULL, NULL, &err));
	ck_assert_int_eq(memcmp(live_bytes(state.registry, 0), state.images[0], LEAF), 0);
	ck_assert_uint_eq(live_bytes(state.registry, 1)[LEAF / 2], 0);
	ck_assert_uint_eq(live_bytes(state.registry, 2)[LEAF / 2], 0xa5);
	ck_assert_uint_eq(live_bytes(state.registry, 3)[LEAF / 2], 7);
	ck_assert_int_eq(refills, 1);
	ck_assert_int_eq(state_of(state.registry, 0), GPUSNAP_REGION_RESIDENT);
	ck_assert_int_eq(state_of(state.registry, 2), GPUSNAP_REGION_DISCARDED);
	ck_assert_int_eq(state_of(state.registry, 3), GPUSNAP_REGION_RESIDENT);
	/* Nobody refills in a fresh process: the application must, and say so. */
	ck_ok(gpusnap_registry_from_snapshot(device, path, NULL, NULL, &fresh, NULL, &err));
	ck_assert_int_eq(state_of(fresh, 3), GPUSNAP_REGION_DISCARDED);
	gpusnap_registry_free(fresh);
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

/* ---- names, views, records, ranks ---- */

START_TEST(a_fresh_registry_knows_what_the_old_one_knew)
{
	gpusnap_registry_options ranks = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_mask_type mask = {GPUSNAP_MASK_STANDARD, 8, 4, 4, 0, 1, 2};
	gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_view_options view = GPUSNAP_VIEW_OPTIONS_INIT;
	gpusnap_device *device = open_host();
	uint64_t shape[2] = {8, 16}, view_shape[1] = {4}, random = 3;
	int64_t strides[1] = {-2};
	gpusnap_buffer_info info;
	gpusnap_registry *fresh;
	struct live_state state = {NULL};
	gpusnap_json *record;
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, disk, "known.gsnap");
	ranks.ep_rank = 1;
	ranks.ep_size = 2;
	ck_ok(gpusnap_registry_create(device, &ranks, &state.registry, &err));
	buffer.region = live_region(&state, "weights", LEAF, GPUSNAP_POLICY_KEEP, &random);
	buffer.name = "mask";
	buffer.role = GPUSNAP_ROLE_EXPERT_MASK;
	buffer.dtype = GPUSNAP_I32;
	buffer.rank = 1;
	buffer.shape = shape;
	buffer.mask = mask;
	ck_ok(gpusnap_buffer_register(state.registry, &buffer, &err));
	view.name = "every other";
	view.buffer = "mask";
	view.dtype = GPUSNAP_I32;
	view.offset = 28;
	view.rank = 1;
	view.shape = view_shape;
	view.strides = strides;
	ck_ok(gpusnap_view_register(state.registry, &view, &err));
	record = gpusnap_json_pack("{s:i}", "layers", 3);
	ck_ok(gpusnap_record_set(state.registry, "model", record, &err));
	gpusnap_json_free(record);
	ck_ok(gpusnap_save(state.registry, path, NULL, NULL, &err));
	ck_ok(gpusnap_registry_from_snapshot(device, path, NULL, NULL, &fresh, NULL, &err));
	ck_ok(gpusnap_buffer_find(fresh, "mask", &info, &err));
	ck_assert_int_eq(info.role, GPUSNAP_ROLE_EXPERT_MASK);
	ck_assert_int_eq(memcmp(&info.mask, &mask, sizeof mask), 0);
	ck_assert_uint_eq(fresh->options.ep_rank, 1);
	ck_assert_uint_eq(fresh->options.ep_size, 2);
	ck_assert_uint_eq(fresh->view_count, 1);
	ck_assert_int_eq(fresh->views[0].strides[0], -2);
	record = gpusnap_record_get(fresh, "model");
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(record, "layers"), 0), 3);
	gpusnap_json_free(record);
	record = gpusnap_baseline_record(gpusnap_registry_baseline(fresh), "model");
	ck_assert_ptr_nonnull(record);
	gpusnap_json_free(record);
	gpusnap_registry_free(fresh);
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

START_TEST(region_ids_survive_a_hole)
{
	gpusnap_device *device = open_host();
	uint64_t random = 4;
	gpusnap_registry *fresh;
	struct live_state state;
	char path[PATH_MAX];
	gpusnap_error err;
	uint32_t first, id;

	tempdir_join(path, disk, "hole.gsnap");
	live_open(&state, device);
	first = live_region(&state, "gone", LEAF, GPUSNAP_POLICY_KEEP, &random);
	id = live_region(&state, "weights", LEAF, GPUSNAP_POLICY_KEEP, &random);
	ck_ok(gpusnap_region_free(state.registry, first, &err));
	live_remember(&state);
	ck_ok(gpusnap_save(state.registry, path, NULL, NULL, &err));
	ck_ok(gpusnap_registry_from_snapshot(device, path, NULL, NULL, &fresh, NULL, &err));
	ck_assert_ptr_nonnull(gsn_registry_region(fresh, id));
	ck_assert(live_equals(&state, fresh));
	gpusnap_registry_free(fresh);
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

START_TEST(adopted_memory_of_any_size_is_saved_and_comes_back)
{
	gpusnap_device *device = open_host();
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_offload_report offloaded;
	struct live_state state;
	gpusnap_registry *fresh;
	static uint8_t owned[1000], copy[1000];
	char path[PATH_MAX];
	uint64_t random = 77;
	gpusnap_error err;
	uint32_t id;

	tempdir_join(path, disk, "adopted.gsnap");
	live_open(&state, device);
	options.tag = "torch";
	random_fill(&random, owned, sizeof owned);
	memcpy(copy, owned, sizeof owned);
	ck_ok(gpusnap_region_adopt(state.registry, (gpusnap_address)(uintptr_t)owned, sizeof owned,
		&options, &id, &err));
	ck_ok(gpusnap_save(state.registry, path, NULL, NULL, &err));
	memset(owned, 0, sizeof owned);
	ck_ok(gpusnap_restore(state.registry, path, NULL, NULL, &err));
	ck_assert_int_eq(memcmp(owned, copy, sizeof owned), 0);
	/* In a fresh process it is managed, of the same size, and can be offloaded. */
	ck_ok(gpusnap_registry_from_snapshot(device, path, NULL, NULL, &fresh, NULL, &err));
	ck_assert_int_eq(memcmp(live_bytes(fresh, 0), copy, sizeof copy), 0);
	check_undamaged(fresh);
	ck_ok(gpusnap_offload(fresh, NULL, &offloaded, &err));
	ck_ok(gpusnap_resume(fresh, NULL, NULL, &err));
	ck_assert_int_eq(memcmp(live_bytes(fresh, 0), copy, sizeof copy), 0);
	gpusnap_registry_free(fresh);
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

/* ---- with offload ---- */

START_TEST(an_offloaded_state_is_restored_from_a_file_and_cannot_be_saved)
{
	gpusnap_device *device = open_host();
	gpusnap_save_options replace = GPUSNAP_SAVE_OPTIONS_INIT;
	struct live_state state;
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, disk, "offloaded.gsnap");
	live_random(&state, device, 21);
	ck_ok(gpusnap_save(state.registry, path, NULL, NULL, &err));
	live_scribble(state.registry);
	ck_ok(gpusnap_offload(state.registry, NULL, NULL, &err));
	replace.replace = true;
	ck_fails(gpusnap_save(state.registry, path, &replace, NULL, &err), GPUSNAP_E_STATE,
		"is offloaded");
	ck_ok(gpusnap_restore(state.registry, path, NULL, NULL, &err));
	ck_assert(live_equals(&state, state.registry));
	ck_assert_int_eq(state_of(state.registry, 0), GPUSNAP_REGION_RESIDENT);
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

START_TEST(an_offload_against_a_snapshot_resumes_from_it)
{
	gpusnap_device *device = open_host();
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_offload_report report;
	struct live_state state;
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, disk, "backing.gsnap");
	live_random(&state, device, 23);
	ck_ok(gpusnap_save(state.registry, path, NULL, NULL, &err));
	options.backing = GPUSNAP_BACKING_SNAPSHOT;
	ck_ok(gpusnap_offload(state.registry, &options, &report, &err));
	ck_assert_uint_eq(report.copied_bytes, 0);
	ck_assert_int_eq(unlink(path), 0); /* it is held open */
	ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
	ck_assert(live_equals(&state, state.registry));
	live_close(&state);
	gpusnap_device_close(device);
}
END_TEST

/* ---- refusals ---- */

static int unlucky_progress(void *user, uint64_t done, uint64_t total)
{
	ck_assert_uint_le(done, total);
	return ++*(int *)user == 2;
}

START_TEST(a_cancelled_save_leaves_nothing)
{
	gpusnap_device *device = open_host();
	gpusnap_save_options options = options_of(&modes[1]);
	struct live_state state;
	char folder[PATH_MAX], path[PATH_MAX];
	gpusnap_error err;
	int calls = 0;

	tempdir_make(folder, disk);
	tempdir_join(path, folder, "cancelled.gsnap");
	live_random(&state, device, 25);
	options.io.progress = unlucky_progress;
	options.io.user = &calls;
	ck_fails(gpusnap_save(state.registry, path, &options, NULL, &err), GPUSNAP_E_IO,
		"cancelled by the caller");
	ck_assert_int_eq(err.os_errno, ECANCELED);
	ck_assert_ptr_nonnull(strstr(err.message, path));
	ck_assert_int_eq(tempdir_count(folder), 0);
	ck_assert_ptr_null(gpusnap_registry_baseline(state.registry));
	live_close(&state);
	gpusnap_device_close(device);
	tempdir_remove(folder);
}
END_TEST

struct rest {
	int quiesced, unquiesced;
	bool refuse;
};

static gpusnap_status come_to_rest(void *user, gpusnap_error *err)
{
	struct rest *rest = user;

	(void)err;
	rest->quiesced++;
	return rest->refuse ? GPUSNAP_E_BUSY : GPUSNAP_OK;
}

static void go_on(void *user)
{
	((struct rest *)user)->unquiesced++;
}

START_TEST(the_application_goes_on_after_every_save_that_stopped_it)
{
	gpusnap_device *device = open_host();
	gpusnap_registry_options options = GPUSNAP_REGISTRY_OPTIONS_INIT;
	struct live_state state = {NULL};
	struct rest rest = {0};
	char path[PATH_MAX];
	uint64_t random = 1;
	gpusnap_error err;

	tempdir_join(path, disk, "rest.gsnap");
	options.quiesce = come_to_rest;
	options.unquiesce = go_on;
	options.user = &rest;
	ck_ok(gpusnap_registry_create(device, &options, &state.registry, &err));
	(void)live_region(&state, "weights", LEAF, GPUSNAP_POLICY_KEEP, &random);
	ck_ok(gpusnap_save(state.registry, path, NULL, NULL, &err));
	ck_assert_int_eq(rest.quiesced, 1);
	ck_assert_int_eq(rest.unquiesced, 1);
	ck_fails(gpusnap_save(state.registry, path, NULL, NULL, &err), GPUSNAP_E_IO, "exists");
	ck_assert_int_eq(rest.unquiesced, 2);
	rest.refuse = true;
	ck_fails(gpusnap_save(state.registry, path, NULL, NULL, &err), GPUSNAP_E_BUSY, "quiesce");
	ck_assert_int_eq(rest.quiesced, 3);
	ck_assert_int_eq(rest.unquiesced, 2);
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

/* ---- two savers ---- */

struct saver {
	pthread_t thread;
	pthread_barrier_t *start;
	const char *path;
	uint64_t seed;
	gpusnap_status status;
	gpusnap_error err;
};

static void *save_in_thread(void *argument)
{
	struct saver *saver = argument;
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_device *device = NULL;
	struct live_state state;

	/* liburing unmaps its rings behind TSan's back, which then sees races between rings of
	 * different threads at one address. */
	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.engine = GPUSNAP_IO_THREADS;

	saver->status = gpusnap_device_open(test_device(), &device, &saver->err);
	if (saver->status)
		return NULL;
	live_random(&state, device, saver->seed);
	(void)pthread_barrier_wait(saver->start);
	saver->status = gpusnap_save(state.registry, saver->path, &options, NULL, &saver->err);
	live_close(&state);
	gpusnap_device_close(device);
	return NULL;
}

START_TEST(of_several_savers_to_one_name_one_wins)
{
	enum { SAVERS = 4 };
	char folder[PATH_MAX], path[PATH_MAX];
	struct saver savers[SAVERS];
	pthread_barrier_t start;
	int won = 0;

	tempdir_make(folder, disk);
	tempdir_join(path, folder, "shared.gsnap");
	ck_assert_int_eq(pthread_barrier_init(&start, NULL, SAVERS), 0);
	for (uint64_t i = 0; i < SAVERS; i++) {
		savers[i] = (struct saver){.start = &start, .path = path, .seed = 90 + i};
		ck_assert_int_eq(
			pthread_create(&savers[i].thread, NULL, save_in_thread, &savers[i]), 0);
	}
	for (int i = 0; i < SAVERS; i++) {
		ck_assert_int_eq(pthread_join(savers[i].thread, NULL), 0);
		won += savers[i].status == GPUSNAP_OK;
		if (savers[i].status)
			ck_assert_int_eq(savers[i].err.os_errno, EEXIST);
	}
	ck_assert_int_eq(won, 1);
	ck_assert_int_eq(tempdir_count(folder), 1);
	ck_assert_int_eq(pthread_barrier_destroy(&start), 0);
	tempdir_remove(folder);
}
END_TEST

START_TEST(a_file_systems_own_engine_carries_the_data)
{
	gpusnap_device *device = open_host();
	struct gsn_fs fs = gsn_fs_posix;
	gpusnap_save_report report;
	struct live_state state;
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, disk, "engine.gsnap");
	fs.engine = &gsn_ring_threads; /* where the first choice would be another */
	live_random(&state, device, 27);
	ck_ok(gsn_save_on(&fs, state.registry, path, NULL, &report, &err));
	ck_assert_str_eq(report.io.engine, "threads");
	live_scribble(state.registry);
	ck_ok(gpusnap_restore(state.registry, path, NULL, NULL, &err));
	ck_assert(live_equals(&state, state.registry));
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

/* ---- a snapshot of something else ---- */

struct other_state {
	struct live_state state;
	gpusnap_device *device;
	char path[PATH_MAX]; /* a snapshot of two regions, "a" and "b" in the first */
};

static void other_open(struct other_state *other)
{
	uint64_t random = 31;
	gpusnap_error err;
	uint32_t id;

	tempdir_join(other->path, disk, "other.gsnap");
	(void)unlink(other->path);
	other->device = open_host();
	live_open(&other->state, other->device);
	id = live_region(&other->state, "weights", 4 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&other->state, "a", id, 0, 1000);
	live_buffer(&other->state, "b", id, 4096, LEAF);
	(void)live_region(&other->state, "kv_cache", LEAF, GPUSNAP_POLICY_KEEP, &random);
	ck_ok(gpusnap_save(other->state.registry, other->path, NULL, NULL, &err));
	live_close(&other->state);
	live_open(&other->state, other->device);
}

/* Nothing fits; nothing may be touched. */
static void other_refused(struct other_state *other, const char *text)
{
	gpusnap_registry *registry = other->state.registry;
	gpusnap_error err;

	live_remember(&other->state);
	ck_fails(
		gpusnap_restore(registry, other->path, NULL, NULL, &err), GPUSNAP_E_MISMATCH, text);
	ck_assert_ptr_nonnull(strstr(err.message, other->path));
	ck_assert(live_equals(&other->state, registry));
	for (uint32_t i = 0; i < gpusnap_region_count(registry); i++)
		ck_assert_int_eq(state_of(registry, i), GPUSNAP_REGION_RESIDENT);
	ck_assert_ptr_null(gpusnap_registry_baseline(registry));
}

static void other_close(struct other_state *other)
{
	live_close(&other->state);
	gpusnap_device_close(other->device);
	(void)unlink(other->path);
}

START_TEST(another_model_is_refused_by_name_and_nothing_is_touched)
{
	struct other_state other;
	uint64_t random = 32, shape[2] = {20, 50};
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_error err;

	other_open(&other);
	options.region =
		live_region(&other.state, "weights", 4 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	other_refused(&other, "region 2 'kv_cache' is missing here");
	other_refused(&other, "buffer 'a' is missing here; buffer 'b' is missing here");
	(void)live_region(&other.state, "kv_cache", LEAF, GPUSNAP_POLICY_ZERO, &random);
	options.name = "a";
	options.dtype = GPUSNAP_I8;
	options.rank = 2;
	options.shape = shape;
	ck_ok(gpusnap_buffer_register(other.state.registry, &options, &err));
	live_buffer(&other.state, "b", options.region, 8192, LEAF);
	live_buffer(&other.state, "c", options.region, 4096, 4);
	other_refused(&other, "policy zero here, keep in the snapshot");
	other_refused(&other, "buffer 'a': dtype I8 here, U8 in the snapshot");
	other_refused(&other, "buffer 'a': shape [20, 50] here, [1000] in the snapshot");
	other_refused(&other, "and 2 more");
	other_close(&other);
}
END_TEST

START_TEST(another_place_or_size_is_refused)
{
	struct other_state other;
	uint64_t random = 33;
	uint32_t id;

	other_open(&other);
	id = live_region(&other.state, "weights", 5 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&other.state, "a", id, 0, 1000);
	live_buffer(&other.state, "b", id, 8192, LEAF);
	live_buffer(&other.state, "c", id, 4096, 4);
	(void)live_region(&other.state, "cache", LEAF, GPUSNAP_POLICY_KEEP, &random);
	other_refused(&other, "tag 'cache' here, 'kv_cache' in the snapshot");
	other_refused(&other, "buffer 'b': at offset 8192 of region 1 here, 4096 of region 1");
	other_refused(&other, "buffer 'c' is not in the snapshot");
	other_close(&other);
}
END_TEST

START_TEST(another_rank_is_refused)
{
	gpusnap_registry_options ranks = GPUSNAP_REGISTRY_OPTIONS_INIT;
	struct other_state other;
	uint64_t random = 34;
	gpusnap_error err;
	uint32_t id;

	other_open(&other);
	live_close(&other.state);
	ranks.tp_rank = 1;
	ranks.tp_size = 2;
	ck_ok(gpusnap_registry_create(other.device, &ranks, &other.state.registry, &err));
	id = live_region(&other.state, "weights", 4 * LEAF, GPUSNAP_POLICY_KEEP, &random);
	live_buffer(&other.state, "a", id, 0, 1000);
	live_buffer(&other.state, "b", id, 4096, LEAF);
	(void)live_region(&other.state, "kv_cache", LEAF, GPUSNAP_POLICY_KEEP, &random);
	other_refused(&other, "tensor-parallel rank 1 of 2 here, 0 of 1 in the snapshot");
	other_close(&other);
}
END_TEST

/* ---- damage and faults ---- */

START_TEST(a_damaged_file_is_named_and_leaves_nothing_usable)
{
	gpusnap_device *device = open_host();
	struct live_state state;
	uint64_t random = 41;
	gpusnap_offload_options to_arena = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_snapshot *snapshot;
	const gpusnap_snapshot_entry *entry;
	char path[PATH_MAX], text[64];
	gpusnap_error err;
	uint64_t offset;

	tempdir_join(path, disk, "damaged.gsnap");
	live_open(&state, device);
	live_buffer(&state, "w13",
		live_region(&state, "weights", 8 * LEAF, GPUSNAP_POLICY_KEEP, &random), 100,
		5 * LEAF);
	live_remember(&state);
	ck_ok(gpusnap_save(state.registry, path, NULL, NULL, &err));
	ck_ok(gpusnap_snapshot_open(path, &snapshot, &err));
	entry = gpusnap_snapshot_entry_find(snapshot, "w13");
	offset = entry->file_offset + 3 * LEAF;
	gpusnap_snapshot_close(snapshot);
	flip_bit_of(path, offset + 17, 0);
	ck_fails(gpusnap_restore(state.registry, path, NULL, NULL, &err), GPUSNAP_E_CORRUPT,
		"buffer 'w13' leaf 3 ");
	(void)snprintf(text, sizeof text, "file offset %llu", (unsigned long long)offset);
	ck_assert_ptr_nonnull(strstr(err.message, text));
	ck_assert_uint_eq(err.offset, offset);
	ck_assert_int_eq(state_of(state.registry, 0), GPUSNAP_REGION_DISCARDED);
	ck_assert_uint_eq(live_bytes(state.registry, 0)[0], 0xa5);
	/* Offloaded before: offloaded again, with the bytes that it had. */
	memcpy(live_bytes(state.registry, 0), state.images[0], 8 * LEAF);
	ck_ok(gpusnap_region_rewritten(state.registry, 1, &err));
	to_arena.backing = GPUSNAP_BACKING_ARENA;
	ck_ok(gpusnap_offload(state.registry, &to_arena, NULL, &err));
	ck_fails(gpusnap_restore(state.registry, path, NULL, NULL, &err), GPUSNAP_E_CORRUPT,
		"'w13' leaf 3 ");
	ck_assert_int_eq(state_of(state.registry, 0), GPUSNAP_REGION_OFFLOADED);
	ck_ok(gpusnap_resume(state.registry, NULL, NULL, &err));
	ck_assert(live_equals(&state, state.registry));
	/* The file repaired, a restore works. */
	flip_bit_of(path, offset + 17, 0);
	live_scribble(state.registry);
	ck_ok(gpusnap_restore(state.registry, path, NULL, NULL, &err));
	ck_assert(live_equals(&state, state.registry));
	live_close(&state);
	gpusnap_device_close(device);
	(void)unlink(path);
}
END_TEST

START_TEST(a_passing_fault_on_the_way_to_the_device_is_healed_a_lasting_one_named)
{
	struct faulty_device faulty;
	struct live_state state;
	char path[PATH_MAX];
	gpusnap_error err;

	tempdir_join(path, disk, "healed.gsnap");
	faulty_open(&faulty, test_device());
	faulty.ops.caps = 0; /* else nothing is on its way to a device */
	live_random(&state, &faulty.device, 43);
	ck_ok(gpusnap_save(state.registry, path, NULL, NULL, &err));
	live_scribble(state.registry);
	faulty.corrupt_in = 2;
	ck_ok(gpusnap_restore(state.registry, path, NULL, NULL, &err));
	ck_assert_uint_eq(faulty.corrupt_in, 0);
	ck_assert(live_equals(&state, state.registry));
	faulty.corrupt_in = 1;
	faulty.corrupt_again = 1000;
	ck_fails(gpusnap_restore(state.registry, path, NULL, NULL, &err), GPUSNAP_E_DEVICE,
		"match their digest, but not after two copies");
	ck_assert_int_eq(state_of(state.registry, 0), GPUSNAP_REGION_DISCARDED);
	faulty.corrupt_again = 0;
	live_close(&state);
	faulty_close(&faulty);
	(void)unlink(path);
}
END_TEST

START_TEST(any_device_failure_leaves_the_old_file_or_an_unusable_region)
{
	struct faulty_device faulty;
	gpusnap_save_options options = options_of(&modes[1]);
	struct live_state state;
	char folder[PATH_MAX], path[PATH_MAX];
	gpusnap_error err;
	unsigned n;

	tempdir_make(folder, disk);
	tempdir_join(path, folder, "faults.gsnap");
	faulty_open(&faulty, test_device());
	faulty.ops.caps = 0; /* for the device to be called at all */
	live_random(&state, &faulty.device, 45);
	for (n = 1;; n++) {
		gpusnap_status status;

		faulty_arm(&faulty, FAULTY_ANY, n, GPUSNAP_E_DEVICE);
		status = gpusnap_save(state.registry, path, &options, NULL, &err);
		if (faulty_is_armed(&faulty))
			break;
		ck_assert_int_eq(status, GPUSNAP_E_DEVICE);
		ck_assert_int_eq(tempdir_count(folder), 0);
		ck_assert_uint_eq(faulty.pinned_blocks, state.registry->staging.kept != NULL);
	}
	ck_assert_uint_gt(n, 10);
	ck_assert_int_eq(tempdir_count(folder), 1);
	for (n = 1;; n++) {
		gpusnap_status status;

		faulty_arm(&faulty, FAULTY_ANY, n, GPUSNAP_E_DEVICE);
		status = gpusnap_restore(state.registry, path, &options.io, NULL, &err);
		if (faulty_is_armed(&faulty))
			break;
		ck_assert_uint_eq(faulty.pinned_blocks, state.registry->staging.kept != NULL);
		for (uint32_t i = 0; status && i < gpusnap_region_count(state.registry); i++)
			ck_assert_int_eq(state_of(state.registry, i), GPUSNAP_REGION_DISCARDED);
	}
	ck_assert_uint_gt(n, 10);
	faulty_arm(&faulty, FAULTY_ANY, 0, GPUSNAP_OK);
	ck_assert(live_equals(&state, state.registry));
	ck_assert_int_eq(state_of(state.registry, 0), GPUSNAP_REGION_RESIDENT);
	live_close(&state);
	faulty_close(&faulty);
	tempdir_remove(folder);
}
END_TEST

static SRunner *make_runner(void)
{
	const TTest *const once[] = {
		a_registry_without_regions_can_be_saved,
		the_report_says_what_was_done,
		each_policy_gets_what_it_was_promised,
		a_fresh_registry_knows_what_the_old_one_knew,
		region_ids_survive_a_hole,
		adopted_memory_of_any_size_is_saved_and_comes_back,
		an_offloaded_state_is_restored_from_a_file_and_cannot_be_saved,
		an_offload_against_a_snapshot_resumes_from_it,
		a_cancelled_save_leaves_nothing,
		the_application_goes_on_after_every_save_that_stopped_it,
		of_several_savers_to_one_name_one_wins,
		a_file_systems_own_engine_carries_the_data,
		another_model_is_refused_by_name_and_nothing_is_touched,
		another_place_or_size_is_refused,
		another_rank_is_refused,
		a_damaged_file_is_named_and_leaves_nothing_usable,
		a_passing_fault_on_the_way_to_the_device_is_healed_a_lasting_one_named,
		any_device_failure_leaves_the_old_file_or_an_unusable_region,
	};
	Suite *suite = suite_create("save_restore");
	TCase *cases = tcase_create("save_restore");

	tcase_set_timeout(cases, 60);
	tcase_add_loop_test(cases, what_is_saved_comes_back, 0, MODE_COUNT);
	for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
		tcase_add_test(cases, once[i]);
	suite_add_tcase(suite, cases);
	return srunner_create(suite);
}

int main(void)
{
	SRunner *runner;
	int failed;

	tempdir_make(disk, NULL);
	tempdir_make(memory, "/dev/shm");
	runner = make_runner();
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	tempdir_remove(disk);
	tempdir_remove(memory);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
