/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA device reaches of its own ceilings, measured in the same run: the digest of a
 * kernel that only reads, the decode of a device copy, offload and restore of the link. Usage:
 *
 *   bench_gpu DEVICE                  the kernels
 *   bench_gpu DEVICE DIRECTORY        and what needs a file, which is made there
 *   bench_gpu DEVICE DIRECTORY state  digest, offload, save and restore alone
 *   bench_gpu DEVICE DIRECTORY parts  what these are made of, each part on its own
 */
#include "tests/bench/bench_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "kernels/device_calls.h"
#include "tests/support/random.h"

enum { ROUNDS = 11 };

#define STATE_BYTES ((uint64_t)8 << 30)
#define SEED_BYTES  ((uint64_t)64 << 20)

static cudaEvent_t begun, ended;

void bench_must(gpusnap_status status, const gpusnap_error *err)
{
	if (!status)
		return;
	(void)fprintf(stderr, "bench_gpu: %s\n", err->message);
	exit(EXIT_FAILURE);
}

void bench_must_cuda(cudaError_t code, const char *what)
{
	if (!code)
		return;
	(void)fprintf(stderr, "bench_gpu: %s: %s\n", what, cudaGetErrorString(code));
	exit(EXIT_FAILURE);
}

static uint64_t whole_granules(const struct bench_gpu *bench, uint64_t bytes)
{
	const struct gsn_gpu *gpu = bench->device->context;

	return gsn_ceil_div(bytes, gpu->ranges.granule) * gpu->ranges.granule;
}

gpusnap_address bench_memory(struct bench_gpu *bench, uint64_t bytes)
{
	struct gsn_gpu *gpu = bench->device->context;
	uint64_t whole = whole_granules(bench, bytes);
	gpusnap_address address = 0;
	gpusnap_error err;

	bench_must(bench->ops->reserve(gpu, whole, &address, &err), &err);
	bench_must(bench->ops->map(gpu, address, whole, 0, &err), &err);
	return address;
}

void bench_release(struct bench_gpu *bench, gpusnap_address address, uint64_t bytes)
{
	bench->ops->release(bench->device->context, address, whole_granules(bench, bytes));
}

void bench_randomise(
	struct bench_gpu *bench, gpusnap_address address, uint64_t bytes, uint64_t mask)
{
	uint64_t seed_bytes = gsn_min(bytes, SEED_BYTES);
	uint64_t *seed = malloc(seed_bytes + 8);
	uint64_t random = address;
	gpusnap_error err;

	for (uint64_t i = 0; i < seed_bytes / 8 + 1; i++)
		seed[i] = random_u64(&random) & mask;
	bench_must(gsn_device_copy_sync(bench->device, GSN_HOST_TO_DEVICE, address,
			   gsn_host_address(seed), seed_bytes, &err),
		&err);
	for (uint64_t done = seed_bytes; done < bytes; done += seed_bytes)
		bench_must(gsn_device_copy_sync(bench->device, GSN_DEVICE_TO_DEVICE, address + done,
				   address, gsn_min(seed_bytes, bytes - done), &err),
			&err);
	free(seed);
}

void bench_begin(struct bench_gpu *bench)
{
	bench_must_cuda(cudaEventRecord(begun, bench->stream->handle), "event");
}

double bench_end(struct bench_gpu *bench)
{
	float milliseconds = 0;

	bench_must_cuda(cudaEventRecord(ended, bench->stream->handle), "event");
	bench_must_cuda(cudaEventSynchronize(ended), "work");
	bench_must_cuda(cudaEventElapsedTime(&milliseconds, begun, ended), "time");
	return milliseconds * 1e-3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *values, uint32_t count)
{
	qsort(values, count, sizeof *values, by_value);
	return values[count / 2];
}

static double median_read(struct bench_gpu *bench, gpusnap_address memory, uint64_t bytes)
{
	double rates[ROUNDS];

	for (int i = -2; i < ROUNDS; i++) {
		bench_begin(bench);
		bench_must_cuda((cudaError_t)bench_launch_read(
					memory, bytes, memory, bench->stream->handle),
			"read");
		rates[i < 0 ? 0 : i] = (double)bytes / bench_end(bench);
	}
	return bench_median(rates, ROUNDS);
}

