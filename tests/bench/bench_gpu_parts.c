/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the time of a digest, an offload and a resume goes: each part on its own, in milliseconds,
 * the median of ROUNDS. What is asked of the driver is asked as gpu_memory.c asks it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "kernels/gpu_kernels.h"
#include "tests/bench/bench_gpu.h"

enum { ROUNDS = 7 };

#define STATE_BYTES ((uint64_t)8 << 30)

/* ---- digest ---- */

struct digest_parts {
	struct bench_gpu *bench;
	uint64_t bytes, leaves;
	char *device; /* a table for either place of the digests, then digests */
	char *pinned; /* page-locked: digests */
	char *heap;
};

enum { TO_DEVICE, TO_HOST };

#define TABLE_BYTES sizeof(struct gsn_gpu_leaf_range[2])

static void hand_out(void *argument)
{
	const struct digest_parts *d = argument;

	memcpy(d->heap, d->pinned, d->leaves * sizeof(gpusnap_digest));
}

static void launch(struct digest_parts *d, int where)
{
	const struct gsn_gpu_leaf_range *tables = (const void *)d->device;

	bench_must_cuda((cudaError_t)gsn_gpu_launch_digest(
				&tables[where], 1, d->leaves, d->bench->stream->handle),
		"digest");
}

static void bring(struct digest_parts *d)
{
	bench_must_cuda(cudaMemcpyAsync(d->pinned, d->device + TABLE_BYTES,
				d->leaves * sizeof(gpusnap_digest), cudaMemcpyDeviceToHost,
				d->bench->stream->handle),
		"copy");
}

static void kernel_alone(struct digest_parts *d)
{
	launch(d, TO_DEVICE);
}

static void kernel_to_host(struct digest_parts *d)
{
	launch(d, TO_HOST);
}

static void kernel_and_copy(struct digest_parts *d)
{
	launch(d, TO_DEVICE);
	bring(d);
}

static void kernel_copy_delivery(struct digest_parts *d)
{
	kernel_and_copy(d);
	bench_must_cuda(cudaLaunchHostFunc(d->bench->stream->handle, hand_out, d), "delivery");
}

static void kernel_to_host_delivery(struct digest_parts *d)
{
	kernel_to_host(d);
	bench_must_cuda(cudaLaunchHostFunc(d->bench->stream->handle, hand_out, d), "delivery");
}

static const struct {
	const char *name;
	void (*run)(struct digest_parts *d);
} digest_ways[] = {
	{"kernel alone", kernel_alone},
	{"kernel, digests to the host's memory", kernel_to_host},
	{"kernel, copy", kernel_and_copy},
	{"kernel, copy, delivery", kernel_copy_delivery},
	{"kernel to the host's memory, delivery", kernel_to_host_delivery},
};

static void time_digest_way(struct digest_parts *d, size_t way)
{
	double device[ROUNDS], wall[ROUNDS];

	for (int i = -2; i < ROUNDS; i++) {
		double start = gsn_clock_seconds();
		int at = i < 0 ? 0 : i;

		bench_begin(d->bench);
		digest_ways[way].run(d);
		device[at] = bench_end(d->bench);
		wall[at] = gsn_clock_seconds() - start;
	}
	(void)printf("digest of %5llu MiB: %-38s %7.3f ms, %5.1f %% of reading; %7.3f ms seen\n",
		(unsigned long long)(d->bytes >> 20), digest_ways[way].name,
		bench_median(device, ROUNDS) * 1e3,
		100.0 * (double)d->bytes / bench_median(device, ROUNDS) / d->bench->read_rate,
		bench_median(wall, ROUNDS) * 1e3);
}

static void digest_parts(struct bench_gpu *bench, gpusnap_address memory, uint64_t bytes)
{
	struct digest_parts d = {bench, bytes, gpusnap_leaf_count(bytes), NULL, NULL, NULL};
	struct gsn_gpu_leaf_range tables[] = {{memory, bytes, 0, 0}, {memory, bytes, 0, 0}};
	uint64_t digests = d.leaves * sizeof(gpusnap_digest);

	bench_must_cuda(cudaMalloc((void **)&d.device, TABLE_BYTES + digests), "memory");
	bench_must_cuda(cudaHostAlloc((void **)&d.pinned, digests, 0), "memory");
	d.heap = calloc(1, digests);
	tables[TO_DEVICE].digests = (uintptr_t)d.device + TABLE_BYTES;
	tables[TO_HOST].digests = (uintptr_t)d.pinned;
	bench_must_cuda(
		cudaMemcpy(d.device, tables, sizeof tables, cudaMemcpyHostToDevice), "copy");
	for (size_t way = 0; way < sizeof digest_ways / sizeof digest_ways[0]; way++)
		time_digest_way(&d, way);
	bench_must_cuda(cudaFree(d.device), "memory");
	bench_must_cuda(cudaFreeHost(d.pinned), "memory");
	free(d.heap);
}

