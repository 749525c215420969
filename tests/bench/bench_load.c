/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading many small slices, as make_views lays them out, against the programs that one would write
 * without gpusnap:
 *
 *	bench_load DIR [PAIRS [DEVICE]]
 *
 * slice    maps the shards and copies each slice to the device by itself, waiting for it, as
 *          frameworks do with memory that is not pinned
 * never    gpusnap, one copy a view
 * auto     gpusnap as it comes
 * raw      cold only: O_DIRECT io_uring reads of the runs that auto reads, and nothing else
 *
 * for ranks 0, 3 and 7 of 8, from the page cache and from the disk. Each run is a process of its
 * own, whose memory is measured too; all take turns, and medians are printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpusnap/loader.h>
#include <liburing.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "kernels/device_ops.h"
#include "loader/load_input.h"
#include "loader/load_stage.h"
#include "snapshot/direct.h"
#include "snapshot/io_options.h"

enum { TP = 8, PAIRS_MAX = 32, RAW_DEPTH = 64, RAW_BLOCK = 4 << 20 };
enum mode { SLICE, NEVER, AUTO, RAW, MODES };

static const char *const mode_names[] = {"slice", "never", "auto", "raw"};
static const uint32_t ranks[] = {0, 3, 7};
enum { RANKS = sizeof ranks / sizeof ranks[0] };

struct result {
	double seconds, cpu;
	uint64_t copies, bytes, bytes_read, memory; /* peak, in bytes, state included */
};

struct bench {
	const char *directory, *device;
	uint32_t rank;
};

static void fail(const char *what, const char *why)
{
	(void)fprintf(stderr, "bench_load: %s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

static void must(gpusnap_status status, const gpusnap_error *err)
{
	if (status)
		fail(gpusnap_status_name(status), err->message);
}

/* ---- slice by slice ---- */

struct slicer {
	const gpusnap_device *device;
	struct gsn_stream *stream;
	uint64_t at, bytes, copies;
};

/* `rows` pieces of `run` bytes, `stride` apart, to where the last slice ended. */
static void copy_slice(
	struct slicer *s, const uint8_t *from, uint64_t rows, uint64_t run, uint64_t stride)
{
	const struct gsn_strided_copy copy = {
		.dst = s->at,
		.src = (uint64_t)(uintptr_t)from,
		.row_bytes = run,
		.rows = rows,
		.dst_stride = run,
		.src_stride = stride,
	};
	gpusnap_error err;

	must(s->device->ops->copy_strided(s->stream, GSN_HOST_TO_DEVICE, &copy, &err), &err);
	must(s->device->ops->stream_sync(s->stream, &err), &err);
	s->at += rows * run;
	s->bytes += rows * run;
	s->copies++;
}

static void copy_tensor(
	struct slicer *s, const gpusnap_tensor *tensor, const uint8_t *data, uint32_t rank)
{
	uint64_t bytes = tensor->end - tensor->begin;
	uint64_t row = bytes / tensor->shape[0];

	if (!strstr(tensor->name, ".experts."))
		copy_slice(s, data, 1, bytes, bytes);
	else if (strstr(tensor->name, "down_proj"))
		copy_slice(s, data + rank * (row / TP), tensor->shape[0], row / TP, row);
	else
		copy_slice(s, data + rank * (bytes / TP), 1, bytes / TP, bytes / TP);
}

static void copy_file(struct slicer *s, const struct gsn_source_file *file,
	const gpusnap_header *header, uint32_t rank)
{
	const uint8_t *map = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
	uint64_t base = gpusnap_header_data_offset(header);

	if (map == MAP_FAILED)
		fail(file->path, strerror(errno));
	for (size_t i = 0; i < gpusnap_header_tensor_count(header); i++) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(header, i);

		copy_tensor(s, tensor, map + base + tensor->begin, rank);
	}
	(void)munmap((void *)(uintptr_t)map, file->bytes);
}

static void run_slices(const struct bench *bench, struct result *result)
{
	struct gsn_checkpoint checkpoint;
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	struct slicer slicer = {0};
	gpusnap_registry *registry;
	gpusnap_region_info info;
	uint64_t total = 0;
	gpusnap_device *device;
	uint32_t region;
	gpusnap_error err;

	must(gpusnap_device_open(bench->device, &device, &err), &err);
	must(gpusnap_registry_create(device, NULL, &registry, &err), &err);
	must(gsn_checkpoint_open(bench->directory, NULL, &checkpoint, &err), &err);
	for (uint32_t i = 0; i < checkpoint.shard_count; i++)
		total += checkpoint.shards[i].file.bytes;
	options.tag = "slices";
	must(gpusnap_region_reserve(registry, total / TP + total / 64, &options, &region, &err),
		&err);
	must(gpusnap_region_get(registry, region, &info, &err), &err);
	slicer.device = device;
	slicer.at = info.address;
	must(device->ops->stream_create(device->context, &slicer.stream, &err), &err);
	for (uint32_t i = 0; i < checkpoint.shard_count; i++)
		copy_file(&slicer, &checkpoint.shards[i].file, checkpoint.shards[i].header,
			bench->rank);
	result->copies = slicer.copies;
	result->bytes = result->bytes_read = slicer.bytes;
}

/* ---- gpusnap ---- */

static gpusnap_load_options load_options(const struct bench *bench, gpusnap_compact compact)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;

	options.tp_size = TP;
	options.tp_rank = bench->rank;
	options.compact = compact;
	return options;
}

