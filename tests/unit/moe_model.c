/* SPDX-License-Identifier: Apache-2.0 */
/* The model record: what is written is read back, and no model with impossible sizes is. */
#include <stdio.h>
#include <string.h>

#include <gpusnap/moe.h>

#include "tests/support/suite.h"

static gpusnap_error err;

/* Two layers of a small FP8 model, rank 1 of 3; the second has neither mask buffer nor scales. */
static const char good[] =
	"{'format':1,'family':'qwen3_moe','tp':[0,2],'ep':[1,3],'later':null,'layers':["
	"{'module':'model.layers.0.mlp','layer':0,'hidden':256,'intermediate':64,'experts':7,"
	"'top_k':2,'score':'softmax','renormalise':true,'activation':'silu','block':[128,128],"
	"'norm_epsilon':1e-6,"
	"'mask':{'kind':'mori','experts':7,'local':2,'first':3,'shared':0,'ep':[1,3]},"
	"'buffers':{'router':'r0','w13':'a0','w13_scale':'as0','w2':'b0','w2_scale':'bs0',"
	"'mask':'m0','norm':'n0'}},"
	"{'module':'model.layers.2.mlp','layer':2,'hidden':256,'intermediate':64,'experts':7,"
	"'top_k':7,'score':'softmax','renormalise':false,'activation':'silu','block':[0,0],"
	"'norm_epsilon':0,"
	"'mask':{'kind':'deepep','experts':7,'local':2,'first':3,'shared':0,'ep':[1,3]},"
	"'buffers':{'router':'r1','w13':'a1','w2':'b1'}}]}";