/* ---- calls that an offload makes besides ---- */

struct calls {
	struct bench_gpu *bench;
	gpusnap_digest *a, *b;
	uint64_t leaves;
	uint64_t differing;
};

static void query(struct calls *c)
{
	gpusnap_device_properties properties;
	gpusnap_error err;

	bench_must(c->bench->ops->query(c->bench->device->context, &properties, &err), &err);
}

static void free_memory(struct calls *c)
{
	size_t available, total;

	(void)c;
	bench_must_cuda(cudaMemGetInfo(&available, &total), "memory");
}

static void stream(struct calls *c)
{
	struct gsn_stream *made;
	gpusnap_error err;

	bench_must(c->bench->ops->stream_create(c->bench->device->context, &made, &err), &err);
	c->bench->ops->stream_destroy(made);
}

static void table(struct calls *c)
{
	char *fresh = calloc(c->leaves, sizeof(gpusnap_digest));

	for (uint64_t i = 0; i < c->leaves * sizeof(gpusnap_digest); i += 4096)
		((volatile char *)fresh)[i] = 1;
	free(fresh);
}

static void compare(struct calls *c)
{
	for (uint64_t i = 0; i < c->leaves; i++)
		c->differing += !gpusnap_digest_equal(c->a[i], c->b[i]);
}

static void call_parts(struct bench_gpu *bench)
{
	static const struct {
		const char *name;
		void (*run)(struct calls *c);
	} parts[] = {
		{"properties and free memory", query},
		{"free memory", free_memory},
		{"a stream made and destroyed", stream},
		{"a table of leaves made and touched", table},
		{"two tables of leaves compared", compare},
	};
	struct calls c = {.bench = bench, .leaves = gpusnap_leaf_count(STATE_BYTES)};
	double seconds[ROUNDS];

	c.a = calloc(c.leaves, sizeof *c.a);
	c.b = calloc(c.leaves, sizeof *c.b);
	for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
		for (int i = 0; i < ROUNDS; i++) {
			double start = gsn_clock_seconds();

			parts[part].run(&c);
			seconds[i] = gsn_clock_seconds() - start;
		}
		(void)printf("call: %-36s %7.3f ms\n", parts[part].name,
			bench_median(seconds, ROUNDS) * 1e3);
	}
	free(c.a);
	free(c.b);
}

/* ---- mapping ---- */

enum map_part { CREATE, MAP, ALLOW, RELEASE, FILL, UNMAP, MAP_PARTS };

struct mapping {
	const struct gsn_gpu *gpu;
	struct bench_gpu *bench;
	gpusnap_address address;
	uint64_t each;
	bool allow_once;
	gpuMemHandle handles[STATE_BYTES >> 21];
};

static void map_step(struct mapping *m, enum map_part part, uint64_t at)
{
	const struct gpuVmm *vmm = &m->gpu->vmm;
	gpuMemHandle *handle = &m->handles[at / m->each];
	gpuError_t code = cudaSuccess;

	if (part == CREATE)
		code = gpuMemCreate(vmm, m->gpu->index, m->each, handle);
	else if (part == MAP)
		code = gpuMemMap(vmm, m->address + at, m->each, *handle);
	else if (part == ALLOW)
		code = gpuMemAllow(vmm, m->gpu->index, m->address + at, m->each);
	else if (part == RELEASE)
		code = gpuMemRelease(vmm, *handle);
	else if (part == UNMAP)
		code = gpuMemUnmap(vmm, m->address + at, m->each);
	bench_must_cuda(code, "mapping");
}

static void fill_all(const struct mapping *m)
{
	gpusnap_error err;

	bench_must(m->bench->ops->fill(m->bench->stream, m->address, 0, STATE_BYTES, &err), &err);
	bench_must(m->bench->ops->stream_sync(m->bench->stream, &err), &err);
}

static double time_map_part(struct mapping *m, enum map_part part)
{
	double start = gsn_clock_seconds();

	if (part == FILL)
		fill_all(m);
	else if (part == ALLOW && m->allow_once)
		bench_must_cuda(
			gpuMemAllow(&m->gpu->vmm, m->gpu->index, m->address, STATE_BYTES), "allow");
	else if (part == UNMAP && m->allow_once)
		bench_must_cuda(gpuMemUnmap(&m->gpu->vmm, m->address, STATE_BYTES), "unmap");
	else
		for (uint64_t at = 0; at < STATE_BYTES; at += m->each)
			map_step(m, part, at);
	return gsn_clock_seconds() - start;
}

