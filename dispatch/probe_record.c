/* SPDX-License-Identifier: Apache-2.0 */
/* Making a probe record: of a state that is well-formed and computes without a fault, or none. */
#include <gpusnap/dispatch.h>

#include "dispatch/decode.h"
#include "dispatch/dispatch_state.h"
#include "dispatch/probe_record.h"
#include "dispatch/proof.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"

static gpusnap_status refuse_findings(const struct gsn_proof *proof, gpusnap_error *err)
{
	const gpusnap_failure *first;

	if (proof->findings.count == 0)
		return GPUSNAP_OK;
	first = &proof->findings.items[0].failure;
	return gsn_fail(err, GPUSNAP_E_NOT_PROVED, "layer %u: '%s': %s", first->layer,
		first->buffer, first->detail);
}

static gpusnap_status refuse_faults(const struct gsn_proof *proof, gpusnap_error *err)
{
	gpusnap_dispatch *dispatch = proof->dispatch;
	gpusnap_status status = GPUSNAP_OK;

	for (uint32_t i = 0; i < dispatch->model->layer_count && !status; i++)
		status = gsn_fault_status(&dispatch->layers[i], proof->faults[i], err);
	return status;
}

static gpusnap_status measure(struct gsn_proof *proof, gpusnap_error *err)
{
	gpusnap_status status = gsn_proof_structure(proof, err);

	if (!status)
		status = refuse_findings(proof, err);
	if (!status)
		status = gsn_proof_control(proof, err);
	if (!status)
		status = gsn_proof_sweep(proof, err);
	if (!status)
		status = refuse_findings(proof, err);
	if (!status)
		status = gsn_proof_steps(proof, err);
	if (!status)
		status = refuse_faults(proof, err);
	return status;
}

gpusnap_status gsn_probe_limits(
	const char *what, uint32_t tokens, uint32_t steps, gpusnap_error *err)
{
	if (tokens == 0 || tokens > GPUSNAP_PROBE_TOKENS_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: %u tokens a step; 1 to %u are possible", what, tokens,
			GPUSNAP_PROBE_TOKENS_MAX);
	if (steps == 0 || steps > GPUSNAP_PROBE_TOKENS_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID, "%s: %u steps; 1 to %u are possible", what,
			steps, GPUSNAP_PROBE_TOKENS_MAX);
	return GPUSNAP_OK;
}

static gpusnap_status read_options(const gpusnap_validate_options *options,
	gpusnap_validate_options *known, gpusnap_error *err)
{
	gpusnap_status status =
		gsn_options_copy(known, sizeof *known, options, "validate options", err);

	if (status)
		return status;
	known->seed = known->seed ? known->seed : 1;
	if (known->seed > INT64_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"probe: seed %llu does not fit a JSON integer; 1 to %lld do",
			(unsigned long long)known->seed, (long long)INT64_MAX);
	known->tokens = known->tokens ? known->tokens : 8;
	known->steps = known->steps ? known->steps : 4;
	return gsn_probe_limits("probe", known->tokens, known->steps, err);
}

gpusnap_status gpusnap_probe_record(gpusnap_dispatch *dispatch,
	const gpusnap_validate_options *options, gpusnap_probe **out, gpusnap_error *err)
{
	struct gsn_proof proof = {0};
	gpusnap_validate_options known;
	gpusnap_status status = read_options(options, &known, err);

	if (status)
		return status;
	gpusnap_registry_hold(dispatch->registry);
	status = gsn_proof_init(&proof, dispatch, known.seed, known.tokens, known.steps, err);
	if (!status)
		status = measure(&proof, err);
	gpusnap_registry_release(dispatch->registry);
	if (!status) {
		proof.now->digest = gpusnap_probe_digest(proof.now);
		*out = proof.now;
		proof.now = NULL;
	}
	gsn_proof_release(&proof);
	return status;
}