/* Parse `good` with the first `from` replaced by `to`; single quotes stand for double ones. */
static gpusnap_json *parse(const char *from, const char *to)
{
	char text[sizeof good + 256];
	const char *at = strstr(good, from);
	gpusnap_json *json;

	ck_assert_ptr_nonnull(at);
	(void)snprintf(
		text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
	for (char *p = text; *p; p++)
		if (*p == '\'')
			*p = '"';
	ck_ok(gpusnap_json_parse(text, strlen(text), "test", &json, &err));
	return json;
}

/* The model with `from` replaced by `to` must be refused. */
static void refused(const char *from, const char *to, gpusnap_status expected, const char *message)
{
	gpusnap_json *json = parse(from, to);
	gpusnap_moe_model *model = NULL;

	ck_fails(gpusnap_moe_model_decode(json, &model, &err), expected, message);
	ck_assert(model == NULL);
	ck_assert_ptr_eq(strstr(err.message, "model record: "), err.message);
	ck_assert_int_eq(err.status, expected);
	gpusnap_json_free(json);
}

START_TEST(a_model_is_read_field_by_field)
{
	gpusnap_json *json = parse("", "");
	gpusnap_moe_model *model;

	ck_ok(gpusnap_moe_model_decode(json, &model, &err));
	gpusnap_json_free(json);
	ck_assert_str_eq(model->family, "qwen3_moe");
	ck_assert_uint_eq(model->tp_rank, 0);
	ck_assert_uint_eq(model->tp_size, 2);
	ck_assert_uint_eq(model->ep_rank, 1);
	ck_assert_uint_eq(model->ep_size, 3);
	ck_assert_uint_eq(model->layer_count, 2);
	ck_assert_str_eq(model->layers[0].module, "model.layers.0.mlp");
	ck_assert_uint_eq(model->layers[1].layer, 2);
	ck_assert_uint_eq(model->layers[0].hidden, 256);
	ck_assert_uint_eq(model->layers[0].intermediate, 64);
	ck_assert_uint_eq(model->layers[0].experts, 7);
	ck_assert_uint_eq(model->layers[1].top_k, 7);
	ck_assert_int_eq((int)model->layers[0].score, GPUSNAP_SCORE_SOFTMAX);
	ck_assert_int_eq((int)model->layers[0].activation, GPUSNAP_ACTIVATION_SILU);
	ck_assert(model->layers[0].renormalise && !model->layers[1].renormalise);
	ck_assert_uint_eq(model->layers[0].block_n, 128);
	ck_assert_uint_eq(model->layers[1].block_k, 0);
	ck_assert(model->layers[0].norm_epsilon == 1e-6f);
	ck_assert_int_eq((int)model->layers[1].mask.kind, GPUSNAP_MASK_DEEPEP);
	ck_assert_uint_eq(model->layers[0].mask.first, 3);
	ck_assert_str_eq(model->layers[0].buffers[GPUSNAP_MOE_W2_SCALE], "bs0");
	ck_assert_ptr_null(model->layers[1].buffers[GPUSNAP_MOE_MASK]);
	gpusnap_moe_model_free(model);
}
END_TEST

START_TEST(encode_gives_the_text_that_was_decoded)
{
	gpusnap_json *json = parse(",'later':null", ""), *again;
	gpusnap_moe_model *model, *copy;
	char *first, *second;

	ck_ok(gpusnap_moe_model_decode(json, &model, &err));
	again = gpusnap_moe_model_encode(model);
	ck_ok(gpusnap_moe_model_decode(again, &copy, &err));
	ck_assert(copy->layers[0].norm_epsilon == model->layers[0].norm_epsilon);
	gpusnap_json_free(json);
	json = gpusnap_moe_model_encode(copy);
	first = gpusnap_json_dump(again);
	second = gpusnap_json_dump(json);
	ck_assert_str_eq(first, second);
	ck_assert_ptr_nonnull(strstr(first, "\"block\":[128,128]"));
	gpusnap_text_free(first);
	gpusnap_text_free(second);
	gpusnap_json_free(json);
	gpusnap_json_free(again);
	gpusnap_moe_model_free(model);
	gpusnap_moe_model_free(copy);
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
	refused("'hidden':256", "'hidden':0", GPUSNAP_E_FORMAT,
		"MoE layer at position 0: 'hidden' is 0, expected 1 to 1048576");
	refused("'intermediate':64", "'intermediate':1048577", GPUSNAP_E_FORMAT, "1048577");
	refused("'experts':7", "'experts':-7", GPUSNAP_E_FORMAT, "'experts' is -7");
	refused("'top_k':2", "'top_k':8", GPUSNAP_E_FORMAT, "'top_k' is 8, expected 1 to 7");
	refused("'top_k':2", "'top_k':0", GPUSNAP_E_FORMAT, "'top_k' is 0");
	refused("'hidden':256", "'hidden':256.0", GPUSNAP_E_FORMAT, "a real number");
	refused("[128,128]", "[128,0]", GPUSNAP_E_FORMAT, "'block' is [128, 0]");
	refused("[128,128]", "[128]", GPUSNAP_E_FORMAT, "'block' has 1 items");
	refused("[128,128]", "[128,-1]", GPUSNAP_E_FORMAT, "'block': item 1 is -1");
	refused("1e-6", "1.5", GPUSNAP_E_FORMAT, "'norm_epsilon'");
	refused("1e-6", "0", GPUSNAP_E_FORMAT, "'norm_epsilon' is 0");
	refused("'tp':[0,2]", "'tp':[2,2]", GPUSNAP_E_FORMAT, "'tp', which is [rank, size]");
	refused("'tp':[0,2]", "'tp':[0,0]", GPUSNAP_E_FORMAT, "item 1 is 0");
	refused("'layer':2", "'layer':0", GPUSNAP_E_FORMAT, "'layer' is 0 after 0");
}
END_TEST

START_TEST(an_inconsistent_mask_is_refused)
{
	refused("'experts':7,'local'", "'experts':8,'local'", GPUSNAP_E_FORMAT,
		"mask of 8 experts on rank 1 of 3, the layer has 7");
	refused("'shared':0,'ep':[1,3]", "'shared':0,'ep':[2,3]", GPUSNAP_E_FORMAT,
		"on rank 2 of 3");
	refused("'first':3", "'first':5", GPUSNAP_E_FORMAT,
		"mask of experts [5, 7), rank 1 of 3 holds [3, 5)");
	refused("'first':3", "'first':6", GPUSNAP_E_FORMAT, "mask: 'first' is 6, expected 0 to 5");
	refused("'kind':'mori'", "'kind':'moro'", GPUSNAP_E_FORMAT, "mask: mask kind 'moro'");
	refused("'shared':0", "'shared':1", GPUSNAP_E_FORMAT, "mask: mori mask: 1 shared experts");
}
END_TEST

START_TEST(a_rank_without_experts_is_refused)
{
	gpusnap_json *json;
	gpusnap_moe_model *model;
	char text[sizeof good];

	memcpy(text, good, sizeof good);
	/* Seven experts on nine ranks: the last has none. */
	for (char *at = text; (at = strstr(at, "[1,3]")) != NULL;)
		memcpy(at, "[8,9]", 5);
	for (char *at = text; (at = strstr(at, "'local':2,'first':3")) != NULL;)
		memcpy(at, "'local':0,'first':7", 19);
	for (char *p = text; *p; p++)
		if (*p == '\'')
			*p = '"';
	ck_ok(gpusnap_json_parse(text, strlen(text), "test", &json, &err));
	ck_fails(gpusnap_moe_model_decode(json, &model, &err), GPUSNAP_E_FORMAT,
		"rank 8 of 9 holds [7, 7), one or more");
	gpusnap_json_free(json);
}
END_TEST

START_TEST(missing_and_surplus_buffers_are_refused)
{
	refused("'router':'r0',", "", GPUSNAP_E_FORMAT, "no buffer is named for 'router'");
	refused("'w13_scale':'as0',", "", GPUSNAP_E_FORMAT, "no buffer is named for 'w13_scale'");
	refused("'w2':'b1'", "'w2':'b1','w2_scale':'x'", GPUSNAP_E_FORMAT, "for 'w2_scale'");
	refused("'w2':'b1'", "'w2':'b1','w4':'x'", GPUSNAP_E_UNSUPPORTED, "slot 'w4'");
	refused("'w2':'b1'", "'w2':''", GPUSNAP_E_FORMAT, "'w2' is empty");
	refused("'w2':'b1'", "'w2':null", GPUSNAP_E_FORMAT, "'w2' is null, expected a string");
}
END_TEST

START_TEST(what_this_build_cannot_compute_is_refused_by_name)
{
	refused("'softmax'", "'tanh'", GPUSNAP_E_UNSUPPORTED,
		"'score' is 'tanh', this build knows 'softmax', 'sigmoid', 'softmax_chosen' and "
		"'sqrt_softplus'");
	refused("'top_k':2", "'top_k':2,'groups':[7,2]", GPUSNAP_E_UNSUPPORTED,
		"score 'softmax' with 'groups'");
	refused("'norm':'n0'", "'norm':'n0','selection_bias':'c'", GPUSNAP_E_UNSUPPORTED,
		"score 'softmax' with a 'selection_bias'");
	refused("'score':'softmax'", "'score':'softmax_chosen','groups':[7,2]",
		GPUSNAP_E_UNSUPPORTED, "score 'softmax_chosen' with 'groups'");
	refused("'norm':'n0'}}", "'norm':'n0','hash':'h'},'vocabulary':9}", GPUSNAP_E_UNSUPPORTED,
		"score 'softmax' with a 'hash'");
	refused("'silu'", "'gelu'", GPUSNAP_E_UNSUPPORTED,
		"'activation' is 'gelu', this build knows 'silu' and 'swiglu_oai'");
	refused("'format':1", "'format':3", GPUSNAP_E_UNSUPPORTED,
		"format 3, this build reads 1 to 2");
}
END_TEST

/* The second layer with a sigmoid and a shared expert. */
#define SECOND                                                                                     \
	"'top_k':7,'score':'softmax','renormalise':false,'activation':'silu','block':[0,0],"       \
	"'norm_epsilon':0,"                                                                        \
	"'mask':{'kind':'deepep','experts':7,'local':2,'first':3,'shared':0,'ep':[1,3]},"          \
	"'buffers':{'router':'r1','w13':'a1','w2':'b1'"
#define SIGMOID(optional, buffers)                                                                 \
	"'top_k':2,'score':'sigmoid','renormalise':false,'activation':'silu','block':[0,0],"       \
	"'norm_epsilon':0,"                                                                        \
	"'mask':{'kind':'deepep','experts':7,'local':2,'first':3,'shared':0,'ep':[1,3]}," optional \
	"'buffers':{'router':'r1','w13':'a1','w2':'b1'" buffers
#define SHARED ",'shared_w13':'s','shared_w2':'t'"

START_TEST(optional_members_are_read_and_written_back)
{
	gpusnap_json *json =
		parse(SECOND, SIGMOID("'routed_scale':2.5,'groups':[7,2],'shared_intermediate':32,",
				      SHARED ",'shared_gate':'u','selection_bias':'c'"));
	gpusnap_moe_model *model;

	for (int i = 0; i < 2; i++) {
		const gpusnap_moe_layer *layer;

		ck_ok(gpusnap_moe_model_decode(json, &model, &err));
		gpusnap_json_free(json);
		layer = &model->layers[1];
		ck_assert_int_eq(layer->score, GPUSNAP_SCORE_SIGMOID);
		ck_assert_float_eq(layer->routed_scale, 2.5f);
		ck_assert_uint_eq(layer->groups, 7);
		ck_assert_uint_eq(layer->top_groups, 2);
		ck_assert_uint_eq(layer->shared_intermediate, 32);
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_SELECTION_BIAS], "c");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_SHARED_W13], "s");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_SHARED_W2], "t");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_SHARED_GATE], "u");
		ck_assert_float_eq(model->layers[0].routed_scale, 0.0f);
		ck_assert_uint_eq(model->layers[0].groups, 0);
		json = gpusnap_moe_model_encode(model);
		gpusnap_moe_model_free(model);
		ck_assert_ptr_nonnull(json);
	}
	gpusnap_json_free(json);
}
END_TEST

