/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_EXPERTS_KERNEL_H
#define GSN_MOE_EXPERTS_KERNEL_H
/*
 * The experts: h = silu(gate . x) * (up . x), then y = weight * (w2 . h). A warp takes a few rows
 * of one expert at a time and passes them over all tokens of that expert, TOKENS at once, so
 * weights come from memory once. How many experts have tokens is known on the device only; the grid
 * is fixed and warps go through what there is.
 */
#include "kernels/moe_dot.kernel.h"
#include "kernels/moe_groups.h"

enum {
	GSN_EXPERT_WARPS = 4,
	GSN_EXPERT_TOKENS = 2, /* at once, of steps of more than one token */
	GSN_EXPERT_BLOCKS_1 =
		5,	       /* resident blocks that registers must leave room for: one token, */
	GSN_EXPERT_BLOCKS = 3, /* more tokens */
};

/* Inputs of several tokens cost more to read than weights, so then more rows share them. */
static constexpr __host__ __device__ int gsn_pairs_per_lane(int tokens)
{
	return tokens > 1 ? GSN_ROWS_PER_INPUT : 1;
}

/* Rows of h, and of y, that a warp takes. */
static constexpr __host__ __device__ uint32_t gsn_gate_up_rows(int tokens)
{
	return GSN_ROWS_AT_ONCE * gsn_pairs_per_lane(tokens);
}

static constexpr __host__ __device__ uint32_t gsn_down_rows(int tokens)
{
	return 2 * GSN_ROWS_AT_ONCE * gsn_pairs_per_lane(tokens);
}

struct gsn_experts_args {
	gsn_matrix w13; /* matrix 2e: gate rows of expert e, 2e + 1: up rows */
	gsn_matrix w2;
	const float *x;
	const float *weights;
	float *h;
	float *y;
	const int32_t *pair_locals;
	const uint32_t *begin, *active, *pairs, *active_count;
	gsn_moe_counters *counters;
	uint32_t top_k, h_stride, pair_count;
};

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

/* Rows first .. first + 4 PAIRS of h; a lane has PAIRS gate rows and the up rows beside them. */
template <typename FORMAT, bool WHOLE, int TOKENS, int PAIRS>
GSN_DEVICE_FN void gsn_gate_up(
	const gsn_experts_args &args, uint32_t expert, uint32_t first, uint32_t at, uint32_t end)
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	uint32_t last = args.w13.rows - 1;
	uint32_t row[PAIRS];
	gsn_row<FORMAT> rows[2 * PAIRS];
	uint32_t pairs[TOKENS];
	const float *x[TOKENS];
	float out[2 * PAIRS][TOKENS];

#pragma unroll
	for (int p = 0; p < PAIRS; p++) {
		row[p] = first + p * GSN_ROWS_AT_ONCE + lane / GSN_ROW_LANES;
		for (int part = 0; part < 2; part++)
			rows[2 * p + part] = gsn_row_at<FORMAT>(args.w13,
				2 * (uint64_t)expert + part, row[p] < last ? row[p] : last);
	}
	gsn_pairs_at<TOKENS>(args, at, end, pairs);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		x[t] = args.x + (uint64_t)(pairs[t] / args.top_k) * args.w13.columns;
	gsn_dot<FORMAT, WHOLE, 2 * PAIRS, TOKENS>(out, rows, args.w13, x);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
#pragma unroll
		for (int p = 0; p < PAIRS; p++)
			if (at + t < end && row[p] <= last &&
				(uint32_t)(PAIRS * t + p) % GSN_ROW_LANES == lane % GSN_ROW_LANES)
				args.h[(uint64_t)pairs[t] * args.h_stride + row[p]] =
					gsn_silu_mul(out[2 * p][t], out[2 * p + 1][t]);
}

/* Rows first .. first + 4 ROWS of y. @return whether a value of this lane is not finite */
template <typename FORMAT, bool WHOLE, int TOKENS, int ROWS>
GSN_DEVICE_FN bool gsn_down(
	const gsn_experts_args &args, uint32_t expert, uint32_t first, uint32_t at, uint32_t end)
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	uint32_t last = args.w2.rows - 1;
	uint32_t row[ROWS];
	gsn_row<FORMAT> rows[ROWS];
	uint32_t pairs[TOKENS];
	const float *h[TOKENS];
	float out[ROWS][TOKENS];
	bool broken = false;

