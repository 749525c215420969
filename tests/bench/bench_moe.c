/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How close the host's MoE decode comes to reading its weights at the speed of memory.
 *
 * A round runs one step (route, experts, combine) of a layer of Qwen3-30B-A3B's size, then a loop
 * that only reads as many bytes, one behind the other, with the same threads and in the same pages.
 * Each round has its own ratio of the two times, because on a shared machine only neighbours in
 * time can be compared; the median is what counts.
 *
 * No cache serves either: steps go from layer to layer through ROTATED_BYTES of weights and draw
 * new experts each time, and a read takes the layer that is farthest from its step's.
 *
 * The reading loop is the fastest of those tried: whole cache lines into one register where the CPU
 * can, fetched ahead by software. Without the latter it is 10 % slower, with 16 bytes a load 50 %.
 */
#include <argp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <gpusnap/moe.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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
	READ_BYTES = 256 << 10, /* of one task of the reading loop */
	READ_AHEAD = 8192,
	LINE = 64,
};

#define ROTATED_BYTES	(UINT64_C(4) << 30)
#define LAYER_ALIGNMENT (UINT64_C(2) << 20)
#define ELEMENTS	((uint64_t)EXPERTS * 3 * INTERMEDIATE * HIDDEN)
#define W13_ELEMENTS	(ELEMENTS / 3 * 2)
#define ROUTER_BYTES	((uint64_t)EXPERTS * HIDDEN * sizeof(uint16_t))

struct options {
	uint32_t threads;
	uint32_t rounds;
	const char *path;
};

/* Layers of the same sizes, one behind the other: w13, w2, their scales, router. */
struct layers {
	gpusnap_dtype dtype;
	uint32_t tokens;
	uint32_t count;
	uint64_t stride; /* bytes from one to the next */
	uint64_t weight_bytes;
	uint8_t *memory;
	float *x, *logits, *router_weights, *y, *out;
	int32_t *ids, *mask;
	void *scratch;
	struct gsn_moe_counters counters;
	uint64_t random;
};

