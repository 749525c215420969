/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holding live state against a probe record: run the probe again, compare, and tell what broke,
 * each damaged object once. What a later check sees is told only if no earlier failure explains it.
 */
#include <stdio.h>
#include <string.h>

#include "dispatch/blame.h"
#include "dispatch/decode.h"
#include "dispatch/dispatch_state.h"
#include "dispatch/probe_record.h"
#include "dispatch/proof.h"
#include "formats/base/alloc.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"

const char *gpusnap_failure_kind_name(gpusnap_failure_kind kind)
{
	switch (kind) {
	case GPUSNAP_FAILURE_STRUCTURE:
		return "structure";
	case GPUSNAP_FAILURE_CONTROL:
		return "control";
	case GPUSNAP_FAILURE_EXPERT:
		return "expert";
	case GPUSNAP_FAILURE_FOREIGN:
		return "foreign";
	case GPUSNAP_FAILURE_DECODE:
		return "decode";
	}
	return "unknown";
}

static const char *const check_names[GPUSNAP_CHECKS] = {
	[GPUSNAP_CHECK_STRUCTURE] = "structure",
	[GPUSNAP_CHECK_CONTROL] = "control",
	[GPUSNAP_CHECK_SWEEP] = "sweep",
	[GPUSNAP_CHECK_DECODE] = "decode",
};

const char *gpusnap_check_name(gpusnap_check check)
{
	return (unsigned)check < GPUSNAP_CHECKS ? check_names[check] : "unknown";
}

gpusnap_status gpusnap_check_parse(const char *name, gpusnap_check *ret_check, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (int i = 0; i < GPUSNAP_CHECKS; i++) {
		if (strcmp(check_names[i], name) == 0) {
			*ret_check = (gpusnap_check)i;
			return GPUSNAP_OK;
		}
	}
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"check '%s' is unknown; known are structure, control, sweep, decode",
		gsn_quote(name, strlen(name), quoted));
}

static gpusnap_status check_layers(
	const gpusnap_dispatch *dispatch, const gpusnap_probe *record, gpusnap_error *err)
{
	const gpusnap_moe_model *model = dispatch->model;

	if (record->layer_count != model->layer_count)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"probe record is of %u layers, the model has %u: record again",
			record->layer_count, model->layer_count);
	for (uint32_t i = 0; i < model->layer_count; i++)
		if (record->layers[i].expert_count != model->layers[i].mask.local)
			return gsn_fail(err, GPUSNAP_E_MISMATCH,
				"probe record has %u experts of layer %u, this rank %u: it is "
				"another rank's or another model's",
				record->layers[i].expert_count, model->layers[i].layer,
				model->layers[i].mask.local);
	return GPUSNAP_OK;
}

static gpusnap_status check_record(
	const gpusnap_dispatch *dispatch, const gpusnap_probe *record, gpusnap_error *err)
{
	gpusnap_digest digest = gpusnap_probe_digest(record);
	char has[GPUSNAP_DIGEST_TEXT];
	char wants[GPUSNAP_DIGEST_TEXT];
	gpusnap_status status;

	if (record->version != GPUSNAP_PROBE_VERSION)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"probe record is of version %u, this build makes version %u: record again",
			record->version, GPUSNAP_PROBE_VERSION);
	status = gsn_probe_limits("probe record", record->tokens, record->steps, err);
	if (!status)
		status = check_layers(dispatch, record, err);
	if (status || gpusnap_digest_equal(digest, record->digest))
		return status;
	return gsn_fail(err, GPUSNAP_E_CORRUPT,
		"probe record says that its digest is %s, it is %s: take it from the snapshot "
		"again",
		gpusnap_digest_format(record->digest, has), gpusnap_digest_format(digest, wants));
}

/* What the comparisons share. */
struct trial {
	struct gsn_proof proof;
	const gpusnap_probe *record;
	const gpusnap_baseline *baseline; /* may be NULL */
	uint32_t checks;
	gpusnap_check_cost costs[GPUSNAP_CHECKS];
	bool decode_differs;
};

static bool is_made(const struct trial *trial, gpusnap_check check)
{
	return (trial->checks & 1u << check) != 0;
}

static void describe_digests(
	const char *what, gpusnap_digest now, gpusnap_digest then, char *text, size_t size)
{
	char has[GPUSNAP_DIGEST_TEXT];
	char wants[GPUSNAP_DIGEST_TEXT];

	(void)snprintf(text, size, "%s is %s, recorded %s", what, gpusnap_digest_format(now, has),
		gpusnap_digest_format(then, wants));
}

