/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DIGEST_KERNEL_H
#define GSN_DIGEST_KERNEL_H
/*
 * XXH3-128 of leaves, a warp each. Within a block of 1 KiB the accumulation is a sum, so its 16
 * stripes are taken in any order: lane l has accumulators 2j and 2j + 1, j = l % 4, of stripes l /
 * 4 and l / 4 + 8; a load of the warp is 512 consecutive bytes. Blocks follow one another, because
 * each ends in a scramble; the bytes of the next ones are on their way meanwhile.
 */
#include "kernels/gpu_kernels.h"
#include "kernels/xxh3_small.h"

enum {
	GSN_DIGEST_WARPS = 4, /* of a block of threads, one leaf each */
	GSN_DIGEST_BLOCK = 1024,
	GSN_DIGEST_STRIPE = 64,
};

struct gsn_stripe_pair {
	uint64_t a, b;
};

/* What a lane needs of the secret for whole blocks: keys of its two stripes, of the scramble. */
struct gsn_lane_keys {
	gsn_stripe_pair stripe[2];
	gsn_stripe_pair scramble;
};

GSN_DEVICE_FN gsn_stripe_pair gsn_keys_at(unsigned offset)
{
	return {gsn_xxh3_secret(offset), gsn_xxh3_secret(offset + 8)};
}

/* 16 bytes from any address; words that hold none of them are not touched. */
template <bool ALIGNED> GSN_DEVICE_FN uint4 gsn_load_16(uint64_t address)
{
	if (ALIGNED)
		return gsn_load_streamed((const void *)address);
	const unsigned *words = (const unsigned *)(address & ~UINT64_C(3));
	unsigned shift = (unsigned)(address & 3) * 8;
	unsigned w0 = words[0], w1 = words[1], w2 = words[2], w3 = words[3];
	unsigned w4 = shift ? words[4] : 0;

	return make_uint4(gsn_funnel(w0, w1, shift), gsn_funnel(w1, w2, shift),
		gsn_funnel(w2, w3, shift), gsn_funnel(w3, w4, shift));
}

GSN_DEVICE_FN void gsn_add_stripe(gsn_stripe_pair &sum, uint4 data, const gsn_stripe_pair &key)
{
	uint64_t a = (uint64_t)data.y << 32 | data.x;
	uint64_t b = (uint64_t)data.w << 32 | data.z;
	uint64_t ka = a ^ key.a;
	uint64_t kb = b ^ key.b;

	sum.a += b + (uint64_t)(uint32_t)ka * (uint32_t)(ka >> 32);
	sum.b += a + (uint64_t)(uint32_t)kb * (uint32_t)(kb >> 32);
}

/* Add what the lanes of the other stripes have; every lane gets its pair's total. */
GSN_DEVICE_FN void gsn_add_over_stripes(gsn_stripe_pair &acc, gsn_stripe_pair sum)
{
	for (int distance = 4; distance < GSN_WARP; distance *= 2) {
		sum.a += gsn_shuffle_xor(sum.a, distance);
		sum.b += gsn_shuffle_xor(sum.b, distance);
	}
	acc.a += sum.a;
	acc.b += sum.b;
}

GSN_DEVICE_FN uint64_t gsn_scramble(uint64_t acc, uint64_t key)
{
	return ((acc ^ acc >> 47) ^ key) * GSN_XXH3_P32_1;
}

GSN_DEVICE_FN void gsn_add_block(
	gsn_stripe_pair &acc, const uint4 data[2], const gsn_lane_keys &keys)
{
	gsn_stripe_pair sum = {0, 0};

	gsn_add_stripe(sum, data[0], keys.stripe[0]);
	gsn_add_stripe(sum, data[1], keys.stripe[1]);
	gsn_add_over_stripes(acc, sum);
	acc.a = gsn_scramble(acc.a, keys.scramble.a);
	acc.b = gsn_scramble(acc.b, keys.scramble.b);
}

GSN_DEVICE_FN gsn_stripe_pair gsn_initial_pair(unsigned pair)
{
	switch (pair) {
	case 0:
		return {GSN_XXH3_P32_3, GSN_XXH3_P64_1};
	case 1:
		return {GSN_XXH3_P64_2, GSN_XXH3_P64_3};
	case 2:
		return {GSN_XXH3_P64_4, GSN_XXH3_P32_2};
	default:
		return {GSN_XXH3_P64_5, GSN_XXH3_P32_1};
	}
}

template <bool ALIGNED>
GSN_DEVICE_FN void gsn_load_blocks(
	uint4 data[GSN_DIGEST_AHEAD][2], uint64_t at, unsigned first, unsigned blocks)
{
#pragma unroll
	for (unsigned i = 0; i < GSN_DIGEST_AHEAD; i++) {
		uint64_t address = at + (uint64_t)(first + i) * GSN_DIGEST_BLOCK;

		if (first + i < blocks) {
			data[i][0] = gsn_load_16<ALIGNED>(address);
			data[i][1] = gsn_load_16<ALIGNED>(address + GSN_DIGEST_BLOCK / 2);
		}
	}
}

/* The whole blocks of a leaf; `at` is the lane's first address. */
template <bool ALIGNED>
GSN_DEVICE_FN void gsn_add_blocks(
	gsn_stripe_pair &acc, uint64_t at, unsigned blocks, const gsn_lane_keys &keys)
{
	uint4 data[GSN_DIGEST_AHEAD][2], next[GSN_DIGEST_AHEAD][2];

	gsn_load_blocks<ALIGNED>(data, at, 0, blocks);
#pragma unroll 1
	for (unsigned block = 0; block < blocks; block += GSN_DIGEST_AHEAD) {
		gsn_load_blocks<ALIGNED>(next, at, block + GSN_DIGEST_AHEAD, blocks);
#pragma unroll
		for (unsigned i = 0; i < GSN_DIGEST_AHEAD; i++) {
			if (block + i < blocks)
				gsn_add_block(acc, data[i], keys);
			data[i][0] = next[i][0];
			data[i][1] = next[i][1];
		}
	}
}

