/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/load_input.h"

#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "loader/compact.h"
#include "loader/name_list.h"

static const char unknown_note[] =
	"the model's family is unknown: its tensors are kept as they are, with no decode to prove "
	"them";

/* ---- options ---- */

static gpusnap_status check_rank(const char *name, uint32_t rank, uint32_t size, gpusnap_error *err)
{
	if (rank < size)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_INVALID, "%s_rank %u is outside 0..%u (%s_size %u)", name,
		rank, size - 1, name, size);
}

gpusnap_status gsn_load_input_resolve(
	struct gsn_load_input *input, const gpusnap_load_options *caller, gpusnap_error *err)
{
	gpusnap_load_options *o = &input->options;
	gpusnap_status st;

	st = gsn_options_copy(o, sizeof *o, caller, "gpusnap_load_options", err);
	if (st)
		return st;
	input->rank = (struct gsn_rank){
		.tp_rank = o->tp_rank,
		.tp_size = o->tp_size ? o->tp_size : 1,
		.ep_rank = o->ep_rank,
		.ep_size = o->ep_size ? o->ep_size : 1,
		.mask = o->mask ? o->mask : GPUSNAP_MASK_STANDARD,
		.expert_maps = o->expert_maps,
	};
	if ((unsigned)o->compact > GPUSNAP_COMPACT_NEVER)
		return gsn_fail(err, GPUSNAP_E_INVALID, "compact %d is none of auto, always, never",
			(int)o->compact);
	if ((unsigned)input->rank.mask > GPUSNAP_MASK_VLLM_AITER)
		return gsn_fail(
			err, GPUSNAP_E_INVALID, "mask kind %d is unknown", (int)input->rank.mask);
	st = check_rank("tp", input->rank.tp_rank, input->rank.tp_size, err);
	if (!st)
		st = check_rank("ep", input->rank.ep_rank, input->rank.ep_size, err);
	return st;
}

/* ---- the checkpoint ---- */

static gpusnap_status refuse_unexpected(const struct gsn_load_input *input, gpusnap_error *err)
{
	struct gsn_name_list list = {0};

	for (uint32_t i = 0; i < input->state.unexpected_count; i++)
		gsn_name_list_add(&list, input->state.unexpected[i]);
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"%zu tensors are none of %s's: %s; without strict they are kept as they are",
		list.count, input->config.model_type, list.text);
}

static gpusnap_status read_config(struct gsn_load_input *input, gpusnap_error *err)
{
	if (input->source.configured)
		return gsn_config_read(input->source.directory, &input->config, err);
	return gsn_config_none(&input->config, err);
}

gpusnap_status gsn_load_input_open(
	struct gsn_load_input *input, const char *path, gpusnap_error *err)
{
	gpusnap_status st = gsn_source_path_resolve(path, &input->source, err);

	if (!st)
		st = read_config(input, err);
	if (!st)
		st = gsn_checkpoint_open(
			input->source.directory, input->source.file, &input->checkpoint, err);
	if (!st)
		st = gsn_rank_state_build(
			&input->checkpoint, &input->config, &input->rank, &input->state, err);
	if (!st && input->state.bytes == 0)
		st = gsn_fail(err, GPUSNAP_E_FORMAT, "%s holds no tensor", path);
	if (!st && input->options.strict && input->state.unexpected_count)
		st = refuse_unexpected(input, err);
	return st;
}

void gsn_load_input_close(struct gsn_load_input *input)
{
	gsn_rank_state_release(&input->state);
	gsn_checkpoint_close(&input->checkpoint);
	gsn_config_release(&input->config);
	gsn_source_path_release(&input->source);
}

/* ---- what is known of it ---- */

void gsn_load_input_report(const struct gsn_load_input *input, gpusnap_load_report *report)
{
	const struct gsn_rank_state *state = &input->state;

	report->tensors = state->tensors;
	report->views = state->slices;
	report->bytes = state->bytes;
	report->predictions = state->predictions;
	report->padding = state->padding_bytes;
	for (size_t i = 0; i < state->view_count; i++) {
		report->bytes_needed += gsn_view_needed(&state->views[i]);
		report->compacted += gsn_view_is_read(&state->views[i]) &&
				     gsn_compact_applies(input->options.compact, &state->views[i]);
	}
	if (!input->config.family->model_type)
		report->note = unknown_note;
}
