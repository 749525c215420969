/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_GROUP_KERNEL_H
#define GSN_MOE_GROUP_KERNEL_H
/*
 * The (token, slot) pairs of a step sorted by local expert, as moe_groups.c does it on the host, by
 * one block of threads: a thread counts and places the pairs of one expert, so the order is that of
 * the pairs and no two runs differ. Lists are in scratch memory of any size.
 */
#include "kernels/gpu_kernels.h"
#include "kernels/moe_groups.h"

enum {
	GSN_GROUP_WARPS = 8,
	GSN_GROUP_THREADS = GSN_GROUP_WARPS * GSN_WARP,
	GSN_GROUP_NEAR = 4096, /* entries of a list that may be in shared memory */
};

struct gsn_group_args {
	const int32_t *mask;
	const int32_t *ids;
	int32_t *mask_locals;
	int32_t *pair_locals;
	uint32_t *begin;
	uint32_t *active;
	uint32_t *pairs;
	uint32_t *active_count;
	gsn_moe_counters *counters;
	uint32_t mask_length, local_experts, pair_count;
};

/* Lists that the block reads again and again, near it while they are short enough. */
struct gsn_group_lists {
	int32_t *mask_locals;
	int32_t *pair_locals;
};

/* Sum of the values of this lane and those before it. */
GSN_DEVICE_FN int64_t gsn_sum_in_warp(int64_t sum)
{
	for (uint32_t distance = 1; distance < GSN_WARP; distance *= 2) {
		int64_t other = gsn_shuffle_up(sum, distance);

		sum += threadIdx.x % GSN_WARP >= distance ? other : 0;
	}
	return sum;
}

/* Sum of the values of all threads before this one; `total` becomes the sum of all. */
GSN_DEVICE_FN int64_t gsn_sum_before(int64_t value, int64_t *warp_sums, int64_t *total)
{
	uint32_t lane = threadIdx.x % GSN_WARP;
	uint32_t warp = threadIdx.x / GSN_WARP;
	int64_t sum = gsn_sum_in_warp(value);

	__syncthreads();
	if (lane == GSN_WARP - 1)
		warp_sums[warp] = sum;
	__syncthreads();
	int64_t warps = gsn_sum_in_warp(lane < GSN_GROUP_WARPS ? warp_sums[lane] : 0);

	*total = gsn_shuffle(warps, GSN_WARP - 1);
	/* Up to and with this warp, less its own part behind this thread. */
	return gsn_shuffle(warps, (int)warp) - gsn_shuffle(sum, GSN_WARP - 1) + sum - value;
}

/* Mask values are summed as they are, in 64 bits, so a broken mask shifts ids as on the host. */
GSN_DEVICE_FN void gsn_number_mask(
	const gsn_group_args &args, int32_t *mask_locals, int64_t *warp_sums)
{
	int64_t running = 0;

	for (uint32_t base = 0; base < args.mask_length; base += GSN_GROUP_THREADS) {
		uint32_t i = base + threadIdx.x;
		int32_t value = i < args.mask_length ? args.mask[i] : 0;
		int64_t total;
		int64_t local = running + gsn_sum_before(value, warp_sums, &total);

		running += total;
		if (i >= args.mask_length)
			continue;
		if (value == 0)
			mask_locals[i] = GSN_EXPERT_REMOTE;
		else if (local < 0 || local >= (int64_t)args.local_experts)
			mask_locals[i] = GSN_EXPERT_FAULT;
		else
			mask_locals[i] = (int32_t)local;
	}
}

