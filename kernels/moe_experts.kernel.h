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
};

/* Times that a block's warps take rows of an expert while its inputs stay in shared memory. */
static constexpr __host__ __device__ uint32_t gsn_expert_rounds(gsn_dot_shape shape, int tokens)
{
	return shape == GSN_DOT_TILED && tokens > 1 ? 2 : 1;
}

/* Rows of weights of a lane. */
template <typename FORMAT>
static constexpr __host__ __device__ int gsn_lane_rows(gsn_dot_shape shape)
{
	return shape == GSN_DOT_FED ? FORMAT::FED_ROWS : 2;
}

struct gsn_experts_args {
	gsn_matrix w13; /* matrix 2e: gate rows of expert e, 2e + 1: up rows */
	gsn_matrix w2;
	const float *x; /* [tokens, w13.columns] */
	const float *weights;
	float *h;
	float *y;
	const int32_t *pair_locals;
	const uint4 *active; /* expert, its pairs: first, end */
	const uint32_t *pairs, *active_count;
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

/* What a block works on: rows `first` .. `end` of an expert's layer, for the pairs from `at`. */
struct gsn_expert_work {
	uint32_t expert, first, end, at, pairs_end;
};

/* The value that the lane is to go on with: the number of the lane in its row counts them. */
template <int COUNT> GSN_DEVICE_FN float gsn_own(const float values[COUNT], uint32_t lane)
{
	float own = values[0];

#pragma unroll
	for (int i = 1; i < COUNT; i++)
		own = lane == (uint32_t)i ? values[i] : own;
	return own;
}

/*
 * The two layers of an expert. A lane has LANE_ROWS rows of weights and a warp ROWS of the result
 * at a time. row_at(): a lane's weights of the rows from `first` on. input(): of a pair. store():
 * the results of those rows; lane i of a row has the i-th. @return whether its own is not finite
 */
template <typename FORMAT, int ROWS_OF_LANE> struct gsn_gate_up {
	enum {
		LANE_ROWS = ROWS_OF_LANE, /* gate rows, then the up rows beside them */
		OUT = LANE_ROWS / 2,
		ROWS = OUT * GSN_ROWS_AT_ONCE,
	};
	GSN_DEVICE_FN const gsn_matrix &matrix(const gsn_experts_args &args)
	{
		return args.w13;
	}
	GSN_DEVICE_FN gsn_row<FORMAT> row_at(
		const gsn_experts_args &args, uint32_t expert, uint32_t first, int r)
	{
		uint32_t row =
			first + r % OUT * GSN_ROWS_AT_ONCE + threadIdx.x % GSN_WARP / GSN_ROW_LANES;
		uint32_t last = args.w13.rows - 1;

		return gsn_row_at<FORMAT>(
			args.w13, 2 * (uint64_t)expert + r / OUT, row < last ? row : last);
	}
	GSN_DEVICE_FN const float *input(const gsn_experts_args &args, uint32_t pair)
	{
		return args.x + (uint64_t)(pair / args.top_k) * args.w13.columns;
	}
	template <int TOKENS>
	GSN_DEVICE_FN bool store(const gsn_experts_args &args, const gsn_expert_work &work,
		uint32_t first, const float out[LANE_ROWS][TOKENS])
	{
		const uint32_t lane = threadIdx.x % GSN_ROW_LANES;
		const uint32_t t = lane % TOKENS, r = lane / TOKENS;
		const uint32_t row =
			first + r * GSN_ROWS_AT_ONCE + threadIdx.x % GSN_WARP / GSN_ROW_LANES;
		const uint64_t index = 2 * (uint64_t)work.expert;
		float gate = gsn_own<OUT * TOKENS>(&out[0][0], lane);
		float up = gsn_own<OUT * TOKENS>(&out[OUT][0], lane);

		if (r >= OUT || row >= args.w13.rows || work.at + t >= work.pairs_end)
			return false;
		uint32_t pair = args.pairs[work.at + t];

		gate += gsn_bias_at(args, args.w13_bias, index, args.w13.rows, row);
		up += gsn_bias_at(args, args.w13_bias, index + 1, args.w13.rows, row);
		args.h[(uint64_t)pair * args.h_stride + row] = gsn_activated(args, pair, gate, up);
		return false;
	}
};

template <typename FORMAT, int ROWS_OF_LANE> struct gsn_down {
	enum { LANE_ROWS = ROWS_OF_LANE, ROWS = LANE_ROWS * GSN_ROWS_AT_ONCE };
	GSN_DEVICE_FN const gsn_matrix &matrix(const gsn_experts_args &args)
	{
		return args.w2;
	}
	GSN_DEVICE_FN gsn_row<FORMAT> row_at(
		const gsn_experts_args &args, uint32_t expert, uint32_t first, int r)
	{
		uint32_t row =
			first + r * GSN_ROWS_AT_ONCE + threadIdx.x % GSN_WARP / GSN_ROW_LANES;
		uint32_t last = args.w2.rows - 1;

		return gsn_row_at<FORMAT>(args.w2, expert, row < last ? row : last);
	}
	GSN_DEVICE_FN const float *input(const gsn_experts_args &args, uint32_t pair)
	{
		return args.h + (uint64_t)pair * args.h_stride;
	}
	template <int TOKENS>
	GSN_DEVICE_FN bool store(const gsn_experts_args &args, const gsn_expert_work &work,
		uint32_t first, const float out[LANE_ROWS][TOKENS])
	{
		const uint32_t lane = threadIdx.x % GSN_ROW_LANES;
		const uint32_t t = lane % TOKENS, r = lane / TOKENS;
		const uint32_t row =
			first + r * GSN_ROWS_AT_ONCE + threadIdx.x % GSN_WARP / GSN_ROW_LANES;
		float dot = gsn_own<LANE_ROWS * TOKENS>(&out[0][0], lane);

		if (r >= LANE_ROWS || row >= args.w2.rows || work.at + t >= work.pairs_end)
			return false;
		uint32_t pair = args.pairs[work.at + t];
		float y = gsn_weighted_row(dot,
			gsn_bias_at(args, args.w2_bias, work.expert, args.w2.rows, row),
			args.weights[pair], args.weight_before_w2);

		args.y[(uint64_t)pair * args.w2.rows + row] = y;
		return !gsn_is_finite(y);
	}
};

/* Rows of a piece of work: the block's warps have some each, once or more often. */
template <typename LAYER> static constexpr __host__ __device__ uint32_t gsn_expert_chunk(int rounds)
{
	return rounds * GSN_EXPERT_WARPS * LAYER::ROWS;
}

/* The block's work number `item`, all pairs of its expert. */
GSN_DEVICE_FN gsn_expert_work gsn_work_of(
	const gsn_experts_args &args, uint64_t item, uint32_t chunks, uint32_t chunk, uint32_t rows)
{
	const uint4 active = args.active[item / chunks];
	uint32_t first = (uint32_t)(item % chunks) * chunk;
	gsn_expert_work work = {
		active.x, first, first + chunk < rows ? first + chunk : rows, active.y, active.z};

	return work;
}

/* Inputs of the pairs at .. at + TOKENS of the list; those behind its end repeat the last one's. */
template <typename LAYER, int TOKENS>
GSN_DEVICE_FN void gsn_inputs_at(
	const gsn_experts_args &args, const gsn_expert_work &work, const float *inputs[TOKENS])
{
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		inputs[t] = LAYER::input(
			args, args.pairs[work.at + t < work.pairs_end ? work.at + t
								      : work.pairs_end - 1]);
}

/* Inputs to shared memory, tiled. All threads of the block call it; `x` then names the copies. */
template <typename FORMAT, int TOKENS>
GSN_DEVICE_FN void gsn_stage_inputs(float *staged, const float *x[TOKENS], uint32_t columns)
{
	const uint32_t turn = GSN_ROW_LANES * FORMAT::CHUNK;
	const uint32_t stride = (columns + turn - 1) / turn * turn;

	for (uint32_t place = threadIdx.x * 4; place < stride; place += GSN_EXPERT_THREADS * 4) {
		const uint32_t k = gsn_tiled_element<FORMAT>(place);

		if (k >= columns)
			continue;
#pragma unroll
		for (int t = 0; t < TOKENS; t++)
			*(float4 *)(staged + t * stride + place) = *(const float4 *)(x[t] + k);
	}
#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		x[t] = staged + t * stride;
}

/* First row of the work that the warp takes, and from one to the next. */
template <typename LAYER> GSN_DEVICE_FN uint32_t gsn_warp_row(const gsn_expert_work &work)
{
	return work.first + threadIdx.x / GSN_WARP * LAYER::ROWS;
}

template <typename FORMAT, typename LAYER>
GSN_DEVICE_FN void gsn_rows_at(const gsn_experts_args &args, const gsn_expert_work &work,
	uint32_t row, gsn_row<FORMAT> rows[LAYER::LANE_ROWS])
{
#pragma unroll
	for (int r = 0; r < LAYER::LANE_ROWS; r++)
		rows[r] = LAYER::row_at(args, work.expert, row, r);
}

/* The work for TOKENS pairs, weights straight from the device's memory. */
template <typename FORMAT, typename LAYER, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN bool gsn_expert_rows(
	const gsn_experts_args &args, const gsn_expert_work &work, char *shared)
{
	const gsn_matrix &matrix = LAYER::matrix(args);
	const float *x[TOKENS];
	bool broken = false;

	gsn_inputs_at<LAYER, TOKENS>(args, work, x);
	if (SHAPE == GSN_DOT_TILED) {
		__syncthreads(); /* nobody reads the inputs of the work before */
		gsn_stage_inputs<FORMAT, TOKENS>((float *)shared, x, matrix.columns);
		__syncthreads();
	}
#pragma unroll 1
	for (uint32_t row = gsn_warp_row<LAYER>(work); row < work.end;
		row += gsn_expert_chunk<LAYER>(1)) {
		gsn_row<FORMAT> rows[LAYER::LANE_ROWS];
		float out[LAYER::LANE_ROWS][TOKENS];

		gsn_rows_at<FORMAT, LAYER>(args, work, row, rows);
		gsn_dot<FORMAT, SHAPE, LAYER::LANE_ROWS, TOKENS>(out, rows, matrix, x);
		broken |= LAYER::template store<TOKENS>(args, work, row, out);
	}
	return broken;
}

/* The same, weights fed through shared memory (moe_fed.kernel.h). */
template <typename FORMAT, int ROWS, int STEPS> struct gsn_feed;

template <typename FORMAT, typename LAYER, int TOKENS>
GSN_DEVICE_FN bool gsn_expert_fed(
	const gsn_experts_args &args, const gsn_expert_work &work, char *shared);

template <typename FORMAT, typename LAYER, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN bool gsn_expert_pairs(
	const gsn_experts_args &args, const gsn_expert_work &work, char *shared)
{
	if constexpr (SHAPE == GSN_DOT_FED)
		return gsn_expert_fed<FORMAT, LAYER, TOKENS>(args, work, shared);
	else
		return gsn_expert_rows<FORMAT, LAYER, SHAPE, TOKENS>(args, work, shared);
}

/* All the work of a block. @return whether a result of this lane is not finite */
template <typename FORMAT, typename LAYER, gsn_dot_shape SHAPE, int TOKENS>
GSN_DEVICE_FN bool gsn_expert_items(const gsn_experts_args &args, char *shared)
{
	const uint32_t rows = LAYER::matrix(args).rows;
	const uint32_t chunk = gsn_expert_chunk<LAYER>(gsn_expert_rounds(SHAPE, TOKENS));
	const uint32_t chunks = (rows + chunk - 1) / chunk;
	const uint64_t items = (uint64_t)*args.active_count * chunks;
	bool broken = false;

	for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
		gsn_expert_work work = gsn_work_of(args, item, chunks, chunk, rows);

		for (; work.at < work.pairs_end; work.at += TOKENS) {
			if (TOKENS > 1 && work.pairs_end - work.at == 1)
				broken |= gsn_expert_pairs<FORMAT, LAYER, SHAPE, 1>(
					args, work, shared);
			else if (TOKENS > 2 && work.pairs_end - work.at == 2)
				broken |= gsn_expert_pairs<FORMAT, LAYER, SHAPE, 2>(
					args, work, shared);
			else
				broken |= gsn_expert_pairs<FORMAT, LAYER, SHAPE, TOKENS>(
					args, work, shared);
		}
	}
	return broken;
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
GSN_KERNEL void GSN_RESIDENT_BLOCKS(
	GSN_EXPERT_THREADS, TOKENS == 1 ? GSN_EXPERT_BLOCKS_1 : GSN_EXPERT_BLOCKS)
	gsn_experts_gate_up(gsn_experts_args args)
{
	extern __shared__ float4 shared[];
	typedef gsn_gate_up<FORMAT, gsn_lane_rows<FORMAT>(SHAPE)> layer;

	(void)gsn_expert_items<FORMAT, layer, SHAPE, TOKENS>(args, (char *)shared);
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
	extern __shared__ float4 shared[];
	typedef gsn_down<FORMAT, gsn_lane_rows<FORMAT>(SHAPE)> layer;
	bool broken = gsn_expert_items<FORMAT, layer, SHAPE, TOKENS>(args, (char *)shared);

	gsn_clear_dropped(args);
	if (gsn_ballot(broken) && threadIdx.x % GSN_WARP == 0)
		atomicOr(&args.counters->faults, (unsigned)GSN_MOE_FAULT_NONFINITE);
}

#ifdef GSN_HAS_FETCH
#include "kernels/moe_fed.kernel.h"
#endif

#endif
