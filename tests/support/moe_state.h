/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_MOE_STATE_H
#define GPUSNAP_TEST_MOE_STATE_H
/*
 * A MoE model in a registry on the host device, ready to decode: made up from a seed, so that a
 * test can choose its sizes, or loaded from a checkpoint. Functions assert; nothing to check.
 */
#include <gpusnap/dispatch.h>
#include <gpusnap/loader.h>

struct moe_state {
	gpusnap_device *device; /* NULL: borrowed */
	gpusnap_registry *registry;
	gpusnap_moe_model *model;
	gpusnap_dispatch *dispatch;
	bool unregistered; /* masks have no names; they are here: */
	uint32_t mask_region;
	uint64_t mask_offsets[8];
};

struct moe_shape {
	uint32_t layers, hidden, intermediate, experts, top_k;
	gpusnap_dtype dtype; /* of weights: BF16, F32 or F8_E4M3, the last with scales */
	uint32_t block;	     /* of F8_E4M3 */
	gpusnap_mask_kind mask;
	uint32_t ep_rank, ep_size;
	/* Sigmoid, groups of 4, selection bias, scale, and on rank 0 a gated shared expert. */
	bool sigmoid;
	bool maps; /* an index map beside each mask */
	bool unregistered_masks;
	bool forget_unclaimed;	/* policy zero for bytes that no buffer names */
	bool zero_masks;	/* leave them, and maps, to gpusnap_dispatch_build_mask() */
	gpusnap_device *device; /* borrowed; NULL: the host, opened and closed */
};
/* Small, and none of its sizes equals another. */
#define MOE_SHAPE_INIT                                                                             \
	{                                                                                          \
		.layers = 2, .hidden = 96, .intermediate = 40, .experts = 8, .top_k = 3,           \
		.dtype = GPUSNAP_BF16, .block = 32, .mask = GPUSNAP_MASK_STANDARD, .ep_size = 1    \
	}

/* Experts have the same weights whatever the rank that holds them. */
void moe_state_make(struct moe_state *state, const struct moe_shape *shape);
/* tests/data/checkpoints/NAME. Unregistered masks are bound. In moe_loaded.c. */
void moe_state_load(struct moe_state *state, const char *name, const gpusnap_load_options *options);
void moe_state_free(struct moe_state *state);

/* Parts of the above: the registry; binding unregistered masks. */
void moe_state_open(
	struct moe_state *state, gpusnap_device *device, const gpusnap_registry_options *ranks);
void moe_state_bind_masks(struct moe_state *state);

/* Live bytes of a layer's buffer, by the model's name for it or where an unregistered mask is. */
void *moe_state_bytes(
	const struct moe_state *state, uint32_t layer, gpusnap_moe_slot slot, uint64_t *ret_bytes);
/* `count` finite inputs, the same for the same seed. */
float *moe_inputs(uint64_t seed, size_t count);
void moe_offload(const struct moe_state *state);
void moe_resume(const struct moe_state *state);

#endif
