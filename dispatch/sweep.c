/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check (c): the expert sweep. Natural routing misses experts, so each local one is given a token
 * of its own, by forced id and with weight 1; ids of other ranks and the mask's sink must give
 * nothing at all.
 */
#include <string.h>

#include "dispatch/decode.h"
#include "dispatch/dispatch_state.h"
#include "dispatch/probe_input.h"
#include "dispatch/proof.h"
#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

/* Tokens of one pass: bounds memory, and is more than most layers have experts. */
enum { BATCH = 256 };

struct sweep {
	struct gsn_proof *proof;
	uint32_t index;
	const struct gsn_layer *layer;
	/* Host arrays for BATCH tokens. */
	float *x;
	float *y;
	int32_t *ids;
	int32_t *ones;	/* the mask of GSN_IDS_LOCAL */
	uint32_t count; /* tokens in the batch */
	struct gsn_moe_counters counters;
};

static void release_sweep(struct sweep *sweep)
{
	gsn_free(sweep->x);
	gsn_free(sweep->y);
	gsn_free(sweep->ids);
	gsn_free(sweep->ones);
}

static gpusnap_status allocate_sweep(struct sweep *sweep, gpusnap_error *err)
{
	const gpusnap_moe_layer *spec = sweep->layer->spec;
	size_t values = (size_t)BATCH * spec->hidden;

	sweep->x = gsn_alloc(values, sizeof *sweep->x);
	sweep->y = gsn_alloc(values, sizeof *sweep->y);
	sweep->ids = gsn_alloc(BATCH, sizeof *sweep->ids);
	sweep->ones = gsn_alloc(spec->mask.local, sizeof *sweep->ones);
	if (!sweep->x || !sweep->y || !sweep->ids || !sweep->ones)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "layer %u: expert sweep: out of memory", spec->layer);
	for (uint32_t i = 0; i < spec->mask.local; i++)
		sweep->ones[i] = 1;
	return GPUSNAP_OK;
}

/* Put a token into the batch: the seeded one of `name`, sent to `id`. */
static void put_token(struct sweep *sweep, uint32_t name, uint32_t id)
{
	const gpusnap_moe_layer *spec = sweep->layer->spec;

	gsn_probe_input(sweep->proof->now->seed, GSN_INPUT_EXPERT(spec->layer, name),
		sweep->x + (size_t)sweep->count * spec->hidden, spec->hidden);
	sweep->ids[sweep->count++] = (int32_t)id;
}

static gpusnap_status run_batch(struct sweep *sweep, enum gsn_id_space space, gpusnap_error *err)
{
	struct gsn_pass pass = {
		.tokens = sweep->count,
		.top_k = 1,
		.x = sweep->x,
		.ids = sweep->ids,
		.space = space,
		.ones = sweep->ones,
		.slots = sweep->y,
	};
	gpusnap_status status = gsn_decode_pass(sweep->proof->dispatch, sweep->layer, &pass, err);

	sweep->counters = pass.counters;
	return status;
}

/* A mask that is known to be bad is gone round: it must not accuse the experts. */
static gpusnap_status sweep_experts(struct sweep *sweep, gpusnap_error *err)
{
	const gpusnap_mask_type *mask = &sweep->layer->spec->mask;
	bool direct = gsn_proof_mask_is_bad(sweep->proof, sweep->index);
	size_t row = sweep->layer->spec->hidden * sizeof(float);
	gpusnap_digest *digests = sweep->proof->now->layers[sweep->index].experts;

	for (uint32_t done = 0; done < mask->local; done += sweep->count) {
		uint32_t end = (uint32_t)gsn_min(mask->local, (uint64_t)done + BATCH);
		gpusnap_status status;

		sweep->count = 0;
		for (uint32_t local = done; local < end; local++)
			put_token(sweep, mask->first + local, direct ? local : mask->first + local);
		status = run_batch(sweep, direct ? GSN_IDS_LOCAL : GSN_IDS_GLOBAL, err);
		if (status)
			return status;
		for (uint32_t i = 0; i < sweep->count; i++)
			digests[done + i] =
				gpusnap_digest_of((const uint8_t *)sweep->y + i * row, row);
		sweep->proof->faults[sweep->index] |= sweep->counters.faults;
	}
	sweep->proof->experts_swept += mask->local;
	sweep->proof->bytes_read += mask->local * gsn_expert_bytes(sweep->layer);
	return GPUSNAP_OK;
}