static void run_load(const struct bench *bench, gpusnap_compact compact, struct result *result)
{
	gpusnap_registry_options of = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_load_options options = load_options(bench, compact);
	gpusnap_registry *registry;
	gpusnap_device *device;
	gpusnap_loaded loaded;
	gpusnap_error err;

	of.tp_size = TP;
	of.tp_rank = bench->rank;
	must(gpusnap_device_open(bench->device, &device, &err), &err);
	must(gpusnap_registry_create(device, &of, &registry, &err), &err);
	must(gpusnap_load(registry, bench->directory, &options, &loaded, &err), &err);
	result->copies = loaded.report.copies;
	result->bytes = loaded.report.bytes;
	result->bytes_read = loaded.report.bytes_read;
}

/* ---- the runs that auto reads ---- */

struct runs {
	struct gsn_load_input input;
	size_t count, room;
	struct gsn_read *items;
	uint64_t row_bytes, row_needed; /* of runs that hold row slices alone */
};

static void add_run(struct runs *runs, const struct gsn_window *window, const struct gsn_read *read)
{
	uint64_t needed = 0;
	bool rows = true;

	if (runs->count == runs->room) {
		runs->room = runs->room ? 2 * runs->room : 1024;
		runs->items = realloc(runs->items, runs->room * sizeof *runs->items);
		if (!runs->items)
			fail("memory", "none");
	}
	runs->items[runs->count++] = *read;
	for (uint32_t i = 0; i < read->count; i++) {
		const struct gsn_view *view = &window->pieces[read->first + i];

		rows = rows && gsn_view_is_contiguous(view);
		needed += gsn_view_needed(view);
	}
	runs->row_bytes += rows ? read->bytes : 0;
	runs->row_needed += rows ? needed : 0;
}

static void list_runs(const struct bench *bench, struct runs *runs)
{
	gpusnap_load_options options = load_options(bench, GPUSNAP_COMPACT_AUTO);
	struct gsn_plan_limits limits;
	struct gsn_window window = {0};
	struct gsn_load_plan plan;
	gpusnap_io_options io;
	gpusnap_error err;

	must(gsn_load_input_resolve(&runs->input, &options, &err), &err);
	must(gsn_load_input_open(&runs->input, bench->directory, &err), &err);
	must(gsn_io_options_resolve(NULL, &io, &err), &err);
	limits = gsn_load_limits(runs->input.state.bytes, &io, GPUSNAP_COMPACT_AUTO);
	gsn_load_plan_init(&plan, runs->input.state.views, runs->input.state.view_count, &limits);
	for (;;) {
		must(gsn_load_plan_next(&plan, &window, &err), &err);
		if (!window.bytes)
			return;
		for (size_t i = 0; i < window.read_count; i++)
			add_run(runs, &window, &window.reads[i]);
	}
}

/* ---- the raw reader ---- */

