/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_XXH3_SMALL_H
#define GSN_XXH3_SMALL_H
/*
 * The parts of XXH3-128 (seed 0, default secret) that one GPU thread computes: inputs of up to 240
 * bytes, and the mixing functions. From the specification,
 * https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Plain C, so that it is tested
 * against libxxhash where there is no GPU; on a host gpusnap/digest.h is much faster.
 */
#ifdef __cplusplus
#include <cstdint>
#else
#include <stdint.h>
#endif

#if defined(__CUDACC__) || defined(__HIPCC__)
#define GSN_XXH3_FN    static inline __device__
#define GSN_XXH3_TABLE static __device__ const
#else
#define GSN_XXH3_FN    static inline
#define GSN_XXH3_TABLE static const
#endif

#define GSN_XXH3_P32_1 UINT64_C(0x9e3779b1)
#define GSN_XXH3_P32_2 UINT64_C(0x85ebca77)
#define GSN_XXH3_P32_3 UINT64_C(0xc2b2ae3d)
#define GSN_XXH3_P64_1 UINT64_C(0x9e3779b185ebca87)
#define GSN_XXH3_P64_2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define GSN_XXH3_P64_3 UINT64_C(0x165667b19e3779f9)
#define GSN_XXH3_P64_4 UINT64_C(0x85ebca77c2b2ae63)
#define GSN_XXH3_P64_5 UINT64_C(0x27d4eb2f165667c5)

enum {
	GSN_XXH3_SMALL_BYTES = 240, /* longer inputs are taken in stripes */
	GSN_XXH3_SECRET_BYTES = 192,
};

/* The default secret as little-endian words. */
GSN_XXH3_TABLE uint64_t gsn_xxh3_secret_words[GSN_XXH3_SECRET_BYTES / 8] = {
	UINT64_C(0xbe4ba423396cfeb8),
	UINT64_C(0x1cad21f72c81017c),
	UINT64_C(0xdb979083e96dd4de),
	UINT64_C(0x1f67b3b7a4a44072),
	UINT64_C(0x78e5c0cc4ee679cb),
	UINT64_C(0x2172ffcc7dd05a82),
	UINT64_C(0x8e2443f7744608b8),
	UINT64_C(0x4c263a81e69035e0),
	UINT64_C(0xcb00c391bb52283c),
	UINT64_C(0xa32e531b8b65d088),
	UINT64_C(0x4ef90da297486471),
	UINT64_C(0xd8acdea946ef1938),
	UINT64_C(0x3f349ce33f76faa8),
	UINT64_C(0x1d4f0bc7c7bbdcf9),
	UINT64_C(0x3159b4cd4be0518a),
	UINT64_C(0x647378d9c97e9fc8),
	UINT64_C(0xc3ebd33483acc5ea),
	UINT64_C(0xeb6313faffa081c5),
	UINT64_C(0x49daf0b751dd0d17),
	UINT64_C(0x9e68d429265516d3),
	UINT64_C(0xfca1477d58be162b),
	UINT64_C(0xce31d07ad1b8f88f),
	UINT64_C(0x280416958f3acb45),
	UINT64_C(0x7e404bbbcafbd7af),
};

struct gsn_xxh3_hash {
	uint64_t low, high;
};

/* Eight bytes of the secret from any offset up to 184. */
GSN_XXH3_FN uint64_t gsn_xxh3_secret(uint32_t offset)
{
	uint32_t shift = offset % 8 * 8;
	uint64_t word = gsn_xxh3_secret_words[offset / 8];

	if (shift)
		word = word >> shift | gsn_xxh3_secret_words[offset / 8 + 1] << (64 - shift);
	return word;
}

GSN_XXH3_FN uint32_t gsn_xxh3_read32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

GSN_XXH3_FN uint64_t gsn_xxh3_read64(const uint8_t *p)
{
	return gsn_xxh3_read32(p) | (uint64_t)gsn_xxh3_read32(p + 4) << 32;
}

GSN_XXH3_FN uint32_t gsn_xxh3_swap32(uint32_t x)
{
	return x << 24 | (x << 8 & 0xff0000u) | (x >> 8 & 0xff00u) | x >> 24;
}

