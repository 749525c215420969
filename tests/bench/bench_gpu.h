/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_BENCH_GPU_H
#define GPUSNAP_BENCH_GPU_H
/* What the parts of bench_gpu share: the device, timing, and the ceilings measured in this run. */
#include <stdint.h>

#include "kernels/gpu_device.h"

struct bench_gpu {
	gpusnap_device *device;
	const struct gsn_device_ops *ops;
	struct gsn_stream *stream;
	double read_rate; /* bytes a second of a kernel that only reads */
	double copy_rate; /* of a device-to-device copy, read and written bytes counted */
};

/* Ends the program with the message unless the call answered OK. */
void bench_must(gpusnap_status status, const gpusnap_error *err);
void bench_must_cuda(cudaError_t code, const char *what);
/* Device memory, mapped; given back with the device. */
gpusnap_address bench_memory(struct bench_gpu *bench, uint64_t bytes);
void bench_release(struct bench_gpu *bench, gpusnap_address address, uint64_t bytes);
/* Fill device memory with random 64-bit words, each and-ed with `mask`. */
void bench_randomise(
	struct bench_gpu *bench, gpusnap_address address, uint64_t bytes, uint64_t mask);
/* Seconds of the stream's work between two calls; begin() may be called again. */
void bench_begin(struct bench_gpu *bench);
double bench_end(struct bench_gpu *bench);
/* Sorts. */
double bench_median(double *values, uint32_t count);

void bench_decode(struct bench_gpu *bench);
void bench_state(struct bench_gpu *bench, const char *directory);
/* `memory`: 8 GiB of the device. */
void bench_parts(struct bench_gpu *bench, gpusnap_address memory);
void bench_pinning(struct bench_gpu *bench, gpusnap_address memory, const char *directory);

/* bench_read.cu: read [address, address + bytes) once, and do nothing with it. */
int bench_launch_read(uint64_t address, uint64_t bytes, uint64_t sink, void *stream);

#endif
