/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode of a layer of Qwen3-30B-A3B's size on a GPU: route, experts, combine. A graph of STEPS
 * steps goes round LAYERS layers, each step with inputs of its own, so that no weights are found in
 * the cache; what counts is the median replay.
 */
#include <stdio.h>
#include <stdlib.h>

#include <gpusnap/moe.h>

#include "kernels/device_calls.h"
#include "tests/bench/bench_gpu.h"

enum {
	HIDDEN = 2048,
	INTERMEDIATE = 768,
	EXPERTS = 128,
	TOP_K = 8,
	BLOCK = 128,
	LAYERS = 6,
	STEPS = 24,
	MOST_TOKENS = 64,
	REPLAYS = 15,
};

#define W13_ELEMENTS ((uint64_t)EXPERTS * 2 * INTERMEDIATE * HIDDEN)
#define W2_ELEMENTS  ((uint64_t)EXPERTS * INTERMEDIATE * HIDDEN)

struct layers {
	struct bench_gpu *bench;
	gpusnap_dtype dtype;
	uint32_t tokens;
	uint64_t stride; /* bytes of a layer's w13 and w2 */
	gpusnap_address weights, router, scales, mask;
	gpusnap_address x;   /* of all steps */
	gpusnap_address ids; /* of all steps */
	gpusnap_address logits, router_weights, scratch, y, out, counters;
};

enum what { WHOLE_STEP, EXPERTS_ONLY, ROUTE_ONLY };

static struct gsn_moe_experts experts_of(const struct layers *l, uint32_t step)
{
	uint32_t width = gpusnap_dtype_bits(l->dtype) / 8;
	bool scaled = l->dtype == GPUSNAP_F8_E4M3;
	gpusnap_address weights = l->weights + step % LAYERS * l->stride;

	return (struct gsn_moe_experts){.tokens = l->tokens,
		.hidden = HIDDEN,
		.intermediate = INTERMEDIATE,
		.top_k = TOP_K,
		.local_experts = EXPERTS,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.weight_dtype = l->dtype,
		.block_n = scaled ? BLOCK : 0,
		.block_k = scaled ? BLOCK : 0,
		.scale_dtype = GPUSNAP_F32,
		.x = l->x + (uint64_t)step * MOST_TOKENS * HIDDEN * 4,
		.ids = l->ids + (uint64_t)step * MOST_TOKENS * TOP_K * 4,
		.weights = l->router_weights,
		.mask = l->mask,
		.mask_length = EXPERTS,
		.w13 = weights,
		.w13_scale = scaled ? l->scales : 0,
		.w2 = weights + W13_ELEMENTS * width,
		.w2_scale = scaled ? l->scales + W13_ELEMENTS / BLOCK / BLOCK * 4 : 0,
		.scratch = l->scratch,
		.y = l->y,
		.counters = l->counters};
}

static void submit(const struct layers *l, uint32_t step, enum what what)
{
	const struct gsn_device_ops *ops = l->bench->ops;
	struct gsn_stream *stream = l->bench->stream;
	const struct gsn_moe_experts experts = experts_of(l, step);
	const struct gsn_moe_route route = {.tokens = l->tokens,
		.hidden = HIDDEN,
		.experts = EXPERTS,
		.top_k = TOP_K,
		.score = GPUSNAP_SCORE_SOFTMAX,
		.renormalise = 1,
		.router_dtype = GPUSNAP_BF16,
		.x = experts.x,
		.router = l->router,
		.logits = l->logits,
		.ids = experts.ids,
		.weights = l->router_weights,
		.counters = l->counters};
	const struct gsn_moe_combine combine = {.tokens = l->tokens,
		.hidden = HIDDEN,
		.top_k = TOP_K,
		.y = l->y,
		.out = l->out,
		.counters = l->counters};
	gpusnap_error err;

	if (what != EXPERTS_ONLY)
		bench_must(ops->moe_route(stream, &route, &err), &err);
	if (what != ROUTE_ONLY)
		bench_must(ops->moe_experts(stream, &experts, &err), &err);
	if (what == WHOLE_STEP)
		bench_must(ops->moe_combine(stream, &combine, &err), &err);
}

