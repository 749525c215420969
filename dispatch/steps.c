/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check (d): decode steps through all MoE layers. A step begins with seeded inputs; each layer sees
 * the residual stream (RMS-normed where the layer has a norm) and adds its output to it, so that
 * the last layers depend on all before. A rank that holds a part of the model adds its part only.
 */
#include <string.h>

#include "dispatch/decode.h"
#include "dispatch/dispatch_state.h"
#include "dispatch/probe_input.h"
#include "dispatch/proof.h"
#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

struct run {
	struct gsn_proof *proof;
	uint32_t tokens;
	float *stream; /* [tokens, hidden]: residual stream */
	float *out;
	int32_t *token_ids;		 /* [tokens], of the step, for the layer at hand */
	int32_t *routed;		 /* [tokens, most top_k]: experts of the layer at hand */
	bool *active;			 /* [most experts]: local ones that are among them */
	gpusnap_digest_stream **digests; /* of each layer's output, over all steps */
};

struct widths {
	uint32_t hidden, top_k, local;
};

static struct widths widest_layer(const gpusnap_moe_model *model)
{
	struct widths widest = {0};

	for (uint32_t i = 0; i < model->layer_count; i++) {
		const gpusnap_moe_layer *layer = &model->layers[i];

		widest.hidden = (uint32_t)gsn_max(widest.hidden, layer->hidden);
		widest.top_k = (uint32_t)gsn_max(widest.top_k, layer->top_k);
		widest.local = (uint32_t)gsn_max(widest.local, layer->mask.local);
	}
	return widest;
}

static gpusnap_status allocate_run(struct run *run, gpusnap_error *err)
{
	const gpusnap_moe_model *model = run->proof->dispatch->model;
	struct widths widest = widest_layer(model);
	size_t values = (size_t)run->tokens * widest.hidden;
	bool whole;

	run->stream = gsn_alloc(values, sizeof *run->stream);
	run->out = gsn_alloc(values, sizeof *run->out);
	run->token_ids = gsn_alloc(run->tokens, sizeof *run->token_ids);
	run->routed = gsn_alloc((size_t)run->tokens * widest.top_k, sizeof *run->routed);
	run->active = gsn_alloc(widest.local, sizeof *run->active);
	run->digests = gsn_alloc(model->layer_count, sizeof(gpusnap_digest_stream *));
	whole = run->stream && run->out && run->token_ids && run->routed && run->active &&
		run->digests;
	for (uint32_t i = 0; whole && i < model->layer_count; i++) {
		run->digests[i] = gpusnap_digest_stream_new();
		whole = run->digests[i] != NULL;
	}
	if (!whole)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "probe of %u tokens: out of memory", run->tokens);
	return GPUSNAP_OK;
}

static void release_run(struct run *run)
{
	for (uint32_t i = 0; run->digests && i < run->proof->dispatch->model->layer_count; i++)
		if (run->digests[i])
			gpusnap_digest_stream_free(run->digests[i]);
	gsn_free(run->digests);
	gsn_free(run->stream);
	gsn_free(run->out);
	gsn_free(run->token_ids);
	gsn_free(run->routed);
	gsn_free(run->active);
}

/* Each expert that a pass routes to is read once; so are the router and what all tokens share. */
static void count_bytes(struct run *run, const struct gsn_layer *layer)
{
	const gpusnap_mask_type *mask = &layer->spec->mask;
	uint64_t active = 0;

	memset(run->active, 0, mask->local * sizeof *run->active);
	for (size_t i = 0; i < (size_t)run->tokens * layer->spec->top_k; i++) {
		uint32_t local = (uint32_t)run->routed[i] - mask->first;

		if (local < mask->local && !run->active[local]) {
			run->active[local] = true;
			active++;
		}
	}
	run->proof->bytes_read += active * gsn_expert_bytes(layer);
	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS; slot++)
		if (!gsn_is_expert_slot((gpusnap_moe_slot)slot) && slot != GPUSNAP_MOE_MAP &&
			slot != GPUSNAP_MOE_HASH)
			run->proof->bytes_read += layer->operands[slot].bytes;
}

static gpusnap_status run_layer(struct run *run, uint32_t step, uint32_t index, gpusnap_error *err)
{
	const struct gsn_layer *layer = &run->proof->dispatch->layers[index];
	gpusnap_probe_layer *now = &run->proof->now->layers[index];
	size_t values = (size_t)run->tokens * layer->spec->hidden;
	struct gsn_pass pass = {
		.tokens = run->tokens,
		.top_k = layer->spec->top_k,
		.x = run->stream,
		.normalise = true,
		.token_ids = run->token_ids,
		.out = run->out,
		.routed = run->routed,
	};
	gpusnap_status status;

	/* The tokens of a step are the same for every layer of one vocabulary. */
	gsn_probe_token_ids(run->proof->now->seed, GSN_INPUT_TOKENS(step), layer->spec->vocabulary,
		run->token_ids, run->tokens);
	status = gsn_decode_pass(run->proof->dispatch, layer, &pass, err);
	if (status)
		return status;
	count_bytes(run, layer);
	gpusnap_digest_stream_update(run->digests[index], run->out, values * sizeof *run->out);
	for (size_t i = 0; i < values; i++)
		run->stream[i] += run->out[i];
	run->proof->faults[index] |= pass.counters.faults;
	now->local_assignments += pass.counters.local;
	now->remote_assignments += pass.counters.remote;
	return GPUSNAP_OK;
}

static gpusnap_status run_step(struct run *run, uint32_t step, gpusnap_error *err)
{
	const gpusnap_moe_model *model = run->proof->dispatch->model;
	gpusnap_status status = GPUSNAP_OK;

	gsn_probe_input(run->proof->now->seed, GSN_INPUT_STEP(step), run->stream,
		(size_t)run->tokens * widest_layer(model).hidden);
	for (uint32_t i = 0; i < model->layer_count && !status; i++)
		status = run_layer(run, step, i, err);
	return status;
}

gpusnap_status gsn_proof_steps(struct gsn_proof *proof, gpusnap_error *err)
{
	struct run run = {.proof = proof, .tokens = proof->now->tokens};
	gpusnap_status status = allocate_run(&run, err);

	for (uint32_t step = 0; step < proof->now->steps && !status; step++)
		status = run_step(&run, step, err);
	for (uint32_t i = 0; i < proof->dispatch->model->layer_count && !status; i++)
		proof->now->layers[i].output = gpusnap_digest_stream_finish(run.digests[i]);
	release_run(&run);
	return status;
}