START_TEST(impossible_optional_members_are_refused)
{
	refused(SECOND, SIGMOID("'routed_scale':0,", ""), GPUSNAP_E_FORMAT, "'routed_scale' is 0");
	refused(SECOND, SIGMOID("'routed_scale':2e6,", ""), GPUSNAP_E_FORMAT, "up to 1e+06");
	refused(SECOND, SIGMOID("'groups':[2,1],", ""), GPUSNAP_E_FORMAT, "'groups' is [2, 1]");
	refused(SECOND, SIGMOID("'groups':[7,1],", ""), GPUSNAP_E_FORMAT,
		"equal groups of 7 experts, the best of which hold 2");
	refused(SECOND, SIGMOID("'groups':[7,8],", ""), GPUSNAP_E_FORMAT, "'groups' is [7, 8]");
	refused(SECOND, SIGMOID("'groups':[7],", ""), GPUSNAP_E_FORMAT, "'groups'");
	refused(SECOND, SIGMOID("'shared_intermediate':0,", SHARED), GPUSNAP_E_FORMAT,
		"'shared_intermediate' is 0");
	refused(SECOND, SIGMOID("", SHARED), GPUSNAP_E_FORMAT, "there is no 'shared_intermediate'");
	refused(SECOND, SIGMOID("", ",'shared_gate':'u'"), GPUSNAP_E_FORMAT, "for 'shared_gate'");
	refused(SECOND, SIGMOID("'shared_intermediate':32,", ",'shared_w13':'s'"), GPUSNAP_E_FORMAT,
		"for 'shared_w2', but there is a 'shared_intermediate'");
}
END_TEST

