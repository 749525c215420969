/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PROBE_INPUT_H
#define GSN_PROBE_INPUT_H
/*
 * The probe's inputs: numbers that any program can make again from a seed. Part of the probe
 * record's meaning: a change here is a new GPUSNAP_PROBE_VERSION.
 *
 * A stream of inputs is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
 * generators", OOPSLA 2014) begun at state mix(seed ^ mix(stream)), mix being one step of it. Of
 * each output the top bit is the sign, the next 7 the mantissa of a bfloat16, the next 2 an
 * exponent of 0 to -3: +-[0.125, 2), never zero, and exact in every dtype that holds weights. A
 * token id is the top half of an output times the vocabulary's size, divided by 2^32.
 */
#include <stddef.h>
#include <stdint.h>

/* Streams. The step of a decode, the token of one expert id of one layer, a step's token ids. */
#define GSN_INPUT_STEP(step)	    (1ull << 56 | (uint64_t)(step))
#define GSN_INPUT_EXPERT(layer, id) (2ull << 56 | (uint64_t)(layer) << 32 | (uint32_t)(id))
#define GSN_INPUT_TOKENS(step)	    (3ull << 56 | (uint64_t)(step))
/* What stands for the id of a sink, which no expert can have. */
#define GSN_INPUT_SINK UINT32_MAX

void gsn_probe_input(uint64_t seed, uint64_t stream, float *ret_values, size_t count);
/* `count` token ids below `vocabulary`. */
void gsn_probe_token_ids(
	uint64_t seed, uint64_t stream, uint32_t vocabulary, int32_t *ret_ids, size_t count);

#endif