#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		row[r] = first + r * GSN_ROWS_AT_ONCE + lane / GSN_ROW_LANES;
		rows[r] = gsn_row_at<FORMAT>(args.w2, expert, row[r] < last ? row[r] : last);
	}
	gsn_pairs_at<TOKENS>(args, at, end, pairs);
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		h[t] = args.h + (uint64_t)pairs[t] * args.h_stride;
	gsn_dot<FORMAT, WHOLE, ROWS, TOKENS>(out, rows, args.w2, h);
#pragma unroll
	for (int t = 0; t < TOKENS; t++) {
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			float y = gsn_canonical(args.weights[pairs[t]] * out[r][t]);

			if (at + t < end && row[r] <= last &&
				(uint32_t)(ROWS * t + r) % GSN_ROW_LANES == lane % GSN_ROW_LANES) {
				args.y[(uint64_t)pairs[t] * args.w2.rows + row[r]] = y;
				broken |= !gsn_is_finite(y);
			}
		}
	}
	return broken;
}

template <typename FORMAT, bool WHOLE, int TOKENS>
GSN_KERNEL void GSN_RESIDENT_BLOCKS(
	GSN_EXPERT_WARPS *GSN_WARP, TOKENS == 1 ? GSN_EXPERT_BLOCKS_1 : GSN_EXPERT_BLOCKS)
	gsn_experts_gate_up(gsn_experts_args args)
{
	uint32_t tiles = (args.w13.rows + gsn_gate_up_rows(TOKENS) - 1) / gsn_gate_up_rows(TOKENS);
	uint64_t items = (uint64_t)*args.active_count * tiles;

	for (uint64_t item = gsn_warp_number(); item < items; item += gsn_warp_count()) {
		uint32_t expert = args.active[item / tiles];
		uint32_t first = (uint32_t)(item % tiles) * gsn_gate_up_rows(TOKENS);
		uint32_t at = args.begin[expert];
		uint32_t end = args.begin[expert + 1];

		for (; at < end; at += TOKENS) {
			if (TOKENS > 1 && end - at == 1)
				gsn_gate_up<FORMAT, WHOLE, 1, gsn_pairs_per_lane(TOKENS)>(
					args, expert, first, at, end);
			else if (TOKENS > 2 && end - at == 2)
				gsn_gate_up<FORMAT, WHOLE, 2, gsn_pairs_per_lane(TOKENS)>(
					args, expert, first, at, end);
			else
				gsn_gate_up<FORMAT, WHOLE, TOKENS, gsn_pairs_per_lane(TOKENS)>(
					args, expert, first, at, end);
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

template <typename FORMAT, bool WHOLE, int TOKENS>
GSN_KERNEL void GSN_RESIDENT_BLOCKS(
	GSN_EXPERT_WARPS *GSN_WARP, TOKENS == 1 ? GSN_EXPERT_BLOCKS_1 : GSN_EXPERT_BLOCKS)
	gsn_experts_down(gsn_experts_args args)
{
	uint32_t tiles = (args.w2.rows + gsn_down_rows(TOKENS) - 1) / gsn_down_rows(TOKENS);
	uint64_t items = (uint64_t)*args.active_count * tiles;
	bool broken = false;

	for (uint64_t item = gsn_warp_number(); item < items; item += gsn_warp_count()) {
		uint32_t expert = args.active[item / tiles];
		uint32_t first = (uint32_t)(item % tiles) * gsn_down_rows(TOKENS);
		uint32_t at = args.begin[expert];
		uint32_t end = args.begin[expert + 1];

		for (; at < end; at += TOKENS) {
			if (TOKENS > 1 && end - at == 1)
				broken |=
					gsn_down<FORMAT, WHOLE, 1, 2 * gsn_pairs_per_lane(TOKENS)>(
						args, expert, first, at, end);
			else if (TOKENS > 2 && end - at == 2)
				broken |=
					gsn_down<FORMAT, WHOLE, 2, 2 * gsn_pairs_per_lane(TOKENS)>(
						args, expert, first, at, end);
			else
				broken |= gsn_down<FORMAT, WHOLE, TOKENS,
					2 * gsn_pairs_per_lane(TOKENS)>(
					args, expert, first, at, end);
		}
	}
	gsn_clear_dropped(args);
	if (gsn_ballot(broken) && threadIdx.x % GSN_WARP == 0)
		atomicOr(&args.counters->faults, (unsigned)GSN_MOE_FAULT_NONFINITE);
}

#endif
