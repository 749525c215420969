/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Save and restore of host state against what the disk gives: a plain io_uring program that writes
 * and reads the same number of bytes with O_DIRECT, the same block size and depth, registered
 * buffers, fallocate and fsync, and nothing else. Both get their buffers from the system each time,
 * which on some virtual machines costs more than anything else on the CPU. Pairs alternate in one
 * run, so that a slow minute meets both; the result is the median of the ratios.
 *
 *	bench_save FOLDER [GIB [PAIRS [WHAT]]]
 *
 * WHAT: letters of i (restore in place) and f (restore into fresh memory), both by default; what is
 * restored is saved first in any case.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>
#include <liburing.h>

#include "formats/base/clock.h"
#include "tests/support/random.h"

enum { DEPTH = 8, BLOCK = 4 << 20, PAIRS_MAX = 64, BUFFERS = 64 };

static void fail(const char *what, const char *why)
{
	(void)fprintf(stderr, "bench_save: %s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

static void must(gpusnap_status status, const gpusnap_error *err)
{
	if (status)
		fail(gpusnap_status_name(status), err->message);
}

/* ---- the plain program ---- */

static void raw_request(
	struct io_uring *ring, int fd, bool writing, uint8_t *memory, unsigned slot, uint64_t block)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	uint8_t *at = memory + (size_t)slot * BLOCK;

	if (writing)
		io_uring_prep_write_fixed(sqe, fd, at, BLOCK, block * BLOCK, 0);
	else
		io_uring_prep_read_fixed(sqe, fd, at, BLOCK, block * BLOCK, 0);
	io_uring_sqe_set_data64(sqe, slot);
	if (io_uring_submit(ring) != 1)
		fail("io_uring", "submit");
}

static uint8_t *raw_buffers(void)
{
	uint8_t *memory = mmap(NULL, (size_t)DEPTH * BLOCK, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap", strerror(errno));
	(void)madvise(memory, (size_t)DEPTH * BLOCK, MADV_HUGEPAGE);
	return memory;
}

static void raw_transfer(int fd, bool writing, uint64_t blocks)
{
	uint8_t *memory = raw_buffers();
	struct iovec whole = {memory, (size_t)DEPTH * BLOCK};
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	uint64_t next = 0, done = 0;

	if (io_uring_queue_init(DEPTH, &ring, 0) || io_uring_register_buffers(&ring, &whole, 1))
		fail("io_uring", "set up");
	for (; next < DEPTH && next < blocks; next++)
		raw_request(&ring, fd, writing, memory, (unsigned)next, next);
	while (done < blocks) {
		unsigned slot;

		if (io_uring_wait_cqe(&ring, &cqe) || cqe->res != BLOCK)
			fail("io_uring", "a request failed or was short");
		slot = (unsigned)io_uring_cqe_get_data64(cqe);
		io_uring_cqe_seen(&ring, cqe);
		done++;
		if (next < blocks)
			raw_request(&ring, fd, writing, memory, slot, next++);
	}
	io_uring_queue_exit(&ring);
	(void)munmap(memory, (size_t)DEPTH * BLOCK);
}

static double raw_write(const char *path, uint64_t blocks)
{
	double start = gsn_clock_seconds();
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0 || fallocate(fd, 0, 0, (off_t)(blocks * BLOCK)))
		fail(path, strerror(errno));
	raw_transfer(fd, true, blocks);
	if (fsync(fd) || close(fd))
		fail(path, strerror(errno));
	return gsn_clock_seconds() - start;
}

static double raw_read(const char *path, uint64_t blocks)
{
	double start = gsn_clock_seconds();
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		fail(path, strerror(errno));
	raw_transfer(fd, false, blocks);
	(void)close(fd);
	return gsn_clock_seconds() - start;
}

/* ---- gpusnap ---- */

static gpusnap_registry *make_state(gpusnap_device *device, uint64_t bytes)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_registry *registry;
	gpusnap_region_info info;
	uint64_t random = 1, size = bytes / BUFFERS;
	uint64_t *words;
	gpusnap_error err;
	uint32_t id;

	options.tag = "weights";
	must(gpusnap_registry_create(device, NULL, &registry, &err), &err);
	must(gpusnap_region_reserve(registry, bytes, &options, &id, &err), &err);
	must(gpusnap_region_get(registry, id, &info, &err), &err);
	words = (uint64_t *)(uintptr_t)info.address;
	for (uint64_t i = 0; i < bytes / sizeof *words; i++)
		words[i] = random_u64(&random);
	for (unsigned i = 0; i < BUFFERS; i++) {
		gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
		char name[32];

		(void)snprintf(name, sizeof name, "layers.%u.w", i);
		buffer.name = name;
		buffer.role = GPUSNAP_ROLE_WEIGHT;
		buffer.rank = 1;
		buffer.dtype = GPUSNAP_U8;
		buffer.shape = &size;
		buffer.region = id;
		buffer.offset = i * size;
		must(gpusnap_buffer_register(registry, &buffer, &err), &err);
	}
	return registry;
}

static double save(gpusnap_registry *registry, const char *path, gpusnap_io_report *ret_report)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	double start = gsn_clock_seconds();
	gpusnap_save_report report;
	gpusnap_error err;

	options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	options.io.depth = DEPTH;
	options.io.block_bytes = BLOCK;
	must(gpusnap_save(registry, path, &options, &report, &err), &err);
	*ret_report = report.io;
	return gsn_clock_seconds() - start;
}