/* The second layer with scores by sqrt(softplus). */
#define SQRT_SOFTPLUS(optional, buffers)                                                           \
	"'top_k':2,'score':'sqrt_softplus','renormalise':false,'activation':'swiglu_oai',"         \
	"'block':[0,0],'norm_epsilon':0,"                                                          \
	"'mask':{'kind':'deepep','experts':7,'local':2,'first':3,'shared':0,'ep':[1,3]}," optional \
	"'buffers':{'router':'r1','w13':'a1','w2':'b1'" buffers

static gpusnap_moe_model *decode_and_free(gpusnap_json *json)
{
	gpusnap_moe_model *model;

	ck_ok(gpusnap_moe_model_decode(json, &model, &err));
	gpusnap_json_free(json);
	return model;
}

START_TEST(a_hash_layer_is_read_and_written_back)
{
	gpusnap_moe_model *model = decode_and_free(parse(
		SECOND, SQRT_SOFTPLUS("'vocabulary':99,'shared_intermediate':32,'shared_block':"
				      "[128,64],",
				SHARED ",'hash':'h','shared_w13_scale':'ss','shared_w2_scale':'ts',"
				       "'router_bias':'rb','w13_bias':'ab','w2_bias':'bb',"
				       "'map':'p'")));

	for (int i = 0; i < 2; i++) {
		const gpusnap_moe_layer *layer = &model->layers[1];
		gpusnap_json *json;

		ck_assert_int_eq(layer->score, GPUSNAP_SCORE_SQRT_SOFTPLUS);
		ck_assert_int_eq(layer->activation, GPUSNAP_ACTIVATION_SWIGLU_OAI);
		ck_assert_uint_eq(layer->vocabulary, 99);
		ck_assert_uint_eq(layer->shared_block_n, 128);
		ck_assert_uint_eq(layer->shared_block_k, 64);
		ck_assert(!layer->weight_before_w2);
		ck_assert_float_eq(layer->activation_limit, 0.0f);
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_HASH], "h");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_SHARED_W13_SCALE], "ss");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_SHARED_W2_SCALE], "ts");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_ROUTER_BIAS], "rb");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_W13_BIAS], "ab");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_W2_BIAS], "bb");
		ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_MAP], "p");
		json = gpusnap_moe_model_encode(model);
		ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(json, "format"), 0), 1);
		gpusnap_moe_model_free(model);
		model = decode_and_free(json);
	}
	gpusnap_moe_model_free(model);
}
END_TEST