static gpusnap_status compare_table(
	struct trial *trial, uint32_t index, gpusnap_moe_slot slot, gpusnap_error *err)
{
	gpusnap_digest now = trial->proof.now->layers[index].control[slot];
	gpusnap_digest then = trial->record->layers[index].control[slot];
	struct gsn_place place = {GPUSNAP_FAILURE_CONTROL, index, slot, -1, -1};
	char what[160];
	gpusnap_status status;

	if (gpusnap_digest_equal(now, then) ||
		gsn_findings_get(&trial->proof.findings, index, slot, -1))
		return GPUSNAP_OK;
	status = gsn_blame_leaf(&trial->proof, trial->baseline, index, slot, &place.leaf, err);
	if (status)
		return status;
	describe_digests("digest", now, then, what, sizeof what);
	return gsn_proof_found(&trial->proof, place, err, "%s", what);
}

static gpusnap_status compare_control(struct trial *trial, uint32_t index, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS && !status; slot++)
		if (gsn_is_control_slot((gpusnap_moe_slot)slot))
			status = compare_table(trial, index, (gpusnap_moe_slot)slot, err);
	return status;
}

typedef gpusnap_status blame_fn(struct gsn_proof *proof, const gpusnap_baseline *baseline,
	uint32_t index, uint32_t local, const char *what, gpusnap_error *err);

static gpusnap_status blame_experts(
	struct trial *trial, uint32_t index, blame_fn *blame, gpusnap_error *err)
{
	const gpusnap_probe_layer *now = &trial->proof.now->layers[index];
	const gpusnap_probe_layer *then = &trial->record->layers[index];
	gpusnap_status status = GPUSNAP_OK;
	char what[160];

	for (uint32_t i = 0; i < now->expert_count && !status; i++) {
		if (gpusnap_digest_equal(now->experts[i], then->experts[i]))
			continue;
		describe_digests("output", now->experts[i], then->experts[i], what, sizeof what);
		status = blame(&trial->proof, trial->baseline, index, i, what, err);
	}
	return status;
}

static gpusnap_status compare_experts(struct trial *trial, uint32_t index, gpusnap_error *err)
{
	gpusnap_status status = blame_experts(trial, index, gsn_blame_convict, err);

	return status ? status : blame_experts(trial, index, gsn_blame_suspect, err);
}

/* First layer whose decode differs; the layer count for none. */
static uint32_t first_difference(const struct trial *trial)
{
	const gpusnap_probe *now = trial->proof.now;
	uint32_t i;

	for (i = 0; i < now->layer_count; i++) {
		const gpusnap_probe_layer *a = &now->layers[i];
		const gpusnap_probe_layer *b = &trial->record->layers[i];

		if (!gpusnap_digest_equal(a->output, b->output) ||
			a->local_assignments != b->local_assignments ||
			a->remote_assignments != b->remote_assignments || trial->proof.faults[i])
			break;
	}
	return i;
}

/* A failure in a layer explains every difference from there on. */
static bool explained(const struct trial *trial, uint32_t index)
{
	for (size_t i = 0; i < trial->proof.findings.count; i++)
		if (trial->proof.findings.items[i].index <= index)
			return true;
	return false;
}

static gpusnap_status name_difference(struct trial *trial, uint32_t index, gpusnap_error *err)
{
	const gpusnap_probe_layer *now = &trial->proof.now->layers[index];
	const gpusnap_probe_layer *then = &trial->record->layers[index];
	struct gsn_place place = {GPUSNAP_FAILURE_DECODE, index, GSN_NO_SLOT, -1, -1};
	char what[160];

	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS && place.leaf < 0; slot++) {
		gpusnap_status status = gsn_blame_leaf(&trial->proof, trial->baseline, index,
			(gpusnap_moe_slot)slot, &place.leaf, err);

		if (status)
			return status;
		if (place.leaf >= 0)
			place.slot = (gpusnap_moe_slot)slot;
	}
	if (trial->proof.faults[index])
		(void)snprintf(
			what, sizeof what, "kernels raise faults %#x", trial->proof.faults[index]);
	else if (gpusnap_digest_equal(now->output, then->output))
		(void)snprintf(what, sizeof what,
			"%llu local and %llu remote, recorded %llu and %llu",
			(unsigned long long)now->local_assignments,
			(unsigned long long)now->remote_assignments,
			(unsigned long long)then->local_assignments,
			(unsigned long long)then->remote_assignments);
	else
		describe_digests("output", now->output, then->output, what, sizeof what);
	return gsn_proof_found(&trial->proof, place, err, "%s", what);
}