/* Local expert of every pair, and what is to be counted of them. */
GSN_DEVICE_FN void gsn_localise_pairs(const gsn_group_args &args, const gsn_group_lists &lists)
{
	uint32_t local = 0;
	uint32_t remote = 0;
	unsigned faults = 0;

	for (uint32_t pair = threadIdx.x; pair < args.pair_count; pair += GSN_GROUP_THREADS) {
		int32_t id = args.ids[pair];
		bool inside = id >= 0 && (uint32_t)id < args.mask_length;
		int32_t expert = inside ? lists.mask_locals[id] : (int32_t)GSN_EXPERT_FAULT;

		args.pair_locals[pair] = expert; /* for the kernels behind this one */
		lists.pair_locals[pair] = expert;
		local += expert >= 0;
		remote += expert == GSN_EXPERT_REMOTE;
		if (expert == GSN_EXPERT_FAULT)
			faults |= inside ? GSN_MOE_FAULT_LOCAL_ID : GSN_MOE_FAULT_EXPERT_ID;
	}
	for (int distance = 1; distance < GSN_WARP; distance *= 2) {
		local += gsn_shuffle_xor(local, distance);
		remote += gsn_shuffle_xor(remote, distance);
		faults |= gsn_shuffle_xor(faults, distance);
	}
	if (threadIdx.x % GSN_WARP)
		return;
	if (local)
		atomicAdd((unsigned long long *)&args.counters->local, (unsigned long long)local);
	if (remote)
		atomicAdd((unsigned long long *)&args.counters->remote, (unsigned long long)remote);
	if (faults)
		atomicOr(&args.counters->faults, faults);
}

/* A thread for each expert looks at all pairs: they are few, and lanes read the same one. */
GSN_DEVICE_FN void gsn_count_pairs(const gsn_group_args &args, const int32_t *pair_locals)
{
	for (uint32_t expert = threadIdx.x; expert < args.local_experts;
		expert += GSN_GROUP_THREADS) {
		uint32_t count = 0;

#pragma unroll 8
		for (uint32_t pair = 0; pair < args.pair_count; pair++)
			count += pair_locals[pair] == (int32_t)expert;
		args.begin[expert + 1] = count;
	}
}

/* Counts become first positions; the experts that have pairs are listed. */
GSN_DEVICE_FN void gsn_lay_out_pairs(const gsn_group_args &args, int64_t *warp_sums)
{
	int64_t pairs = 0;
	int64_t active = 0;

	for (uint32_t base = 0; base < args.local_experts; base += GSN_GROUP_THREADS) {
		uint32_t expert = base + threadIdx.x;
		bool inside = expert < args.local_experts;
		uint32_t count = inside ? args.begin[expert + 1] : 0;
		int64_t pair_total, active_total;
		int64_t before = pairs + gsn_sum_before(count, warp_sums, &pair_total);
		int64_t place = active + gsn_sum_before(count > 0, warp_sums, &active_total);

		if (inside)
			args.begin[expert + 1] = (uint32_t)(before + count);
		if (count)
			args.active[place] = expert;
		pairs += pair_total;
		active += active_total;
	}
	if (threadIdx.x == 0) {
		args.begin[0] = 0;
		*args.active_count = (uint32_t)active;
	}
}

GSN_DEVICE_FN void gsn_place_pairs(const gsn_group_args &args, const int32_t *pair_locals)
{
	for (uint32_t expert = threadIdx.x; expert < args.local_experts;
		expert += GSN_GROUP_THREADS) {
		uint32_t at = args.begin[expert];

		if (at == args.begin[expert + 1])
			continue;
#pragma unroll 8
		for (uint32_t pair = 0; pair < args.pair_count; pair++)
			if (pair_locals[pair] == (int32_t)expert)
				args.pairs[at++] = pair;
	}
}

GSN_KERNEL void GSN_BLOCK_OF(GSN_GROUP_THREADS) gsn_group_pairs(gsn_group_args args)
{
	__shared__ int64_t warp_sums[GSN_GROUP_WARPS];
	__shared__ int32_t near_mask[GSN_GROUP_NEAR], near_pairs[GSN_GROUP_NEAR];
	gsn_group_lists lists = {args.mask_length <= GSN_GROUP_NEAR ? near_mask : args.mask_locals,
		args.pair_count <= GSN_GROUP_NEAR ? near_pairs : args.pair_locals};

	gsn_number_mask(args, lists.mask_locals, warp_sums);
	__syncthreads();
	gsn_localise_pairs(args, lists);
	__syncthreads();
	gsn_count_pairs(args, lists.pair_locals);
	__syncthreads();
	gsn_lay_out_pairs(args, warp_sums);
	__syncthreads();
	gsn_place_pairs(args, lists.pair_locals);
}

#endif
