/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_MOE_H
#define GPUSNAP_MOE_H
/*
 * What a Mixture-of-Experts layer is: sizes, router, activation, and the names of the buffers that
 * hold it. Written by the loader (or by an engine for its own buffers), carried in the snapshot,
 * read by dispatch.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/json.h>
#include <gpusnap/mask.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gpusnap_score {
	GPUSNAP_SCORE_SOFTMAX = 1, /* softmax over all experts, then top-k */
	/* sigmoid; top-k of score + selection bias, weights from the score alone */
	GPUSNAP_SCORE_SIGMOID,
	/* top-k of the logits, router bias included, then softmax over the chosen: GPT-OSS */
	GPUSNAP_SCORE_SOFTMAX_CHOSEN,
	/* sqrt(softplus(logit)), else as sigmoid; or the experts are read from a hash table */
	GPUSNAP_SCORE_SQRT_SOFTPLUS,
} gpusnap_score;

typedef enum gpusnap_activation {
	/* silu(g) * u; with a limit L, g = min(gate, L) and u = clamp(up, -L, L) */
	GPUSNAP_ACTIVATION_SILU = 1,
	/* (u + 1) * g * sigmoid(1.702 g), g and u limited as above: GPT-OSS */
	GPUSNAP_ACTIVATION_SWIGLU_OAI,
} gpusnap_activation;

/* Buffers of a layer. A slot that the layer does not have is NULL. */
typedef enum gpusnap_moe_slot {
	GPUSNAP_MOE_ROUTER, /* [experts, hidden] BF16 or F32 */
	GPUSNAP_MOE_W13,    /* [local, 2*intermediate, hidden]: gate rows, then up rows */
	/* [local, 2*ceil(I/block_n), ceil(H/block_k)] F32 or F8_E8M0: value = code * scale */
	GPUSNAP_MOE_W13_SCALE,
	GPUSNAP_MOE_W2,	      /* [local, hidden, intermediate] */
	GPUSNAP_MOE_W2_SCALE, /* [local, ceil(H/block_n), ceil(I/block_k)], as w13_scale */
	GPUSNAP_MOE_MASK,     /* I32, length by mask type */
	GPUSNAP_MOE_NORM,     /* [hidden] RMS norm before the block; used by the decode probe */
	GPUSNAP_MOE_SELECTION_BIAS, /* [experts]: added to the scores that experts are chosen by */
	GPUSNAP_MOE_SHARED_W13,	    /* [2*shared_intermediate, hidden], as w13 of one expert */
	GPUSNAP_MOE_SHARED_W2,	    /* [hidden, shared_intermediate] */
	GPUSNAP_MOE_SHARED_GATE, /* [1, hidden]: its output is weighted by a sigmoid of the logit */
	GPUSNAP_MOE_ROUTER_BIAS, /* [experts]: added to the logits */
	GPUSNAP_MOE_W13_BIAS,	 /* [local, 2*intermediate], in the order of w13's rows */
	GPUSNAP_MOE_W2_BIAS,	 /* [local, hidden], added before the routing weight; one TP rank */
	GPUSNAP_MOE_HASH,	 /* [vocabulary, top_k] I64 or I32: experts of a token id */
	GPUSNAP_MOE_SHARED_W13_SCALE, /* of one expert, by shared_block_n and _k */
	GPUSNAP_MOE_SHARED_W2_SCALE,
	GPUSNAP_MOE_MAP, /* [experts] I32: local id of each expert, -1 for remote ones */
	GPUSNAP_MOE_SLOTS
} gpusnap_moe_slot;

typedef struct gpusnap_moe_layer {
	char *module;	       /* "model.layers.0.mlp": the name references use */
	uint32_t layer;	       /* position in the model, 0 first */
	uint32_t hidden;       /* H */
	uint32_t intermediate; /* I of this rank: the whole model's divided by tp_size */
	uint32_t experts;      /* E, whole model */
	uint32_t top_k;
	gpusnap_score score;
	bool renormalise;    /* divide the chosen weights by their sum; + 1e-20 for a sigmoid */
	float routed_scale;  /* of the chosen weights, 0 to 1e6; 0: they are not scaled */
	uint32_t groups;     /* equal runs of experts, GPUSNAP_MOE_GROUPS_MAX at most; 0: none */
	uint32_t top_groups; /* of them that experts are chosen from: largest sums of two best */
	/*
	 * Of the expert that every token goes through, its activation as the routed; this rank's
	 * share as of `intermediate`. 0: none here. Its output is added after all slots, once: of
	 * the expert-parallel ranks only one may name it.
	 */
	uint32_t shared_intermediate;
	gpusnap_activation activation;
	float activation_limit; /* L, above 0; 0: gate and up are not limited */
	/* The routing weight multiplies what goes into w2, not what comes out; not its bias. */
	bool weight_before_w2;
	uint32_t vocabulary; /* rows of the hash table; 0: experts are chosen by score */
	uint32_t shared_block_n, shared_block_k; /* as below, of the shared expert */
	uint32_t block_n; /* rows and columns that share one weight scale; 0: no scales */
	uint32_t block_k;
	float norm_epsilon; /* of the RMS norm */
	gpusnap_mask_type mask;
	char *buffers[GPUSNAP_MOE_SLOTS]; /* names; NULL where the layer has none */
} gpusnap_moe_layer;

typedef struct gpusnap_moe_model {
	char *family; /* "qwen3_moe" */
	uint32_t tp_rank, tp_size, ep_rank, ep_size;
	uint32_t layer_count;
	gpusnap_moe_layer *layers;
} gpusnap_moe_model;

#define GPUSNAP_MOE_LAYERS_MAX	   4096u
#define GPUSNAP_MOE_WIDTH_MAX	   1048576u /* hidden, intermediate, scale blocks */
#define GPUSNAP_MOE_GROUPS_MAX	   64u
#define GPUSNAP_MOE_SCALE_MAX	   1e6f /* of routed weights; also the largest activation limit */
#define GPUSNAP_MOE_VOCABULARY_MAX 2147483647u /* token ids are I32 */

/** "router", "w13", ...: the slot's name in JSON and messages. */
GPUSNAP_API const char *gpusnap_moe_slot_name(gpusnap_moe_slot slot);
/** JSON form, as carried in the plan under records.model. NULL: no memory. */
GPUSNAP_API gpusnap_json *gpusnap_moe_model_encode(const gpusnap_moe_model *model);
/**
 * Parse and check, so that sizes need no further check: none is zero, top_k <= experts, layers
 * ascend, the mask is of these experts and this rank's block (gpusnap_expert_block), router, w13
 * and w2 are named, scales where and only where there are blocks, both weights of a shared expert
 * where and only where it has a width, its gate and scales only there, selection bias and groups
 * only with a sigmoid or sqrt(softplus), groups that divide the experts and hold top_k, a hash
 * table where and only where there is a vocabulary, with none of the two. E_FORMAT otherwise,
 * E_UNSUPPORTED for a format, score, activation or slot that this build does not know.
 * @param out  owned by the caller; gpusnap_moe_model_free().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_moe_model_decode(
	gpusnap_json *json, gpusnap_moe_model **out, gpusnap_error *err);
/** Releases the struct and all that it points to; NULL is a no-op. */
GPUSNAP_API void gpusnap_moe_model_free(gpusnap_moe_model *model);

#ifdef __cplusplus
}
#endif
#endif
