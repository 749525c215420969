/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast host memory gets page-locked: anonymous memory, touched before and not, and the pages of
 * a file that the cache holds; in pieces of several sizes by several threads. Rates of the whole.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "kernels/pages.h"
#include "tests/bench/bench_gpu.h"

#define BYTES ((uint64_t)4 << 30)

struct work {
	char *memory;
	uint64_t each;
	unsigned flags;
	int populate; /* advice that puts the pages there, or 0 */
	bool lock, unlock;
	const struct bench_gpu *bench;
	struct gsn_stream *stream; /* copies each piece to `to` once it is locked */
	gpusnap_address to;
	int fd; /* is read into the memory */
};

static void do_piece(void *argument, uint64_t task)
{
	const struct work *w = argument;
	char *piece = w->memory + task * w->each;
	gpusnap_error err;

	bench_must_cuda(cudaSetDevice((int)w->bench->device->index), "device");
	if (w->populate && madvise(piece, w->each, w->populate))
		perror("madvise");
	if (w->lock)
		bench_must_cuda(cudaHostRegister(piece, w->each, w->flags), "registering");
	if (w->stream)
		bench_must(w->bench->ops->copy(w->stream, GSN_HOST_TO_DEVICE,
				   w->to + task * w->each, (uintptr_t)piece, w->each, &err),
			&err);
	if (w->unlock)
		bench_must_cuda(cudaHostUnregister(piece), "unregistering");
}

static void read_piece(void *argument, uint64_t task)
{
	const struct work *w = argument;
	uint64_t offset = task * w->each;

	for (uint64_t done = 0; done < w->each;) {
		ssize_t got = pread(
			w->fd, w->memory + offset + done, w->each - done, (off_t)(offset + done));

		if (got <= 0) {
			perror("pread");
			exit(EXIT_FAILURE);
		}
		done += (uint64_t)got;
	}
}

/* Bytes a second. */
static double run(const struct work *work, uint32_t threads, gsn_pool_fn function)
{
	struct gsn_pool *pool;
	struct work here = *work;
	gpusnap_error err;
	double start;

	bench_must(gsn_pool_create(threads, &pool, &err), &err);
	start = gsn_clock_seconds();
	gsn_pool_run(pool, function, &here, BYTES / work->each);
	if (work->stream)
		bench_must(work->bench->ops->stream_sync(work->stream, &err), &err);
	start = gsn_clock_seconds() - start;
	gsn_pool_destroy(pool);
	return (double)BYTES / start;
}

static void unlock_all(const struct work *work)
{
	for (uint64_t at = 0; at < BYTES; at += work->each)
		bench_must_cuda(cudaHostUnregister(work->memory + at), "unregistering");
}

static char *fresh_memory(void)
{
	char *memory = gsn_pages_take(BYTES, PROT_READ | PROT_WRITE, 0);

	(void)madvise(memory, BYTES, MADV_HUGEPAGE);
	return memory;
}

static void lock_fresh(struct work work, uint32_t threads, bool touch_first)
{
	double touched = 0, locked;

	work.memory = fresh_memory();
	if (touch_first) {
		struct work touch = work;

		touch.lock = false;
		touched = run(&touch, threads, do_piece);
		work.populate = 0;
	}
	locked = run(&work, threads, do_piece);
	(void)printf("pinning 4 GiB, %3llu MiB at a time, %2u threads: ",
		(unsigned long long)(work.each >> 20), threads);
	if (touch_first)
		(void)printf(
			"touched %.1f, then locked %.1f GB/s\n", touched * 1e-9, locked * 1e-9);
	else
		(void)printf("touched and locked piece by piece %.1f GB/s\n", locked * 1e-9);
	unlock_all(&work);
	gsn_pages_give_back(work.memory, BYTES);
}

static void anonymous(struct bench_gpu *bench)
{
	static const uint32_t threads[] = {1, 8, 16};
	static const uint64_t sizes[] = {32, 256};
	struct work work = {.lock = true, .populate = MADV_POPULATE_WRITE, .bench = bench};

	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
		for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
			work.each = sizes[s] << 20;
			lock_fresh(work, threads[t], true);
			if (threads[t] > 1)
				lock_fresh(work, threads[t], false);
		}
}

static int make_file(const char *directory, char *path, size_t path_bytes)
{
	static char block[1 << 20];
	int fd;

	(void)snprintf(path, path_bytes, "%s/bench_gpu_pinning.bytes", directory);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	memset(block, 0x5a, sizeof block);
	for (uint64_t at = 0; fd >= 0 && at < BYTES; at += sizeof block)
		if (write(fd, block, sizeof block) != (ssize_t)sizeof block) {
			perror(path);
			exit(EXIT_FAILURE);
		}
	return fd;
}

static void lock_file(struct work work, int fd, uint32_t threads, const char *how)
{
	double rate, unlocked;
	double start;

	/* Of a private mapping Linux copies every page that is to stay locked. */
	work.memory = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (work.memory == MAP_FAILED) {
		perror("mmap");
		exit(EXIT_FAILURE);
	}
	rate = run(&work, threads, do_piece);
	start = gsn_clock_seconds();
	if (!work.unlock)
		unlock_all(&work);
	unlocked = gsn_clock_seconds() - start;
	(void)printf("file of 4 GiB, cached, %3llu MiB at a time, %2u threads, %s: %.1f GB/s",
		(unsigned long long)(work.each >> 20), threads, how, rate * 1e-9);
	if (!work.unlock)
		(void)printf("; unlocking %.1f ms", unlocked * 1e3);
	(void)printf("\n");
	(void)munmap(work.memory, BYTES);
}

static void read_file(struct bench_gpu *bench, int fd)
{
	static const uint32_t threads[] = {8, 16, 24};
	struct work work = {.bench = bench, .each = 4 << 20, .fd = fd, .lock = true};

	work.memory = fresh_memory();
	work.populate = MADV_POPULATE_WRITE;
	(void)run(&work, 16, do_piece);
	for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++)
		(void)printf(
			"file of 4 GiB, cached, read 4 MiB at a time, %2u threads: %.1f GB/s\n",
			threads[t], run(&work, threads[t], read_piece) * 1e-9);
	unlock_all(&work);
	gsn_pages_give_back(work.memory, BYTES);
}

static void of_a_file(struct bench_gpu *bench, gpusnap_address memory, const char *directory)
{
	static const uint32_t threads[] = {1, 4};
	static const uint64_t sizes[] = {64};
	struct work work = {.lock = true, .flags = cudaHostRegisterReadOnly, .bench = bench};
	char path[512];
	int fd = make_file(directory, path, sizeof path);

	if (fd < 0)
		return;
	read_file(bench, fd);
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
		for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
			work.each = sizes[s] << 20;
			work.populate = 0;
			lock_file(work, fd, threads[t], "locked");
			work.populate = MADV_POPULATE_READ;
			lock_file(work, fd, threads[t], "populated and locked");
			work.stream = bench->stream;
			work.to = memory;
			lock_file(work, fd, threads[t], "populated, locked, copied");
			work.populate = 0;
			lock_file(work, fd, threads[t], "locked and copied");
			work.stream = NULL;
			work.unlock = true;
			lock_file(work, fd, threads[t], "locked and unlocked");
			work.unlock = false;
		}
	(void)close(fd);
	(void)unlink(path);
}

void bench_pinning(struct bench_gpu *bench, gpusnap_address memory, const char *directory)
{
	of_a_file(bench, memory, directory);
	anonymous(bench);
}
