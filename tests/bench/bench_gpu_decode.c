/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode of layers of real models' sizes on a GPU: route, experts, combine. A graph of STEPS steps
 * goes round LAYERS layers, each step with inputs of its own, so that no weights are found in the
 * cache; what counts is the median replay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpusnap/moe.h>

#include "kernels/device_calls.h"
#include "tests/bench/bench_gpu.h"

enum {
	BLOCK = 128, /* rows and columns to a scale of FP8 */
	GROUP = 32,  /* columns to a scale of F4 */
	LAYERS = 48,
	STEPS = 48,
	MOST_TOKENS = 64,
	REPLAYS = 15,
};

struct shape {
	const char *name;
	uint32_t hidden, intermediate, experts, top_k;
};

struct layers {
	struct bench_gpu *bench;
	const struct shape *shape;
	gpusnap_dtype dtype;
	uint32_t tokens;
	uint64_t w13_bytes, w2_bytes, w13_scales, w2_scales; /* of a layer; 0: no scales */
	uint64_t stride;				     /* sum of these */
	gpusnap_address memory, router, mask;
	gpusnap_address x;   /* of all steps */
	gpusnap_address ids; /* of all steps */
	gpusnap_address logits, router_weights, scratch, y, out, counters;
};

enum what { WHOLE_STEP, EXPERTS_ONLY, ROUTE_ONLY };

static uint64_t x_at(const struct layers *l, uint32_t step)
{
	return l->x + (uint64_t)step * MOST_TOKENS * l->shape->hidden * 4;
}

static struct gsn_moe_experts experts_of(const struct layers *l, uint32_t step)
{
	gpusnap_address w13 = l->memory + step % LAYERS * l->stride;
	gpusnap_address w2 = w13 + l->w13_bytes;
	gpusnap_address w13_scale = w2 + l->w2_bytes;
	bool scaled = l->w13_scales != 0;
	bool f4 = l->dtype == GPUSNAP_F4;

	return (struct gsn_moe_experts){.tokens = l->tokens,
		.hidden = l->shape->hidden,
		.intermediate = l->shape->intermediate,
		.top_k = l->shape->top_k,
		.local_experts = l->shape->experts,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.weight_dtype = l->dtype,
		.block_n = !scaled ? 0
			   : f4	   ? 1
				   : BLOCK,
		.block_k = !scaled ? 0
			   : f4	   ? GROUP
				   : BLOCK,
		.x = x_at(l, step),
		.ids = l->ids + (uint64_t)step * MOST_TOKENS * l->shape->top_k * 4,
		.weights = l->router_weights,
		.mask = l->mask,
		.mask_length = l->shape->experts,
		.w13 = w13,
		.w13_scale = scaled ? w13_scale : 0,
		.w2 = w2,
		.w2_scale = scaled ? w13_scale + l->w13_scales : 0,
		.scratch = l->scratch,
		.y = l->y,
		.counters = l->counters,
		.scale_dtype = f4 ? GPUSNAP_F8_E8M0 : GPUSNAP_F32};
}

static void submit(const struct layers *l, uint32_t step, enum what what)
{
	const struct gsn_device_ops *ops = l->bench->ops;
	struct gsn_stream *stream = l->bench->stream;
	const struct gsn_moe_experts experts = experts_of(l, step);
	const struct gsn_moe_route route = {.tokens = l->tokens,
		.hidden = l->shape->hidden,
		.experts = l->shape->experts,
		.top_k = l->shape->top_k,
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
		.hidden = l->shape->hidden,
		.top_k = l->shape->top_k,
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
	uint64_t stride = (uint64_t)MOST_TOKENS * l->shape->top_k;
	int32_t *ids = malloc(STEPS * stride * sizeof *ids);
	bool *chosen = malloc(l->shape->experts);
	uint64_t chosen_count = 0;
	gpusnap_error err;

	bench_must(gsn_device_copy_sync(l->bench->device, GSN_DEVICE_TO_HOST, gsn_host_address(ids),
			   l->ids, STEPS * stride * sizeof *ids, &err),
		&err);
	for (uint32_t step = 0; step < STEPS; step++) {
		memset(chosen, 0, l->shape->experts);
		for (uint32_t i = 0; i < l->tokens * l->shape->top_k; i++) {
			int32_t id = ids[step * stride + i];

			chosen_count += !chosen[id];
			chosen[id] = true;
		}
	}
	free(chosen);
	free(ids);
	return (double)chosen_count / STEPS * (double)l->stride / l->shape->experts;
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
		"decode %-13s %-7s batch %2u: %7.1f MB, experts %6.1f us = %4.1f %%, all %6.1f us "
		"= %4.1f %% of the copy's bandwidth\n",
		l->shape->name, gpusnap_dtype_name(l->dtype), tokens, bytes * 1e-6, experts,
		100.0 * floor_us / experts, step, 100.0 * floor_us / step);
}