static void map_in_pieces(struct mapping *m)
{
	double seconds[MAP_PARTS][ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		for (int part = 0; part < MAP_PARTS; part++)
			seconds[part][i] = time_map_part(m, (enum map_part)part);
	(void)printf("8 GiB mapped, %5llu MiB at a time, allowed %s: create %.2f, map %.2f, "
		     "allow %.2f, release %.2f, zero %.2f, unmap %.2f ms\n",
		(unsigned long long)(m->each >> 20), m->allow_once ? "once" : "each",
		bench_median(seconds[CREATE], ROUNDS) * 1e3,
		bench_median(seconds[MAP], ROUNDS) * 1e3,
		bench_median(seconds[ALLOW], ROUNDS) * 1e3,
		bench_median(seconds[RELEASE], ROUNDS) * 1e3,
		bench_median(seconds[FILL], ROUNDS) * 1e3,
		bench_median(seconds[UNMAP], ROUNDS) * 1e3);
}

static void map_parts(struct bench_gpu *bench)
{
	static const uint64_t sizes[] = {2, 16, 64, 256, 1024, 8192};
	struct mapping *m = calloc(1, sizeof *m);
	gpusnap_error err;

	m->gpu = bench->device->context;
	m->bench = bench;
	bench_must(
		bench->ops->reserve(bench->device->context, STATE_BYTES, &m->address, &err), &err);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		for (int once = 0; once < 2; once++) {
			m->each = sizes[i] << 20;
			m->allow_once = once;
			map_in_pieces(m);
		}
	bench->ops->release(bench->device->context, m->address, STATE_BYTES);
	free(m);
}

/* ---- an offload of unchanged state, and the memory's way back, step by step ---- */

#define SLICE_BYTES ((uint64_t)256 << 20)

enum step { DIGEST, COMPARE, QUERY, GIVE, QUERY_AFTER, PAUSE, TAKE, STEPS };

struct walk {
	struct bench_gpu *bench;
	gpusnap_address address;
	struct calls calls; /* a: what is held, b: live; page-locked */
};

static void map_slices(const struct walk *w, bool there)
{
	const struct gsn_device_ops *ops = w->bench->ops;
	void *context = w->bench->device->context;
	gpusnap_error err;

	for (uint64_t at = 0; at < STATE_BYTES; at += SLICE_BYTES)
		bench_must(there ? ops->map(context, w->address + at, SLICE_BYTES, 0x5a, &err)
				 : ops->unmap(context, w->address + at, SLICE_BYTES, &err),
			&err);
}

static void do_step(struct walk *w, enum step step)
{
	struct gsn_leaf_range range = {w->address, STATE_BYTES, w->calls.b};
	gpusnap_error err;

	switch (step) {
	case DIGEST:
		bench_must(w->bench->ops->digest(w->bench->stream, &range, 1, &err), &err);
		bench_must(w->bench->ops->stream_sync(w->bench->stream, &err), &err);
		break;
	case COMPARE:
		compare(&w->calls);
		break;
	case QUERY:
	case QUERY_AFTER:
		query(&w->calls);
		break;
	case PAUSE:
		(void)usleep(100000);
		break;
	default:
		map_slices(w, step == TAKE);
		break;
	}
}

/* Whether the driver unmaps one range while a kernel reads another. */
static void unmap_beside_digests(struct walk *w, gpusnap_address memory)
{
	struct gsn_leaf_range range = {memory, STATE_BYTES, w->calls.b};
	double start, given, done;
	gpusnap_error err;

	for (int i = 0; i < 3; i++) {
		start = gsn_clock_seconds();
		for (int k = 0; k < 4; k++)
			bench_must(w->bench->ops->digest(w->bench->stream, &range, 1, &err), &err);
		map_slices(w, false);
		given = gsn_clock_seconds() - start;
		bench_must(w->bench->ops->stream_sync(w->bench->stream, &err), &err);
		done = gsn_clock_seconds() - start;
		(void)printf("8 GiB unmapped after %.2f ms beside four digests of 8 GiB, which end "
			     "after %.2f ms\n",
			given * 1e3, done * 1e3);
		(void)usleep(100000);
		map_slices(w, true);
	}
}

static void walk_parts(struct bench_gpu *bench, gpusnap_address memory)
{
	struct walk w = {.bench = bench};
	uint64_t bytes = gpusnap_leaf_count(STATE_BYTES) * sizeof(gpusnap_digest);
	void *context = bench->device->context;
	double seconds[STEPS][ROUNDS];
	gpusnap_error err;
	void *pinned;

	bench_must(bench->ops->reserve(context, STATE_BYTES, &w.address, &err), &err);
	bench_must(bench->ops->pinned_alloc(context, bytes, &pinned, &err), &err);
	w.calls = (struct calls){.bench = bench, .leaves = gpusnap_leaf_count(STATE_BYTES)};
	w.calls.b = pinned;
	w.calls.a = calloc(w.calls.leaves, sizeof *w.calls.a);
	map_slices(&w, true);
	for (int i = 0; i < ROUNDS; i++)
		for (int step = 0; step < STEPS; step++) {
			double start = gsn_clock_seconds();

			do_step(&w, (enum step)step);
			seconds[step][i] = gsn_clock_seconds() - start;
		}
	(void)printf("8 GiB step by step: digest %.2f, compare %.2f, free memory %.2f, unmap %.2f, "
		     "free memory %.2f, 0.1 s later map and fill %.2f ms\n",
		bench_median(seconds[DIGEST], ROUNDS) * 1e3,
		bench_median(seconds[COMPARE], ROUNDS) * 1e3,
		bench_median(seconds[QUERY], ROUNDS) * 1e3,
		bench_median(seconds[GIVE], ROUNDS) * 1e3,
		bench_median(seconds[QUERY_AFTER], ROUNDS) * 1e3,
		bench_median(seconds[TAKE], ROUNDS) * 1e3);
	unmap_beside_digests(&w, memory);
	bench->ops->release(context, w.address, STATE_BYTES);
	bench->ops->pinned_free(context, pinned, bytes);
	free(w.calls.a);
}

/* ---- mapping while copies run ---- */

#define COPY_BYTES ((uint64_t)2 << 30)
#define COPY_PIECE ((uint64_t)32 << 20)

static void copy_ahead(struct bench_gpu *bench, gpusnap_address to, const void *from)
{
	gpusnap_error err;

	bench_begin(bench);
	for (uint64_t at = 0; at < COPY_BYTES; at += COPY_PIECE)
		bench_must(bench->ops->copy(bench->stream, GSN_HOST_TO_DEVICE, to + at,
				   (uintptr_t)from + at, COPY_PIECE, &err),
			&err);
}

/* Milliseconds of the mapping; the copies' go to *ret_copies. */
static double map_meanwhile(struct bench_gpu *bench, gpusnap_address memory, gpusnap_address range,
	const void *pinned, double *ret_copies)
{
	void *context = bench->device->context;
	gpusnap_error err;
	double start;

	copy_ahead(bench, memory, pinned);
	start = gsn_clock_seconds();
	for (uint64_t at = 0; at < STATE_BYTES; at += SLICE_BYTES)
		bench_must(bench->ops->map(context, range + at, SLICE_BYTES, 0, &err), &err);
	start = gsn_clock_seconds() - start;
	*ret_copies = bench_end(bench);
	for (uint64_t at = 0; at < STATE_BYTES; at += SLICE_BYTES)
		bench_must(bench->ops->unmap(context, range + at, SLICE_BYTES, &err), &err);
	return start;
}

static void overlap_parts(struct bench_gpu *bench, gpusnap_address memory)
{
	void *context = bench->device->context;
	gpusnap_address range;
	double maps, copies, alone[ROUNDS];
	gpusnap_error err;
	void *pinned;

	bench_must(bench->ops->reserve(context, STATE_BYTES, &range, &err), &err);
	bench_must(bench->ops->pinned_alloc(context, COPY_BYTES, &pinned, &err), &err);
	/* A link that has been idle takes a quarter of a second to come up to speed. */
	for (int i = 0; i < ROUNDS; i++) {
		copy_ahead(bench, memory, pinned);
		alone[i] = bench_end(bench);
		(void)printf("copy of 2 GiB to the device, in pieces of 32 MiB: %.1f GB/s\n",
			(double)COPY_BYTES / alone[i] * 1e-9);
	}
	for (int i = 0; i < 3; i++) {
		/* What was given back has been cleared by then. */
		(void)usleep(100000);
		maps = map_meanwhile(bench, memory, range, pinned, &copies);
		(void)printf("mapping 8 GiB, 256 MiB at a time, zeroed, beside it: %.1f ms; the "
			     "copy meanwhile %.1f GB/s\n",
			maps * 1e3, (double)COPY_BYTES / copies * 1e-9);
	}
	bench->ops->pinned_free(context, pinned, COPY_BYTES);
	bench->ops->release(context, range, STATE_BYTES);
}

void bench_parts(struct bench_gpu *bench, gpusnap_address memory)
{
	for (uint64_t bytes = STATE_BYTES; bytes >= (uint64_t)128 << 20; bytes /= 8)
		digest_parts(bench, memory, bytes);
	call_parts(bench);
	walk_parts(bench, memory);
	map_parts(bench);
	overlap_parts(bench, memory);
}
