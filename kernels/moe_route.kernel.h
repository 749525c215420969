/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_ROUTE_KERNEL_H
#define GSN_MOE_ROUTE_KERNEL_H
/* Routing: logits by rows of the router, then the choice of experts by a warp for each token. */
#include "kernels/moe_dot.kernel.h"

enum { GSN_ROUTE_WARPS = 4, GSN_ROUTE_TOKENS = 4 };

struct gsn_logits_args {
	gsn_matrix router;
	const float *x;
	float *logits;
	uint32_t tokens;
};

/* Block (b, t): experts 16 b .. 16 b + 15 for the tokens from t * GSN_ROUTE_TOKENS on. */
template <typename FORMAT, bool WHOLE, int TOKENS>
GSN_KERNEL void GSN_BLOCK_OF(GSN_ROUTE_WARPS *GSN_WARP) gsn_route_logits(gsn_logits_args args)
{
	uint32_t experts = args.router.rows;
	uint32_t expert = (blockIdx.x * GSN_ROUTE_WARPS * GSN_WARP + threadIdx.x) / GSN_ROW_LANES;
	uint32_t first = blockIdx.y * TOKENS;
	gsn_row<FORMAT> row[1] = {
		gsn_row_at<FORMAT>(args.router, 0, expert < experts ? expert : experts - 1)};
	const float *x[TOKENS];
	float out[1][TOKENS];

	for (int t = 0; t < TOKENS; t++) {
		uint32_t token = first + t < args.tokens ? first + t : args.tokens - 1;

		x[t] = args.x + (uint64_t)token * args.router.columns;
	}
	gsn_await_previous();
	gsn_dot<FORMAT, WHOLE ? GSN_DOT_NATURAL : GSN_DOT_ANY, 1, TOKENS>(out, row, args.router, x);
	if (threadIdx.x % GSN_ROW_LANES || expert >= experts)
		return;
	for (int t = 0; t < TOKENS; t++)
		if (first + t < args.tokens)
			args.logits[(uint64_t)(first + t) * experts + expert] = out[0][t];
}

struct gsn_choice {
	float key;
	int32_t id; /* -1: none */
};

/* A NaN counts as the worst logit. */
GSN_DEVICE_FN float gsn_sort_key(float logit)
{
	return logit != logit ? -INFINITY : logit;
}

/* Higher key, then lower id. */
GSN_DEVICE_FN gsn_choice gsn_better(gsn_choice a, gsn_choice b)
{
	if (b.id < 0)
		return a;
	if (a.id < 0 || b.key > a.key || (b.key == a.key && b.id < a.id))
		return b;
	return a;
}

/* The best expert behind `last` in the order (key descending, id ascending). */
GSN_DEVICE_FN gsn_choice gsn_next_best(
	const float *logits, uint32_t experts, gsn_choice last, uint32_t lane)
{
	gsn_choice best = {-INFINITY, -1};

	for (uint32_t i = lane; i < experts; i += GSN_WARP) {
		gsn_choice candidate = {gsn_sort_key(logits[i]), (int32_t)i};

		if (candidate.key < last.key ||
			(candidate.key == last.key && candidate.id > last.id))
			best = gsn_better(best, candidate);
	}
	for (int distance = 1; distance < GSN_WARP; distance *= 2) {
		gsn_choice other = {
			gsn_shuffle_xor(best.key, distance), gsn_shuffle_xor(best.id, distance)};

		best = gsn_better(best, other);
	}
	return best;
}

/* Lane l sums the experts of slot l; the tree over slots is the shuffles' order. */
GSN_DEVICE_FN float gsn_softmax_sum(const float *logits, uint32_t experts, float max, uint32_t lane)
{
	float sum = 0.0f;

	for (uint32_t i = lane; i < experts; i += GSN_WARP)
		sum += gsn_expf(logits[i] - max);
	for (int distance = 1; distance < GSN_WARP; distance *= 2)
		sum += gsn_shuffle_xor(sum, distance);
	return sum;
}

GSN_DEVICE_FN void gsn_weigh(
	const gsn_moe_route &args, const float *logits, const int32_t *ids, float *weights)
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	float max = gsn_sort_key(logits[ids[0]]);
	float sum = gsn_softmax_sum(logits, args.experts, max, lane);
	float chosen = 0.0f;

	for (uint32_t slot = lane; slot < args.top_k; slot += GSN_WARP)
		weights[slot] = gsn_expf(logits[ids[slot]] - max) / sum;
	gsn_warp_sync();
	for (uint32_t slot = 0; slot < args.top_k; slot++)
		chosen += weights[slot];
	gsn_warp_sync();
	for (uint32_t slot = lane; slot < args.top_k; slot += GSN_WARP)
		weights[slot] =
			gsn_canonical(args.renormalise ? weights[slot] / chosen : weights[slot]);
}

GSN_DEVICE_FN unsigned gsn_logit_faults(const float *logits, uint32_t experts, uint32_t lane)
{
	bool nan = false;
	bool infinite = false;

	for (uint32_t i = lane; i < experts; i += GSN_WARP) {
		nan |= logits[i] != logits[i];
		infinite |= logits[i] == logits[i] && !gsn_is_finite(logits[i]);
	}
	return (gsn_ballot(nan) ? GSN_MOE_FAULT_NAN_LOGIT : 0u) |
	       (gsn_ballot(infinite) ? GSN_MOE_FAULT_NONFINITE : 0u);
}

GSN_KERNEL void GSN_BLOCK_OF(GSN_ROUTE_WARPS *GSN_WARP) gsn_route_choose(gsn_moe_route args)
{
	uint32_t token = blockIdx.x * GSN_ROUTE_WARPS + threadIdx.x / GSN_WARP;
	uint32_t lane = threadIdx.x % GSN_WARP;

	gsn_await_previous();
	if (token >= args.tokens)
		return;
	const float *logits = (const float *)args.logits + (uint64_t)token * args.experts;
	int32_t *ids = (int32_t *)args.ids + (uint64_t)token * args.top_k;
	unsigned faults = gsn_logit_faults(logits, args.experts, lane);
	gsn_choice last = {INFINITY, -1};

	for (uint32_t slot = 0; slot < args.top_k; slot++) {
		last = gsn_next_best(logits, args.experts, last, lane);
		if (lane == 0)
			ids[slot] = last.id;
	}
	gsn_warp_sync();
	gsn_weigh(args, logits, ids, (float *)args.weights + (uint64_t)token * args.top_k);
	if (faults && lane == 0)
		atomicOr(&((gsn_moe_counters *)args.counters)->faults, faults);
}

#endif
