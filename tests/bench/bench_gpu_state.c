/* SPDX-License-Identifier: Apache-2.0 */
/* Offload, resume, save and restore of 8 GiB on a GPU, and the link that they go over. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "formats/base/clock.h"
#include "tests/bench/bench_gpu.h"

enum { BUFFERS = 64, CYCLES = 5, LINK_ROUNDS = 12 };

#define BUFFER_BYTES ((uint64_t)128 << 20)
#define STATE_BYTES  (BUFFERS * BUFFER_BYTES)
#define LINK_BYTES   ((uint64_t)1 << 30)

static double rate(uint64_t bytes, double seconds)
{
	return (double)bytes / seconds * 1e-9;
}

static void measure_link(struct bench_gpu *bench)
{
	static const enum gsn_copy_direction directions[] = {
		GSN_HOST_TO_DEVICE, GSN_DEVICE_TO_HOST};
	gpusnap_address device = bench_memory(bench, LINK_BYTES);
	double rates[2];
	gpusnap_error err;
	void *host;

	bench_must(bench->ops->pinned_alloc(bench->device->context, LINK_BYTES, &host, &err), &err);
	for (int d = 0; d < 2; d++) {
		uint64_t dst = d ? (uint64_t)(uintptr_t)host : device;
		uint64_t src = d ? device : (uint64_t)(uintptr_t)host;

		/* A link that has been idle takes a quarter of a second to come up to speed. */
		for (int i = 0; i < LINK_ROUNDS; i++) {
			bench_begin(bench);
			bench_must(bench->ops->copy(bench->stream, directions[d], dst, src,
					   LINK_BYTES, &err),
				&err);
			rates[d] = rate(LINK_BYTES, bench_end(bench));
		}
	}
	bench->ops->pinned_free(bench->device->context, host, LINK_BYTES);
	(void)printf(
		"pinned copy: to the device %.1f GB/s, from it %.1f GB/s\n", rates[0], rates[1]);
}

static gpusnap_registry *make_state(struct bench_gpu *bench)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_registry *registry;
	gpusnap_region_info info;
	gpusnap_error err;
	uint32_t region;

	options.tag = "weights";
	bench_must(gpusnap_registry_create(bench->device, NULL, &registry, &err), &err);
	bench_must(gpusnap_region_reserve(registry, STATE_BYTES, &options, &region, &err), &err);
	bench_must(gpusnap_region_get(registry, region, &info, &err), &err);
	bench_randomise(bench, info.address, STATE_BYTES, UINT64_MAX);
	for (uint64_t i = 0; i < BUFFERS; i++) {
		gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
		const uint64_t shape[] = {BUFFER_BYTES};
		char name[32];

		(void)snprintf(name, sizeof name, "buffer.%u", (unsigned)i);
		buffer.name = name;
		buffer.role = GPUSNAP_ROLE_WEIGHT;
		buffer.dtype = GPUSNAP_U8;
		buffer.rank = 1;
		buffer.shape = shape;
		buffer.region = region;
		buffer.offset = i * BUFFER_BYTES;
		bench_must(gpusnap_buffer_register(registry, &buffer, &err), &err);
	}
	return registry;
}

static void cycle(gpusnap_registry *registry, int i)
{
	static const char *const what[] = {"first", "second, unchanged", "third, unchanged",
		"fourth, unchanged, resumed 0.3 s later", "first again, of another registry"};
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_offload_report offload;
	gpusnap_resume_report resume;
	gpusnap_error err;

	options.backing = GPUSNAP_BACKING_ARENA;
	bench_must(gpusnap_offload(registry, &options, &offload, &err), &err);
	/* For a while the driver clears what was given back, with the engine that copies. */
	if (i == CYCLES - 2)
		(void)usleep(300000);
	bench_must(gpusnap_resume(registry, &options, &resume, &err), &err);
	(void)printf(
		"offload (%s): %.1f GB/s, %.2f GB copied, %.2f GB freed; resume, verified: %.1f "
		"GB/s\n",
		what[i], rate(offload.bytes, offload.seconds), (double)offload.copied_bytes * 1e-9,
		(double)offload.freed_bytes * 1e-9, rate(resume.bytes, resume.seconds));
}

/* Write the file's pages back and drop them from the cache. */
static void drop_cache(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fdatasync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		perror(path);
	if (fd >= 0)
		(void)close(fd);
}

static void warm_cache(const char *path)
{
	static char bytes[1 << 20];
	FILE *file = fopen(path, "rb");

	while (file && fread(bytes, 1, sizeof bytes, file) == sizeof bytes)
		;
	if (file)
		(void)fclose(file);
}

static void restore(gpusnap_registry *registry, const char *path, const char *what)
{
	gpusnap_restore_report report;
	gpusnap_error err;

	bench_must(gpusnap_restore(registry, path, NULL, &report, &err), &err);
	(void)printf("restore (%s): %.2f GB/s, verified on the device; %s%s\n", what,
		rate(report.state_bytes, report.io.seconds), report.io.engine,
		report.io.direct ? ", direct" : "");
}

void bench_state(struct bench_gpu *bench, const char *directory)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_save_report saved;
	gpusnap_registry *registry;
	gpusnap_error err;
	char path[512];

	measure_link(bench);
	registry = make_state(bench);
	for (int i = 0; i < CYCLES - 1; i++)
		cycle(registry, i);
	/* A virtual machine's memory is slow to touch for the first time. Now it has been. */
	gpusnap_registry_free(registry);
	registry = make_state(bench);
	cycle(registry, CYCLES - 1);
	(void)snprintf(path, sizeof path, "%s/bench_gpu.gsnap", directory);
	options.replace = true;
	bench_must(gpusnap_save(registry, path, &options, &saved, &err), &err);
	(void)printf("save: %.2f GB/s, hashed and on disk; %s%s\n",
		rate(saved.io.bytes, saved.io.seconds), saved.io.engine,
		saved.io.direct ? ", direct" : "");
	drop_cache(path);
	restore(registry, path, "cold");
	warm_cache(path);
	restore(registry, path, "warm");
	restore(registry, path, "warm again");
	(void)unlink(path);
	gpusnap_registry_free(registry);
}
