/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/moe_check.h"

#include "formats/base/fail.h"
#include "formats/moe_words.h"

/* `text` says what of the layer speaks for or against the slot. */
static gpusnap_status check_named(const gpusnap_moe_layer *layer, gpusnap_moe_slot slot,
	bool expected, const char *text, gpusnap_error *err)
{
	bool named = layer->buffers[slot] != NULL;

	if (named == expected)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT, "%s buffer is named for '%s', but %s",
		named ? "a" : "no", gpusnap_moe_slot_name(slot), text);
}

static gpusnap_status check_required(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	static const gpusnap_moe_slot slots[] = {
		GPUSNAP_MOE_ROUTER, GPUSNAP_MOE_W13, GPUSNAP_MOE_W2};
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; i < sizeof slots / sizeof slots[0] && !status; i++)
		status = check_named(layer, slots[i], true, "every layer needs one", err);
	return status;
}

static gpusnap_status check_scales(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	bool scaled = layer->block_n != 0;
	const char *text = scaled ? "'block' says that there are scales"
				  : "'block' says that there are no scales";
	gpusnap_status status = check_named(layer, GPUSNAP_MOE_W13_SCALE, scaled, text, err);

	return status ? status : check_named(layer, GPUSNAP_MOE_W2_SCALE, scaled, text, err);
}

static gpusnap_status check_shared_scales(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	bool scaled = layer->shared_block_n != 0;
	const char *text = scaled ? "there is a 'shared_block'" : "there is no 'shared_block'";
	gpusnap_status status = check_named(layer, GPUSNAP_MOE_SHARED_W13_SCALE, scaled, text, err);

	if (!status)
		status = check_named(layer, GPUSNAP_MOE_SHARED_W2_SCALE, scaled, text, err);
	if (!status && scaled && !layer->shared_intermediate)
		status = gsn_fail(err, GPUSNAP_E_FORMAT,
			"there is a 'shared_block', but no 'shared_intermediate'");
	return status;
}

static gpusnap_status check_shared(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	bool shared = layer->shared_intermediate != 0;
	const char *text =
		shared ? "there is a 'shared_intermediate'" : "there is no 'shared_intermediate'";
	gpusnap_status status = check_named(layer, GPUSNAP_MOE_SHARED_W13, shared, text, err);

	if (!status)
		status = check_named(layer, GPUSNAP_MOE_SHARED_W2, shared, text, err);
	if (!status && !shared)
		status = check_named(layer, GPUSNAP_MOE_SHARED_GATE, false, text, err);
	return status ? status : check_shared_scales(layer, err);
}

static bool scores_each_expert_alone(const gpusnap_moe_layer *layer)
{
	return layer->score == GPUSNAP_SCORE_SIGMOID || layer->score == GPUSNAP_SCORE_SQRT_SOFTPLUS;
}

static gpusnap_status check_selection(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	if (scores_each_expert_alone(layer) ||
		(!layer->buffers[GPUSNAP_MOE_SELECTION_BIAS] && !layer->groups))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
		"score '%s' with %s, this build knows them with 'sigmoid' and 'sqrt_softplus'",
		gsn_score_name(layer->score), layer->groups ? "'groups'" : "a 'selection_bias'");
}

/* A table decides alone: nothing that ranks experts goes with it. */
static gpusnap_status check_hash(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	bool hashed = layer->vocabulary != 0;
	const char *text = hashed ? "there is a 'vocabulary'" : "there is no 'vocabulary'";
	gpusnap_status status = check_named(layer, GPUSNAP_MOE_HASH, hashed, text, err);

	if (status || !hashed)
		return status;
	if (!scores_each_expert_alone(layer))
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"score '%s' with a 'hash', this build knows it with 'sigmoid' and "
			"'sqrt_softplus'",
			gsn_score_name(layer->score));
	if (layer->groups)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"there are 'groups', but 'vocabulary' says that experts are read from a "
			"table");
	return check_named(layer, GPUSNAP_MOE_SELECTION_BIAS, false,
		"'vocabulary' says that experts are read from a table", err);
}

gpusnap_status gsn_moe_layer_check(const gpusnap_moe_layer *layer, gpusnap_error *err)
{
	gpusnap_status status = check_required(layer, err);

	if (!status)
		status = check_scales(layer, err);
	if (!status && layer->buffers[GPUSNAP_MOE_NORM] && layer->norm_epsilon == 0.0f)
		status = gsn_fail(err, GPUSNAP_E_FORMAT,
			"'norm_epsilon' is 0, expected more where a buffer is named for 'norm'");
	if (!status)
		status = check_selection(layer, err);
	if (!status)
		status = check_hash(layer, err);
	if (!status)
		status = check_shared(layer, err);
	return status;
}
