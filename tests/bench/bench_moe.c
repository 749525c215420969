/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How close the host's MoE decode comes to reading its weights at the speed of memory.
 *
 * A round runs one step (route, experts, combine) of a layer of Qwen3-30B-A3B's size, then a loop
 * that only reads as many bytes with the same threads. Each round has its own ratio of the two
 * times, because on a shared machine only neighbours in time can be compared; the median is what
 * counts. Every step draws new experts, and the read between two steps empties the caches.
 */
#include <argp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <gpusnap/moe.h>

#include "formats/base/bytes.h"
#include "kernels/host_moe.h"
#include "tests/support/random.h"

enum {
	HIDDEN = 2048,
	INTERMEDIATE = 768,
	EXPERTS = 128,
	TOP_K = 8,
	BLOCK = 128,
	F4_BLOCK = 32, /* columns; one row */
	MAX_TOKENS = 64,
	MAX_ROUNDS = 1000,
	READ_BYTES = 128 << 10, /* of one task of the reading loop */
};

struct options {
	uint32_t threads;
	uint32_t rounds;
	const char *path;
};

struct layer {
	gpusnap_dtype dtype;
	uint32_t tokens;
	uint64_t weight_bytes; /* w13, then w2 */
	uint8_t *weights;
	uint16_t *router;
	uint8_t *scales;
	float *x, *logits, *router_weights, *y, *out;
	int32_t *ids, *mask;
	void *scratch;
	struct gsn_moe_counters counters;
	uint64_t random;
};