/* A reader of format 1 ignores both members, and so would compute something else. */
START_TEST(another_formula_is_another_format)
{
	static const struct {
		const char *members;
		float limit;
		bool before;
	} cases[] = {
		{"'activation_limit':7.5,", 7.5f, false},
		{"'weight_before_w2':true,", 0.0f, true},
	};

	for (int i = 0; i < 2; i++) {
		char text[1024];
		gpusnap_moe_model *model;
		gpusnap_json *json;

		(void)snprintf(text, sizeof text, "'hidden':256,%s", cases[i].members);
		refused("'hidden':256,", text, GPUSNAP_E_FORMAT,
			"'format' is 1, expected 2 where a layer has 'activation_limit' or "
			"'weight_before_w2'");
		json = parse("'hidden':256,", text);
		ck_ok(gpusnap_json_set(json, "format", gpusnap_json_pack("i", 2)));
		model = decode_and_free(json);
		ck_assert_float_eq(model->layers[0].activation_limit, cases[i].limit);
		ck_assert_int_eq(model->layers[0].weight_before_w2, cases[i].before);
		json = gpusnap_moe_model_encode(model);
		gpusnap_moe_model_free(model);
		ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(json, "format"), 0), 2);
		model = decode_and_free(json);
		ck_assert_float_eq(model->layers[0].activation_limit, cases[i].limit);
		ck_assert_int_eq(model->layers[0].weight_before_w2, cases[i].before);
		gpusnap_moe_model_free(model);
	}
}
END_TEST

