/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "kernels/device_calls.h"
#include "kernels/pool.h"
#include "tools/memory_peak.h"

enum { BUFFERS = 64 };

#define BLOCK_BYTES ((uint64_t)64 << 20) /* of random bytes */

gpusnap_status bench_session_open(
	struct bench_session *session, const char *device, gpusnap_error *err)
{
	gpusnap_status s;

	*session = (struct bench_session){.device_name = device};
	s = gsn_pool_create(0, &session->pool, err);
	return s ? s : gpusnap_device_open(device, &session->device, err);
}

void bench_session_close(struct bench_session *session)
{
	gpusnap_registry_free(session->registry);
	gpusnap_device_close(session->device);
	gsn_pool_destroy(session->pool);
}

gpusnap_status bench_session_random(const struct bench_session *session, gpusnap_address address,
	uint64_t bytes, uint64_t keep, uint64_t set, gpusnap_error *err)
{
	uint64_t *block = malloc(BLOCK_BYTES);
	uint64_t random = UINT64_C(0x9e3779b97f4a7c15);
	gpusnap_status s = GPUSNAP_OK;

	if (!block)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for random bytes");
	for (uint64_t i = 0; i < BLOCK_BYTES / sizeof *block; i++) {
		random ^= random << 13; /* xorshift64 of Marsaglia */
		random ^= random >> 7;
		random ^= random << 17;
		block[i] = (random & keep) | set;
	}
	for (uint64_t at = 0; !s && at < bytes; at += BLOCK_BYTES)
		s = gsn_device_copy_sync(session->device, GSN_HOST_TO_DEVICE, address + at,
			gsn_host_address(block), gsn_min(BLOCK_BYTES, bytes - at), err);
	free(block);
	return s;
}

static gpusnap_status add_buffers(
	gpusnap_registry *registry, uint32_t region, uint64_t bytes, gpusnap_error *err)
{
	const uint64_t shape[] = {bytes / BUFFERS};
	gpusnap_status s = GPUSNAP_OK;

	for (uint32_t i = 0; !s && i < BUFFERS; i++) {
		gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
		char name[32];

		(void)snprintf(name, sizeof name, "buffer.%u", i);
		buffer.name = name;
		buffer.role = GPUSNAP_ROLE_WEIGHT;
		buffer.dtype = GPUSNAP_U8;
		buffer.rank = 1;
		buffer.shape = shape;
		buffer.region = region;
		buffer.offset = i * shape[0];
		s = gpusnap_buffer_register(registry, &buffer, err);
	}
	return s;
}

gpusnap_status bench_session_state(
	struct bench_session *session, gpusnap_registry **ret_registry, gpusnap_error *err)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_registry *registry = NULL;
	gpusnap_region_info info;
	gpusnap_status s;
	uint32_t region;

	options.tag = "weights";
	s = gpusnap_registry_create(session->device, NULL, &registry, err);
	if (!s)
		s = gpusnap_region_reserve(registry, session->bytes, &options, &region, err);
	if (!s)
		s = gpusnap_region_get(registry, region, &info, err);
	if (!s)
		s = bench_session_random(session, info.address, session->bytes, UINT64_MAX, 0, err);
	if (!s)
		s = add_buffers(registry, region, session->bytes, err);
	if (s)
		gpusnap_registry_free(registry);
	else
		*ret_registry = registry;
	return s;
}

gpusnap_status bench_session_save(
	struct bench_session *session, double *ret_rate, gpusnap_error *err)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	struct memory_peak peak;
	gpusnap_save_report report;
	gpusnap_status s = GPUSNAP_OK;

	if (!session->registry)
		s = bench_session_state(session, &session->registry, err);
	if (s)
		return s;
	(void)snprintf(session->path, sizeof session->path, "%s/state.gsnap", session->directory);
	options.io = session->io;
	options.replace = true;
	s = memory_peak_begin(&peak, err);
	if (!s)
		s = gpusnap_save(session->registry, session->path, &options, &report, err);
	if (!s)
		s = memory_peak_end(&peak, &session->most_besides, err);
	if (s)
		session->path[0] = 0;
	else
		*ret_rate = (double)report.io.bytes / report.io.seconds;
	return s;
}

gpusnap_status bench_session_saved(struct bench_session *session, gpusnap_error *err)
{
	double rate;

	return session->path[0] ? GPUSNAP_OK : bench_session_save(session, &rate, err);
}

gpusnap_status bench_session_restore(
	struct bench_session *session, double *ret_rate, gpusnap_error *err)
{
	struct memory_peak peak;
	gpusnap_restore_report report;
	gpusnap_status s = memory_peak_begin(&peak, err);

	if (!s)
		s = gpusnap_restore(session->registry, session->path, &session->io, &report, err);
	if (!s)
		s = memory_peak_end(&peak, &session->most_besides, err);
	if (!s)
		*ret_rate = (double)report.state_bytes / report.io.seconds;
	return s;
}

gpusnap_status bench_session_cool(const struct bench_session *session, gpusnap_error *err)
{
	int fd = open(session->path, O_RDONLY | O_CLOEXEC);
	int code = fd < 0 || fdatasync(fd) ? errno : posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);

	if (fd >= 0)
		(void)close(fd);
	return code ? gsn_fail(err, GPUSNAP_E_IO, "%s: dropping it from the page cache: %s",
			      session->path, strerror(code))
		    : GPUSNAP_OK;
}

gpusnap_status bench_session_warm(const struct bench_session *session, gpusnap_error *err)
{
	int fd = open(session->path, O_RDONLY | O_CLOEXEC);
	char *bytes = malloc(BLOCK_BYTES);
	ssize_t n = -1;

	if (fd >= 0 && bytes)
		do {
			n = read(fd, bytes, BLOCK_BYTES);
		} while (n > 0);
	free(bytes);
	if (fd >= 0)
		(void)close(fd);
	return n ? gsn_fail(err, GPUSNAP_E_IO, "%s: reading it into the page cache failed",
			   session->path)
		 : GPUSNAP_OK;
}

static gpusnap_status run_cycle(
	gpusnap_registry *registry, struct bench_cycle *ret_cycle, gpusnap_error *err)
{
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_offload_report first, unchanged;
	gpusnap_resume_report resume;
	gpusnap_status s;

	options.backing = GPUSNAP_BACKING_ARENA;
	s = gpusnap_offload(registry, &options, &first, err);
	if (!s)
		s = gpusnap_resume(registry, &options, &resume, err);
	if (!s)
		s = gpusnap_offload(registry, &options, &unchanged, err);
	if (!s)
		s = gpusnap_resume(registry, &options, &resume, err);
	if (s)
		return s;
	ret_cycle->first = (double)first.bytes / first.seconds;
	ret_cycle->resume = (double)resume.bytes / resume.seconds;
	ret_cycle->unchanged = (double)unchanged.bytes / unchanged.seconds;
	return GPUSNAP_OK;
}

gpusnap_status bench_session_cycles(struct bench_session *session, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	while (!s && session->cycle_count < session->repeats) {
		gpusnap_registry *registry = NULL;

		s = bench_session_state(session, &registry, err);
		if (!s)
			s = run_cycle(registry, &session->cycles[session->cycle_count], err);
		gpusnap_registry_free(registry);
		session->cycle_count += !s;
	}
	return s;
}