static uint64_t submit_raw(struct io_uring *ring, const struct runs *runs, size_t run,
	uint8_t *memory, unsigned slot, const uint32_t *alignment)
{
	const struct gsn_read *read = &runs->items[run];
	uint64_t begin = gsn_align_down(read->offset, alignment[read->shard]);
	uint64_t end = gsn_align_up(read->offset + read->bytes, alignment[read->shard]);
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	io_uring_prep_read(sqe, runs->input.checkpoint.shards[read->shard].file.fd,
		memory + (size_t)slot * (RAW_BLOCK + 8192), (unsigned)(end - begin), begin);
	io_uring_sqe_set_data64(sqe, slot);
	if (io_uring_submit(ring) != 1)
		fail("io_uring", "submit");
	return end - begin;
}

static uint64_t read_raw(const struct runs *runs, uint8_t *memory, const uint32_t *alignment)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	uint64_t bytes = 0;
	size_t next = 0;

	if (io_uring_queue_init(RAW_DEPTH, &ring, 0))
		fail("io_uring", "set up");
	for (; next < RAW_DEPTH && next < runs->count; next++)
		bytes += submit_raw(&ring, runs, next, memory, (unsigned)next, alignment);
	for (size_t done = 0; done < runs->count; done++) {
		unsigned slot;

		if (io_uring_wait_cqe(&ring, &cqe) || cqe->res < 0)
			fail("io_uring", "read");
		slot = (unsigned)io_uring_cqe_get_data64(cqe);
		io_uring_cqe_seen(&ring, cqe);
		if (next < runs->count)
			bytes += submit_raw(&ring, runs, next++, memory, slot, alignment);
	}
	io_uring_queue_exit(&ring);
	return bytes;
}

/* Its time is that of the reads alone. */
static void run_raw(const struct bench *bench, struct result *result)
{
	static uint32_t alignment[1024];
	size_t bytes = (size_t)RAW_DEPTH * (RAW_BLOCK + 8192);
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct runs runs = {0};
	gpusnap_error err;

	if (memory == MAP_FAILED)
		fail("mmap", strerror(errno));
	list_runs(bench, &runs);
	for (uint32_t i = 0; i < runs.input.checkpoint.shard_count && i < 1024; i++) {
		const struct gsn_source_file *file = &runs.input.checkpoint.shards[i].file;
		struct gsn_direct_choice choice;

		must(gsn_direct_choose(file->fd, file->path, GPUSNAP_DIRECT_ON, &choice, &err),
			&err);
		alignment[i] = choice.alignment;
	}
	result->seconds = gsn_clock_seconds();
	result->bytes_read = read_raw(&runs, memory, alignment);
	result->seconds = gsn_clock_seconds() - result->seconds;
	result->bytes = runs.input.state.bytes;
}

/* ---- one run ---- */

