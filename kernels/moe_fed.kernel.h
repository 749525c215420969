/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_FED_KERNEL_H
#define GSN_MOE_FED_KERNEL_H
/*
 * An expert's rows, weights fed through shared memory: copies fill a lane's own slots behind its
 * back, so what is under way costs no registers, and the lane has room for more rows that share
 * their inputs. A step is a turn of the lane's rows, and slots are used in turn. No lane reads what
 * another one's copies bring, so nobody waits for others.
 */
#include "kernels/moe_experts.kernel.h"

/* A lane's: STEPS turns, a power of two, of ROWS rows. */
template <typename FORMAT, int ROWS, int STEPS> struct gsn_feed {
	enum {
		LOADS = ROWS * FORMAT::LOADS,
		SLOT = LOADS * GSN_EXPERT_THREADS, /* from one to the next */
	};
	uint4 *slots;			/* [STEPS, LOADS, GSN_EXPERT_THREADS] from its own on */
	typename FORMAT::scale *scales; /* [ROWS, scale_columns] of the lanes of a row */
	uint32_t step;			/* what is taken next, and then filled again */
	uint32_t chunk;			/* that is copied next */
	uint32_t chunks;		/* of a row */
	uint32_t scale_columns;		/* 0: no scales */
	uint32_t block_shift;		/* a block of scales is 2^this chunks */
	const uint4 *at[ROWS];

	/* Of shared memory for slots and scales, so that what follows begins at a multiple of 16.
	 */
	static __host__ __device__ uint64_t bytes(uint32_t scale_columns)
	{
		uint64_t scales = (uint64_t)GSN_EXPERT_THREADS / GSN_ROW_LANES * ROWS *
				  scale_columns * sizeof(typename FORMAT::scale);

		return STEPS * SLOT * sizeof(uint4) + (scales + 15) / 16 * 16;
	}
};

