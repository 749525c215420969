/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_EXPERTS_KERNEL_H
#define GSN_MOE_EXPERTS_KERNEL_H
/*
 * The experts: h = activation(gate . x, up . x), then y = weight * (w2 . h). A block takes some
 * rows of one expert at a time and passes them over all tokens of that expert, TOKENS at once, so
 * weights come from memory once; the inputs of these tokens lie in shared memory meanwhile. How
 * many experts have tokens is known on the device only; the grid is fixed and blocks go through
 * what there is.
 */
#include <gpusnap/moe.h>

#include "kernels/moe_dot.kernel.h"
#include "kernels/moe_groups.h"

enum {
	GSN_EXPERT_WARPS = 4,
	GSN_EXPERT_THREADS = GSN_EXPERT_WARPS * GSN_WARP,
	GSN_GATE_UP_ROWS = GSN_ROWS_AT_ONCE, /* of h that a warp takes: a lane has two of w13 */
	GSN_DOWN_ROWS = 2 * GSN_ROWS_AT_ONCE,
};

/* Times that a block's warps take rows of an expert, while its inputs stay in shared memory. */
static constexpr __host__ __device__ uint32_t gsn_expert_rounds(int tokens)
{
	return tokens > 1 ? 2 : 1;
}

static constexpr __host__ __device__ uint32_t gsn_gate_up_chunk(int tokens)
{
	return GSN_EXPERT_WARPS * GSN_GATE_UP_ROWS * gsn_expert_rounds(tokens);
}

static constexpr __host__ __device__ uint32_t gsn_down_chunk(int tokens)
{
	return GSN_EXPERT_WARPS * GSN_DOWN_ROWS * gsn_expert_rounds(tokens);
}

struct gsn_experts_args {
	gsn_matrix w13; /* matrix 2e: gate rows of expert e, 2e + 1: up rows */
	gsn_matrix w2;
	const float *x; /* [tokens, w13.columns] */
	const float *weights;
	float *h;
	float *y;
	const int32_t *pair_locals;
	const uint32_t *begin, *active, *pairs, *active_count;
	gsn_moe_counters *counters;
	uint32_t top_k, h_stride, pair_count;
	gpusnap_address w13_bias, w2_bias; /* 0: none */
	gpusnap_dtype bias_dtype;
	uint32_t activation; /* gpusnap_activation */
	float limit;	     /* infinite where there is none */
	uint32_t weight_before_w2;
};

/* Element `row` of part `index` of a bias [parts, rows]; 0 where there is none. */
GSN_DEVICE_FN float gsn_bias_at(const gsn_experts_args &args, gpusnap_address bias, uint64_t index,
	uint32_t rows, uint32_t row)
{
	return bias && row < rows ? gsn_element(bias, args.bias_dtype, index * rows + row) : 0.0f;
}

/* What goes into w2 of a pair. */
GSN_DEVICE_FN float gsn_activated(const gsn_experts_args &args, uint32_t pair, float gate, float up)
{
	float h = args.activation == GPUSNAP_ACTIVATION_SWIGLU_OAI
			  ? gsn_swiglu_oai(gate, up, args.limit)
			  : gsn_swiglu(gate, up, args.limit);

	return args.weight_before_w2 ? h * args.weights[pair] : h;
}

/* What a block works on: rows `first` .. `first` + chunk of an expert, for the pairs from `at`. */
struct gsn_expert_work {
	uint32_t expert, first, at, end;
};

/* Pairs at .. at + TOKENS of the list; those behind `end` repeat the last one. */
template <int TOKENS>
GSN_DEVICE_FN void gsn_pairs_at(
	const gsn_experts_args &args, const gsn_expert_work &work, uint32_t pairs[TOKENS])
{
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		pairs[t] = args.pairs[work.at + t < work.end ? work.at + t : work.end - 1];
}

/* Inputs to shared memory, tiled. All threads of the block call it; `x` then names the copies. */
template <typename FORMAT, int TOKENS>
GSN_DEVICE_FN void gsn_stage_inputs(float *staged, const float *x[TOKENS], uint32_t columns)
{
	const uint32_t turn = GSN_ROW_LANES * FORMAT::CHUNK;
	const uint32_t stride = (columns + turn - 1) / turn * turn;

	__syncthreads();
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		for (uint32_t k = threadIdx.x * 4; k < columns; k += GSN_EXPERT_THREADS * 4)
			*(float4 *)(staged + t * stride + gsn_tiled_place(k, FORMAT::CHUNK_BITS)) =
				*(const float4 *)(x[t] + k);
	__syncthreads();
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		x[t] = staged + t * stride;
}

