/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/load_records.h"

#include "formats/base/fail.h"

static const char model_name[] = "model";
static const char padding_name[] = "padding";

static gpusnap_status encode_padding(
	const struct gsn_rank_state *state, gpusnap_json **ret_list, gpusnap_error *err)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < state->padding_count; i++) {
		const struct gsn_padding *padding = &state->paddings[i];

		if (!gpusnap_json_append(
			    list, gpusnap_json_pack("{s:s,s:I,s:I,s:I}", "buffer",
					  state->buffers[padding->buffer].name, "axis",
					  (long long)padding->axis, "from",
					  (long long)padding->from, "to", (long long)padding->to)))
			continue;
		gpusnap_json_free(list);
		list = NULL;
	}
	if (!list)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the record of padding");
	*ret_list = list;
	return GPUSNAP_OK;
}

static gpusnap_status encode_model(
	const struct gsn_rank_state *state, gpusnap_json **ret_model, gpusnap_error *err)
{
	*ret_model = gpusnap_moe_model_encode(state->model);
	if (!*ret_model)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the model's description");
	return GPUSNAP_OK;
}

gpusnap_status gsn_load_records_set(
	gpusnap_registry *registry, const struct gsn_rank_state *state, gpusnap_error *err)
{
	gpusnap_json *model = NULL, *padding = NULL;
	gpusnap_json *before = gpusnap_record_get(registry, padding_name);
	gpusnap_status st = GPUSNAP_OK;

	if (state->model->layer_count)
		st = encode_model(state, &model, err);
	if (!st && state->padding_count)
		st = encode_padding(state, &padding, err);
	if (!st)
		st = gpusnap_record_set(registry, padding_name, padding, err);
	if (!st) {
		st = gpusnap_record_set(registry, model_name, model, err);
		/* It replaces a key that is there, or removes one: that takes no memory. */
		if (st)
			(void)!gpusnap_record_set(registry, padding_name, before, NULL);
	}
	gpusnap_json_free(before);
	gpusnap_json_free(padding);
	gpusnap_json_free(model);
	return st;
}
