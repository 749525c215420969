/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families' tables. Names as `save_pretrained` of the transformers library writes them, and
 * as the models' makers publish them where that differs.
 */
#include "loader/family.h"

#include <string.h>

#define RULE(name, slot, layout, axis, part, parts)                                                \
	{                                                                                          \
		name, GPUSNAP_MOE_##slot, GSN_LAYOUT_##layout, GSN_SHARD_##axis, part, parts       \
	}

#define LAYER_RULE(name, slot) RULE("layers.%l." name, slot, MATRIX, NONE, 0, 1)

/* w13 and w2 from gate, up and down projections, with block scales; `x` is nothing or SHARED_. */
#define PROJECTION_RULES(block, x, gate, up, down)                                                 \
	RULE(block "." gate ".weight", x##W13, MATRIX, ROWS, 0, 2),                                \
		RULE(block "." up ".weight", x##W13, MATRIX, ROWS, 1, 2),                          \
		RULE(block "." down ".weight", x##W2, MATRIX, COLUMNS, 0, 1),                      \
		RULE(block "." gate ".weight_scale_inv", x##W13_SCALE, MATRIX, ROWS, 0, 2),        \
		RULE(block "." up ".weight_scale_inv", x##W13_SCALE, MATRIX, ROWS, 1, 2),          \
		RULE(block "." down ".weight_scale_inv", x##W2_SCALE, MATRIX, COLUMNS, 0, 1),      \
		RULE(block "." gate ".scale", x##W13_SCALE, MATRIX, ROWS, 0, 2),                   \
		RULE(block "." up ".scale", x##W13_SCALE, MATRIX, ROWS, 1, 2),                     \
		RULE(block "." down ".scale", x##W2_SCALE, MATRIX, COLUMNS, 0, 1)

#define EXPERT_RULES(experts, gate, up, down)                                                      \
	PROJECTION_RULES("layers.%l." experts ".%e", , gate, up, down)

/* One expert for every token; `shared` may be several of the checkpoint's, side by side. */
#define SHARED_RULES(shared, gate, up, down)                                                       \
	PROJECTION_RULES("layers.%l." shared, SHARED_, gate, up, down)

/* What all but DeepSeek-V4 call the rest of the model the same. */
#define NEEDED_NAMES                                                                               \
	"embed_tokens.weight", "norm.weight", "layers.%l.input_layernorm.weight",                  \
		"layers.%l.post_attention_layernorm.weight", "layers.%l.self_attn.o_proj.weight"

#define QKV_NAMES                                                                                  \
	"layers.%l.self_attn.q_proj.weight", "layers.%l.self_attn.k_proj.weight",                  \
		"layers.%l.self_attn.v_proj.weight"

#define DENSE_NAMES                                                                                \
	"layers.%l.mlp.gate_proj.weight", "layers.%l.mlp.up_proj.weight",                          \
		"layers.%l.mlp.down_proj.weight"

#define DENSE_SCALES                                                                               \
	"layers.%l.mlp.gate_proj.weight_scale_inv", "layers.%l.mlp.up_proj.weight_scale_inv",      \
		"layers.%l.mlp.down_proj.weight_scale_inv"

const struct gsn_family gsn_family_unknown = {0};

static const struct gsn_family families[] = {
	{
		.model_type = "qwen3_moe",
		.score = GPUSNAP_SCORE_SOFTMAX,
		.activation = GPUSNAP_ACTIVATION_SILU,
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
				LAYER_RULE("mlp.gate.weight", ROUTER),
				LAYER_RULE("post_attention_layernorm.weight", NORM),
				EXPERT_RULES("mlp.experts", "gate_proj", "up_proj", "down_proj"),
			},
		.needed = {NEEDED_NAMES, QKV_NAMES},
		.dense = {DENSE_NAMES},
		.head = "lm_head.weight",
		.plain = {"layers.%l.self_attn.*", DENSE_SCALES},
	},
	{
		.model_type = "mixtral",
		.score = GPUSNAP_SCORE_SOFTMAX,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.keys =
			{
				.experts = {"num_local_experts", NULL},
				.top_k = "num_experts_per_tok",
			},
		.rules =
			{
				LAYER_RULE("block_sparse_moe.gate.weight", ROUTER),
				LAYER_RULE("post_attention_layernorm.weight", NORM),
				EXPERT_RULES("block_sparse_moe.experts", "w1", "w3", "w2"),
			},
		.needed = {NEEDED_NAMES, QKV_NAMES},
		.head = "lm_head.weight",
		.plain = {"layers.%l.self_attn.*"},
	},
	{
		.model_type = "qwen2_moe",
		.score = GPUSNAP_SCORE_SOFTMAX,
		.activation = GPUSNAP_ACTIVATION_SILU,
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
				LAYER_RULE("mlp.shared_expert_gate.weight", SHARED_GATE),
				LAYER_RULE("mlp.gate.weight", ROUTER),
				LAYER_RULE("post_attention_layernorm.weight", NORM),
				EXPERT_RULES("mlp.experts", "gate_proj", "up_proj", "down_proj"),
				SHARED_RULES(
					"mlp.shared_expert", "gate_proj", "up_proj", "down_proj"),
			},
		.needed = {NEEDED_NAMES, QKV_NAMES},
		.dense = {DENSE_NAMES},
		.head = "lm_head.weight",
		.plain = {"layers.%l.self_attn.*", DENSE_SCALES},
	},
	{
		.model_type = "glm4_moe",
		.score = GPUSNAP_SCORE_SIGMOID,
		.activation = GPUSNAP_ACTIVATION_SILU,
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
				LAYER_RULE("mlp.gate.weight", ROUTER),
				LAYER_RULE("mlp.gate.e_score_correction_bias", SELECTION_BIAS),
				LAYER_RULE("post_attention_layernorm.weight", NORM),
				EXPERT_RULES("mlp.experts", "gate_proj", "up_proj", "down_proj"),
				SHARED_RULES(
					"mlp.shared_experts", "gate_proj", "up_proj", "down_proj"),
			},
		.needed = {NEEDED_NAMES, QKV_NAMES},
		.dense = {DENSE_NAMES},
		.head = "lm_head.weight",
		.plain = {"layers.%l.self_attn.*", DENSE_SCALES},
	},
	{
		.model_type = "deepseek_v3",
		.score = GPUSNAP_SCORE_SIGMOID,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.scoring_word = "sigmoid",
		.keys =
			{
				.experts = {"n_routed_experts", NULL},
				.top_k = "num_experts_per_tok",
				.renormalise = "norm_topk_prob",
				.first_dense = "first_k_dense_replace",
				.sparse_every = "moe_layer_freq",
				.shared = "n_shared_experts",
				.routed_scale = "routed_scaling_factor",
				.groups = "n_group",
				.top_groups = "topk_group",
				.scoring = "scoring_func",
			},
		.rules =
			{
				LAYER_RULE("mlp.gate.weight", ROUTER),
				LAYER_RULE("mlp.gate.e_score_correction_bias", SELECTION_BIAS),
				LAYER_RULE("post_attention_layernorm.weight", NORM),
				EXPERT_RULES("mlp.experts", "gate_proj", "up_proj", "down_proj"),
				SHARED_RULES(
					"mlp.shared_experts", "gate_proj", "up_proj", "down_proj"),
			},
		.needed = {NEEDED_NAMES},
		.dense = {DENSE_NAMES},
		.head = "lm_head.weight",
		.plain = {"layers.%l.self_attn.*", DENSE_SCALES},
	},
	{
		.model_type = "deepseek_v4",
		.score = GPUSNAP_SCORE_SQRT_SOFTPLUS,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.scoring_word = "sqrtsoftplus",
		.keys =
			{
				.experts = {"n_routed_experts", NULL},
				.top_k = "num_experts_per_tok",
				.renormalise = "norm_topk_prob",
				.first_hash = "num_hash_layers",
				.layer_types = "mlp_layer_types",
				.shared = "n_shared_experts",
				.routed_scale = "routed_scaling_factor",
				.limit = "swiglu_limit",
				.scoring = "scoring_func",
			},
		.rules =
			{
				LAYER_RULE("ffn.gate.weight", ROUTER),
				LAYER_RULE("ffn.gate.bias", SELECTION_BIAS),
				LAYER_RULE("ffn.gate.tid2eid", HASH),
				LAYER_RULE("ffn_norm.weight", NORM),
				EXPERT_RULES("ffn.experts", "w1", "w3", "w2"),
				SHARED_RULES("ffn.shared_experts", "w1", "w3", "w2"),
			},
		.needed = {"norm.weight", "layers.%l.attn_norm.weight", "layers.%l.ffn_norm.weight",
			"layers.%l.attn.wkv.weight", "layers.%l.attn.wo_a.weight",
			"layers.%l.attn.wo_b.weight"},
		.head = "head.weight",
		.plain = {"embed_tokens.weight", "embed.weight", "lm_head.weight", "hc_head*",
			"layers.%l.attn.*", "layers.%l.hc_attn_*", "layers.%l.hc_ffn_*"},
	},
	{
		.model_type = "gpt_oss",
		.score = GPUSNAP_SCORE_SOFTMAX_CHOSEN,
		.activation = GPUSNAP_ACTIVATION_SWIGLU_OAI,
		.limit_default = 7.0f,
		.keys =
			{
				.experts = {"num_local_experts", "num_experts"},
				.top_k = "num_experts_per_tok",
				.limit = "swiglu_limit",
			},
		.rules =
			{
				LAYER_RULE("mlp.router.weight", ROUTER),
				LAYER_RULE("mlp.router.bias", ROUTER_BIAS),
				LAYER_RULE("post_attention_layernorm.weight", NORM),
#define GPT_OSS_RULE(name, slot, layout, axis, parts)                                              \
	RULE("layers.%l.mlp.experts." name, slot, layout, axis, 0, parts)
				GPT_OSS_RULE("gate_up_proj", W13, TRANSPOSED, ROWS, 2),
				GPT_OSS_RULE("gate_up_proj_blocks", W13, STACKED, ROWS, 2),
				GPT_OSS_RULE("gate_up_proj_scales", W13_SCALE, STACKED, ROWS, 2),
				GPT_OSS_RULE("gate_up_proj_bias", W13_BIAS, STACKED, ROWS, 2),
				GPT_OSS_RULE("down_proj", W2, TRANSPOSED, COLUMNS, 1),
				GPT_OSS_RULE("down_proj_blocks", W2, STACKED, COLUMNS, 1),
				GPT_OSS_RULE("down_proj_scales", W2_SCALE, STACKED, COLUMNS, 1),
				GPT_OSS_RULE("down_proj_bias", W2_BIAS, STACKED, NONE, 1),
#undef GPT_OSS_RULE
			},
		.needed = {NEEDED_NAMES, QKV_NAMES},
		.head = "lm_head.weight",
		.plain = {"layers.%l.self_attn.*"},
	},
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
