/* SPDX-License-Identifier: Apache-2.0 */
/* The families' tables. Names as `save_pretrained` of the transformers library writes them. */
#include "loader/family.h"

#include <string.h>

/* w13 and w2 of an expert from its gate, up and down projections, with their block scales. */
#define EXPERT_RULES(experts, gate, up, down)                                                      \
	{experts ".%e." gate ".weight", GPUSNAP_MOE_W13, GSN_SHARD_ROWS, 0, 2},                    \
		{experts ".%e." up ".weight", GPUSNAP_MOE_W13, GSN_SHARD_ROWS, 1, 2},              \
		{experts ".%e." down ".weight", GPUSNAP_MOE_W2, GSN_SHARD_COLUMNS, 0, 1},          \
		{experts ".%e." gate ".weight_scale_inv", GPUSNAP_MOE_W13_SCALE, GSN_SHARD_ROWS,   \
			0, 2},                                                                     \
		{experts ".%e." up ".weight_scale_inv", GPUSNAP_MOE_W13_SCALE, GSN_SHARD_ROWS, 1,  \
			2},                                                                        \
	{                                                                                          \
		experts ".%e." down ".weight_scale_inv", GPUSNAP_MOE_W2_SCALE, GSN_SHARD_COLUMNS,  \
			0, 1                                                                       \
	}

/* One expert for every token; `shared` may be several of the checkpoint's, side by side. */
#define SHARED_RULES(shared)                                                                       \
	{shared ".gate_proj.weight", GPUSNAP_MOE_SHARED_W13, GSN_SHARD_ROWS, 0, 2},                \
		{shared ".up_proj.weight", GPUSNAP_MOE_SHARED_W13, GSN_SHARD_ROWS, 1, 2},          \
	{                                                                                          \
		shared ".down_proj.weight", GPUSNAP_MOE_SHARED_W2, GSN_SHARD_COLUMNS, 0, 1         \
	}

#define LAYER_RULE(name, slot)                                                                     \
	{                                                                                          \
		"layers.%l." name, slot, GSN_SHARD_NONE, 0, 1                                      \
	}

#define PLAIN_FAMILY(type, unknown)                                                                \
	{                                                                                          \
		.model_type = (type), .plain_because = "dispatch does not know " unknown           \
	}

static const struct gsn_family families[] = {
	{
		.model_type = "qwen3_moe",
		.score = GPUSNAP_SCORE_SOFTMAX,
		.keys =
			{
				.experts = {"num_experts", "num_local_experts"},
				.top_k = "num_experts_per_tok",
				.renormalise = "norm_topk_prob",
				.sparse_step = "decoder_sparse_step",
				.dense_layers = "mlp_only_layers",
			},
		.rules =
			{
				LAYER_RULE("mlp.gate.weight", GPUSNAP_MOE_ROUTER),
				LAYER_RULE("post_attention_layernorm.weight", GPUSNAP_MOE_NORM),
				EXPERT_RULES("layers.%l.mlp.experts", "gate_proj", "up_proj",
					"down_proj"),
			},
	},
	{
		.model_type = "mixtral",
		.score = GPUSNAP_SCORE_SOFTMAX,
		.keys =
			{
				.experts = {"num_local_experts", NULL},
				.top_k = "num_experts_per_tok",
			},
		.rules =
			{
				LAYER_RULE("block_sparse_moe.gate.weight", GPUSNAP_MOE_ROUTER),
				LAYER_RULE("post_attention_layernorm.weight", GPUSNAP_MOE_NORM),
				EXPERT_RULES(
					"layers.%l.block_sparse_moe.experts", "w1", "w3", "w2"),
			},
	},
	{
		.model_type = "qwen2_moe",
		.score = GPUSNAP_SCORE_SOFTMAX,
		.keys =
			{
				.experts = {"num_experts", "num_local_experts"},
				.top_k = "num_experts_per_tok",
				.renormalise = "norm_topk_prob",
				.sparse_step = "decoder_sparse_step",
				.dense_layers = "mlp_only_layers",
				.shared = "shared_expert_intermediate_size",
			},
		.rules =
			{
				LAYER_RULE("mlp.gate.weight", GPUSNAP_MOE_ROUTER),
				LAYER_RULE("post_attention_layernorm.weight", GPUSNAP_MOE_NORM),
				LAYER_RULE(
					"mlp.shared_expert_gate.weight", GPUSNAP_MOE_SHARED_GATE),
				SHARED_RULES("layers.%l.mlp.shared_expert"),
				EXPERT_RULES("layers.%l.mlp.experts", "gate_proj", "up_proj",
					"down_proj"),
			},
	},
	{
		.model_type = "glm4_moe",
		.score = GPUSNAP_SCORE_SIGMOID,
		.keys =
			{
				.experts = {"n_routed_experts", NULL},
				.top_k = "num_experts_per_tok",
				.renormalise = "norm_topk_prob",
				.first_dense = "first_k_dense_replace",
				.shared = "n_shared_experts",
				.routed_scale = "routed_scaling_factor",
				.groups = "n_group",
				.top_groups = "topk_group",
			},
		.rules =
			{
				LAYER_RULE("mlp.gate.weight", GPUSNAP_MOE_ROUTER),
				LAYER_RULE("mlp.gate.e_score_correction_bias",
					GPUSNAP_MOE_SELECTION_BIAS),
				LAYER_RULE("post_attention_layernorm.weight", GPUSNAP_MOE_NORM),
				SHARED_RULES("layers.%l.mlp.shared_experts"),
				EXPERT_RULES("layers.%l.mlp.experts", "gate_proj", "up_proj",
					"down_proj"),
			},
	},
	PLAIN_FAMILY("deepseek_v3", "FP8 shared experts"),
	PLAIN_FAMILY("deepseek_v4", "hash routing and shared experts"),
	PLAIN_FAMILY("gpt_oss", "clamped activations and biases of experts"),
};

enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

const struct gsn_family *gsn_family_at(size_t index)
{
	return index < FAMILY_COUNT ? &families[index] : NULL;
}

const struct gsn_family *gsn_family_find(const char *model_type)
{
	for (size_t i = 0; i < FAMILY_COUNT; i++)
		if (strcmp(families[i].model_type, model_type) == 0)
			return &families[i];
	return NULL;
}