struct reading {
	uint64_t (*read)(const uint8_t *bytes, uint64_t length);
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
static bool is_f4(const struct layers *layers)
{
	return layers->dtype == GPUSNAP_F4;
}

/* Bytes of the scales of so many weights. */
static uint64_t scale_bytes(const struct layers *layers, uint64_t elements)
{
	if (layers->dtype == GPUSNAP_BF16)
		return 0;
	return is_f4(layers) ? elements / F4_BLOCK : elements / BLOCK / BLOCK * sizeof(float);
}

static uint8_t *layer_at(const struct layers *layers, uint64_t index)
{
	return layers->memory + index % layers->count * layers->stride;
}

static void fill_scales(struct layers *layers, uint8_t *scales)
{
	const float scale = 0.01f;
	uint64_t bytes = scale_bytes(layers, ELEMENTS);

	if (is_f4(layers))
		for (uint64_t i = 0; i < bytes; i++)
			scales[i] = (uint8_t)(119 + random_below(&layers->random, 4));
	else
		for (uint64_t i = 0; i < bytes; i += sizeof scale)
			memcpy(scales + i, &scale, sizeof scale);
}

static void fill_words(
	struct layers *layers, void *words, uint64_t bytes, uint64_t keep, uint64_t set)
{
	for (uint64_t i = 0; i < bytes / 8; i++)
		((uint64_t *)words)[i] = (random_u64(&layers->random) & keep) | set;
}

/*
 * BF16 from 2^-7 to 2; E4M3 from 2^-6 to 2: weights that were scaled to the format's range have
 * hardly any subnormals, which some processors are slow with. E2M1: any.
 */
static void fill_layer(struct layers *layers, uint8_t *layer)
{
	const uint64_t bf16_keep = UINT64_C(0x83ff83ff83ff83ff);
	const uint64_t bf16_set = UINT64_C(0x3c003c003c003c00);
	bool bf16 = layers->dtype == GPUSNAP_BF16, f8 = layers->dtype == GPUSNAP_F8_E4M3;
	uint64_t keep = bf16 ? bf16_keep : f8 ? UINT64_C(0xbfbfbfbfbfbfbfbf) : UINT64_MAX;
	uint64_t set = bf16 ? bf16_set : f8 ? UINT64_C(0x0808080808080808) : 0;
	uint8_t *scales = layer + layers->weight_bytes;

	fill_words(layers, layer, layers->weight_bytes, keep, set);
	fill_scales(layers, scales);
	fill_words(
		layers, scales + scale_bytes(layers, ELEMENTS), ROUTER_BYTES, bf16_keep, bf16_set);
}

/* The layers' bytes are the same, their places are not. */
static void layers_create(struct layers *layers, gpusnap_dtype dtype)
{
	struct gsn_moe_experts sizes = {.tokens = MAX_TOKENS,
		.hidden = HIDDEN,
		.intermediate = INTERMEDIATE,
		.top_k = TOP_K,
		.local_experts = EXPERTS,
		.mask_length = EXPERTS};

	memset(layers, 0, sizeof *layers);
	layers->dtype = dtype;
	layers->weight_bytes = ELEMENTS * gpusnap_dtype_bits(dtype) / 8;
	layers->stride =
		gsn_align_up(layers->weight_bytes + scale_bytes(layers, ELEMENTS) + ROUTER_BYTES,
			LAYER_ALIGNMENT);
	layers->count = (uint32_t)gsn_ceil_div(ROTATED_BYTES, layers->stride);
	layers->memory = big_alloc(layers->count, layers->stride);
	layers->x = big_alloc(MAX_TOKENS, HIDDEN * sizeof *layers->x);
	layers->logits = big_alloc(MAX_TOKENS, EXPERTS * sizeof *layers->logits);
	layers->router_weights = big_alloc(MAX_TOKENS, TOP_K * sizeof *layers->router_weights);
	layers->ids = big_alloc(MAX_TOKENS, TOP_K * sizeof *layers->ids);
	layers->mask = big_alloc(EXPERTS, sizeof *layers->mask);
	layers->y = big_alloc(MAX_TOKENS, sizeof *layers->y * TOP_K * HIDDEN);
	layers->out = big_alloc(MAX_TOKENS, HIDDEN * sizeof *layers->out);
	layers->scratch = big_alloc(gsn_host_moe_scratch_bytes(&sizes), 1);
	fill_layer(layers, layers->memory);
	for (uint32_t i = 1; i < layers->count; i++)
		memcpy(layer_at(layers, i), layers->memory, layers->stride);
	for (uint32_t i = 0; i < EXPERTS; i++)
		layers->mask[i] = 1;
}

static void layers_destroy(struct layers *layers)
{
	munmap(layers->memory, layers->count * layers->stride);
}

static void must(gpusnap_status status, const gpusnap_error *err)
{
	if (!status)
		return;
	(void)fprintf(stderr, "bench_moe: %s\n", err->message);
	exit(EXIT_FAILURE);
}

static void route(struct layers *layers, const uint8_t *layer, const struct gsn_host_moe *host)
{
	const struct gsn_moe_route args = {.tokens = layers->tokens,
		.hidden = HIDDEN,
		.experts = EXPERTS,
		.top_k = TOP_K,
		.score = GPUSNAP_SCORE_SOFTMAX,
		.renormalise = 1,
		.router_dtype = GPUSNAP_BF16,
		.x = address(layers->x),
		.router = address(layer + layers->weight_bytes + scale_bytes(layers, ELEMENTS)),
		.logits = address(layers->logits),
		.ids = address(layers->ids),
		.weights = address(layers->router_weights),
		.counters = address(&layers->counters)};
	gpusnap_error err;

	must(gsn_host_moe_route(host, &args, &err), &err);
}

static void compute_experts(
	struct layers *layers, const uint8_t *layer, const struct gsn_host_moe *host)
{
	const uint8_t *scales = layer + layers->weight_bytes;
	bool scaled = layers->dtype != GPUSNAP_BF16;
	struct gsn_moe_experts args = {.tokens = layers->tokens,
		.hidden = HIDDEN,
		.intermediate = INTERMEDIATE,
		.top_k = TOP_K,
		.local_experts = EXPERTS,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.weight_dtype = layers->dtype,
		.x = address(layers->x),
		.ids = address(layers->ids),
		.weights = address(layers->router_weights),
		.mask = address(layers->mask),
		.mask_length = EXPERTS,
		.w13 = address(layer),
		.w2 = address(layer + layers->weight_bytes / 3 * 2),
		.scratch = address(layers->scratch),
		.y = address(layers->y),
		.counters = address(&layers->counters)};
	gpusnap_error err;

