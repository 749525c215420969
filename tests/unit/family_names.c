/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor names against the families' rules. */
#include "loader/family.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "tests/support/suite.h"

static const struct gsn_family *family(const char *name)
{
	const struct gsn_family *found = gsn_family_find(name);

	ck_assert_ptr_nonnull(found);
	return found;
}

START_TEST(parts_of_experts_are_told_apart)
{
	static const struct {
		const char *family, *name;
		gpusnap_moe_slot slot;
		uint32_t part, layer, expert;
		enum gsn_shard_axis axis;
	} cases[] = {
		{"qwen3_moe", "model.layers.0.mlp.experts.0.gate_proj.weight", GPUSNAP_MOE_W13, 0,
			0, 0, GSN_SHARD_ROWS},
		{"qwen3_moe", "model.layers.47.mlp.experts.127.up_proj.weight", GPUSNAP_MOE_W13, 1,
			47, 127, GSN_SHARD_ROWS},
		{"qwen3_moe", "layers.1.mlp.experts.2.down_proj.weight", GPUSNAP_MOE_W2, 0, 1, 2,
			GSN_SHARD_COLUMNS},
		{"qwen3_moe", "model.layers.3.mlp.experts.9.up_proj.weight_scale_inv",
			GPUSNAP_MOE_W13_SCALE, 1, 3, 9, GSN_SHARD_ROWS},
		{"qwen3_moe", "model.layers.3.mlp.experts.9.down_proj.weight_scale_inv",
			GPUSNAP_MOE_W2_SCALE, 0, 3, 9, GSN_SHARD_COLUMNS},
		{"qwen3_moe", "model.layers.3.mlp.gate.weight", GPUSNAP_MOE_ROUTER, 0, 3, 0,
			GSN_SHARD_NONE},
		{"mixtral", "model.layers.3.block_sparse_moe.experts.7.w1.weight", GPUSNAP_MOE_W13,
			0, 3, 7, GSN_SHARD_ROWS},
		{"mixtral", "model.layers.3.block_sparse_moe.experts.7.w3.weight", GPUSNAP_MOE_W13,
			1, 3, 7, GSN_SHARD_ROWS},
		{"mixtral", "model.layers.3.block_sparse_moe.experts.7.w2.weight", GPUSNAP_MOE_W2,
			0, 3, 7, GSN_SHARD_COLUMNS},
		{"mixtral", "layers.3.block_sparse_moe.gate.weight", GPUSNAP_MOE_ROUTER, 0, 3, 0,
			GSN_SHARD_NONE},
		{"qwen2_moe", "model.layers.3.mlp.shared_expert.up_proj.weight",
			GPUSNAP_MOE_SHARED_W13, 1, 3, 0, GSN_SHARD_ROWS},
		{"qwen2_moe", "model.layers.3.mlp.shared_expert_gate.weight",
			GPUSNAP_MOE_SHARED_GATE, 0, 3, 0, GSN_SHARD_NONE},
		{"glm4_moe", "layers.3.mlp.shared_experts.down_proj.weight", GPUSNAP_MOE_SHARED_W2,
			0, 3, 0, GSN_SHARD_COLUMNS},
		{"glm4_moe", "model.layers.3.mlp.gate.e_score_correction_bias",
			GPUSNAP_MOE_SELECTION_BIAS, 0, 3, 0, GSN_SHARD_NONE},
		{"mixtral", "model.layers.3.post_attention_layernorm.weight", GPUSNAP_MOE_NORM, 0,
			3, 0, GSN_SHARD_NONE},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gsn_tensor_match match;

		ck_assert_msg(gsn_family_match(family(cases[i].family), cases[i].name, &match),
			"%s is no match", cases[i].name);
		ck_assert_int_eq(match.rule->slot, cases[i].slot);
		ck_assert_uint_eq(match.rule->part, cases[i].part);
		ck_assert_int_eq(match.rule->axis, cases[i].axis);
		ck_assert_uint_eq(match.layer, cases[i].layer);
		ck_assert_uint_eq(match.expert, cases[i].expert);
		ck_assert_int_eq(match.prefixed, cases[i].name[0] == 'm');
	}
}
END_TEST

START_TEST(other_names_do_not_match)
{
	static const char *const names[] = {
		"",
		"model.",
		"model.norm.weight",
		"model.layers..mlp.gate.weight",
		"model.layers.x.mlp.gate.weight",
		"model.layers.01.mlp.gate.weight", /* a number has one spelling */
		"model.layers.-1.mlp.gate.weight",
		"model.layers.4294967295.mlp.gate.weight",
		"model.layers.99999999999999999999.mlp.gate.weight",
		"model.layers.0.mlp.gate.weight.x",
		"model.layers.0.mlp.gate.weigh",
		"model.layers.0.mlp.gate.bias",
		"model.layers.0.mlp.experts.0.gate_proj.bias",
		"model.layers.0.block_sparse_moe.gate.weight",
		"xmodel.layers.0.mlp.gate.weight",
		"model.model.layers.0.mlp.gate.weight",
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct gsn_tensor_match match;

		ck_assert_msg(!gsn_family_match(family("qwen3_moe"), names[i], &match),
			"'%s' matches", names[i]);
	}
}
END_TEST

/* For every rule of every family: the name it gives leads back to it, and to nothing else. */
START_TEST(names_from_rules_lead_back)
{
	for (size_t f = 0; gsn_family_at(f); f++) {
		const struct gsn_tensor_rule *rule = gsn_family_at(f)->rules;

		for (size_t i = 0; rule[i].pattern; i++) {
			char *name = gsn_rule_name(&rule[i], i % 2, 12, 345);
			struct gsn_tensor_match match;

			ck_assert_ptr_nonnull(name);
			ck_assert(gsn_family_match(gsn_family_at(f), name, &match));
			ck_assert_ptr_eq(match.rule, &rule[i]);
			ck_assert_int_eq(match.prefixed, i % 2);
			ck_assert_uint_eq(match.layer, 12);
			ck_assert_uint_eq(match.expert, gsn_rule_is_per_expert(&rule[i]) ? 345 : 0);
			ck_assert_uint_lt(rule[i].part, rule[i].parts);
			gsn_free(name);
		}
	}
}
END_TEST

START_TEST(families_are_found_by_model_type_alone)
{
	for (size_t f = 0; gsn_family_at(f); f++)
		ck_assert_ptr_eq(gsn_family_find(gsn_family_at(f)->model_type), gsn_family_at(f));
	ck_assert_ptr_null(gsn_family_find("qwen3"));
	ck_assert_ptr_null(gsn_family_find(""));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		parts_of_experts_are_told_apart,
		other_names_do_not_match,
		names_from_rules_lead_back,
		families_are_found_by_model_type_alone,
	};

	return RUN_SUITE("family_names", tests);
}