/* Median microseconds of a step. */
static double replay(const struct layers *l, enum what what)
{
	cudaStream_t stream = l->bench->stream->handle;
	double times[REPLAYS];
	cudaGraph_t graph;
	cudaGraphExec_t run;

	submit(l, 0, what); /* kernels are loaded before the capture */
	bench_must_cuda(cudaStreamSynchronize(stream), "first step");
	bench_must_cuda(
		cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
	for (uint32_t step = 0; step < STEPS; step++)
		submit(l, step, what);
	bench_must_cuda(cudaStreamEndCapture(stream, &graph), "capture");
	bench_must_cuda(cudaGraphInstantiate(&run, graph, 0), "graph");
	for (int i = -2; i < REPLAYS; i++) {
		bench_begin(l->bench);
		bench_must_cuda(cudaGraphLaunch(run, stream), "graph");
		times[i < 0 ? 0 : i] = bench_end(l->bench) * 1e6 / STEPS;
	}
	bench_must_cuda(cudaGraphExecDestroy(run), "graph");
	bench_must_cuda(cudaGraphDestroy(graph), "graph");
	return bench_median(times, REPLAYS);
}

/* Weights that a step reads, on average: of each expert that a token chose, once. */
static double bytes_of_step(const struct layers *l)
{
	int32_t *ids = malloc(STEPS * MOST_TOKENS * TOP_K * sizeof *ids);
	uint64_t chosen_count = 0;
	gpusnap_error err;

	bench_must(gsn_device_copy_sync(l->bench->device, GSN_DEVICE_TO_HOST, gsn_host_address(ids),
			   l->ids, STEPS * MOST_TOKENS * TOP_K * sizeof *ids, &err),
		&err);
	for (uint32_t step = 0; step < STEPS; step++) {
		bool chosen[EXPERTS] = {false};

		for (uint32_t i = 0; i < l->tokens * TOP_K; i++) {
			int32_t id = ids[step * MOST_TOKENS * TOP_K + i];

			chosen_count += !chosen[id];
			chosen[id] = true;
		}
	}
	free(ids);
	return (double)chosen_count / STEPS * (double)(l->stride / EXPERTS);
}

static void measure(struct layers *l, uint32_t tokens)
{
	double step, experts, bytes, floor_us;

	l->tokens = tokens;
	(void)replay(l, ROUTE_ONLY); /* the ids of every step */
	bytes = bytes_of_step(l);
	experts = replay(l, EXPERTS_ONLY);
	step = replay(l, WHOLE_STEP);
	floor_us = bytes / l->bench->copy_rate * 1e6;
	(void)printf(
		"decode %-7s batch %2u: %7.1f MB, experts %6.1f us = %4.1f %%, route + experts + "
		"combine %6.1f us = %4.1f %% of the copy's bandwidth\n",
		gpusnap_dtype_name(l->dtype), tokens, bytes * 1e-6, experts,
		100.0 * floor_us / experts, step, 100.0 * floor_us / step);
}

static void put_words(struct layers *l, gpusnap_address at, uint32_t word, uint32_t count)
{
	uint32_t *words = malloc(count * sizeof *words);
	gpusnap_error err;

	for (uint32_t i = 0; i < count; i++)
		words[i] = word;
	bench_must(gsn_device_copy_sync(l->bench->device, GSN_HOST_TO_DEVICE, at,
			   gsn_host_address(words), count * sizeof *words, &err),
		&err);
	free(words);
}

static void open_layers(struct layers *l, struct bench_gpu *bench, gpusnap_dtype dtype)
{
	uint32_t width = gpusnap_dtype_bits(dtype) / 8;
	/* Small finite codes, as in bench_moe.c. */
	uint64_t finite = width == 2 ? UINT64_C(0xbbffbbffbbffbbff) : UINT64_C(0xbfbfbfbfbfbfbfbf);
	uint64_t scales = (W13_ELEMENTS + W2_ELEMENTS) / BLOCK / BLOCK;
	struct gsn_moe_experts sizes;

	*l = (struct layers){.bench = bench, .dtype = dtype, .tokens = MOST_TOKENS};
	l->stride = (W13_ELEMENTS + W2_ELEMENTS) * width;
	l->weights = bench_memory(bench, LAYERS * l->stride);
	bench_randomise(bench, l->weights, LAYERS * l->stride, finite);
	l->router = bench_memory(bench, (uint64_t)EXPERTS * HIDDEN * 2);
	bench_randomise(
		bench, l->router, (uint64_t)EXPERTS * HIDDEN * 2, UINT64_C(0xbbffbbffbbffbbff));
	l->x = bench_memory(bench, (uint64_t)STEPS * MOST_TOKENS * HIDDEN * 4);
	bench_randomise(bench, l->x, (uint64_t)STEPS * MOST_TOKENS * HIDDEN * 4,
		UINT64_C(0xbfffffffbfffffff));
	l->scales = bench_memory(bench, scales * 4);
	put_words(l, l->scales, 0x3c23d70a, (uint32_t)scales); /* 0.01 */
	l->mask = bench_memory(bench, EXPERTS * 4);
	put_words(l, l->mask, 1, EXPERTS);
	l->ids = bench_memory(bench, (uint64_t)STEPS * MOST_TOKENS * TOP_K * 4);
	l->logits = bench_memory(bench, (uint64_t)MOST_TOKENS * EXPERTS * 4);
	l->router_weights = bench_memory(bench, (uint64_t)MOST_TOKENS * TOP_K * 4);
	l->y = bench_memory(bench, (uint64_t)MOST_TOKENS * TOP_K * HIDDEN * 4);
	l->out = bench_memory(bench, (uint64_t)MOST_TOKENS * HIDDEN * 4);
	l->counters = bench_memory(bench, sizeof(struct gsn_moe_counters));
	sizes = experts_of(l, 0);
	l->scratch = bench_memory(bench, bench->ops->moe_scratch_bytes(&sizes));
}

void bench_decode(struct bench_gpu *bench)
{
	static const uint32_t batches[] = {1, 2, 4, 8, 16, 32, 64};
	static const gpusnap_dtype dtypes[] = {GPUSNAP_F8_E4M3, GPUSNAP_BF16};

	for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
		struct layers l;

		open_layers(&l, bench, dtypes[d]);
		for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
			measure(&l, batches[b]);
	}
}