/* The stripes behind the last whole block, and the last 64 bytes once more. */
template <bool ALIGNED>
GSN_DEVICE_FN void gsn_add_rest(gsn_stripe_pair &acc, uint64_t leaf, unsigned length, unsigned lane,
	const gsn_lane_keys &keys)
{
	unsigned blocks = (length - 1) / GSN_DIGEST_BLOCK;
	unsigned stripes = (length - 1) % GSN_DIGEST_BLOCK / GSN_DIGEST_STRIPE;
	uint64_t at = leaf + (uint64_t)blocks * GSN_DIGEST_BLOCK + lane * 16;
	gsn_stripe_pair sum = {0, 0};

#pragma unroll
	for (unsigned i = 0; i < 2; i++)
		if (lane / 4 + 8 * i < stripes)
			gsn_add_stripe(sum, gsn_load_16<ALIGNED>(at + i * GSN_DIGEST_BLOCK / 2),
				keys.stripe[i]);
	if (lane < 4)
		gsn_add_stripe(sum,
			gsn_load_16<false>(leaf + length - GSN_DIGEST_STRIPE + lane * 16),
			gsn_keys_at(GSN_XXH3_SECRET_BYTES - GSN_DIGEST_STRIPE - 7 + lane * 16));
	gsn_add_over_stripes(acc, sum);
}

/* Half of the hash: the secret from `offset` on, the sum over the four pairs. */
GSN_DEVICE_FN uint64_t gsn_merge(
	const gsn_stripe_pair &acc, unsigned lane, unsigned offset, uint64_t start)
{
	gsn_stripe_pair key = gsn_keys_at(offset + lane % 4 * 16);
	uint64_t sum = gsn_xxh3_fold(acc.a ^ key.a, acc.b ^ key.b);

	sum += gsn_shuffle_xor(sum, 1);
	sum += gsn_shuffle_xor(sum, 2);
	return gsn_xxh3_avalanche(sum + start);
}

template <bool ALIGNED>
GSN_DEVICE_FN gsn_xxh3_hash gsn_digest_long(uint64_t leaf, unsigned length, unsigned lane)
{
	gsn_stripe_pair acc = gsn_initial_pair(lane % 4);
	gsn_lane_keys keys;
	gsn_xxh3_hash hash;

	for (unsigned i = 0; i < 2; i++)
		keys.stripe[i] = gsn_keys_at((lane / 4 + 8 * i) * 8 + lane % 4 * 16);
	keys.scramble = gsn_keys_at(GSN_XXH3_SECRET_BYTES - GSN_DIGEST_STRIPE + lane % 4 * 16);
	gsn_add_blocks<ALIGNED>(acc, leaf + lane * 16, (length - 1) / GSN_DIGEST_BLOCK, keys);
	gsn_add_rest<ALIGNED>(acc, leaf, length, lane, keys);
	hash.low = gsn_merge(acc, lane, 11, length * GSN_XXH3_P64_1);
	hash.high = gsn_merge(acc, lane, GSN_XXH3_SECRET_BYTES - GSN_DIGEST_STRIPE - 11,
		~(length * GSN_XXH3_P64_2));
	return hash;
}

/* The range that holds the leaf: the last one whose first leaf is not behind it. */
GSN_DEVICE_FN gsn_gpu_leaf_range gsn_range_of_leaf(
	const gsn_gpu_leaf_range *ranges, unsigned count, uint64_t leaf)
{
	unsigned low = 0;
	unsigned high = count;

	while (high - low > 1) {
		unsigned middle = low + (high - low) / 2;

		if (ranges[middle].first_leaf <= leaf)
			low = middle;
		else
			high = middle;
	}
	return ranges[low];
}

GSN_KERNEL void GSN_RESIDENT_BLOCKS(GSN_DIGEST_WARPS *GSN_WARP, GSN_DIGEST_RESIDENT)
	gsn_digest_leaves(const gsn_gpu_leaf_range *ranges, unsigned count, uint64_t leaves)
{
	uint64_t leaf = (uint64_t)blockIdx.x * GSN_DIGEST_WARPS + threadIdx.x / GSN_WARP;
	unsigned lane = threadIdx.x % GSN_WARP;

	if (leaf >= leaves)
		return;
	gsn_gpu_leaf_range range = gsn_range_of_leaf(ranges, count, leaf);
	uint64_t offset = (leaf - range.first_leaf) * GPUSNAP_LEAF_BYTES;
	uint64_t left = range.bytes - offset;
	unsigned length = left < GPUSNAP_LEAF_BYTES ? (unsigned)left : GPUSNAP_LEAF_BYTES;
	uint64_t address = range.address + offset;
	gsn_xxh3_hash hash;

	if (length <= GSN_XXH3_SMALL_BYTES) {
		if (lane == 0)
			hash = gsn_xxh3_small((const uint8_t *)address, length);
	} else if (address % 16 == 0) {
		hash = gsn_digest_long<true>(address, length, lane);
	} else {
		hash = gsn_digest_long<false>(address, length, lane);
	}
	if (lane == 0)
		((ulonglong2 *)range.digests)[leaf - range.first_leaf] =
			make_ulonglong2(gsn_xxh3_swap64(hash.high), gsn_xxh3_swap64(hash.low));
}

#endif
