/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_TOKENS_KERNEL_H
#define GSN_MOE_TOKENS_KERNEL_H
/* What is done to whole tokens around the experts: ids made local, sum over slots, norm. */
#include "kernels/moe_dot.kernel.h"

enum { GSN_TOKEN_THREADS = 128 };

GSN_KERNEL void GSN_BLOCK_OF(GSN_TOKEN_THREADS) gsn_localise_ids(gsn_moe_localise args)
{
	uint64_t step = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < args.pairs;
		i += step) {
		int64_t local = (int64_t)((const int32_t *)args.ids)[i] - args.first;
		bool inside = local >= 0 && local < args.local;

		((int32_t *)args.out)[i] = inside ? (int32_t)local : (int32_t)args.local;
	}
}

/* Whole warps take part in the vote, so the loop's bound is rounded up to one. */
GSN_KERNEL void GSN_BLOCK_OF(GSN_TOKEN_THREADS) gsn_combine_slots(gsn_moe_combine args)
{
	const float *y = (const float *)args.y;
	uint64_t count = (uint64_t)args.tokens * args.hidden;
	uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	bool broken = false;

	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
		uint64_t at = i / args.hidden * args.top_k * args.hidden + i % args.hidden;
		float sum = y[at];

		for (uint32_t slot = 1; slot < args.top_k; slot++)
			sum += y[at + (uint64_t)slot * args.hidden];
		if (args.shared)
			sum += ((const float *)args.shared)[i];
		((float *)args.out)[i] = gsn_canonical(sum);
		broken |= !gsn_is_finite(sum);
	}
	if (gsn_ballot(broken) && threadIdx.x % GSN_WARP == 0)
		atomicOr(&((gsn_moe_counters *)args.counters)->faults,
			(unsigned)GSN_MOE_FAULT_NONFINITE);
}

/* A warp for each token; its groups of eight lanes all compute the same dot product. */
template <typename FORMAT, bool WHOLE>
GSN_KERNEL void GSN_BLOCK_OF(GSN_TOKEN_THREADS) gsn_norm_tokens(gsn_rms_norm args)
{
	uint32_t token = (blockIdx.x * blockDim.x + threadIdx.x) / GSN_WARP;

	if (token >= args.tokens)
		return;
	const float *x[1] = {(const float *)args.x + (uint64_t)token * args.hidden};
	float *out = (float *)args.out + (uint64_t)token * args.hidden;
	gsn_matrix matrix = {};
	gsn_row<gsn_f32> row[1] = {{x[0], NULL}};
	float squares[1][1];

	matrix.columns = args.hidden;
	gsn_dot<gsn_f32, WHOLE ? GSN_DOT_NATURAL : GSN_DOT_ANY, 1, 1>(squares, row, matrix, x);
	/* out may be x: every lane is done reading. */
	gsn_warp_sync();
	float factor = 1.0f / gsn_sqrtf(squares[0][0] / (float)args.hidden + args.epsilon);

	for (uint32_t i = threadIdx.x % GSN_WARP; i < args.hidden; i += GSN_WARP) {
		float weight = FORMAT::decode(((const typename FORMAT::element *)args.weight)[i]);

		out[i] = gsn_canonical(x[0][i] * factor * weight);
	}
}

#endif