/* Into memory that is there already. */
static double restore_in_place(
	gpusnap_registry *registry, const char *path, gpusnap_io_report *ret_report)
{
	gpusnap_io_options options = GPUSNAP_IO_OPTIONS_INIT;
	double start = gsn_clock_seconds();
	gpusnap_restore_report report;
	gpusnap_error err;

	options.depth = DEPTH;
	options.block_bytes = BLOCK;
	must(gpusnap_restore(registry, path, &options, &report, &err), &err);
	*ret_report = report.io;
	return gsn_clock_seconds() - start;
}

/* Into a fresh registry, whose memory the system has to find first. */
static double restore_fresh(gpusnap_device *device, const char *path, gpusnap_io_report *ret_report)
{
	gpusnap_io_options options = GPUSNAP_IO_OPTIONS_INIT;
	double start = gsn_clock_seconds(), seconds;
	gpusnap_restore_report report;
	gpusnap_registry *registry;
	gpusnap_error err;

	options.depth = DEPTH;
	options.block_bytes = BLOCK;
	must(gpusnap_registry_from_snapshot(device, path, NULL, &options, &registry, &report, &err),
		&err);
	seconds = gsn_clock_seconds() - start;
	gpusnap_registry_free(registry);
	*ret_report = report.io;
	return seconds;
}

/* ---- pairs ---- */

static double cpu_seconds(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
	qsort(values, count, sizeof *values, compare_doubles);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

struct bench {
	gpusnap_device *device;
	gpusnap_registry *registry;
	char raw_path[4096], path[4096];
	uint64_t bytes;
	unsigned pairs;
	const char *what;
};

static void print_pair(const char *what, const struct bench *bench, double raw, double ours,
	double cpu, const gpusnap_io_report *report)
{
	double mib = (double)bench->bytes / (1 << 20);

	(void)printf(
		"%-8s raw %7.0f MiB/s  gpusnap %7.0f MiB/s  ratio %.3f  cpu %.2f s  (%s, %s%s)\n",
		what, mib / raw, mib / ours, raw / ours, cpu, report->engine,
		report->direct ? "direct" : "cached", report->registered ? ", registered" : "");
	(void)fflush(stdout);
}

static double save_pair(struct bench *bench, bool raw_first)
{
	uint64_t blocks = bench->bytes / BLOCK;
	gpusnap_io_report report;
	double raw = 0, ours, cpu;

	if (raw_first)
		raw = raw_write(bench->raw_path, blocks);
	cpu = cpu_seconds();
	ours = save(bench->registry, bench->path, &report);
	cpu = cpu_seconds() - cpu;
	if (!raw_first)
		raw = raw_write(bench->raw_path, blocks);
	print_pair("save", bench, raw, ours, cpu, &report);
	return raw / ours;
}

static double restore_pair(struct bench *bench, bool raw_first, bool fresh)
{
	uint64_t blocks = bench->bytes / BLOCK;
	gpusnap_io_report report;
	double raw = 0, ours, cpu;

	if (raw_first)
		raw = raw_read(bench->raw_path, blocks);
	cpu = cpu_seconds();
	ours = fresh ? restore_fresh(bench->device, bench->path, &report)
		     : restore_in_place(bench->registry, bench->path, &report);
	cpu = cpu_seconds() - cpu;
	if (!raw_first)
		raw = raw_read(bench->raw_path, blocks);
	print_pair(fresh ? "fresh" : "in place", bench, raw, ours, cpu, &report);
	return raw / ours;
}

static void print_median(const char *what, double *ratios, unsigned count)
{
	(void)printf("median of %u pairs: %s at %.3f of the raw rate\n", count, what,
		median(ratios, count));
}

static void run_pairs(struct bench *bench)
{
	double saves[PAIRS_MAX], in_place[PAIRS_MAX], fresh[PAIRS_MAX];
	bool restores_in_place = strchr(bench->what, 'i'),
	     restores_fresh = strchr(bench->what, 'f');

	for (unsigned i = 0; i < bench->pairs; i++) {
		saves[i] = save_pair(bench, i % 2);
		if (restores_in_place)
			in_place[i] = restore_pair(bench, i % 2, false);
		if (restores_fresh)
			fresh[i] = restore_pair(bench, i % 2, true);
		(void)unlink(bench->path);
		(void)unlink(bench->raw_path);
	}
	print_median("save", saves, bench->pairs);
	if (restores_in_place)
		print_median("restore in place", in_place, bench->pairs);
	if (restores_fresh)
		print_median("restore into fresh memory", fresh, bench->pairs);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	gpusnap_error err;
	double gib = argc > 2 ? strtod(argv[2], NULL) : 4;

	bench.pairs = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 5;
	bench.what = argc > 4 ? argv[4] : "if";
	bench.bytes = (uint64_t)(gib * 1024) << 20;
	if (argc < 2 || bench.bytes % ((uint64_t)BLOCK * BUFFERS) || !bench.bytes || !bench.pairs ||
		bench.pairs > PAIRS_MAX)
		fail("usage",
			"bench_save FOLDER [GIB, a multiple of 1/4 [PAIRS, 1 to 64 [i|f|if]]]");
	(void)snprintf(bench.raw_path, sizeof bench.raw_path, "%s/bench.raw", argv[1]);
	(void)snprintf(bench.path, sizeof bench.path, "%s/bench.gsnap", argv[1]);
	must(gpusnap_device_open("host", &bench.device, &err), &err);
	bench.registry = make_state(bench.device, bench.bytes);
	run_pairs(&bench);
	gpusnap_registry_free(bench.registry);
	gpusnap_device_close(bench.device);
	return EXIT_SUCCESS;
}