static void measure_ceilings(struct bench_gpu *bench, gpusnap_address memory)
{
	double copies[ROUNDS];
	gpusnap_error err;

	for (int i = -1; i < ROUNDS; i++) {
		bench_begin(bench);
		bench_must(bench->ops->copy(bench->stream, GSN_DEVICE_TO_DEVICE,
				   memory + STATE_BYTES / 2, memory, STATE_BYTES / 2, &err),
			&err);
		copies[i < 0 ? 0 : i] = (double)STATE_BYTES / bench_end(bench);
	}
	bench->read_rate = median_read(bench, memory, STATE_BYTES);
	bench->copy_rate = bench_median(copies, ROUNDS);
	(void)printf("read-only kernel %.0f GB/s, device copy %.0f GB/s (read + written), 8 GiB\n",
		bench->read_rate * 1e-9, bench->copy_rate * 1e-9);
}

static double median_digest(struct bench_gpu *bench, const struct gsn_leaf_range *range)
{
	double rates[ROUNDS];
	gpusnap_error err;

	for (int i = -2; i < ROUNDS; i++) {
		bench_begin(bench);
		bench_must(bench->ops->digest(bench->stream, range, 1, &err), &err);
		rates[i < 0 ? 0 : i] = (double)range->bytes / bench_end(bench);
	}
	return bench_median(rates, ROUNDS);
}

/* The call with everything around the kernel: the table's way there, the leaves' way back. */
static void measure_digest(struct bench_gpu *bench, gpusnap_address memory, uint64_t bytes)
{
	uint64_t out_bytes = gpusnap_leaf_count(bytes) * sizeof(gpusnap_digest);
	struct gsn_leaf_range range = {.address = memory, .bytes = bytes};
	double read = median_read(bench, memory, bytes), locked, loose;
	gpusnap_error err;
	void *pinned;

	bench_must(
		bench->ops->pinned_alloc(bench->device->context, out_bytes, &pinned, &err), &err);
	range.out = pinned;
	locked = median_digest(bench, &range);
	range.out = malloc(out_bytes);
	loose = median_digest(bench, &range);
	(void)printf("digest of %5llu MiB: %.0f GB/s with the leaves' way back, %.1f %% of reading "
		     "so much (%.0f GB/s); %.1f %% to memory that is not page-locked\n",
		(unsigned long long)(bytes >> 20), locked * 1e-9, 100.0 * locked / read,
		read * 1e-9, 100.0 * loose / read);
	free(range.out);
	bench->ops->pinned_free(bench->device->context, pinned, out_bytes);
}

int main(int argc, char **argv)
{
	const char *only = argc > 3 ? argv[3] : "";
	struct bench_gpu bench = {NULL};
	gpusnap_device_properties properties;
	gpusnap_address memory;
	gpusnap_error err;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	bench_must(gpusnap_device_open(argc > 1 ? argv[1] : "cuda:0", &bench.device, &err), &err);
	bench_must(gpusnap_device_query(bench.device, &properties, &err), &err);
	(void)printf("%s: %s\n", properties.name, properties.description);
	bench_must_cuda(cudaSetDevice((int)bench.device->index), "device");
	bench_must_cuda(cudaEventCreate(&begun), "event");
	bench_must_cuda(cudaEventCreate(&ended), "event");
	bench.ops = bench.device->ops;
	bench_must(bench.ops->stream_create(bench.device->context, &bench.stream, &err), &err);
	memory = bench_memory(&bench, STATE_BYTES);
	bench_randomise(&bench, memory, STATE_BYTES, UINT64_MAX);
	measure_ceilings(&bench, memory);
	for (uint64_t bytes = STATE_BYTES; bytes >= (uint64_t)128 << 20; bytes /= 8)
		measure_digest(&bench, memory, bytes);
	if (strcmp(only, "parts") == 0) {
		bench_parts(&bench, memory);
		bench_pinning(&bench, memory, argv[2]);
	}
	bench.ops->release(bench.device->context, memory, STATE_BYTES);
	if (!*only)
		bench_decode(&bench);
	if (argc > 2 && strcmp(only, "parts") != 0)
		bench_state(&bench, argv[2]);
	bench.ops->stream_destroy(bench.stream);
	gpusnap_device_close(bench.device);
	return EXIT_SUCCESS;
}
