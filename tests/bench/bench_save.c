/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Save and restore of host state against what the disk gives: a plain io_uring program that writes
 * and reads the same number of bytes with O_DIRECT, the same block size and depth, registered
 * buffers, fallocate and fsync, and nothing else. Both get their buffers from the system each time,
 * which on some virtual machines costs more than anything else on the CPU; so does fresh memory to
 * restore into, which the plain program then reads into itself. A warm restore is held against as
 * many threads as there are cores that copy the file from the page cache to the same memory. Pairs
 * alternate in one run, so that a slow minute meets both; the result is the median of the ratios.
 * Where fio is installed, its figure for the same block size and depth stands beside.
 *
 *	bench_save FOLDER [GIB [PAIRS [WHAT]]]
 *
 * WHAT: letters of i (cold restore in place), f (cold restore into fresh memory) and w (warm
 * restore in place), all by default; what is restored is saved first in any case.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>
#include <liburing.h>

#include "formats/base/clock.h"
#include "tests/bench/bench_fill.h"

enum { DEPTH = 8, BLOCK = 4 << 20, PAIRS_MAX = 64, COPIERS_MAX = 64, WHATS_MAX = 3 };
/* The first read brings the file into the page cache; in the next two the kernel finds out that it
 * stays in use, and moves its pages from list to list. */
enum { WARM_UPS = 3 };

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

static void raw_request(struct io_uring *ring, int fd, bool writing, uint8_t *memory,
	uint8_t *fresh, unsigned slot, uint64_t block)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	uint8_t *at = memory + (size_t)slot * BLOCK;

	if (writing)
		io_uring_prep_write_fixed(sqe, fd, at, BLOCK, block * BLOCK, 0);
	else if (fresh)
		io_uring_prep_read(sqe, fd, fresh + block * BLOCK, BLOCK, block * BLOCK);
	else
		io_uring_prep_read_fixed(sqe, fd, at, BLOCK, block * BLOCK, 0);
	io_uring_sqe_set_data64(sqe, slot);
	if (io_uring_submit(ring) != 1)
		fail("io_uring", "submit");
}

