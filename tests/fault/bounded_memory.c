/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory besides the state: the most that the process has ever held during a job, less the state
 * itself, which on the host device lies in the same process. At most 600 MiB, whatever the state's
 * size and the options of the job. 1 GiB of state, 3 GiB where GPUSNAP_LONG is set.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gpusnap/loader.h>
#include <gpusnap/snapshot.h>

#include "tests/support/live_state.h"
#include "tests/support/suite.h"
#include "tests/support/tempdir.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { SKIP = 77, BUFFERS = 16 };

#define BESIDES_MAX (UINT64_C(600) << 20)

static char folder[PATH_MAX];
static gpusnap_error err;

static bool is_long(void)
{
	const char *value = getenv("GPUSNAP_LONG");

	return value && *value;
}

static uint64_t state_bytes(void)
{
	return (is_long() ? UINT64_C(3) : UINT64_C(1)) << 30;
}

/* ---- the measure ---- */

/* Forget the peak so far: what is held is the peak again. False where the kernel cannot. */
static bool forget_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	bool forgotten = fd >= 0 && write(fd, "5", 1) == 1;

	if (fd >= 0)
		(void)close(fd);
	return forgotten;
}

static uint64_t peak_bytes(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[256];

	ck_assert_ptr_nonnull(status);
	while (fgets(line, sizeof line, status))
		if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
			break;
	(void)fclose(status);
	ck_assert_uint_gt(kib, 0);
	return kib << 10;
}

/* What the job took, `held` being the state in this process; the next one is measured afresh. */
static void check_job(const char *job, uint64_t held)
{
	uint64_t peak = peak_bytes();
	uint64_t besides = peak > held ? peak - held : 0;

	(void)printf("%s of %llu MiB: %llu MiB besides\n", job,
		(unsigned long long)(state_bytes() >> 20), (unsigned long long)(besides >> 20));
	ck_assert_msg(besides <= BESIDES_MAX, "%s: %llu MiB besides the state", job,
		(unsigned long long)(besides >> 20));
	ck_assert(forget_peak());
}

START_TEST(the_measure_sees_a_peak_that_is_gone)
{
	size_t bytes = BESIDES_MAX;
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	ck_assert(forget_peak());
	ck_assert_uint_lt(peak_bytes(), BESIDES_MAX);
	memset(memory, 1, bytes);
	ck_assert_int_eq(munmap(memory, bytes), 0);
	ck_assert_uint_gt(peak_bytes(), BESIDES_MAX);
	ck_assert(forget_peak());
	ck_assert_uint_lt(peak_bytes(), BESIDES_MAX);
}
END_TEST

/* ---- jobs ---- */

static const struct ring_size {
	gpusnap_io_engine engine;
	gpusnap_io_direct direct;
	uint32_t depth;
	uint64_t block_bytes;
} ring_sizes[] = {
	{GPUSNAP_IO_AUTO, GPUSNAP_DIRECT_AUTO, 0, 0},
	{GPUSNAP_IO_THREADS, GPUSNAP_DIRECT_OFF, 1024, UINT64_C(1) << 20},
	{GPUSNAP_IO_AUTO, GPUSNAP_DIRECT_AUTO, 1024, UINT64_C(64) << 20},
};
enum { RING_SIZES = 2, RING_SIZES_LONG = sizeof ring_sizes / sizeof ring_sizes[0] };

static gpusnap_io_options io_of(const struct ring_size *size)
{
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;

	io.engine = size->engine;
	io.direct = size->direct;
	io.depth = size->depth;
	io.block_bytes = size->block_bytes;
	return io;
}

static void make_state(struct live_state *state, gpusnap_device *device)
{
	uint64_t random = 71, size = state_bytes() / BUFFERS;
	uint32_t region;
	char name[16];

	live_open(state, device);
	region = live_region(state, "weights", state_bytes(), GPUSNAP_POLICY_KEEP, &random);
	for (unsigned i = 0; i < BUFFERS; i++) {
		(void)snprintf(name, sizeof name, "w%u", i);
		live_buffer(state, name, region, i * size, size);
	}
	ck_assert(forget_peak());
}

/* Every job that has the whole state in this process. */
static void run_live_jobs(gpusnap_device *device, const char *path, const gpusnap_io_options *io)
{
	gpusnap_save_options save = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_offload_options offload = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	struct live_state state;

	make_state(&state, device);
	save.io = *io;
	save.read_back = true;
	ck_ok(gpusnap_save(state.registry, path, &save, NULL, &err));
	check_job("save", state_bytes());
	offload.backing = GPUSNAP_BACKING_SNAPSHOT;
	offload.io = *io;
	ck_ok(gpusnap_offload(state.registry, &offload, NULL, &err));
	check_job("offload to a file", state_bytes());
	ck_ok(gpusnap_resume(state.registry, &offload, NULL, &err));
	check_job("resume from a file", state_bytes());
	ck_ok(gpusnap_restore(state.registry, path, io, NULL, &err));
	check_job("restore", state_bytes());
	live_close(&state);
	ck_assert(forget_peak());
}