struct reading {
	const uint8_t *bytes;
	uint64_t length;
	uint64_t result[1 << 14]; /* by task: what was read must be used */
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *big_alloc(uint64_t count, uint64_t size)
{
	const uint64_t bytes = count * size;
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("bench_moe: mmap");
		exit(EXIT_FAILURE);
	}
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

static gpusnap_address address(const void *memory)
{
	return (gpusnap_address)(uintptr_t)memory;
}

/* E4M3 with F32 scales as DeepSeek-V3 has them, E2M1 with E8M0 scales as MXFP4. */
static bool is_f4(const struct layer *layer)
{
	return layer->dtype == GPUSNAP_F4;
}

static gpusnap_dtype scale_dtype(const struct layer *layer)
{
	return is_f4(layer) ? GPUSNAP_F8_E8M0 : GPUSNAP_F32;
}

/* Bytes of the scales of so many weights. */
static uint64_t scale_bytes(const struct layer *layer, uint64_t elements)
{
	return is_f4(layer) ? elements / F4_BLOCK : elements / BLOCK / BLOCK * sizeof(float);
}

static void fill_scales(struct layer *layer, uint64_t elements)
{
	const float scale = 0.01f;

	if (is_f4(layer))
		for (uint64_t i = 0; i < scale_bytes(layer, elements); i++)
			layer->scales[i] = (uint8_t)(119 + random_below(&layer->random, 4));
	else
		for (uint64_t i = 0; i < scale_bytes(layer, elements); i += sizeof scale)
			memcpy(layer->scales + i, &scale, sizeof scale);
}

/*
 * BF16 from 2^-7 to 2; E4M3 from 2^-6 to 2: weights that were scaled to the format's range have
 * hardly any subnormals, which some processors are slow with. E2M1: any.
 */
static void fill_weights(struct layer *layer)
{
	bool bf16 = layer->dtype == GPUSNAP_BF16, f8 = layer->dtype == GPUSNAP_F8_E4M3;
	uint64_t keep = bf16 ? UINT64_C(0x83ff83ff83ff83ff)
			: f8 ? UINT64_C(0xbfbfbfbfbfbfbfbf)
			     : UINT64_MAX;
	uint64_t set = bf16 ? UINT64_C(0x3c003c003c003c00) : f8 ? UINT64_C(0x0808080808080808) : 0;

	for (uint64_t i = 0; i < layer->weight_bytes / 8; i++)
		((uint64_t *)(void *)layer->weights)[i] = (random_u64(&layer->random) & keep) | set;
	for (uint32_t i = 0; i < EXPERTS * HIDDEN; i++)
		layer->router[i] = (uint16_t)((random_u64(&layer->random) & 0x83ff) | 0x3c00);
}

static void layer_create(struct layer *layer, gpusnap_dtype dtype)
{
	const uint64_t elements = (uint64_t)EXPERTS * 3 * INTERMEDIATE * HIDDEN;
	struct gsn_moe_experts sizes = {.tokens = MAX_TOKENS,
		.hidden = HIDDEN,
		.intermediate = INTERMEDIATE,
		.top_k = TOP_K,
		.local_experts = EXPERTS,
		.mask_length = EXPERTS};

	memset(layer, 0, sizeof *layer);
	layer->dtype = dtype;
	layer->weight_bytes = elements * gpusnap_dtype_bits(dtype) / 8;
	layer->weights = big_alloc(layer->weight_bytes, 1);
	layer->router = big_alloc(EXPERTS, HIDDEN * sizeof *layer->router);
	layer->scales = big_alloc(scale_bytes(layer, elements), 1);
	layer->x = big_alloc(MAX_TOKENS, HIDDEN * sizeof *layer->x);
	layer->logits = big_alloc(MAX_TOKENS, EXPERTS * sizeof *layer->logits);
	layer->router_weights = big_alloc(MAX_TOKENS, TOP_K * sizeof *layer->router_weights);
	layer->ids = big_alloc(MAX_TOKENS, TOP_K * sizeof *layer->ids);
	layer->mask = big_alloc(EXPERTS, sizeof *layer->mask);
	layer->y = big_alloc(MAX_TOKENS, sizeof *layer->y * TOP_K * HIDDEN);
	layer->out = big_alloc(MAX_TOKENS, HIDDEN * sizeof *layer->out);
	layer->scratch = big_alloc(gsn_host_moe_scratch_bytes(&sizes), 1);
	fill_weights(layer);
	fill_scales(layer, elements);
	for (uint32_t i = 0; i < EXPERTS; i++)
		layer->mask[i] = 1;
}

static void layer_destroy(struct layer *layer)
{
	munmap(layer->weights, layer->weight_bytes);
}

static void must(gpusnap_status status, const gpusnap_error *err)
{
	if (!status)
		return;
	(void)fprintf(stderr, "bench_moe: %s\n", err->message);
	exit(EXIT_FAILURE);
}

static void step(struct layer *layer, const struct gsn_host_moe *host)
{
	const struct gsn_moe_route route = {.tokens = layer->tokens,
		.hidden = HIDDEN,
		.experts = EXPERTS,
		.top_k = TOP_K,
		.score = GPUSNAP_SCORE_SOFTMAX,
		.renormalise = 1,
		.router_dtype = GPUSNAP_BF16,
		.x = address(layer->x),
		.router = address(layer->router),
		.logits = address(layer->logits),
		.ids = address(layer->ids),
		.weights = address(layer->router_weights),
		.counters = address(&layer->counters)};
	bool scaled = layer->dtype != GPUSNAP_BF16;
	uint64_t w13_elements = (uint64_t)EXPERTS * 2 * INTERMEDIATE * HIDDEN;
	const struct gsn_moe_experts experts = {.tokens = layer->tokens,
		.hidden = HIDDEN,
		.intermediate = INTERMEDIATE,
		.top_k = TOP_K,
		.local_experts = EXPERTS,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.weight_dtype = layer->dtype,
		.block_n = !scaled	  ? 0
			   : is_f4(layer) ? 1
					  : BLOCK,
		.block_k = !scaled	  ? 0
			   : is_f4(layer) ? F4_BLOCK
					  : BLOCK,
		.scale_dtype = scale_dtype(layer),
		.x = address(layer->x),
		.ids = address(layer->ids),
		.weights = address(layer->router_weights),
		.mask = address(layer->mask),
		.mask_length = EXPERTS,
		.w13 = address(layer->weights),
		.w13_scale = scaled ? address(layer->scales) : 0,
		.w2 = address(layer->weights + w13_elements * gpusnap_dtype_bits(layer->dtype) / 8),
		.w2_scale = scaled ? address(layer->scales + scale_bytes(layer, w13_elements)) : 0,
		.scratch = address(layer->scratch),
		.y = address(layer->y),
		.counters = address(&layer->counters)};
	const struct gsn_moe_combine combine = {.tokens = layer->tokens,
		.hidden = HIDDEN,
		.top_k = TOP_K,
		.y = address(layer->y),
		.out = address(layer->out),
		.counters = address(&layer->counters)};
	gpusnap_error err;

	must(gsn_host_moe_route(host, &route, &err), &err);
	must(gsn_host_moe_experts(host, &experts, &err), &err);
	must(gsn_host_moe_combine(host, &combine, &err), &err);
}

/* Weights and scales that the step read: of each expert that a token chose, once; the router. */
static uint64_t bytes_of_step(const struct layer *layer)
{
	bool chosen[EXPERTS] = {false};
	uint64_t bytes = layer->weight_bytes, count = 0;

	if (layer->dtype != GPUSNAP_BF16)
		bytes += scale_bytes(layer, (uint64_t)EXPERTS * 3 * INTERMEDIATE * HIDDEN);
	for (uint32_t i = 0; i < layer->tokens * TOP_K; i++) {
		count += !chosen[layer->ids[i]];
		chosen[layer->ids[i]] = true;
	}
	return count * (bytes / EXPERTS) + sizeof *layer->router * EXPERTS * HIDDEN;
}

/* Four 16-byte loads a cache line, no chain between them. */
static void read_task(void *argument, uint64_t task)
{
	typedef uint64_t pair __attribute__((vector_size(16)));
	struct reading *reading = argument;
	const uint8_t *bytes = reading->bytes + task * READ_BYTES;
	uint64_t length = gsn_min(READ_BYTES, reading->length - task * READ_BYTES);
	pair sums[4] = {{0}};

	for (uint64_t i = 0; i + sizeof sums <= length; i += sizeof sums) {
		const pair *line = (const pair *)(const void *)(bytes + i);

		sums[0] ^= line[0];
		sums[1] ^= line[1];
		sums[2] ^= line[2];
		sums[3] ^= line[3];
	}
	sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
	reading->result[task % (sizeof reading->result / sizeof reading->result[0])] = sums[0][0];
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
	qsort(values, count, sizeof *values, by_value);
	return values[count / 2];
}

static void measure(
	struct layer *layer, const struct gsn_host_moe *host, uint32_t tokens, uint32_t rounds)
{
	static double ratios[MAX_ROUNDS], steps[MAX_ROUNDS], reads[MAX_ROUNDS];
	static struct reading reading;
	uint64_t bytes = 0;
	double middle_ratio;

