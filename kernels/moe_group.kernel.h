/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_GROUP_KERNEL_H
#define GSN_MOE_GROUP_KERNEL_H
/*
 * The (token, slot) pairs of a step sorted by local expert, as moe_groups.c does it on the host, by
 * one block of threads: each pair is numbered among those of its expert, in the order of the pairs,
 * so no two runs differ.
 */
#include "kernels/gpu_kernels.h"
#include "kernels/moe_groups.h"

enum {
	GSN_GROUP_WARPS = 8,
	GSN_GROUP_THREADS = GSN_GROUP_WARPS * GSN_WARP,
	GSN_GROUP_NEAR = 1024, /* entries of a list that may be in shared memory */
};

struct gsn_group_args {
	const int32_t *mask;
	const int32_t *ids;
	int32_t *mask_locals;
	int32_t *pair_locals;
	uint32_t *numbers;
	uint32_t *counts;
	uint4 *active;
	uint32_t *pairs;
	uint32_t *active_count;
	gsn_moe_counters *counters;
	uint32_t mask_length, local_experts, pair_count;
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

/* Local expert of an id. */
GSN_DEVICE_FN int32_t gsn_localise(
	const gsn_group_args &args, const int32_t *mask_locals, int32_t id, unsigned *faults)
{
	if (id < 0 || (uint32_t)id >= args.mask_length) {
		*faults |= GSN_MOE_FAULT_EXPERT_ID;
		return GSN_EXPERT_FAULT;
	}
	if (mask_locals[id] == GSN_EXPERT_FAULT)
		*faults |= GSN_MOE_FAULT_LOCAL_ID;
	return mask_locals[id];
}

/* Add up what the block's threads counted. */
GSN_DEVICE_FN void gsn_count_locals(
	gsn_moe_counters *counters, uint32_t local, uint32_t remote, unsigned faults)
{
	for (int distance = 1; distance < GSN_WARP; distance *= 2) {
		local += gsn_shuffle_xor(local, distance);
		remote += gsn_shuffle_xor(remote, distance);
		faults |= gsn_shuffle_xor(faults, distance);
	}
	if (threadIdx.x % GSN_WARP)
		return;
	if (local)
		atomicAdd((unsigned long long *)&counters->local, (unsigned long long)local);
	if (remote)
		atomicAdd((unsigned long long *)&counters->remote, (unsigned long long)remote);
	if (faults)
		atomicOr(&counters->faults, faults);
}

/* How many of `experts`, one of each thread, before this thread's are the same. */
GSN_DEVICE_FN uint32_t gsn_same_before(const int32_t *experts, int32_t expert)
{
	const uint32_t warp = threadIdx.x / GSN_WARP * GSN_WARP;
	uint32_t count = 0;

#pragma unroll 4
	for (uint32_t i = 0; i < warp; i += 4) {
		const int4 v = *(const int4 *)(experts + i);

		count += (v.x == expert) + (v.y == expert) + (v.z == expert) + (v.w == expert);
	}
#pragma unroll
	for (uint32_t i = 0; i < GSN_WARP; i++)
		count += experts[warp + i] == expert && warp + i < threadIdx.x;
	return count;
}

/*
 * Local expert of every pair, its number among the pairs of that expert, and how many these are:
 * as many pairs at a time as there are threads.
 */
GSN_DEVICE_FN void gsn_number_pairs(
	const gsn_group_args &args, const int32_t *mask_locals, int32_t *experts, uint32_t *counts)
{
	uint32_t local = 0, remote = 0;
	unsigned faults = 0;

	for (uint32_t base = 0; base < args.pair_count; base += GSN_GROUP_THREADS) {
		const uint32_t pair = base + threadIdx.x;
		int32_t expert = GSN_EXPERT_FAULT;
		uint32_t number = 0;

		if (pair < args.pair_count) {
			expert = gsn_localise(args, mask_locals, args.ids[pair], &faults);
			args.pair_locals[pair] = expert;
			local += expert >= 0;
			remote += expert == GSN_EXPERT_REMOTE;
		}
		experts[threadIdx.x] = expert;
		__syncthreads();
		if (expert >= 0)
			number = counts[expert] + gsn_same_before(experts, expert);
		__syncthreads();
		if (expert >= 0) {
			args.numbers[pair] = number;
			atomicMax(&counts[expert], number + 1);
		}
		__syncthreads();
	}
	gsn_count_locals(args.counters, local, remote, faults);
}

/* Counts become first positions; the experts that have pairs are listed. */
GSN_DEVICE_FN void gsn_lay_out_pairs(
	const gsn_group_args &args, uint32_t *counts, int64_t *warp_sums)
{
	int64_t pairs = 0;
	int64_t active = 0;

	for (uint32_t base = 0; base < args.local_experts; base += GSN_GROUP_THREADS) {
		uint32_t expert = base + threadIdx.x;
		uint32_t count = expert < args.local_experts ? counts[expert] : 0;
		int64_t pair_total, active_total;
		uint32_t before = (uint32_t)(pairs + gsn_sum_before(count, warp_sums, &pair_total));
		int64_t place = active + gsn_sum_before(count > 0, warp_sums, &active_total);

		if (count) {
			counts[expert] = before;
			args.active[place] = make_uint4(expert, before, before + count, 0);
		}
		pairs += pair_total;
		active += active_total;
	}
	if (threadIdx.x == 0)
		*args.active_count = (uint32_t)active;
}

GSN_DEVICE_FN void gsn_place_pairs(const gsn_group_args &args, const uint32_t *first)
{
	for (uint32_t pair = threadIdx.x; pair < args.pair_count; pair += GSN_GROUP_THREADS) {
		int32_t expert = args.pair_locals[pair]; /* this thread's own */

		if (expert >= 0)
			args.pairs[first[expert] + args.numbers[pair]] = pair;
	}
}

GSN_KERNEL void GSN_BLOCK_OF(GSN_GROUP_THREADS) gsn_group_pairs(gsn_group_args args)
{
	__shared__ int64_t warp_sums[GSN_GROUP_WARPS];
	__shared__ int32_t near_mask[GSN_GROUP_NEAR];
	__shared__ uint32_t near_counts[GSN_GROUP_NEAR];
	__shared__ __align__(16) int32_t experts[GSN_GROUP_THREADS];
	int32_t *mask_locals = args.mask_length <= GSN_GROUP_NEAR ? near_mask : args.mask_locals;
	uint32_t *counts = args.local_experts <= GSN_GROUP_NEAR ? near_counts : args.counts;

	for (uint32_t i = threadIdx.x; i < args.local_experts; i += GSN_GROUP_THREADS)
		counts[i] = 0;
	gsn_number_mask(args, mask_locals, warp_sums);
	__syncthreads();
	gsn_number_pairs(args, mask_locals, experts, counts);
	gsn_lay_out_pairs(args, counts, warp_sums);
	__syncthreads();
	gsn_place_pairs(args, counts);
}

#endif
