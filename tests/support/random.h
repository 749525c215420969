/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_RANDOM_H
#define GPUSNAP_TEST_RANDOM_H
/*
 * Seeded random numbers (splitmix64, https://prng.di.unimi.it/splitmix64.c), the same on every
 * machine. GPUSNAP_SEED replaces the seed, which a failing test should print.
 */
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t random_seed(uint64_t fallback)
{
	const char *text = getenv("GPUSNAP_SEED");

	return text ? strtoull(text, NULL, 0) : fallback;
}

static inline uint64_t random_u64(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* From 0 to limit - 1; limit > 0. */
static inline uint64_t random_below(uint64_t *state, uint64_t limit)
{
	return random_u64(state) % limit;
}

static inline void random_fill(uint64_t *state, void *bytes, size_t length)
{
	uint8_t *p = bytes;

	for (size_t i = 0; i < length; i++)
		p[i] = (uint8_t)random_u64(state);
}

/* From -1 to 1, a multiple of 2^-23. */
static inline float random_unit(uint64_t *state)
{
	return (float)((int32_t)random_below(state, 1u << 24) - (1 << 23)) * 0x1p-23f;
}

#endif