	layer->tokens = tokens;
	for (uint32_t round = 0; round < rounds; round++) {
		double start, middle, end;

		for (uint32_t i = 0; i < tokens * HIDDEN; i++)
			layer->x[i] = random_unit(&layer->random);
		start = now();
		step(layer, host);
		middle = now();
		bytes = bytes_of_step(layer);
		reading.length = gsn_min(bytes, layer->weight_bytes);
		reading.bytes = layer->weights + random_below(&layer->random,
							 layer->weight_bytes - reading.length + 1) /
							 64 * 64;
		end = now();
		steps[round] = (double)bytes / (middle - start);
		gsn_pool_run(
			host->pool, read_task, &reading, gsn_ceil_div(reading.length, READ_BYTES));
		reads[round] = (double)reading.length / (now() - end);
		ratios[round] = steps[round] / reads[round];
	}
	middle_ratio = median(ratios, rounds);
	printf("%-8s %5u %10.1f %12.2f %12.2f %10.3f %8.3f %8.3f\n",
		gpusnap_dtype_name(layer->dtype), tokens, (double)bytes / 0x1p20,
		median(steps, rounds) / 0x1p30, median(reads, rounds) / 0x1p30, middle_ratio,
		ratios[rounds / 10], ratios[rounds - 1 - rounds / 10]);
	if (layer->counters.faults)
		(void)fprintf(stderr, "bench_moe: faults %u\n", layer->counters.faults);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 't':
		options->threads = (uint32_t)strtoul(argument, NULL, 10);
		return 0;
	case 'r':
		options->rounds = (uint32_t)strtoul(argument, NULL, 10);
		if (options->rounds < 1 || options->rounds > MAX_ROUNDS)
			argp_error(state, "rounds: 1 to %d", MAX_ROUNDS);
		return 0;
	case 'p':
		options->path = argument;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"threads", 't', "N", 0, "threads (default: all CPUs allowed)", 0},
		{"rounds", 'r', "N", 0, "pairs of a step and a read (default 31)", 0},
		{"path", 'p', "NAME", 0, "CPU path (default: the best)", 0},
		{0},
	};
	static const struct argp argp = {known, parse, NULL,
		"Compare the host's MoE decode with a loop that only reads memory.", NULL, NULL,
		NULL};
	static const gpusnap_dtype dtypes[] = {GPUSNAP_BF16, GPUSNAP_F8_E4M3, GPUSNAP_F4};
	static const uint32_t batches[] = {1, 8, 32};
	struct options options = {.rounds = 31};
	struct gsn_host_moe host;
	gpusnap_error err;

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	host.path = options.path ? gsn_cpu_path_find(options.path) : gsn_cpu_path_best();
	if (!host.path) {
		(void)fprintf(stderr, "bench_moe: this machine has no path '%s'\n", options.path);
		return EXIT_FAILURE;
	}
	must(gsn_pool_create(options.threads, &host.pool, &err), &err);
	printf("path %s, %u threads; medians of %u rounds; ratio = step / read of the same round\n",
		host.path->name, gsn_pool_threads(host.pool), options.rounds);
	printf("%-8s %5s %10s %12s %12s %10s %8s %8s\n", "weights", "batch", "MiB/step",
		"step GiB/s", "read GiB/s", "ratio", "10 %", "90 %");
	for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
		static struct layer layer;

		layer_create(&layer, dtypes[d]);
		for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
			measure(&layer, &host, batches[b], options.rounds);
		layer_destroy(&layer);
	}
	gsn_pool_destroy(host.pool);
	return EXIT_SUCCESS;
}
