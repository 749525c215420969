/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "kernels/pool.h"
#include "tools/ceiling.h"

enum { DEPTH_DEFAULT = 8, BLOCK_DEFAULT = 4 << 20, CACHED_BLOCK = 1 << 20 };

/* One transfer of whole blocks through a few buffers. */
struct transfer {
	const char *path;
	int fd;
	bool writing;
	uint32_t depth;
	uint64_t block_bytes, blocks;
	uint8_t *memory; /* [depth, block_bytes] */
	struct io_uring ring;
};

static gpusnap_status failed(
	const struct transfer *t, const char *what, int code, gpusnap_error *err)
{
	return gsn_fail(err, code == EINVAL ? GPUSNAP_E_UNSUPPORTED : GPUSNAP_E_IO,
		"%s: %s: %s; the plain program needs io_uring and O_DIRECT", t->path, what,
		strerror(code));
}

static void request(struct transfer *t, uint32_t slot, uint64_t block)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&t->ring);
	uint8_t *at = t->memory + slot * t->block_bytes;

	if (t->writing)
		io_uring_prep_write_fixed(
			sqe, t->fd, at, (unsigned)t->block_bytes, block * t->block_bytes, 0);
	else
		io_uring_prep_read_fixed(
			sqe, t->fd, at, (unsigned)t->block_bytes, block * t->block_bytes, 0);
	io_uring_sqe_set_data64(sqe, slot);
}

static gpusnap_status run_ring(struct transfer *t, gpusnap_error *err)
{
	uint64_t next = 0;

	for (; next < t->depth && next < t->blocks; next++)
		request(t, (uint32_t)next, next);
	for (uint64_t done = 0; done < t->blocks; done++) {
		struct io_uring_cqe *cqe;
		int code = io_uring_submit_and_wait(&t->ring, 1);
		uint32_t slot;

		if (code >= 0)
			code = io_uring_wait_cqe(&t->ring, &cqe);
		if (code < 0)
			return failed(t, "waiting for a block", -code, err);
		if (cqe->res != (int)t->block_bytes)
			return failed(t, "a block", cqe->res < 0 ? -cqe->res : EIO, err);
		slot = (uint32_t)io_uring_cqe_get_data64(cqe);
		io_uring_cqe_seen(&t->ring, cqe);
		if (next < t->blocks)
			request(t, slot, next++);
	}
	return GPUSNAP_OK;
}

static gpusnap_status transfer_blocks(struct transfer *t, gpusnap_error *err)
{
	const size_t bytes = (size_t)t->depth * t->block_bytes;
	gpusnap_status s;
	int code;

	t->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t->memory == MAP_FAILED)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu bytes of blocks", bytes);
	code = io_uring_queue_init(t->depth, &t->ring, 0);
	if (code) {
		s = failed(t, "io_uring", -code, err);
		goto unmap;
	}
	code = io_uring_register_buffers(&t->ring, &(struct iovec){t->memory, bytes}, 1);
	s = code ? failed(t, "registering buffers", -code, err) : run_ring(t, err);
	io_uring_queue_exit(&t->ring);
unmap:
	(void)munmap(t->memory, bytes);
	return s;
}

static struct transfer transfer_of(
	const char *path, bool writing, uint64_t bytes, const gpusnap_io_options *io)
{
	struct transfer t = {.path = path, .writing = writing};

	t.depth = io->depth ? io->depth : DEPTH_DEFAULT;
	t.block_bytes = io->block_bytes ? io->block_bytes : BLOCK_DEFAULT;
	t.blocks = bytes / t.block_bytes;
	return t;
}

gpusnap_status ceiling_write(const char *path, uint64_t bytes, const gpusnap_io_options *io,
	double *ret_rate, gpusnap_error *err)
{
	struct transfer t = transfer_of(path, true, bytes, io);
	double start = gsn_clock_seconds();
	gpusnap_status s;

	t.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
	if (t.fd < 0)
		return failed(&t, "creating", errno, err);
	if (fallocate(t.fd, 0, 0, (off_t)(t.blocks * t.block_bytes)) && errno != EOPNOTSUPP)
		s = failed(&t, "fallocate", errno, err);
	else
		s = transfer_blocks(&t, err);
	if (!s && fsync(t.fd))
		s = failed(&t, "fsync", errno, err);
	(void)close(t.fd);
	(void)unlink(path);
	if (!s)
		*ret_rate = (double)(t.blocks * t.block_bytes) / (gsn_clock_seconds() - start);
	return s;
}

gpusnap_status ceiling_read(
	const char *path, const gpusnap_io_options *io, double *ret_rate, gpusnap_error *err)
{
	struct transfer t = transfer_of(path, false, 0, io);
	double start = gsn_clock_seconds();
	struct stat file;
	gpusnap_status s;

	t.fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (t.fd < 0)
		return failed(&t, "opening", errno, err);
	if (fstat(t.fd, &file)) {
		s = failed(&t, "fstat", errno, err);
	} else {
		t.blocks = (uint64_t)file.st_size / t.block_bytes;
		s = transfer_blocks(&t, err);
	}
	(void)close(t.fd);
	if (!s)
		*ret_rate = (double)(t.blocks * t.block_bytes) / (gsn_clock_seconds() - start);
	return s;
}

/* ---- the page cache ---- */

struct cached_copy {
	int fd;
	uint8_t *memory;
	uint64_t bytes;
	atomic_bool short_read;
};

static void copy_block(void *argument, uint64_t task)
{
	struct cached_copy *copy = argument;
	uint64_t at = task * CACHED_BLOCK;
	uint64_t bytes = gsn_min(CACHED_BLOCK, copy->bytes - at);

	if (pread(copy->fd, copy->memory + at, bytes, (off_t)at) != (ssize_t)bytes)
		atomic_store(&copy->short_read, true);
}

gpusnap_status ceiling_cached(const char *path, void *memory, uint64_t bytes, struct gsn_pool *pool,
	double *ret_rate, gpusnap_error *err)
{
	struct cached_copy copy = {.memory = memory, .bytes = bytes};
	double start = gsn_clock_seconds();

	copy.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (copy.fd < 0)
		return gsn_fail(err, GPUSNAP_E_IO, "%s: %s", path, strerror(errno));
	gsn_pool_run(pool, copy_block, &copy, gsn_ceil_div(bytes, CACHED_BLOCK));
	(void)close(copy.fd);
	if (atomic_load(&copy.short_read))
		return gsn_fail(err, GPUSNAP_E_IO, "%s: a read was short", path);
	*ret_rate = (double)bytes / (gsn_clock_seconds() - start);
	return GPUSNAP_OK;
}