	if (scaled) {
		args.block_n = is_f4(layers) ? 1 : BLOCK;
		args.block_k = is_f4(layers) ? F4_BLOCK : BLOCK;
		args.scale_dtype = is_f4(layers) ? GPUSNAP_F8_E8M0 : GPUSNAP_F32;
		args.w13_scale = address(scales);
		args.w2_scale = address(scales + scale_bytes(layers, W13_ELEMENTS));
	}
	must(gsn_host_moe_experts(host, &args, &err), &err);
}

static void combine(struct layers *layers, const struct gsn_host_moe *host)
{
	const struct gsn_moe_combine args = {.tokens = layers->tokens,
		.hidden = HIDDEN,
		.top_k = TOP_K,
		.y = address(layers->y),
		.out = address(layers->out),
		.counters = address(&layers->counters)};
	gpusnap_error err;

	must(gsn_host_moe_combine(host, &args, &err), &err);
}

/* Weights and scales that the step read: of each expert that a token chose, once; the router. */
static uint64_t bytes_of_step(const struct layers *layers)
{
	bool chosen[EXPERTS] = {false};
	uint64_t bytes = layers->weight_bytes + scale_bytes(layers, ELEMENTS), count = 0;

	for (uint32_t i = 0; i < layers->tokens * TOP_K; i++) {
		count += !chosen[layers->ids[i]];
		chosen[layers->ids[i]] = true;
	}
	return count * (bytes / EXPERTS) + ROUTER_BYTES;
}

/* Whole lines; what was read, in 64 bits. */
static uint64_t read_16(const uint8_t *bytes, uint64_t length)
{
	typedef uint64_t pair __attribute__((vector_size(16)));
	pair sums[LINE / sizeof(pair)] = {{0}};

	for (uint64_t i = 0; i + LINE <= length; i += LINE) {
		const pair *line = (const pair *)(const void *)(bytes + i);

		__builtin_prefetch(bytes + i + READ_AHEAD, 0, 2);
		sums[0] ^= line[0];
		sums[1] ^= line[1];
		sums[2] ^= line[2];
		sums[3] ^= line[3];
	}
	sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
	return sums[0][0];
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static uint64_t read_64(const uint8_t *bytes, uint64_t length)
{
	__m512i sum = _mm512_setzero_si512();

	for (uint64_t i = 0; i + LINE <= length; i += LINE) {
		__builtin_prefetch(bytes + i + READ_AHEAD, 0, 2);
		sum = _mm512_xor_si512(sum, _mm512_loadu_si512(bytes + i));
	}
	return (uint64_t)_mm512_reduce_add_epi64(sum);
}
#endif

static void read_task(void *argument, uint64_t task)
{
	struct reading *reading = argument;
	uint64_t length = gsn_min(READ_BYTES, reading->length - task * READ_BYTES);

	reading->result[task % (sizeof reading->result / sizeof reading->result[0])] =
		reading->read(reading->bytes + task * READ_BYTES, length);
}

/* So many bytes of a layer, at a place drawn by lot. @return bytes a second */
static double read_some(struct layers *layers, const uint8_t *layer, uint64_t bytes,
	const struct gsn_host_moe *host)
{
	static struct reading reading = {.read = read_16};
	double start;

#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f"))
		reading.read = read_64;
#endif
	reading.length = gsn_min(bytes, layers->stride);
	reading.bytes = layer + random_below(&layers->random, layers->stride - reading.length + 1) /
					LINE * LINE;
	start = now();
	gsn_pool_run(host->pool, read_task, &reading, gsn_ceil_div(reading.length, READ_BYTES));
	return (double)reading.length / (now() - start);
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
	struct layers *layers, const struct gsn_host_moe *host, uint32_t tokens, uint32_t rounds)
{
	static double ratios[MAX_ROUNDS], steps[MAX_ROUNDS], reads[MAX_ROUNDS];
	uint64_t bytes = 0;
	double middle_ratio;

	layers->tokens = tokens;
	for (uint32_t round = 0; round < rounds; round++) {
		const uint8_t *layer = layer_at(layers, round);
		double start, seconds;

		for (uint32_t i = 0; i < tokens * HIDDEN; i++)
			layers->x[i] = random_unit(&layers->random);
		start = now();
		route(layers, layer, host);
		compute_experts(layers, layer, host);
		combine(layers, host);
		seconds = now() - start;
		bytes = bytes_of_step(layers);
		steps[round] = (double)bytes / seconds;
		reads[round] =
			read_some(layers, layer_at(layers, round + layers->count / 2), bytes, host);
		ratios[round] = steps[round] / reads[round];
	}
	middle_ratio = median(ratios, rounds);
	printf("%-8s %5u %10.1f %12.2f %12.2f %10.3f %8.3f %8.3f\n",
		gpusnap_dtype_name(layers->dtype), tokens, (double)bytes / 0x1p20,
		median(steps, rounds) / 0x1p30, median(reads, rounds) / 0x1p30, middle_ratio,
		ratios[rounds / 10], ratios[rounds - 1 - rounds / 10]);
	if (layers->counters.faults)
		(void)fprintf(stderr, "bench_moe: faults %u\n", layers->counters.faults);
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
		static struct layers layers;

		layers_create(&layers, dtypes[d]);
		for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
			measure(&layers, &host, batches[b], options.rounds);
		layers_destroy(&layers);
	}
	gsn_pool_destroy(host.pool);
	return EXIT_SUCCESS;
}
