/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one run of the probe. */
#include "dispatch/proof.h"

#include <stdarg.h>
#include <stdio.h>

#include "dispatch/dispatch_state.h"
#include "formats/base/alloc.h"
#include "formats/base/fail.h"

bool gsn_is_control_slot(gpusnap_moe_slot slot)
{
	return slot != GPUSNAP_MOE_W13 && slot != GPUSNAP_MOE_W2;
}

bool gsn_is_expert_slot(gpusnap_moe_slot slot)
{
	switch (slot) {
	case GPUSNAP_MOE_W13:
	case GPUSNAP_MOE_W13_SCALE:
	case GPUSNAP_MOE_W13_BIAS:
	case GPUSNAP_MOE_W2:
	case GPUSNAP_MOE_W2_SCALE:
	case GPUSNAP_MOE_W2_BIAS:
		return true;
	default:
		return false;
	}
}

uint64_t gsn_expert_bytes(const struct gsn_layer *layer)
{
	uint64_t bytes = 0;

	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS; slot++)
		if (gsn_is_expert_slot((gpusnap_moe_slot)slot))
			bytes += layer->operands[slot].bytes;
	return bytes / layer->spec->mask.local;
}

static gpusnap_status allocate_layers(struct gsn_proof *proof)
{
	const gpusnap_moe_model *model = proof->dispatch->model;

	proof->now = gpusnap_probe_new(model->layer_count);
	proof->faults = gsn_alloc(model->layer_count, sizeof *proof->faults);
	if (!proof->now || !proof->faults)
		return GPUSNAP_E_NOMEM;
	for (uint32_t i = 0; i < model->layer_count; i++) {
		gpusnap_probe_layer *layer = &proof->now->layers[i];

		layer->expert_count = model->layers[i].mask.local;
		layer->experts = gsn_alloc(layer->expert_count, sizeof *layer->experts);
		if (!layer->experts)
			return GPUSNAP_E_NOMEM;
	}
	return GPUSNAP_OK;
}

gpusnap_status gsn_proof_init(struct gsn_proof *proof, gpusnap_dispatch *dispatch, uint64_t seed,
	uint32_t tokens, uint32_t steps, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	*proof = (struct gsn_proof){.dispatch = dispatch};
	if (allocate_layers(proof))
		return gsn_fail(err, GPUSNAP_E_NOMEM, "probe of %u layers: out of memory",
			dispatch->model->layer_count);
	proof->now->version = GPUSNAP_PROBE_VERSION;
	proof->now->seed = seed;
	proof->now->tokens = tokens;
	proof->now->steps = steps;
	for (uint32_t i = 0; i < dispatch->model->layer_count && !status; i++)
		status = gsn_layer_ready(dispatch, &dispatch->layers[i], err);
	return status;
}

void gsn_proof_release(struct gsn_proof *proof)
{
	gpusnap_probe_free(proof->now);
	gsn_findings_release(&proof->findings);
	gsn_free(proof->faults);
	*proof = (struct gsn_proof){0};
}

gpusnap_status gsn_proof_found(struct gsn_proof *proof, struct gsn_place place, gpusnap_error *err,
	const char *format, ...)
{
	const struct gsn_layer *layer = &proof->dispatch->layers[place.index];
	struct gsn_finding finding = {
		.failure = {.kind = place.kind,
			.layer = layer->spec->layer,
			.buffer =
				place.slot == GSN_NO_SLOT ? NULL : layer->operands[place.slot].name,
			.expert = place.expert,
			.leaf = place.leaf},
		.index = place.index,
		.slot = place.slot,
	};
	va_list args;

	va_start(args, format);
	(void)vsnprintf(finding.failure.detail, sizeof finding.failure.detail, format, args);
	va_end(args);
	return gsn_findings_add(&proof->findings, &finding, err);
}

bool gsn_proof_mask_is_bad(const struct gsn_proof *proof, uint32_t index)
{
	return gsn_findings_get(&proof->findings, index, GPUSNAP_MOE_MASK, -1) != NULL;
}
