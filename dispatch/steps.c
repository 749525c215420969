/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check (d): decode steps through all MoE layers. A step begins with seeded inputs; each layer sees
 * the residual stream (RMS-normed where the layer has a norm) and adds its output to it, so that
 * the last layers depend on all before. A rank that holds a part of the model adds its part only.
 */
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
	gpusnap_digest_stream **digests; /* of each layer's output, over all steps */
};

static uint32_t widest_layer(const gpusnap_moe_model *model)
{
	uint32_t widest = 0;

	for (uint32_t i = 0; i < model->layer_count; i++)
		widest = (uint32_t)gsn_max(widest, model->layers[i].hidden);
	return widest;
}

static gpusnap_status allocate_run(struct run *run, gpusnap_error *err)
{
	const gpusnap_moe_model *model = run->proof->dispatch->model;
	size_t values = (size_t)run->tokens * widest_layer(model);
	bool whole;

	run->stream = gsn_alloc(values, sizeof *run->stream);
	run->out = gsn_alloc(values, sizeof *run->out);
	run->token_ids = gsn_alloc(run->tokens, sizeof *run->token_ids);
	run->digests = gsn_alloc(model->layer_count, sizeof(gpusnap_digest_stream *));
	whole = run->stream && run->out && run->token_ids && run->digests;
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
	};
	gpusnap_status status;

	/* The tokens of a step are the same for every layer of one vocabulary. */
	gsn_probe_token_ids(run->proof->now->seed, GSN_INPUT_TOKENS(step), layer->spec->vocabulary,
		run->token_ids, run->tokens);
	status = gsn_decode_pass(run->proof->dispatch, layer, &pass, err);
	if (status)
		return status;
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
		(size_t)run->tokens * widest_layer(model));
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