/* Rows first .. first + 4 of h; a lane has a gate row and the up row beside it. */
template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN void gsn_gate_up_row(const gsn_experts_args &args, const gsn_expert_work &work,
	uint32_t first, const uint32_t pairs[TOKENS], const float *const x[TOKENS])
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	uint32_t last = args.w13.rows - 1;
	uint32_t row = first + lane / GSN_ROW_LANES;
	gsn_row<FORMAT> rows[2];
	float out[2][TOKENS];

#pragma unroll
	for (int part = 0; part < 2; part++)
		rows[part] = gsn_row_at<FORMAT>(
			args.w13, 2 * (uint64_t)work.expert + part, row < last ? row : last);
	gsn_dot<FORMAT, SHAPE, 2, TOKENS>(out, rows, args.w13, x);
	float gate_bias =
		gsn_bias_at(args, args.w13_bias, 2 * (uint64_t)work.expert, args.w13.rows, row);
	float up_bias =
		gsn_bias_at(args, args.w13_bias, 2 * (uint64_t)work.expert + 1, args.w13.rows, row);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		if (work.at + t < work.end && row <= last && (uint32_t)t == lane % GSN_ROW_LANES)
			args.h[(uint64_t)pairs[t] * args.h_stride + row] = gsn_activated(
				args, pairs[t], out[0][t] + gate_bias, out[1][t] + up_bias);
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN void gsn_gate_up(
	const gsn_experts_args &args, const gsn_expert_work &work, uint32_t chunk, float *staged)
{
	uint32_t end = work.first + chunk < args.w13.rows ? work.first + chunk : args.w13.rows;
	uint32_t row = work.first + threadIdx.x / GSN_WARP * GSN_GATE_UP_ROWS;
	uint32_t pairs[TOKENS];
	const float *x[TOKENS];

	gsn_pairs_at<TOKENS>(args, work, pairs);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		x[t] = args.x + (uint64_t)(pairs[t] / args.top_k) * args.w13.columns;
	if (SHAPE == GSN_DOT_TILED)
		gsn_stage_inputs<FORMAT, TOKENS>(staged, x, args.w13.columns);
#pragma unroll 1
	for (; row < end; row += GSN_EXPERT_WARPS * GSN_GATE_UP_ROWS)
		gsn_gate_up_row<FORMAT, SHAPE, TOKENS>(args, work, row, pairs, x);
}

/* Rows first .. first + 8 of y. @return whether a value of this lane is not finite */
template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN bool gsn_down_rows(const gsn_experts_args &args, const gsn_expert_work &work,
	uint32_t first, const uint32_t pairs[TOKENS], const float *const h[TOKENS])
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	uint32_t last = args.w2.rows - 1;
	uint32_t row[2];
	gsn_row<FORMAT> rows[2];
	float out[2][TOKENS];
	float bias[2];
	bool broken = false;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		row[r] = first + r * GSN_ROWS_AT_ONCE + lane / GSN_ROW_LANES;
		rows[r] = gsn_row_at<FORMAT>(args.w2, work.expert, row[r] < last ? row[r] : last);
	}
	gsn_dot<FORMAT, SHAPE, 2, TOKENS>(out, rows, args.w2, h);
	for (int r = 0; r < 2; r++)
		bias[r] = gsn_bias_at(args, args.w2_bias, work.expert, args.w2.rows, row[r]);
#pragma unroll
	for (int t = 0; t < TOKENS; t++) {
#pragma unroll
		for (int r = 0; r < 2; r++) {
			float y = gsn_weighted_row(
				out[r][t], bias[r], args.weights[pairs[t]], args.weight_before_w2);

			if (work.at + t < work.end && row[r] <= last &&
				(uint32_t)(2 * t + r) == lane % GSN_ROW_LANES) {
				args.y[(uint64_t)pairs[t] * args.w2.rows + row[r]] = y;
				broken |= !gsn_is_finite(y);
			}
		}
	}
	return broken;
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN bool gsn_down(
	const gsn_experts_args &args, const gsn_expert_work &work, uint32_t chunk, float *staged)
{
	uint32_t end = work.first + chunk < args.w2.rows ? work.first + chunk : args.w2.rows;
	uint32_t row = work.first + threadIdx.x / GSN_WARP * GSN_DOWN_ROWS;
	uint32_t pairs[TOKENS];
	const float *h[TOKENS];
	bool broken = false;

	gsn_pairs_at<TOKENS>(args, work, pairs);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		h[t] = args.h + (uint64_t)pairs[t] * args.h_stride;
	if (SHAPE == GSN_DOT_TILED)
		gsn_stage_inputs<FORMAT, TOKENS>(staged, h, args.w2.columns);
#pragma unroll 1
	for (; row < end; row += GSN_EXPERT_WARPS * GSN_DOWN_ROWS)
		broken |= gsn_down_rows<FORMAT, SHAPE, TOKENS>(args, work, row, pairs, h);
	return broken;
}