/* Position of the first token of the batch that got an output; the batch's count for none. */
static uint32_t first_output(const struct sweep *sweep)
{
	uint32_t hidden = sweep->layer->spec->hidden;

	for (uint32_t i = 0; i < sweep->count; i++)
		for (uint32_t j = 0; j < hidden; j++)
			if (!(sweep->y[(size_t)i * hidden + j] == 0.0f))
				return i;
	return sweep->count;
}

/* Run tokens that this rank must refuse, and see that it does. */
static gpusnap_status run_refused(struct sweep *sweep, enum gsn_id_space space, gpusnap_error *err)
{
	struct gsn_place place = {GPUSNAP_FAILURE_FOREIGN, sweep->index, GPUSNAP_MOE_MASK, -1, -1};
	gpusnap_status status;
	uint32_t first;

	if (sweep->count == 0)
		return GPUSNAP_OK;
	status = run_batch(sweep, space, err);
	if (status)
		return status;
	first = first_output(sweep);
	if (first == sweep->count && sweep->counters.local == 0 &&
		sweep->counters.remote == sweep->count && sweep->counters.faults == 0)
		return GPUSNAP_OK;
	if (first < sweep->count && space == GSN_IDS_GLOBAL)
		place.expert = sweep->ids[first];
	return gsn_proof_found(sweep->proof, place, err,
		"%s id %d: %s output; of %u refused ids %llu counted local, %llu remote, faults "
		"%#x",
		space == GSN_IDS_GLOBAL ? "foreign" : "sink",
		sweep->ids[first < sweep->count ? first : 0], first < sweep->count ? "an" : "no",
		sweep->count, (unsigned long long)sweep->counters.local,
		(unsigned long long)sweep->counters.remote, sweep->counters.faults);
}

static gpusnap_status sweep_foreign(struct sweep *sweep, gpusnap_error *err)
{
	const gpusnap_mask_type *mask = &sweep->layer->spec->mask;
	gpusnap_status status = GPUSNAP_OK;

	sweep->count = 0;
	for (uint32_t id = 0; id < mask->experts && !status; id++) {
		if (id - mask->first < mask->local)
			continue;
		put_token(sweep, id, id);
		if (sweep->count == BATCH) {
			status = run_refused(sweep, GSN_IDS_GLOBAL, err);
			sweep->count = 0;
		}
	}
	return status ? status : run_refused(sweep, GSN_IDS_GLOBAL, err);
}

/* Kinds with a sink have it as the last entry of the mask. */
static gpusnap_status sweep_sink(struct sweep *sweep, gpusnap_error *err)
{
	const gpusnap_mask_type *mask = &sweep->layer->spec->mask;

	sweep->count = 0;
	if (mask->kind == GPUSNAP_MASK_DEEPEP || mask->kind == GPUSNAP_MASK_VLLM_AITER)
		put_token(sweep, GSN_INPUT_SINK, gpusnap_mask_length(mask) - 1);
	return run_refused(sweep, GSN_IDS_MASK, err);
}

static gpusnap_status sweep_layer(struct gsn_proof *proof, uint32_t index, gpusnap_error *err)
{
	struct sweep sweep = {
		.proof = proof, .index = index, .layer = &proof->dispatch->layers[index]};
	bool mask_is_bad = gsn_proof_mask_is_bad(proof, index);
	gpusnap_status status = allocate_sweep(&sweep, err);

	if (!status)
		status = sweep_experts(&sweep, err);
	if (!status && !mask_is_bad)
		status = sweep_foreign(&sweep, err);
	if (!status && !mask_is_bad)
		status = sweep_sink(&sweep, err);
	release_sweep(&sweep);
	return status;
}

gpusnap_status gsn_proof_sweep(struct gsn_proof *proof, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint32_t i = 0; i < proof->dispatch->model->layer_count && !status; i++)
		status = sweep_layer(proof, i, err);
	return status;
}
