/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A delta of host state in which one leaf of a hundred has changed, against a full save of the same
 * state. Pairs alternate in one run, so that a slow minute meets both; the results are medians.
 *
 *	bench_delta FOLDER [GIB [PAIRS]]
 *
 * bytes	what the delta's file has without its leaf table, of the full file
 * time		what the delta takes besides the digest of live state, of the full save
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "formats/base/clock.h"
#include "tests/bench/bench_fill.h"
#include "tests/support/random.h"

enum { PAIRS_MAX = 64, EVERY = 100 };

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

struct bench {
	gpusnap_device *device;
	gpusnap_registry *registry;
	uint8_t *state;
	uint64_t bytes;
	uint64_t random;
	char base[4096], full[4096], delta[4096];
};

static void fail(const char *what, const char *why)
{
	(void)fprintf(stderr, "bench_delta: %s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

static void must(gpusnap_status status, const gpusnap_error *err)
{
	if (status)
		fail(gpusnap_status_name(status), err->message);
}

/* One byte in one leaf of each hundred. */
static void change_leaves(struct bench *bench)
{
	uint64_t leaves = bench->bytes / LEAF;

	for (uint64_t first = 0; first + EVERY <= leaves; first += EVERY)
		bench->state[(first + random_below(&bench->random, EVERY)) * LEAF +
			     random_below(&bench->random, LEAF)] ^= 1;
}

static gpusnap_save_report save(const struct bench *bench, const char *path, const char *parent)
{
	gpusnap_save_options options = GPUSNAP_SAVE_OPTIONS_INIT;
	gpusnap_save_report report;
	gpusnap_error err;

	options.parent = parent;
	options.replace = true;
	must(gpusnap_save(bench->registry, path, &options, &report, &err), &err);
	return report;
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

static void run_pair(struct bench *bench, bool full_first, double *ret_bytes, double *ret_time)
{
	gpusnap_save_report full = {.depth = 0}, delta;
	uint64_t table;

	(void)save(bench, bench->base, NULL);
	change_leaves(bench);
	if (full_first)
		full = save(bench, bench->full, NULL);
	delta = save(bench, bench->delta, bench->base);
	if (!full_first)
		full = save(bench, bench->full, NULL);
	table = delta.leaves * GPUSNAP_DIGEST_BYTES;
	*ret_bytes = (double)(delta.io.bytes - table) / (double)full.io.bytes;
	*ret_time = (delta.io.seconds - delta.digest_seconds) / full.io.seconds;
	(void)printf("full %.3f s  delta %.3f s, of them digest %.3f s; %llu of %llu leaves  bytes "
		     "%.5f  time %.4f\n",
		full.io.seconds, delta.io.seconds, delta.digest_seconds,
		(unsigned long long)delta.leaves_written, (unsigned long long)delta.leaves,
		*ret_bytes, *ret_time);
	(void)fflush(stdout);
	(void)unlink(bench->base);
	(void)unlink(bench->full);
	(void)unlink(bench->delta);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	double bytes[PAIRS_MAX], times[PAIRS_MAX];
	double gib = argc > 2 ? strtod(argv[2], NULL) : 4;
	unsigned pairs = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 5;
	gpusnap_error err;

	bench.bytes = (uint64_t)(gib * 1024) << 20;
	if (argc < 2 || !bench.bytes || bench.bytes % (BENCH_BUFFERS * LEAF) || !pairs ||
		pairs > PAIRS_MAX)
		fail("usage", "bench_delta FOLDER [GIB [PAIRS, 1 to 64]]");
	bench.random = 1;
	(void)snprintf(bench.base, sizeof bench.base, "%s/bench.base.gsnap", argv[1]);
	(void)snprintf(bench.full, sizeof bench.full, "%s/bench.full.gsnap", argv[1]);
	(void)snprintf(bench.delta, sizeof bench.delta, "%s/bench.delta.gsnap", argv[1]);
	must(gpusnap_device_open("host", &bench.device, &err), &err);
	must(bench_fill(
		     bench.device, bench.bytes, &bench.random, &bench.registry, &bench.state, &err),
		&err);
	for (unsigned i = 0; i < pairs; i++)
		run_pair(&bench, i % 2, &bytes[i], &times[i]);
	(void)printf(
		"median of %u pairs, 1 %% of %.2f GiB changed: %.3f %% of the bytes besides the "
		"leaf table, %.2f %% of the time besides the digest\n",
		pairs, gib, 100 * median(bytes, pairs), 100 * median(times, pairs));
	gpusnap_registry_free(bench.registry);
	gpusnap_device_close(bench.device);
	return EXIT_SUCCESS;
}