static double cpu_seconds(const struct rusage *usage)
{
	return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
	       1e-6 * (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

static void run_here(const struct bench *bench, enum mode mode, int fd)
{
	double start = gsn_clock_seconds();
	struct result result = {0};

	if (mode == SLICE)
		run_slices(bench, &result);
	else if (mode == RAW)
		run_raw(bench, &result);
	else
		run_load(bench, mode == AUTO ? GPUSNAP_COMPACT_AUTO : GPUSNAP_COMPACT_NEVER,
			&result);
	if (mode != RAW)
		result.seconds = gsn_clock_seconds() - start;
	if (write(fd, &result, sizeof result) != (ssize_t)sizeof result)
		fail("pipe", strerror(errno));
	_exit(0);
}

static struct result run(const struct bench *bench, enum mode mode)
{
	struct result result;
	struct rusage usage;
	int ends[2], status;
	pid_t child;

	if (pipe(ends))
		fail("pipe", strerror(errno));
	(void)fflush(stdout);
	child = fork();
	if (child < 0)
		fail("fork", strerror(errno));
	if (child == 0)
		run_here(bench, mode, ends[1]);
	(void)close(ends[1]);
	if (read(ends[0], &result, sizeof result) != (ssize_t)sizeof result ||
		wait4(child, &status, 0, &usage) != child || status)
		fail(mode_names[mode], "failed");
	(void)close(ends[0]);
	result.cpu = cpu_seconds(&usage);
	result.memory = (uint64_t)usage.ru_maxrss << 10;
	return result;
}

/* ---- cold and warm ---- */

static void each_shard(const struct bench *bench, void (*act)(int fd, uint64_t bytes))
{
	struct gsn_checkpoint checkpoint;
	gpusnap_error err;

	must(gsn_checkpoint_open(bench->directory, NULL, &checkpoint, &err), &err);
	for (uint32_t i = 0; i < checkpoint.shard_count; i++)
		act(checkpoint.shards[i].file.fd, checkpoint.shards[i].file.bytes);
	gsn_checkpoint_close(&checkpoint);
}

static void drop(int fd, uint64_t bytes)
{
	(void)bytes;
	(void)fdatasync(fd);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (gsn_cached_percent(fd) > 1)
		fail("page cache", "a shard cannot be dropped from it");
}

static void warm(int fd, uint64_t bytes)
{
	static char buffer[1 << 20];

	for (uint64_t at = 0; at < bytes; at += sizeof buffer)
		(void)!pread(fd, buffer, sizeof buffer, (off_t)at);
	if (gsn_cached_percent(fd) < 99)
		fail("page cache", "a shard does not stay in it");
}

/* ---- the table ---- */

static int compare(const void *a, const void *b)
{
	const struct result *x = a, *y = b;

	return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

static double print_median(
	const char *state, uint32_t rank, enum mode mode, struct result *results, unsigned count)
{
	struct result *m = &results[count / 2];

	qsort(results, count, sizeof *results, compare);
	(void)printf(
		"%s %4u  %-6s %7.3f s  %6.3f cpu s  %7.0f MiB/s  %7llu copies  %8.1f MiB read  "
		"%5.0f MiB besides\n",
		state, rank, mode_names[mode], m->seconds, m->cpu,
		(double)m->bytes / m->seconds / (1 << 20), (unsigned long long)m->copies,
		(double)m->bytes_read / (1 << 20),
		mode == RAW ? (double)m->memory / (1 << 20)
			    : (double)(m->memory - gsn_min(m->memory, m->bytes)) / (1 << 20));
	(void)fflush(stdout);
	return m->seconds;
}

static void run_state(struct bench *bench, bool cold, unsigned pairs)
{
	static struct result results[RANKS][MODES][PAIRS_MAX];
	const char *state = cold ? "cold" : "warm";

	if (!cold)
		each_shard(bench, warm);
	for (unsigned p = 0; p < pairs; p++)
		for (unsigned r = 0; r < RANKS; r++)
			for (unsigned m = cold ? AUTO : SLICE; m < (cold ? MODES : RAW); m++) {
				bench->rank = ranks[r];
				if (cold)
					each_shard(bench, drop);
				results[r][m][p] = run(bench, (enum mode)m);
			}
	for (unsigned r = 0; r < RANKS; r++) {
		double seconds[MODES] = {0};

		for (unsigned m = cold ? AUTO : SLICE; m < (cold ? MODES : RAW); m++)
			seconds[m] =
				print_median(state, ranks[r], (enum mode)m, results[r][m], pairs);
		if (cold)
			(void)printf("%s %4u  auto takes %.2f of the raw reader's time\n", state,
				ranks[r], seconds[AUTO] / seconds[RAW]);
		else
			(void)printf("%s %4u  auto is %.2f times as fast as slice, %.2f as never\n",
				state, ranks[r], seconds[SLICE] / seconds[AUTO],
				seconds[NEVER] / seconds[AUTO]);
	}
}

static void print_plan(const struct bench *bench)
{
	struct runs runs = {0};

	list_runs(bench, &runs);
	(void)printf(
		"rank %u: %llu views, %llu MiB, %zu runs; rows: %.3f bytes read for one needed\n",
		bench->rank, (unsigned long long)runs.input.state.slices,
		(unsigned long long)(runs.input.state.bytes >> 20), runs.count,
		(double)runs.row_bytes / (double)gsn_max(runs.row_needed, 1));
	gsn_load_input_close(&runs.input);
	free(runs.items);
}

int main(int argc, char **argv)
{
	struct bench bench = {.device = argc > 3 ? argv[3] : "host"};
	unsigned pairs = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 3;

	if (argc < 2 || !pairs || pairs > PAIRS_MAX)
		fail("use", "bench_load DIR [PAIRS, 1 to 32 [DEVICE]]");
	bench.directory = argv[1];
	for (unsigned r = 0; r < RANKS; r++) {
		bench.rank = ranks[r];
		print_plan(&bench);
	}
	run_state(&bench, false, pairs);
	run_state(&bench, true, pairs);
	return EXIT_SUCCESS;
}