START_TEST(a_job_takes_at_most_600_mib_besides_the_state)
{
	gpusnap_io_options io = io_of(&ring_sizes[_i]);
	gpusnap_snapshot *snapshot;
	gpusnap_registry *registry;
	gpusnap_damage damage;
	gpusnap_device *device;
	char path[PATH_MAX];

	tempdir_join(path, folder, "state.gsnap");
	ck_ok(gpusnap_device_open("host", &device, &err));
	run_live_jobs(device, path, &io);
	ck_ok(gpusnap_snapshot_open(path, &snapshot, &err));
	ck_ok(gpusnap_snapshot_verify(snapshot, &io, &damage, NULL, &err));
	ck_assert_uint_eq(damage.count, 0);
	check_job("verify", 0);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	ck_ok(gpusnap_registry_from_snapshot(device, path, NULL, &io, &registry, NULL, &err));
	check_job("restore into a new process", state_bytes());
	gpusnap_registry_free(registry);
	gpusnap_device_close(device);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* ---- load ---- */

enum { HIDDEN = 2048, WIDTH = 4096, EXPERTS = 8 };
#define MATRIX_BYTES (UINT64_C(2) * HIDDEN * WIDTH)
#define LAYER_BYTES  (MATRIX_BYTES * 3 * EXPERTS)

static void put_tensor(FILE *header, uint64_t *offset, const char *comma, int layer,
	const char *name, int rows, int columns)
{
	uint64_t end = *offset + UINT64_C(2) * (uint64_t)rows * (uint64_t)columns;

	(void)fprintf(header,
		"%s\"model.layers.%d.block_sparse_moe.%s.weight\":{\"dtype\":\"BF16\","
		"\"shape\":[%d,%d],\"data_offsets\":[%llu,%llu]}",
		comma, layer, name, rows, columns, (unsigned long long)*offset,
		(unsigned long long)end);
	*offset = end;
}

static void put_layer(FILE *header, uint64_t *offset, int layer)
{
	char name[32];

	put_tensor(header, offset, layer ? "," : "", layer, "gate", EXPERTS, HIDDEN);
	for (int expert = 0; expert < EXPERTS; expert++) {
		for (int part = 1; part <= 3; part++) {
			(void)snprintf(name, sizeof name, "experts.%d.w%d", expert, part);
			put_tensor(header, offset, ",", layer, name, part == 2 ? HIDDEN : WIDTH,
				part == 2 ? WIDTH : HIDDEN);
		}
	}
}

/* One shard of zeros, which take no room on the disk. */
static void make_shard(const char *directory, int layers)
{
	char *text = NULL, path[PATH_MAX];
	size_t length = 0;
	FILE *header = open_memstream(&text, &length);
	uint64_t offset = 0, header_bytes;

	ck_assert_ptr_nonnull(header);
	(void)fputc('{', header);
	for (int layer = 0; layer < layers; layer++)
		put_layer(header, &offset, layer);
	(void)fputc('}', header);
	ck_assert_int_eq(fclose(header), 0);
	header_bytes = length;
	tempdir_join(path, directory, "model.safetensors");
	header = fopen(path, "wbe");
	ck_assert_ptr_nonnull(header);
	ck_assert_uint_eq(fwrite(&header_bytes, sizeof header_bytes, 1, header), 1);
	ck_assert_uint_eq(fwrite(text, length, 1, header), 1);
	ck_assert_int_eq(fclose(header), 0);
	ck_assert_int_eq(truncate(path, (off_t)(8 + length + offset)), 0);
	free(text);
}

static void make_checkpoint(const char *directory, int layers)
{
	char path[PATH_MAX];
	FILE *config;

	tempdir_join(path, directory, "config.json");
	config = fopen(path, "we");
	ck_assert_ptr_nonnull(config);
	(void)fprintf(config,
		"{\"model_type\":\"mixtral\",\"hidden_size\":%d,\"intermediate_size\":%d,"
		"\"num_hidden_layers\":%d,\"num_local_experts\":%d,\"num_experts_per_tok\":2,"
		"\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-5}",
		HIDDEN, WIDTH, layers, EXPERTS);
	ck_assert_int_eq(fclose(config), 0);
	make_shard(directory, layers);
}

START_TEST(a_load_takes_at_most_600_mib_besides_the_state)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_registry *registry;
	gpusnap_loaded loaded;
	gpusnap_device *device;
	char directory[PATH_MAX];

	tempdir_make(directory, folder);
	make_checkpoint(directory, (int)(state_bytes() / LAYER_BYTES));
	options.io = io_of(&ring_sizes[_i]);
	ck_ok(gpusnap_device_open("host", &device, &err));
	ck_ok(gpusnap_registry_create(device, NULL, &registry, &err));
	ck_assert(forget_peak());
	ck_ok(gpusnap_load(registry, directory, &options, &loaded, &err));
	ck_assert_uint_ge(loaded.report.bytes, state_bytes() / LAYER_BYTES * LAYER_BYTES);
	check_job("load", loaded.report.bytes);
	gpusnap_loaded_release(&loaded);
	gpusnap_registry_free(registry);
	gpusnap_device_close(device);
	tempdir_remove(directory);
}
END_TEST

static int run(void)
{
	Suite *suite = suite_create("bounded_memory");
	TCase *cases = tcase_create("bounded_memory");
	SRunner *runner;
	int failed, sizes = is_long() ? RING_SIZES_LONG : RING_SIZES;

	tcase_set_timeout(cases, 30); /* times CK_TIMEOUT_MULTIPLIER, where ctest runs it */
	tcase_add_test(cases, the_measure_sees_a_peak_that_is_gone);
	tcase_add_loop_test(cases, a_job_takes_at_most_600_mib_besides_the_state, 0, sizes);
	tcase_add_loop_test(cases, a_load_takes_at_most_600_mib_besides_the_state, 0, sizes);
	suite_add_tcase(suite, cases);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(void)
{
	int result;

	if (SANITIZED || !forget_peak()) {
		(void)printf("memory is not measured %s: skipped\n",
			SANITIZED ? "with a sanitizer's own in it" : "without clear_refs");
		return SKIP;
	}
	tempdir_make(folder, NULL);
	result = run();
	tempdir_remove(folder);
	return result;
}
