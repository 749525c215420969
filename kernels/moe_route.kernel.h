/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_ROUTE_KERNEL_H
#define GSN_MOE_ROUTE_KERNEL_H
/* Routing: logits by rows of the router, then the choice of experts by a warp for each token. */
#include <gpusnap/moe.h>

#include "kernels/moe_dot.kernel.h"

enum { GSN_ROUTE_WARPS = 4, GSN_ROUTE_TOKENS = 4 };

struct gsn_logits_args {
	gsn_matrix router;
	const float *x;
	float *logits;
	gpusnap_address bias; /* 0: none */
	gpusnap_dtype bias_dtype;
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
	gsn_dot<FORMAT, WHOLE ? GSN_DOT_NATURAL : GSN_DOT_ANY, 1, TOKENS>(out, row, args.router, x);
	if (threadIdx.x % GSN_ROW_LANES || expert >= experts)
		return;
	float bias = args.bias ? gsn_element(args.bias, args.bias_dtype, expert) : 0.0f;

	for (int t = 0; t < TOKENS; t++)
		if (first + t < args.tokens)
			args.logits[(uint64_t)(first + t) * experts + expert] =
				gsn_canonical(out[0][t] + bias);
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

/* A score of one expert's logit alone; else a softmax. */
GSN_DEVICE_FN bool gsn_is_single(const gsn_moe_route &args)
{
	return args.score == GPUSNAP_SCORE_SIGMOID || args.score == GPUSNAP_SCORE_SQRT_SOFTPLUS;
}

GSN_DEVICE_FN float gsn_single_score(const gsn_moe_route &args, float logit)
{
	return args.score == GPUSNAP_SCORE_SIGMOID ? gsn_sigmoid(logit) : gsn_sqrt_softplus(logit);
}

/* Weights before they are divided by their sum; a slot without an expert scores 0. */
GSN_DEVICE_FN void gsn_score_chosen(
	const gsn_moe_route &args, const float *logits, const int32_t *ids, float *weights)
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	float max = 0.0f;
	float sum = 1.0f;

	if (!gsn_is_single(args))
		max = gsn_sort_key(logits[ids[0]]);
	if (args.score == GPUSNAP_SCORE_SOFTMAX)
		sum = gsn_softmax_sum(logits, args.experts, max, lane);
	for (uint32_t slot = lane; slot < args.top_k; slot += GSN_WARP) {
		if (!gsn_is_single(args))
			weights[slot] = gsn_expf(logits[ids[slot]] - max) / sum;
		else
			weights[slot] =
				ids[slot] < 0 ? 0.0f : gsn_single_score(args, logits[ids[slot]]);
	}
}

GSN_DEVICE_FN void gsn_weigh(
	const gsn_moe_route &args, const float *logits, const int32_t *ids, float *weights)
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	bool divide = args.renormalise || args.score == GPUSNAP_SCORE_SOFTMAX_CHOSEN;
	float sum = 0.0f;

	gsn_score_chosen(args, logits, ids, weights);
	gsn_warp_sync();
	for (uint32_t slot = 0; slot < args.top_k; slot++)
		sum += weights[slot];
	if (gsn_is_single(args))
		sum += 1e-20f;
	gsn_warp_sync();
	for (uint32_t slot = lane; slot < args.top_k; slot += GSN_WARP) {
		float weight = divide ? weights[slot] / sum : weights[slot];

		weights[slot] = gsn_canonical(args.scale != 0.0f ? weight * args.scale : weight);
	}
}

/* Keys of the lane's experts. @return whether one is a NaN */
GSN_DEVICE_FN bool gsn_make_keys(
	const gsn_moe_route &args, const float *logits, float *keys, uint32_t lane)
{
	bool nan = false;

	for (uint32_t e = lane; e < args.experts; e += GSN_WARP) {
		float key = gsn_single_score(args, logits[e]);

		if (args.selection_bias)
			key += gsn_element(args.selection_bias, args.selection_bias_dtype, e);
		nan |= key != key;
		keys[e] = gsn_sort_key(key);
	}
	return nan;
}

/* Sum of the two best keys of a group; of one where it has no more. */
GSN_DEVICE_FN float gsn_group_score(const float *keys, uint32_t count)
{
	float first = -INFINITY;
	float second = -INFINITY;

	for (uint32_t i = 0; i < count; i++) {
		float rest = keys[i] < first ? keys[i] : first;

		first = keys[i] > first ? keys[i] : first;
		second = rest > second ? rest : second;
	}
	return count > 1 ? gsn_sort_key(first + second) : first;
}