START_TEST(what_does_not_go_together_is_refused)
{
	refused(SECOND, SQRT_SOFTPLUS("'vocabulary':9,", ""), GPUSNAP_E_FORMAT,
		"no buffer is named for 'hash', but there is a 'vocabulary'");
	refused(SECOND, SQRT_SOFTPLUS("", ",'hash':'h'"), GPUSNAP_E_FORMAT,
		"a buffer is named for 'hash', but there is no 'vocabulary'");
	refused(SECOND, SQRT_SOFTPLUS("'vocabulary':0,", ",'hash':'h'"), GPUSNAP_E_FORMAT,
		"'vocabulary' is 0");
	refused(SECOND, SQRT_SOFTPLUS("'vocabulary':9,'groups':[7,2],", ",'hash':'h'"),
		GPUSNAP_E_FORMAT, "there are 'groups', but 'vocabulary' says");
	refused(SECOND, SQRT_SOFTPLUS("'vocabulary':9,", ",'hash':'h','selection_bias':'c'"),
		GPUSNAP_E_FORMAT, "for 'selection_bias', but 'vocabulary' says");
	refused(SECOND, SQRT_SOFTPLUS("'shared_block':[128,128],", ""), GPUSNAP_E_FORMAT,
		"for 'shared_w13_scale', but there is a 'shared_block'");
	refused(SECOND, SQRT_SOFTPLUS("", ",'shared_w2_scale':'s'"), GPUSNAP_E_FORMAT,
		"for 'shared_w2_scale', but there is no 'shared_block'");
	refused(SECOND,
		SQRT_SOFTPLUS("'shared_block':[128,128],",
			",'shared_w13_scale':'s','shared_w2_scale':'t'"),
		GPUSNAP_E_FORMAT, "there is a 'shared_block', but no 'shared_intermediate'");
	refused(SECOND, SQRT_SOFTPLUS("'shared_block':[128,0],", ""), GPUSNAP_E_FORMAT,
		"'shared_block' is [128, 0]");
	refused(SECOND, SQRT_SOFTPLUS("'activation_limit':-7,", ""), GPUSNAP_E_FORMAT,
		"'activation_limit' is -7");
	refused(SECOND, SQRT_SOFTPLUS("'weight_before_w2':1,", ""), GPUSNAP_E_FORMAT,
		"'weight_before_w2' is an integer");
}
END_TEST

START_TEST(other_documents_are_refused)
{
	gpusnap_moe_model *model;
	gpusnap_json *json = gpusnap_json_pack("i", 5);

	ck_fails(gpusnap_moe_model_decode(json, &model, &err), GPUSNAP_E_FORMAT,
		"'format' is missing");
	gpusnap_json_free(json);
	refused("'family':'qwen3_moe',", "", GPUSNAP_E_FORMAT, "'family' is missing");
	refused("'module':'model.layers.0.mlp',", "", GPUSNAP_E_FORMAT, "'module' is missing");
	refused("'renormalise':true", "'renormalise':1", GPUSNAP_E_FORMAT,
		"'renormalise' is an integer, expected a boolean");
	json = gpusnap_json_pack("{s:i, s:s, s:[i,i], s:[i,i], s:[]}", "format", 1, "family", "f",
		"tp", 0, 1, "ep", 0, 1, "layers");
	ck_fails(gpusnap_moe_model_decode(json, &model, &err), GPUSNAP_E_FORMAT,
		"'layers' has 0 items");
	gpusnap_json_free(json);
}
END_TEST

START_TEST(slots_have_names)
{
	ck_assert_str_eq(gpusnap_moe_slot_name(GPUSNAP_MOE_W13_SCALE), "w13_scale");
	ck_assert_str_eq(gpusnap_moe_slot_name(GPUSNAP_MOE_SLOTS), "unknown");
	gpusnap_moe_model_free(NULL);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_model_is_read_field_by_field,
		encode_gives_the_text_that_was_decoded,
		impossible_sizes_are_refused,
		an_inconsistent_mask_is_refused,
		a_rank_without_experts_is_refused,
		missing_and_surplus_buffers_are_refused,
		what_this_build_cannot_compute_is_refused_by_name,
		optional_members_are_read_and_written_back,
		impossible_optional_members_are_refused,
		a_hash_layer_is_read_and_written_back,
		another_formula_is_another_format,
		what_does_not_go_together_is_refused,
		other_documents_are_refused,
		slots_have_names,
	};

	return RUN_SUITE("moe_model", tests);
}
