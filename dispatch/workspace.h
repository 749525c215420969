/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_WORKSPACE_H
#define GSN_WORKSPACE_H
/* Device memory of decode steps: one block, made for the largest layer, grown for a larger batch.
 */
#include <stdint.h>

#include <gpusnap/device.h>

struct gpusnap_dispatch;
struct gsn_layer;
struct gsn_moe_experts;

struct gsn_workspace {
	gpusnap_address base;
	uint64_t bytes; /* mapped; 0: none yet */
	float *ones;	/* host: weights of forced ids */
	uint64_t ones_count;
};

/* Where the arrays of one step are; types as in struct gsn_moe_route and gsn_moe_experts. */
struct gsn_slices {
	gpusnap_address x, normed, logits, keys, ids, mask_ids, weights, token_ids, mask, y, out,
		counters, scratch;
	/* Of the shared expert, as of a layer that has only this one. */
	gpusnap_address shared_logits, shared_ids, shared_weights, shared_mask, shared_y,
		shared_counters;
};

/* Sizes of a step on `layer`, weights and scales; addresses of the workspace stay zero. */
void gsn_experts_args(const struct gsn_layer *layer, uint32_t tokens, uint32_t top_k,
	struct gsn_moe_experts *ret_args);
/* The same for its shared expert, which it has, as the only one of the layer. */
void gsn_shared_args(
	const struct gsn_layer *layer, uint32_t tokens, struct gsn_moe_experts *ret_args);
/*
 * Room for `tokens` inputs with `top_k` slots each on `layer`. Memory is allocated (and counted)
 * only when the largest layer of the model would not fit; what it held before is lost then.
 */
gpusnap_status gsn_workspace_reserve(struct gpusnap_dispatch *dispatch,
	const struct gsn_layer *layer, uint32_t tokens, uint32_t top_k,
	struct gsn_slices *ret_slices, gpusnap_error *err);
void gsn_workspace_release(struct gpusnap_dispatch *dispatch);

#endif
