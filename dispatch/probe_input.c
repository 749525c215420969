/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded pseudo-random inputs of the probe. */
#include "dispatch/probe_input.h"

#include <string.h>

static uint64_t split_mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint64_t mix(uint64_t value)
{
	return split_mix(&value);
}

static float to_input(uint64_t random)
{
	uint32_t sign = (uint32_t)(random >> 63);
	uint32_t mantissa = (uint32_t)(random >> 56) & 0x7f;
	uint32_t exponent = 127 - ((uint32_t)(random >> 54) & 3);
	uint32_t bits = sign << 31 | exponent << 23 | mantissa << 16;
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

void gsn_probe_input(uint64_t seed, uint64_t stream, float *ret_values, size_t count)
{
	uint64_t state = mix(seed ^ mix(stream));

	for (size_t i = 0; i < count; i++)
		ret_values[i] = to_input(split_mix(&state));
}

void gsn_probe_token_ids(
	uint64_t seed, uint64_t stream, uint32_t vocabulary, int32_t *ret_ids, size_t count)
{
	uint64_t state = mix(seed ^ mix(stream));

	for (size_t i = 0; i < count; i++)
		ret_ids[i] = (int32_t)((split_mix(&state) >> 32) * vocabulary >> 32);
}
