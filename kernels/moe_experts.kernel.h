/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_EXPERTS_KERNEL_H
#define GSN_MOE_EXPERTS_KERNEL_H
/*
 * The experts: h = activation(gate . x, up . x), then y = weight * (w2 . h). A warp takes a few
 * rows of one expert at a time and passes them over all tokens of that expert, TOKENS at once, so
 * weights come from memory once. How many experts have tokens is known on the device only; the grid
 * is fixed and warps go through what there is. Inputs are tiled where the matrices are whole: x by
 * the kernel before, h as it is written.
 */
#include <gpusnap/moe.h>

#include "kernels/moe_dot.kernel.h"
#include "kernels/moe_groups.h"

enum {
	GSN_EXPERT_WARPS = 4,
	GSN_EXPERT_BLOCKS_1 =
		4,	       /* resident blocks that registers must leave room for: one token, */
	GSN_EXPERT_BLOCKS = 3, /* more tokens */
	GSN_GATE_UP_ROWS = GSN_ROWS_AT_ONCE, /* of h that a warp takes: a lane has two of w13 */
	GSN_DOWN_ROWS = 2 * GSN_ROWS_AT_ONCE,
};

struct gsn_experts_args {
	gsn_matrix w13; /* matrix 2e: gate rows of expert e, 2e + 1: up rows */
	gsn_matrix w2;
	const float *x; /* [tokens, x_stride] */
	const float *weights;
	float *h;
	float *y;
	const int32_t *pair_locals;
	const uint32_t *begin, *active, *pairs, *active_count;
	gsn_moe_counters *counters;
	uint32_t top_k, x_stride, h_stride, pair_count;
	uint32_t chunk_bits;		   /* of w2, where h is tiled */
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

GSN_DEVICE_FN uint32_t gsn_warp_number()
{
	return (blockIdx.x * blockDim.x + threadIdx.x) / GSN_WARP;
}

GSN_DEVICE_FN uint32_t gsn_warp_count()
{
	return gridDim.x * blockDim.x / GSN_WARP;
}

/* Pairs at .. at + TOKENS of the list; those behind `end` repeat the last one. */
template <int TOKENS>
GSN_DEVICE_FN void gsn_pairs_at(
	const gsn_experts_args &args, uint32_t at, uint32_t end, uint32_t pairs[TOKENS])
{
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		pairs[t] = args.pairs[at + t < end ? at + t : end - 1];
}

/* Rows first .. first + 4 of h; a lane has a gate row and the up row beside it. */
template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN void gsn_gate_up(
	const gsn_experts_args &args, uint32_t expert, uint32_t first, uint32_t at, uint32_t end)
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	uint32_t last = args.w13.rows - 1;
	uint32_t row = first + lane / GSN_ROW_LANES;
	uint32_t place = SHAPE == GSN_DOT_TILED ? gsn_tiled_place(row, args.chunk_bits) : row;
	gsn_row<FORMAT> rows[2];
	uint32_t pairs[TOKENS];
	const float *x[TOKENS];
	float out[2][TOKENS];

#pragma unroll
	for (int part = 0; part < 2; part++)
		rows[part] = gsn_row_at<FORMAT>(
			args.w13, 2 * (uint64_t)expert + part, row < last ? row : last);
	gsn_pairs_at<TOKENS>(args, at, end, pairs);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		x[t] = args.x + (uint64_t)(pairs[t] / args.top_k) * args.x_stride;
	gsn_dot<FORMAT, SHAPE, 2, TOKENS>(out, rows, args.w13, x);
	float gate_bias =
		gsn_bias_at(args, args.w13_bias, 2 * (uint64_t)expert, args.w13.rows, row);
	float up_bias =
		gsn_bias_at(args, args.w13_bias, 2 * (uint64_t)expert + 1, args.w13.rows, row);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		if (at + t < end && row <= last && (uint32_t)t == lane % GSN_ROW_LANES)
			args.h[(uint64_t)pairs[t] * args.h_stride + place] = gsn_activated(
				args, pairs[t], out[0][t] + gate_bias, out[1][t] + up_bias);
}

/* Rows first .. first + 8 of y. @return whether a value of this lane is not finite */
template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN bool gsn_down(
	const gsn_experts_args &args, uint32_t expert, uint32_t first, uint32_t at, uint32_t end)
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	uint32_t last = args.w2.rows - 1;
	uint32_t row[2];
	gsn_row<FORMAT> rows[2];
	uint32_t pairs[TOKENS];
	const float *h[TOKENS];
	float out[2][TOKENS];
	float bias[2];
	bool broken = false;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		row[r] = first + r * GSN_ROWS_AT_ONCE + lane / GSN_ROW_LANES;
		rows[r] = gsn_row_at<FORMAT>(args.w2, expert, row[r] < last ? row[r] : last);
	}
	gsn_pairs_at<TOKENS>(args, at, end, pairs);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		h[t] = args.h + (uint64_t)pairs[t] * args.h_stride;
	gsn_dot<FORMAT, SHAPE, 2, TOKENS>(out, rows, args.w2, h);
	for (int r = 0; r < 2; r++)
		bias[r] = gsn_bias_at(args, args.w2_bias, expert, args.w2.rows, row[r]);