static uint8_t *raw_memory(uint64_t bytes)
{
	uint8_t *memory = mmap(
		NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap", strerror(errno));
	(void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
	return memory;
}

/* `fresh`: where all blocks end up, NULL to read them into the same few buffers. */
static void raw_transfer(int fd, bool writing, uint8_t *fresh, uint64_t blocks)
{
	uint8_t *memory = raw_memory((uint64_t)DEPTH * BLOCK);
	struct iovec whole = {memory, (size_t)DEPTH * BLOCK};
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	uint64_t next = 0, done = 0;

	if (io_uring_queue_init(DEPTH, &ring, 0) || io_uring_register_buffers(&ring, &whole, 1))
		fail("io_uring", "set up");
	for (; next < DEPTH && next < blocks; next++)
		raw_request(&ring, fd, writing, memory, fresh, (unsigned)next, next);
	while (done < blocks) {
		unsigned slot;

		if (io_uring_wait_cqe(&ring, &cqe) || cqe->res != BLOCK)
			fail("io_uring", "a request failed or was short");
		slot = (unsigned)io_uring_cqe_get_data64(cqe);
		io_uring_cqe_seen(&ring, cqe);
		done++;
		if (next < blocks)
			raw_request(&ring, fd, writing, memory, fresh, slot, next++);
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
	raw_transfer(fd, true, NULL, blocks);
	if (fsync(fd) || close(fd))
		fail(path, strerror(errno));
	return gsn_clock_seconds() - start;
}

static double raw_read(const char *path, bool into_fresh, uint64_t blocks)
{
	double start = gsn_clock_seconds(), seconds;
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	uint8_t *fresh = into_fresh ? raw_memory(blocks * BLOCK) : NULL;

	if (fd < 0)
		fail(path, strerror(errno));
	raw_transfer(fd, false, fresh, blocks);
	(void)close(fd);
	seconds = gsn_clock_seconds() - start;
	if (fresh)
		(void)munmap(fresh, (size_t)(blocks * BLOCK));
	return seconds;
}

/* ---- the plain copy ---- */

struct copy_share {
	pthread_t thread;
	int fd;
	uint8_t *target;
	uint64_t first, step, blocks;
};

static void *copy_blocks(void *argument)
{
	struct copy_share *share = argument;

	for (uint64_t i = share->first; i < share->blocks; i += share->step)
		if (pread(share->fd, share->target + i * BLOCK, BLOCK, (off_t)(i * BLOCK)) != BLOCK)
			fail("pread", "a block was short");
	return NULL;
}

/* Read by as many threads as there are cores; from the page cache when the file is there. */
static double raw_copy(const char *path, uint8_t *target, uint64_t blocks)
{
	double start = gsn_clock_seconds();
	struct copy_share shares[COPIERS_MAX];
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = cores < 1 ? 1 : cores > COPIERS_MAX ? COPIERS_MAX : (unsigned)cores;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail(path, strerror(errno));
	for (unsigned i = 0; i < count; i++) {
		shares[i] = (struct copy_share){0, fd, target, i, count, blocks};
		if (pthread_create(&shares[i].thread, NULL, copy_blocks, &shares[i]))
			fail("pthread_create", "no thread");
	}
	for (unsigned i = 0; i < count; i++)
		(void)pthread_join(shares[i].thread, NULL);
	(void)close(fd);
	return gsn_clock_seconds() - start;
}

/* ---- gpusnap ---- */

static gpusnap_registry *make_state(gpusnap_device *device, uint64_t bytes)
{
	gpusnap_registry *registry;
	uint64_t random = 1;
	uint8_t *state;
	gpusnap_error err;

	must(bench_fill(device, bytes, &random, &registry, &state, &err), &err);
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
		"%-8s plain %7.0f MiB/s  gpusnap %7.0f MiB/s  ratio %.3f  cpu %.2f s  (%s, %s%s)\n",
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

static uint8_t *state_memory(gpusnap_registry *registry)
{
	gpusnap_region_info info;
	gpusnap_error err;

	must(gpusnap_region_at(registry, 0, &info, &err), &err);
	return (uint8_t *)(uintptr_t)info.address;
}

static const char *restore_name(char what)
{
	return what == 'w' ? "warm" : what == 'f' ? "fresh" : "in place";
}

/*
 * A virtual machine may have given its free memory back, and gets it page by page from its host
 * when it is touched, at many times the cost of the restore: have it ready for whoever comes.
 */
static void touch_memory(uint64_t bytes)
{
	uint8_t *memory = raw_memory(bytes);

	memset(memory, 1, (size_t)bytes);
	(void)munmap(memory, (size_t)bytes);
}

static double restore_of(const struct bench *bench, char what, gpusnap_io_report *ret_report)
{
	return what == 'f' ? restore_fresh(bench->device, bench->path, ret_report)
			   : restore_in_place(bench->registry, bench->path, ret_report);
}

static double raw_of(const struct bench *bench, char what)
{
	uint64_t blocks = bench->bytes / BLOCK;

	if (what == 'w')
		return raw_copy(bench->path, state_memory(bench->registry), blocks);
	return raw_read(bench->path, what == 'f', blocks);
}

static double restore_pair(struct bench *bench, bool raw_first, char what)
{
	gpusnap_io_report report;
	double raw = 0, ours, cpu;

	for (int i = 0; what == 'w' && i < WARM_UPS; i++)
		(void)raw_of(bench, what);
	if (what == 'f')
		touch_memory(bench->bytes);
	if (raw_first)
		raw = raw_of(bench, what);
	if (what == 'f' && raw_first)
		touch_memory(bench->bytes);
	cpu = cpu_seconds();
	ours = restore_of(bench, what, &report);
	cpu = cpu_seconds() - cpu;
	if (what == 'f' && !raw_first)
		touch_memory(bench->bytes);
	if (!raw_first)
		raw = raw_of(bench, what);
	print_pair(restore_name(what), bench, raw, ours, cpu, &report);
	return raw / ours;
}

static void print_median(const char *what, double *ratios, unsigned count)
{
	(void)printf("median of %u pairs: %-8s at %.3f of the plain rate\n", count, what,
		median(ratios, count));
}

static void run_pairs(struct bench *bench)
{
	double saves[PAIRS_MAX], restores[WHATS_MAX][PAIRS_MAX];
	size_t whats = strlen(bench->what);

	for (unsigned i = 0; i < bench->pairs; i++) {
		saves[i] = save_pair(bench, i % 2);
		(void)unlink(bench->raw_path); /* room for the page cache */
		for (size_t k = 0; k < whats; k++)
			restores[k][i] = restore_pair(bench, i % 2, bench->what[k]);
		(void)unlink(bench->path);
	}
	print_median("save", saves, bench->pairs);
	for (size_t k = 0; k < whats; k++)
		print_median(restore_name(bench->what[k]), restores[k], bench->pairs);
}

/* ---- fio ---- */

/* Its terse answer has the bandwidth in KiB/s in the 7th field for reads, the 48th for writes. */
static double fio_kib(const char *path, bool writing, uint64_t bytes)
{
	char command[8192], line[4096] = "", *rest = line, *field = NULL;
	FILE *answer;

	(void)snprintf(command, sizeof command,
		"fio --minimal --name=raw --filename='%s' --rw=%s --bs=%d --iodepth=%d --direct=1 "
		"--ioengine=io_uring --size=%llu --fallocate=posix --end_fsync=%d 2>/dev/null",
		path, writing ? "write" : "read", BLOCK, DEPTH, (unsigned long long)bytes, writing);
	answer = popen(command, "re");
	if (answer && !fgets(line, sizeof line, answer))
		line[0] = 0;
	if (answer)
		(void)pclose(answer);
	for (int i = 0; i < (writing ? 48 : 7); i++)
		field = strsep(&rest, ";");
	return field ? strtod(field, NULL) : 0;
}

static void run_fio(const struct bench *bench)
{
	double written = fio_kib(bench->raw_path, true, bench->bytes);

	if (written > 0)
		(void)printf("fio      write %.0f MiB/s  read %.0f MiB/s\n", written / 1024,
			fio_kib(bench->raw_path, false, bench->bytes) / 1024);
	else
		(void)printf("fio is not installed\n");
	(void)unlink(bench->raw_path);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	gpusnap_error err;
	double gib = argc > 2 ? strtod(argv[2], NULL) : 4;

	bench.pairs = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 5;
	bench.what = argc > 4 ? argv[4] : "ifw";
	bench.bytes = (uint64_t)(gib * 1024) << 20;
	if (argc < 2 || bench.bytes % ((uint64_t)BLOCK * BENCH_BUFFERS) || !bench.bytes ||
		!bench.pairs || bench.pairs > PAIRS_MAX || strlen(bench.what) > WHATS_MAX ||
		bench.what[strspn(bench.what, "ifw")])
		fail("usage", "bench_save FOLDER [GIB, a multiple of 1/4 [PAIRS, 1 to 64 [WHAT]]]");
	(void)snprintf(bench.raw_path, sizeof bench.raw_path, "%s/bench.raw", argv[1]);
	(void)snprintf(bench.path, sizeof bench.path, "%s/bench.gsnap", argv[1]);
	must(gpusnap_device_open("host", &bench.device, &err), &err);
	bench.registry = make_state(bench.device, bench.bytes);
	run_fio(&bench);
	run_pairs(&bench);
	gpusnap_registry_free(bench.registry);
	gpusnap_device_close(bench.device);
	return EXIT_SUCCESS;
}