static gpusnap_status compare_decode(struct trial *trial, gpusnap_error *err)
{
	uint32_t index = first_difference(trial);

	trial->decode_differs = index < trial->proof.now->layer_count;
	if (!trial->decode_differs || explained(trial, index))
		return GPUSNAP_OK;
	return name_difference(trial, index, err);
}

static gpusnap_status measure(struct trial *trial, gpusnap_error *err)
{
	typedef gpusnap_status measure_fn(struct gsn_proof * proof, gpusnap_error * err);
	static measure_fn *const measures[GPUSNAP_CHECKS] = {
		[GPUSNAP_CHECK_STRUCTURE] = gsn_proof_structure,
		[GPUSNAP_CHECK_CONTROL] = gsn_proof_control,
		[GPUSNAP_CHECK_SWEEP] = gsn_proof_sweep,
		[GPUSNAP_CHECK_DECODE] = gsn_proof_steps,
	};
	gpusnap_status status = GPUSNAP_OK;

	for (int i = 0; i < GPUSNAP_CHECKS && !status; i++) {
		double begin = gsn_clock_seconds();

		if (!is_made(trial, (gpusnap_check)i))
			continue;
		trial->proof.bytes_read = 0;
		status = measures[i](&trial->proof, err);
		trial->costs[i] =
			(gpusnap_check_cost){trial->proof.bytes_read, gsn_clock_seconds() - begin};
	}
	return status;
}

static gpusnap_status compare(struct trial *trial, gpusnap_error *err)
{
	uint32_t layers = trial->proof.now->layer_count;
	gpusnap_status status = GPUSNAP_OK;

	for (uint32_t i = 0; is_made(trial, GPUSNAP_CHECK_CONTROL) && i < layers && !status; i++)
		status = compare_control(trial, i, err);
	for (uint32_t i = 0; is_made(trial, GPUSNAP_CHECK_SWEEP) && i < layers && !status; i++)
		status = compare_experts(trial, i, err);
	if (!status && is_made(trial, GPUSNAP_CHECK_DECODE))
		status = compare_decode(trial, err);
	return status;
}

static gpusnap_status conclude(
	const struct trial *trial, gpusnap_validation *ret, gpusnap_error *err)
{
	const struct gsn_proof *proof = &trial->proof;
	gpusnap_validation validation = {
		.proved = proof->findings.count == 0,
		.layers = proof->now->layer_count,
		.experts_swept = proof->experts_swept,
		.checks = trial->checks,
		.steps = is_made(trial, GPUSNAP_CHECK_DECODE) ? proof->now->steps : 0,
		.decode_differs = trial->decode_differs,
		.failure_count = proof->findings.count,
	};
	gpusnap_status status = gsn_findings_take(&proof->findings, &validation.failures, err);

	memcpy(validation.costs, trial->costs, sizeof validation.costs);
	if (trial->checks == GPUSNAP_CHECKS_ALL)
		validation.digest = gpusnap_probe_digest(proof->now);
	if (!status)
		*ret = validation;
	return status;
}

gpusnap_status gpusnap_validate_checks(gpusnap_dispatch *dispatch, const gpusnap_probe *record,
	const gpusnap_baseline *baseline, uint32_t checks, gpusnap_validation *ret,
	gpusnap_error *err)
{
	struct trial trial = {.record = record, .checks = checks};
	gpusnap_status status;

	if (checks == 0 || checks & ~GPUSNAP_CHECKS_ALL)
		return gsn_fail(
			err, GPUSNAP_E_INVALID, "validate: no such set of checks: %#x", checks);
	status = check_record(dispatch, record, err);
	if (status)
		return status;
	gpusnap_registry_hold(dispatch->registry);
	trial.baseline = baseline ? baseline : gpusnap_registry_baseline(dispatch->registry);
	status = gsn_proof_init(
		&trial.proof, dispatch, record->seed, record->tokens, record->steps, err);
	if (!status)
		status = measure(&trial, err);
	if (!status)
		status = compare(&trial, err);
	if (!status)
		status = conclude(&trial, ret, err);
	gsn_proof_release(&trial.proof);
	gpusnap_registry_release(dispatch->registry);
	return status;
}

gpusnap_status gpusnap_validate(gpusnap_dispatch *dispatch, const gpusnap_probe *record,
	const gpusnap_baseline *baseline, gpusnap_validation *ret, gpusnap_error *err)
{
	return gpusnap_validate_checks(dispatch, record, baseline, GPUSNAP_CHECKS_ALL, ret, err);
}

void gpusnap_validation_release(gpusnap_validation *validation)
{
	if (!validation)
		return;
	gsn_free(validation->failures);
	validation->failures = NULL;
	validation->failure_count = 0;
}