/* The block's work number `item`, all pairs of its expert. */
GSN_DEVICE_FN gsn_expert_work gsn_work_of(
	const gsn_experts_args &args, uint64_t item, uint32_t chunks, uint32_t chunk)
{
	uint32_t expert = args.active[item / chunks];
	gsn_expert_work work = {expert, (uint32_t)(item % chunks) * chunk, args.begin[expert],
		args.begin[expert + 1]};

	return work;
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_KERNEL void GSN_RESIDENT_BLOCKS(
	GSN_EXPERT_THREADS, TOKENS == 1 ? GSN_EXPERT_BLOCKS_1 : GSN_EXPERT_BLOCKS)
	gsn_experts_gate_up(gsn_experts_args args)
{
	extern __shared__ float4 staged[];
	const uint32_t chunk = gsn_gate_up_chunk(TOKENS);
	uint32_t chunks = (args.w13.rows + chunk - 1) / chunk;
	uint64_t items = (uint64_t)*args.active_count * chunks;
	float *inputs = (float *)staged;

	for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
		gsn_expert_work work = gsn_work_of(args, item, chunks, chunk);

		for (; work.at < work.end; work.at += TOKENS) {
			if (TOKENS > 1 && work.end - work.at == 1)
				gsn_gate_up<FORMAT, SHAPE, 1>(args, work, chunk, inputs);
			else if (TOKENS > 2 && work.end - work.at == 2)
				gsn_gate_up<FORMAT, SHAPE, 2>(args, work, chunk, inputs);
			else
				gsn_gate_up<FORMAT, SHAPE, TOKENS>(args, work, chunk, inputs);
		}
	}
}

/* Rows of y whose pair no expert of this rank computes are zeros. */
GSN_DEVICE_FN void gsn_clear_dropped(const gsn_experts_args &args)
{
	for (uint32_t pair = blockIdx.x; pair < args.pair_count; pair += gridDim.x) {
		if (args.pair_locals[pair] >= 0)
			continue;
		for (uint32_t i = threadIdx.x; i < args.w2.rows; i += GSN_EXPERT_THREADS)
			args.y[(uint64_t)pair * args.w2.rows + i] = 0.0f;
	}
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_KERNEL void GSN_RESIDENT_BLOCKS(
	GSN_EXPERT_THREADS, TOKENS == 1 ? GSN_EXPERT_BLOCKS_1 : GSN_EXPERT_BLOCKS)
	gsn_experts_down(gsn_experts_args args)
{
	extern __shared__ float4 staged[];
	const uint32_t chunk = gsn_down_chunk(TOKENS);
	uint32_t chunks = (args.w2.rows + chunk - 1) / chunk;
	uint64_t items = (uint64_t)*args.active_count * chunks;
	float *inputs = (float *)staged;
	bool broken = false;

	for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
		gsn_expert_work work = gsn_work_of(args, item, chunks, chunk);

		for (; work.at < work.end; work.at += TOKENS) {
			if (TOKENS > 1 && work.end - work.at == 1)
				broken |= gsn_down<FORMAT, SHAPE, 1>(args, work, chunk, inputs);
			else if (TOKENS > 2 && work.end - work.at == 2)
				broken |= gsn_down<FORMAT, SHAPE, 2>(args, work, chunk, inputs);
			else
				broken |=
					gsn_down<FORMAT, SHAPE, TOKENS>(args, work, chunk, inputs);
		}
	}
	gsn_clear_dropped(args);
	if (gsn_ballot(broken) && threadIdx.x % GSN_WARP == 0)
		atomicOr(&args.counters->faults, (unsigned)GSN_MOE_FAULT_NONFINITE);
}

#endif