#pragma unroll
	for (int t = 0; t < TOKENS; t++) {
#pragma unroll
		for (int r = 0; r < 2; r++) {
			float y = gsn_weighted_row(
				out[r][t], bias[r], args.weights[pairs[t]], args.weight_before_w2);

			if (at + t < end && row[r] <= last &&
				(uint32_t)(2 * t + r) == lane % GSN_ROW_LANES) {
				args.y[(uint64_t)pairs[t] * args.w2.rows + row[r]] = y;
				broken |= !gsn_is_finite(y);
			}
		}
	}
	return broken;
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_KERNEL void GSN_RESIDENT_BLOCKS(
	GSN_EXPERT_WARPS *GSN_WARP, TOKENS == 1 ? GSN_EXPERT_BLOCKS_1 : GSN_EXPERT_BLOCKS)
	gsn_experts_gate_up(gsn_experts_args args)
{
	uint32_t tiles = (args.w13.rows + GSN_GATE_UP_ROWS - 1) / GSN_GATE_UP_ROWS;

	gsn_await_previous();
	uint64_t items = (uint64_t)*args.active_count * tiles;

	for (uint64_t item = gsn_warp_number(); item < items; item += gsn_warp_count()) {
		uint32_t expert = args.active[item / tiles];
		uint32_t first = (uint32_t)(item % tiles) * GSN_GATE_UP_ROWS;
		uint32_t at = args.begin[expert];
		uint32_t end = args.begin[expert + 1];

		for (; at < end; at += TOKENS) {
			if (TOKENS > 1 && end - at == 1)
				gsn_gate_up<FORMAT, SHAPE, 1>(args, expert, first, at, end);
			else if (TOKENS > 2 && end - at == 2)
				gsn_gate_up<FORMAT, SHAPE, 2>(args, expert, first, at, end);
			else
				gsn_gate_up<FORMAT, SHAPE, TOKENS>(args, expert, first, at, end);
		}
	}
}

/* Rows of y whose pair no expert of this rank computes are zeros. */
GSN_DEVICE_FN void gsn_clear_dropped(const gsn_experts_args &args)
{
	for (uint32_t pair = gsn_warp_number(); pair < args.pair_count; pair += gsn_warp_count()) {
		if (args.pair_locals[pair] >= 0)
			continue;
		for (uint32_t i = threadIdx.x % GSN_WARP; i < args.w2.rows; i += GSN_WARP)
			args.y[(uint64_t)pair * args.w2.rows + i] = 0.0f;
	}
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_KERNEL void GSN_RESIDENT_BLOCKS(
	GSN_EXPERT_WARPS *GSN_WARP, TOKENS == 1 ? GSN_EXPERT_BLOCKS_1 : GSN_EXPERT_BLOCKS)
	gsn_experts_down(gsn_experts_args args)
{
	uint32_t tiles = (args.w2.rows + GSN_DOWN_ROWS - 1) / GSN_DOWN_ROWS;
	bool broken = false;

	gsn_await_previous();
	uint64_t items = (uint64_t)*args.active_count * tiles;

	for (uint64_t item = gsn_warp_number(); item < items; item += gsn_warp_count()) {
		uint32_t expert = args.active[item / tiles];
		uint32_t first = (uint32_t)(item % tiles) * GSN_DOWN_ROWS;
		uint32_t at = args.begin[expert];
		uint32_t end = args.begin[expert + 1];

		for (; at < end; at += TOKENS) {
			if (TOKENS > 1 && end - at == 1)
				broken |= gsn_down<FORMAT, SHAPE, 1>(args, expert, first, at, end);
			else if (TOKENS > 2 && end - at == 2)
				broken |= gsn_down<FORMAT, SHAPE, 2>(args, expert, first, at, end);
			else
				broken |= gsn_down<FORMAT, SHAPE, TOKENS>(
					args, expert, first, at, end);
		}
	}
	gsn_clear_dropped(args);
	if (gsn_ballot(broken) && threadIdx.x % GSN_WARP == 0)
		atomicOr(&args.counters->faults, (unsigned)GSN_MOE_FAULT_NONFINITE);
}

#endif