GSN_XXH3_FN uint64_t gsn_xxh3_swap64(uint64_t x)
{
	return (uint64_t)gsn_xxh3_swap32((uint32_t)x) << 32 | gsn_xxh3_swap32((uint32_t)(x >> 32));
}

/* The 128 bits of a product. */
GSN_XXH3_FN struct gsn_xxh3_hash gsn_xxh3_multiply(uint64_t a, uint64_t b)
{
	uint64_t low_low = (a & 0xffffffffu) * (b & 0xffffffffu);
	uint64_t high_low = (a >> 32) * (b & 0xffffffffu);
	uint64_t low_high = (a & 0xffffffffu) * (b >> 32);
	uint64_t high_high = (a >> 32) * (b >> 32);
	uint64_t cross = (low_low >> 32) + (high_low & 0xffffffffu) + low_high;
	struct gsn_xxh3_hash product;

	product.low = cross << 32 | (low_low & 0xffffffffu);
	product.high = (high_low >> 32) + (cross >> 32) + high_high;
	return product;
}

GSN_XXH3_FN uint64_t gsn_xxh3_fold(uint64_t a, uint64_t b)
{
	struct gsn_xxh3_hash product = gsn_xxh3_multiply(a, b);

	return product.low ^ product.high;
}

GSN_XXH3_FN uint64_t gsn_xxh3_avalanche(uint64_t h)
{
	h ^= h >> 37;
	h *= UINT64_C(0x165667919e3779f9);
	return h ^ h >> 32;
}

GSN_XXH3_FN uint64_t gsn_xxh64_avalanche(uint64_t h)
{
	h ^= h >> 33;
	h *= GSN_XXH3_P64_2;
	h ^= h >> 29;
	h *= GSN_XXH3_P64_3;
	return h ^ h >> 32;
}

GSN_XXH3_FN struct gsn_xxh3_hash gsn_xxh3_1_to_3(const uint8_t *p, uint32_t length)
{
	uint32_t low =
		(uint32_t)p[0] << 16 | (uint32_t)p[length >> 1] << 24 | p[length - 1] | length << 8;
	uint32_t swapped = gsn_xxh3_swap32(low);
	uint32_t high = swapped << 13 | swapped >> 19;
	uint64_t words = gsn_xxh3_secret(0);
	struct gsn_xxh3_hash hash;

	hash.low = gsn_xxh64_avalanche(low ^ ((words & 0xffffffffu) ^ words >> 32));
	words = gsn_xxh3_secret(8);
	hash.high = gsn_xxh64_avalanche(high ^ ((words & 0xffffffffu) ^ words >> 32));
	return hash;
}

GSN_XXH3_FN struct gsn_xxh3_hash gsn_xxh3_4_to_8(const uint8_t *p, uint32_t length)
{
	uint64_t input = gsn_xxh3_read32(p) | (uint64_t)gsn_xxh3_read32(p + length - 4) << 32;
	uint64_t keyed = input ^ gsn_xxh3_secret(16) ^ gsn_xxh3_secret(24);
	struct gsn_xxh3_hash hash = gsn_xxh3_multiply(keyed, GSN_XXH3_P64_1 + (length << 2));

	hash.high += hash.low << 1;
	hash.low ^= hash.high >> 3;
	hash.low ^= hash.low >> 35;
	hash.low *= UINT64_C(0x9fb21c651e98df25);
	hash.low ^= hash.low >> 28;
	hash.high = gsn_xxh3_avalanche(hash.high);
	return hash;
}

GSN_XXH3_FN struct gsn_xxh3_hash gsn_xxh3_9_to_16(const uint8_t *p, uint32_t length)
{
	uint64_t flip_low = gsn_xxh3_secret(32) ^ gsn_xxh3_secret(40);
	uint64_t flip_high = gsn_xxh3_secret(48) ^ gsn_xxh3_secret(56);
	uint64_t low = gsn_xxh3_read64(p);
	uint64_t high = gsn_xxh3_read64(p + length - 8);
	struct gsn_xxh3_hash m = gsn_xxh3_multiply(low ^ high ^ flip_low, GSN_XXH3_P64_1);
	struct gsn_xxh3_hash hash;

	m.low += (uint64_t)(length - 1) << 54;
	high ^= flip_high;
	m.high += high + (high & 0xffffffffu) * (GSN_XXH3_P32_2 - 1);
	m.low ^= gsn_xxh3_swap64(m.high);
	hash = gsn_xxh3_multiply(m.low, GSN_XXH3_P64_2);
	hash.high += m.high * GSN_XXH3_P64_2;
	hash.low = gsn_xxh3_avalanche(hash.low);
	hash.high = gsn_xxh3_avalanche(hash.high);
	return hash;
}

