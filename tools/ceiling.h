/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CEILING_H
#define CEILING_H
/*
 * What the machine itself gives: files, memory and the link to a device, used by loops that do
 * nothing else. `gpusnap bench` holds its figures against them.
 */
#include <gpusnap/device.h>
#include <gpusnap/io.h>

struct gsn_pool;

/*
 * Seconds to write or read `bytes` of a file by io_uring with O_DIRECT, into a few registered
 * buffers: the block size and depth of `io`, fallocate and fsync where it is written. Bytes that do
 * not fill a block are left out. E_IO or E_UNSUPPORTED where the
 * system has no io_uring or the file system no O_DIRECT.
 */
gpusnap_status ceiling_write(const char *path, uint64_t bytes, const gpusnap_io_options *io,
	double *ret_rate, gpusnap_error *err);
gpusnap_status ceiling_read(
	const char *path, const gpusnap_io_options *io, double *ret_rate, gpusnap_error *err);

/* Bytes per second of a file in the page cache, copied to `memory` of its size by all threads. */
gpusnap_status ceiling_cached(const char *path, void *memory, uint64_t bytes, struct gsn_pool *pool,
	double *ret_rate, gpusnap_error *err);

/* Bytes per second of copies between page-locked memory and the device. */
gpusnap_status ceiling_link(
	const gpusnap_device *device, bool to_device, double *ret_rate, gpusnap_error *err);

/*
 * Bytes per second of the device's memory: a copy inside it, bytes read and bytes written. Memory
 * that the host addresses: a loop of all threads that only reads.
 */
gpusnap_status ceiling_memory(
	const gpusnap_device *device, struct gsn_pool *pool, double *ret_rate, gpusnap_error *err);

/* Bytes per second of xxHash's own XXH3-128 by all threads, of memory that the host addresses. */
gpusnap_status ceiling_digest(
	const gpusnap_device *device, struct gsn_pool *pool, double *ret_rate, gpusnap_error *err);

#endif
