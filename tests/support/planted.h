/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_PLANTED_H
#define GPUSNAP_TEST_PLANTED_H
/* Faults planted in a live MoE model, and the validation that must name them. Functions assert. */
#include "tests/support/moe_state.h"

/* Faults are planted in this layer, and where they are about one expert, in this local one. */
enum { PLANT_LAYER = 1, PLANT_LOCAL = 2 };

/* Where a fault is planted: the live bytes of one buffer of the layer, and one local expert. */
struct plant {
	const gpusnap_moe_layer *spec;
	gpusnap_dtype dtype;
	uint8_t *bytes;
	uint64_t size;
	uint8_t *expert; /* its part of the bytes */
	uint64_t part;
};

struct plant plant_place(const struct moe_state *state, gpusnap_moe_slot slot, uint32_t local);
void plant_all_zero(const struct plant *at);
void plant_expert_zero(const struct plant *at);
void plant_expert_bit(const struct plant *at);
void plant_scale_doubled(const struct plant *at);
void plant_one_bit(const struct plant *at);

/* Plant and take back every fault that the model can have: each is named, and nothing else. */
void plant_all_faults(const struct moe_state *state);

gpusnap_probe *moe_record(const struct moe_state *state);
gpusnap_baseline *moe_baseline(const struct moe_state *state);
gpusnap_validation moe_validate(const struct moe_state *state, const gpusnap_probe *probe,
	const gpusnap_baseline *baseline);
void check_proved(const struct moe_state *state, const gpusnap_probe *probe,
	const gpusnap_baseline *baseline);
/* A failure of the layer's slot; expert -1 for none. `name` is of the test, for messages. */
void check_failure(const struct moe_state *state, const gpusnap_failure *got, const char *name,
	gpusnap_failure_kind kind, gpusnap_moe_slot slot, int32_t expert);

#endif