/* Send for the next turn, if there is one, into the slot of a step. Every step is one commit. */
template <typename FORMAT, int ROWS, int STEPS>
GSN_DEVICE_FN void gsn_feed_copy(gsn_feed<FORMAT, ROWS, STEPS> &feed, uint32_t step)
{
	if (feed.chunk < feed.chunks) {
#pragma unroll
		for (int r = 0; r < ROWS; r++)
#pragma unroll
			for (int i = 0; i < FORMAT::LOADS; i++)
				gsn_fetch(feed.slots + step * feed.SLOT +
						  (r * FORMAT::LOADS + i) * GSN_EXPERT_THREADS,
					feed.at[r] + i);
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		feed.at[r] += GSN_ROW_LANES * FORMAT::LOADS;
	feed.chunk += GSN_ROW_LANES;
	gsn_fetch_commit();
}

/* A feed of these rows in `shared`, nothing on its way yet. */
template <typename FORMAT, int ROWS, int STEPS>
GSN_DEVICE_FN void gsn_feed_begin(gsn_feed<FORMAT, ROWS, STEPS> &feed, const gsn_matrix &matrix,
	const gsn_row<FORMAT> rows[ROWS], char *shared)
{
	uint32_t lane = threadIdx.x % GSN_ROW_LANES;

	feed.scale_columns = FORMAT::SCALED && matrix.scales ? matrix.scale_columns : 0;
	feed.slots = (uint4 *)shared + threadIdx.x;
	feed.scales = (typename FORMAT::scale *)((uint4 *)shared + STEPS * feed.SLOT) +
		      threadIdx.x / GSN_ROW_LANES * ROWS * feed.scale_columns;
	feed.step = 0;
	feed.chunk = lane;
	feed.chunks = matrix.columns / FORMAT::CHUNK;
	feed.block_shift = gsn_block_shift<FORMAT>(matrix);
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		feed.at[r] = (const uint4 *)rows[r].weights + lane * FORMAT::LOADS;
}

/* Scales of the rows, by the lanes of each row; there after a barrier. */
template <typename FORMAT, int ROWS, int STEPS>
GSN_DEVICE_FN void gsn_feed_scales(
	const gsn_feed<FORMAT, ROWS, STEPS> &feed, const gsn_row<FORMAT> rows[ROWS])
{
#pragma unroll 4
	for (uint32_t i = threadIdx.x % GSN_ROW_LANES; i < feed.scale_columns; i += GSN_ROW_LANES)
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			feed.scales[r * feed.scale_columns + i] = rows[r].scales[i];
}

/* Send for the turns FROM .. TO, before any is taken. */
template <int FROM, int TO, typename FORMAT, int ROWS, int STEPS>
GSN_DEVICE_FN void gsn_feed_ahead(gsn_feed<FORMAT, ROWS, STEPS> &feed)
{
#pragma unroll 1
	for (int step = FROM; step < TO; step++)
		gsn_feed_copy(feed, step);
}

/* The chunks of the lane's step, number `chunk` of the rows. */
template <typename FORMAT, int ROWS, int STEPS>
GSN_DEVICE_FN void gsn_feed_take(
	const gsn_feed<FORMAT, ROWS, STEPS> &feed, uint32_t chunk, gsn_chunk<FORMAT> chunks[ROWS])
{
	const uint4 *from = feed.slots + feed.step * feed.SLOT;

#pragma unroll
	for (int r = 0; r < ROWS; r++) {
#pragma unroll
		for (int i = 0; i < FORMAT::LOADS; i++)
			chunks[r].raw[i] = from[(r * FORMAT::LOADS + i) * GSN_EXPERT_THREADS];
		gsn_scale::set_one(&chunks[r].scale);
		if (FORMAT::SCALED && feed.scale_columns)
			chunks[r].scale =
				feed.scales[r * feed.scale_columns + (chunk >> feed.block_shift)];
	}
}

/* out[r][t] = rows[r] . x[t] in all eight lanes of the row, as gsn_dot() has it; x is tiled. */
template <typename FORMAT, int ROWS, int STEPS, int TOKENS>
GSN_DEVICE_FN void gsn_feed_dot(
	float out[ROWS][TOKENS], gsn_feed<FORMAT, ROWS, STEPS> &feed, const float *x[TOKENS])
{
	const uint32_t lane = threadIdx.x % GSN_ROW_LANES;
	gsn_chunk<FORMAT> chunks[ROWS];
	float a[ROWS][TOKENS][8];

#pragma unroll
	for (int t = 0; t < TOKENS; t++)
		x[t] += lane * gsn_inputs<FORMAT, true>::LANE;
	gsn_dot_begin<ROWS, TOKENS>(a);
#pragma unroll 1
	for (uint32_t chunk = lane; chunk < feed.chunks; chunk += GSN_ROW_LANES) {
		gsn_fetch_wait<STEPS - 1>();
		gsn_feed_take(feed, chunk, chunks);
		gsn_add_turn<FORMAT, true, ROWS, TOKENS>(a, chunks, x, 0);
		gsn_feed_copy(feed, feed.step);
		feed.step = (feed.step + 1) % STEPS;
#pragma unroll
		for (int t = 0; t < TOKENS; t++)
			x[t] += gsn_inputs<FORMAT, true>::TURN;
	}
	gsn_dot_end<ROWS, TOKENS>(out, a);
}

/* The first turns are on their way before the inputs are there, but not all: inputs come first. */
template <typename FORMAT, typename LAYER, int TOKENS>
GSN_DEVICE_FN bool gsn_expert_fed(
	const gsn_experts_args &args, const gsn_expert_work &work, char *shared)
{
	typedef gsn_feed<FORMAT, LAYER::LANE_ROWS, FORMAT::FED_STEPS> feed_type;
	const int early = 2;
	const gsn_matrix &matrix = LAYER::matrix(args);
	const uint32_t row = gsn_warp_row<LAYER>(work);
	float *inputs = (float *)(shared + feed_type::bytes(matrix.scale_columns));
	float out[LAYER::LANE_ROWS][TOKENS];
	gsn_row<FORMAT> rows[LAYER::LANE_ROWS];
	const float *x[TOKENS];
	feed_type feed;

	gsn_rows_at<FORMAT, LAYER>(args, work, row, rows);
	gsn_feed_begin(feed, matrix, rows, shared);
	gsn_feed_ahead<0, early>(feed);
	gsn_inputs_at<LAYER, TOKENS>(args, work, x);
	__syncthreads(); /* nobody reads the inputs and scales of the work before */
	gsn_feed_scales(feed, rows);
	gsn_stage_inputs<FORMAT, TOKENS>(inputs, x, matrix.columns);
	gsn_feed_ahead<early, FORMAT::FED_STEPS>(feed);
	__syncthreads();
	gsn_feed_dot<FORMAT, LAYER::LANE_ROWS, FORMAT::FED_STEPS, TOKENS>(out, feed, x);
	return row < work.end && LAYER::template store<TOKENS>(args, work, row, out);
}

#endif