/* Mix 16 bytes at a and 16 at b into the pair of accumulators. */
GSN_XXH3_FN void gsn_xxh3_mix_32(
	struct gsn_xxh3_hash *acc, const uint8_t *a, const uint8_t *b, uint32_t secret)
{
	uint64_t a0 = gsn_xxh3_read64(a), a1 = gsn_xxh3_read64(a + 8);
	uint64_t b0 = gsn_xxh3_read64(b), b1 = gsn_xxh3_read64(b + 8);

	acc->low += gsn_xxh3_fold(a0 ^ gsn_xxh3_secret(secret), a1 ^ gsn_xxh3_secret(secret + 8));
	acc->low ^= b0 + b1;
	acc->high +=
		gsn_xxh3_fold(b0 ^ gsn_xxh3_secret(secret + 16), b1 ^ gsn_xxh3_secret(secret + 24));
	acc->high ^= a0 + a1;
}

GSN_XXH3_FN struct gsn_xxh3_hash gsn_xxh3_finish_small(struct gsn_xxh3_hash acc, uint32_t length)
{
	struct gsn_xxh3_hash hash;

	hash.low = gsn_xxh3_avalanche(acc.low + acc.high);
	hash.high = 0 - gsn_xxh3_avalanche(acc.low * GSN_XXH3_P64_1 + acc.high * GSN_XXH3_P64_4 +
					   length * GSN_XXH3_P64_2);
	return hash;
}

GSN_XXH3_FN struct gsn_xxh3_hash gsn_xxh3_17_to_128(const uint8_t *p, uint32_t length)
{
	struct gsn_xxh3_hash acc;

	acc.low = length * GSN_XXH3_P64_1;
	acc.high = 0;
	for (uint32_t pair = (length - 1) / 32 + 1; pair-- > 0;)
		gsn_xxh3_mix_32(&acc, p + 16 * pair, p + length - 16 * (pair + 1), 32 * pair);
	return gsn_xxh3_finish_small(acc, length);
}

GSN_XXH3_FN struct gsn_xxh3_hash gsn_xxh3_129_to_240(const uint8_t *p, uint32_t length)
{
	struct gsn_xxh3_hash acc;

	acc.low = length * GSN_XXH3_P64_1;
	acc.high = 0;
	for (uint32_t i = 0; i < 4; i++)
		gsn_xxh3_mix_32(&acc, p + 32 * i, p + 32 * i + 16, 32 * i);
	acc.low = gsn_xxh3_avalanche(acc.low);
	acc.high = gsn_xxh3_avalanche(acc.high);
	for (uint32_t i = 4; i < length / 32; i++)
		gsn_xxh3_mix_32(&acc, p + 32 * i, p + 32 * i + 16, 3 + 32 * (i - 4));
	/* 136: the least size of a secret; 17 and 16: the specification's offsets from its end. */
	gsn_xxh3_mix_32(&acc, p + length - 16, p + length - 32, 136 - 17 - 16);
	return gsn_xxh3_finish_small(acc, length);
}

/* XXH3-128 of up to GSN_XXH3_SMALL_BYTES bytes. */
GSN_XXH3_FN struct gsn_xxh3_hash gsn_xxh3_small(const uint8_t *p, uint32_t length)
{
	struct gsn_xxh3_hash hash;

	if (length > 128)
		return gsn_xxh3_129_to_240(p, length);
	if (length > 16)
		return gsn_xxh3_17_to_128(p, length);
	if (length > 8)
		return gsn_xxh3_9_to_16(p, length);
	if (length >= 4)
		return gsn_xxh3_4_to_8(p, length);
	if (length)
		return gsn_xxh3_1_to_3(p, length);
	hash.low = gsn_xxh64_avalanche(gsn_xxh3_secret(64) ^ gsn_xxh3_secret(72));
	hash.high = gsn_xxh64_avalanche(gsn_xxh3_secret(80) ^ gsn_xxh3_secret(88));
	return hash;
}

#endif