/* Keys of all groups but the best become minus infinity; a lane has groups lane and lane + 32. */
GSN_DEVICE_FN void gsn_drop_groups(const gsn_moe_route &args, float *keys, uint32_t lane)
{
	enum { GROUPS = GSN_MOE_GROUPS_MAX / GSN_WARP };
	uint32_t size = args.groups ? args.experts / args.groups : 0;
	float scores[GROUPS];
	uint32_t better[GROUPS];

	for (int i = 0; i < GROUPS; i++) {
		uint32_t group = lane + i * GSN_WARP;

		better[i] = 0;
		scores[i] = group < args.groups
				    ? gsn_group_score(keys + (uint64_t)group * size, size)
				    : 0.0f;
	}
	for (uint32_t other = 0; other < args.groups; other++) {
		float score = gsn_shuffle(
			other < GSN_WARP ? scores[0] : scores[1], (int)(other % GSN_WARP));

		for (int i = 0; i < GROUPS; i++)
			better[i] += score > scores[i] ||
				     (score == scores[i] && other < lane + i * GSN_WARP);
	}
	gsn_warp_sync();
	for (int i = 0; i < GROUPS; i++)
		for (uint32_t k = 0; k < size && lane + i * GSN_WARP < args.groups; k++)
			if (better[i] >= args.top_groups)
				keys[(uint64_t)(lane + i * GSN_WARP) * size + k] = -INFINITY;
}

GSN_DEVICE_FN void gsn_choose(
	const gsn_moe_route &args, const float *keys, int32_t *ids, uint32_t lane)
{
	gsn_choice last = {INFINITY, -1};

	for (uint32_t slot = 0; slot < args.top_k; slot++) {
		last = gsn_next_best(keys, args.experts, last, lane);
		if (lane == 0)
			ids[slot] = last.id;
	}
}

/* The token's row of the hash table; -1 for what is no expert. @return whether there is one */
GSN_DEVICE_FN bool gsn_look_up(
	const gsn_moe_route &args, uint32_t token, int32_t *ids, uint32_t lane)
{
	int64_t row = ((const int32_t *)args.token_ids)[token];
	bool bad = false;

	for (uint32_t slot = lane; slot < args.top_k; slot += GSN_WARP) {
		uint64_t at = (uint64_t)row * args.top_k + slot;
		int64_t id = -1;

		if (row >= 0 && row < args.vocabulary)
			id = args.hash_dtype == GPUSNAP_I64 ? ((const int64_t *)args.hash)[at]
							    : ((const int32_t *)args.hash)[at];
		if (id < 0 || id >= args.experts) {
			bad = true;
			id = -1;
		}
		ids[slot] = (int32_t)id;
	}
	return bad;
}

/* @return faults */
GSN_DEVICE_FN unsigned gsn_choose_by_keys(
	const gsn_moe_route &args, const float *logits, float *keys, int32_t *ids, uint32_t lane)
{
	bool nan = gsn_make_keys(args, logits, keys, lane);

	gsn_warp_sync();
	gsn_drop_groups(args, keys, lane);
	gsn_warp_sync();
	gsn_choose(args, keys, ids, lane);
	return gsn_ballot(nan) ? GSN_MOE_FAULT_NAN_LOGIT : 0u;
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

	if (token >= args.tokens)
		return;
	const float *logits = (const float *)args.logits + (uint64_t)token * args.experts;
	int32_t *ids = (int32_t *)args.ids + (uint64_t)token * args.top_k;
	unsigned faults = gsn_logit_faults(logits, args.experts, lane);

	if (args.hash)
		faults |= gsn_ballot(gsn_look_up(args, token, ids, lane)) ? GSN_MOE_FAULT_HASH : 0u;
	else if (gsn_is_single(args))
		faults |= gsn_choose_by_keys(args, logits,
			(float *)args.keys + (uint64_t)token * args.experts, ids, lane);
	else
		gsn_choose(args, logits, ids, lane);
	gsn_warp_sync();
	gsn_weigh(args, logits, ids, (float *)args.weights + (uint64_t)token * args.top_k);
	for (uint32_t slot = lane; args.hash && slot < args.top_k; slot += GSN_WARP)
		ids[slot] = ids[slot] < 0 ? 0 : ids[slot];
	if (faults && lane == 0)
		atomicOr(&((gsn_moe_counters *)args.counters)->faults, faults);
}

#endif
