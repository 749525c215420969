/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/moe_words.h"

#include <string.h>

#include "formats/base/fail.h"
#include "formats/base/text.h"

static const char *const score_names[] = {
	[GPUSNAP_SCORE_SOFTMAX] = "softmax",
	[GPUSNAP_SCORE_SIGMOID] = "sigmoid",
	[GPUSNAP_SCORE_SOFTMAX_CHOSEN] = "softmax_chosen",
	[GPUSNAP_SCORE_SQRT_SOFTPLUS] = "sqrt_softplus",
};

static const char *const activation_names[] = {
	[GPUSNAP_ACTIVATION_SILU] = "silu",
	[GPUSNAP_ACTIVATION_SWIGLU_OAI] = "swiglu_oai",
};

static const char *const slot_names[GPUSNAP_MOE_SLOTS] = {
	[GPUSNAP_MOE_ROUTER] = "router",
	[GPUSNAP_MOE_W13] = "w13",
	[GPUSNAP_MOE_W13_SCALE] = "w13_scale",
	[GPUSNAP_MOE_W2] = "w2",
	[GPUSNAP_MOE_W2_SCALE] = "w2_scale",
	[GPUSNAP_MOE_MASK] = "mask",
	[GPUSNAP_MOE_NORM] = "norm",
	[GPUSNAP_MOE_SELECTION_BIAS] = "selection_bias",
	[GPUSNAP_MOE_SHARED_W13] = "shared_w13",
	[GPUSNAP_MOE_SHARED_W2] = "shared_w2",
	[GPUSNAP_MOE_SHARED_GATE] = "shared_gate",
	[GPUSNAP_MOE_ROUTER_BIAS] = "router_bias",
	[GPUSNAP_MOE_W13_BIAS] = "w13_bias",
	[GPUSNAP_MOE_W2_BIAS] = "w2_bias",
	[GPUSNAP_MOE_HASH] = "hash",
	[GPUSNAP_MOE_SHARED_W13_SCALE] = "shared_w13_scale",
	[GPUSNAP_MOE_SHARED_W2_SCALE] = "shared_w2_scale",
	[GPUSNAP_MOE_MAP] = "map",
};

#define COUNT(names) (int)(sizeof(names) / sizeof(names)[0])

/* Index of the word; `count` for none. Index 0 may be a hole. */
static int find_word(const char *const *names, int count, const char *word)
{
	for (int i = 0; i < count; i++)
		if (names[i] && strcmp(names[i], word) == 0)
			return i;
	return count;
}

const char *gpusnap_moe_slot_name(gpusnap_moe_slot slot)
{
	return (unsigned)slot < GPUSNAP_MOE_SLOTS ? slot_names[slot] : "unknown";
}

gpusnap_status gsn_moe_slot_parse(const char *name, gpusnap_moe_slot *ret_slot, gpusnap_error *err)
{
	int slot = find_word(slot_names, GPUSNAP_MOE_SLOTS, name);
	char quoted[GSN_QUOTE_BYTES];

	if (slot == GPUSNAP_MOE_SLOTS)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"MoE slot '%s' is unknown to this build; use a newer gpusnap",
			gsn_quote(name, strlen(name), quoted));
	*ret_slot = (gpusnap_moe_slot)slot;
	return GPUSNAP_OK;
}

gpusnap_status gsn_score_parse(const char *word, gpusnap_score *ret_score, gpusnap_error *err)
{
	int score = find_word(score_names, COUNT(score_names), word);
	char quoted[GSN_QUOTE_BYTES];

	if (score == COUNT(score_names))
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"'score' is '%s', this build knows 'softmax', 'sigmoid', 'softmax_chosen' "
			"and 'sqrt_softplus'",
			gsn_quote(word, strlen(word), quoted));
	*ret_score = (gpusnap_score)score;
	return GPUSNAP_OK;
}

gpusnap_status gsn_activation_parse(
	const char *word, gpusnap_activation *ret_activation, gpusnap_error *err)
{
	int activation = find_word(activation_names, COUNT(activation_names), word);
	char quoted[GSN_QUOTE_BYTES];

	if (activation == COUNT(activation_names))
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"'activation' is '%s', this build knows 'silu' and 'swiglu_oai'",
			gsn_quote(word, strlen(word), quoted));
	*ret_activation = (gpusnap_activation)activation;
	return GPUSNAP_OK;
}

const char *gsn_score_name(gpusnap_score score)
{
	bool known = score >= GPUSNAP_SCORE_SOFTMAX && (int)score < COUNT(score_names);

	return known ? score_names[score] : "unknown";
}

const char *gsn_activation_name(gpusnap_activation activation)
{
	bool known =
		activation >= GPUSNAP_ACTIVATION_SILU && (int)activation < COUNT(activation_names);

	return known ? activation_names[activation] : "unknown";
}