static void put_ones(const struct layers *l, uint32_t count)
{
	int32_t *ones = malloc(count * sizeof *ones);
	gpusnap_error err;

	for (uint32_t i = 0; i < count; i++)
		ones[i] = 1;
	bench_must(gsn_device_copy_sync(l->bench->device, GSN_HOST_TO_DEVICE, l->mask,
			   gsn_host_address(ones), count * sizeof *ones, &err),
		&err);
	free(ones);
}

static void fill(const struct layers *l, gpusnap_address at, uint8_t value, uint64_t bytes)
{
	gpusnap_error err;

	bench_must(l->bench->ops->fill(l->bench->stream, at, value, bytes, &err), &err);
	bench_must(l->bench->ops->stream_sync(l->bench->stream, &err), &err);
}

static void size_layer(struct layers *l)
{
	const struct shape *shape = l->shape;
	uint64_t w2 = (uint64_t)shape->experts * shape->hidden * shape->intermediate;
	uint32_t bits = gpusnap_dtype_bits(l->dtype);

	l->w2_bytes = w2 * bits / 8;
	if (l->dtype == GPUSNAP_F4)
		l->w2_scales = w2 / GROUP;
	else if (l->dtype == GPUSNAP_F8_E4M3)
		l->w2_scales = w2 / BLOCK / BLOCK * sizeof(float);
	l->w13_bytes = 2 * l->w2_bytes;
	l->w13_scales = 2 * l->w2_scales;
	l->stride = 3 * (l->w2_bytes + l->w2_scales);
}

static void fill_layers(struct layers *l)
{
	/* Small finite codes, as in bench_moe.c; of F4 every code is. */
	uint64_t finite = l->dtype == GPUSNAP_BF16	? UINT64_C(0xbbffbbffbbffbbff)
			  : l->dtype == GPUSNAP_F8_E4M3 ? UINT64_C(0xbfbfbfbfbfbfbfbf)
							: UINT64_MAX;

	bench_randomise(l->bench, l->memory, LAYERS * l->stride, finite);
	for (uint32_t i = 0; i < LAYERS && l->w13_scales; i++)
		fill(l, l->memory + i * l->stride + l->w13_bytes + l->w2_bytes,
			l->dtype == GPUSNAP_F4 ? 120 : 0x3c, /* 2^-7, 0.0115 */
			l->w13_scales + l->w2_scales);
}

static void open_layers(
	struct layers *l, struct bench_gpu *bench, const struct shape *shape, gpusnap_dtype dtype)
{
	uint64_t router = (uint64_t)shape->experts * shape->hidden * 2;
	uint64_t x = (uint64_t)STEPS * MOST_TOKENS * shape->hidden * 4;
	uint64_t pairs = (uint64_t)MOST_TOKENS * shape->top_k;
	struct gsn_moe_experts sizes;

	*l = (struct layers){.bench = bench, .shape = shape, .dtype = dtype, .tokens = MOST_TOKENS};
	size_layer(l);
	l->memory = bench_memory(bench, LAYERS * l->stride);
	fill_layers(l);
	l->router = bench_memory(bench, router);
	bench_randomise(bench, l->router, router, UINT64_C(0xbbffbbffbbffbbff));
	l->x = bench_memory(bench, x);
	bench_randomise(bench, l->x, x, UINT64_C(0xbfffffffbfffffff));
	l->mask = bench_memory(bench, (uint64_t)shape->experts * 4);
	put_ones(l, shape->experts);
	l->ids = bench_memory(bench, STEPS * pairs * 4);
	l->logits = bench_memory(bench, (uint64_t)MOST_TOKENS * shape->experts * 4);
	l->router_weights = bench_memory(bench, pairs * 4);
	l->y = bench_memory(bench, pairs * shape->hidden * 4);
	l->out = bench_memory(bench, (uint64_t)MOST_TOKENS * shape->hidden * 4);
	l->counters = bench_memory(bench, sizeof(struct gsn_moe_counters));
	sizes = experts_of(l, 0);
	l->scratch = bench_memory(bench, bench->ops->moe_scratch_bytes(&sizes));
}

static void measure_layer(struct bench_gpu *bench, const struct shape *shape, gpusnap_dtype dtype)
{
	static const uint32_t batches[] = {1, 2, 4, 8, 16, 32, 64};
	struct layers l;

	open_layers(&l, bench, shape, dtype);
	for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
		measure(&l, batches[b]);
	bench_release(bench, l.memory, LAYERS * l.stride);
}

void bench_decode(struct bench_gpu *bench)
{
	static const struct shape qwen3 = {"Qwen3-30B-A3B", 2048, 768, 128, 8};
	static const struct shape gpt_oss = {"gpt-oss-20b", 2880, 2880, 32, 4};

	measure_layer(bench, &qwen3, GPUSNAP_F8_E4M3);
	measure_layer(bench, &qwen3, GPUSNAP_BF16);
	measure_layer(bench, &qwen3, GPUSNAP_F4);
	measure_layer(bench, &gpt_oss, GPUSNAP_F4);
	measure_layer(bench, &gpt_oss, GPUSNAP_BF16);
}
