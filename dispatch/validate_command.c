/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's command "validate": arguments from JSON, the record from the registry, a file or a
 * run of the probe, and the validation as JSON.
 */
#include <gpusnap/dispatch.h>

#include <inttypes.h>

#include "dispatch/dispatch_state.h"
#include "formats/base/fail.h"
#include "snapshot/agent_args.h"

static const char record_name[] = "probe";

struct request {
	bool record;
	const char *file;	      /* borrowed from the arguments; NULL: the registry's record */
	gpusnap_json *parent_dirs;    /* as `file` */
	uint64_t tokens, steps, seed; /* 0: not given */
	uint32_t checks;
};

static gpusnap_status read_checks(
	const gpusnap_json *names, uint32_t *ret_checks, gpusnap_error *err)
{
	*ret_checks = names ? 0 : GPUSNAP_CHECKS_ALL;
	for (size_t i = 0; i < gpusnap_json_size(names); i++) {
		gpusnap_check check;
		gpusnap_status status = gpusnap_check_parse(
			gpusnap_json_text(gpusnap_json_at(names, i)), &check, err);

		if (status)
			return status;
		*ret_checks |= 1u << check;
	}
	return GPUSNAP_OK;
}

static gpusnap_status read_request(gpusnap_json *args, struct request *request, gpusnap_error *err)
{
	gpusnap_json *checks = NULL;
	const struct gsn_arg members[] = {
		{"record", &request->record, GSN_ARG_BOOLEAN, false},
		{"file", &request->file, GSN_ARG_PATH, false},
		{"parent_dirs", &request->parent_dirs, GSN_ARG_PATHS, false},
		{"tokens", &request->tokens, GSN_ARG_NUMBER, false},
		{"steps", &request->steps, GSN_ARG_NUMBER, false},
		{"seed", &request->seed, GSN_ARG_NUMBER, false},
		{"checks", &checks, GSN_ARG_TEXTS, false},
	};
	gpusnap_status status =
		gsn_args_parse(args, "validate", members, sizeof members / sizeof members[0], err);

	if (!status)
		status = read_checks(checks, &request->checks, err);
	if (status)
		return status;
	if (request->record && request->checks != GPUSNAP_CHECKS_ALL)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"validate: a record is made by all checks, not by some of them");
	if (request->tokens > GPUSNAP_PROBE_TOKENS_MAX || request->steps > GPUSNAP_PROBE_TOKENS_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"validate: %" PRIu64 " tokens, %" PRIu64 " steps; at most %u of each",
			request->tokens, request->steps, GPUSNAP_PROBE_TOKENS_MAX);
	if (request->file && request->record)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"validate: a record is taken of live state or read from '%.200s', not both",
			request->file);
	return GPUSNAP_OK;
}

/* The record to validate against, and where its digests come from. */
struct evidence {
	gpusnap_probe *probe;
	gpusnap_baseline *baseline; /* owned; NULL: the registry's own */
};

static void release_evidence(struct evidence *evidence)
{
	gpusnap_probe_free(evidence->probe);
	gpusnap_baseline_free(evidence->baseline);
}

static gpusnap_status evidence_from_live(gpusnap_dispatch *dispatch, const struct request *request,
	struct evidence *ret, gpusnap_error *err)
{
	gpusnap_validate_options options = GPUSNAP_VALIDATE_OPTIONS_INIT;
	gpusnap_status status;

	options.seed = request->seed;
	options.tokens = (uint32_t)request->tokens;
	options.steps = (uint32_t)request->steps;
	status = gpusnap_probe_record(dispatch, &options, &ret->probe, err);
	if (!status)
		status = gpusnap_baseline_from_live(dispatch->registry, &ret->baseline, err);
	return status;
}

static gpusnap_status evidence_from_json(
	gpusnap_json *json, const char *where, struct evidence *ret, gpusnap_error *err)
{
	gpusnap_status status;

	if (!json)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"no probe record in %.300s: run validate --record first%s", where,
			ret->baseline ? ", then save" : "");
	status = gpusnap_probe_decode(json, &ret->probe, err);
	gpusnap_json_free(json);
	return status;
}

static gpusnap_status evidence_from_file(
	const struct request *request, struct evidence *ret, gpusnap_error *err)
{
	const char *path = request->file;
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_status status = gsn_args_open(path, request->parent_dirs, &snapshot, err);

	if (!status)
		status = gpusnap_baseline_from_snapshot(snapshot, &ret->baseline, err);
	if (!status)
		status = evidence_from_json(
			gpusnap_baseline_record(ret->baseline, record_name), path, ret, err);
	gpusnap_snapshot_close(snapshot);
	return status;
}

static gpusnap_status collect_evidence(gpusnap_dispatch *dispatch, const struct request *request,
	struct evidence *ret, gpusnap_error *err)
{
	if (request->record)
		return evidence_from_live(dispatch, request, ret, err);
	if (request->file)
		return evidence_from_file(request, ret, err);
	return evidence_from_json(
		gpusnap_record_get(dispatch->registry, record_name), "this process", ret, err);
}

/* What the caller asked for must be what the record is of. */
static gpusnap_status check_request(
	const struct request *request, const gpusnap_probe *probe, gpusnap_error *err)
{
	const struct {
		const char *what;
		uint64_t asked, recorded;
	} rows[] = {
		{"tokens", request->tokens, probe->tokens},
		{"steps", request->steps, probe->steps},
		{"seed", request->seed, probe->seed},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (rows[i].asked && rows[i].asked != rows[i].recorded)
			return gsn_fail(err, GPUSNAP_E_MISMATCH,
				"validate: %s %" PRIu64
				" asked for, the record was made with %" PRIu64
				": leave it out, or record again",
				rows[i].what, rows[i].asked, rows[i].recorded);
	return GPUSNAP_OK;
}

/* A state that has just been recorded and proved becomes what later ones are held against. */
static gpusnap_status keep_evidence(
	gpusnap_registry *registry, struct evidence *evidence, gpusnap_error *err)
{
	gpusnap_json *json = gpusnap_probe_encode(evidence->probe);
	gpusnap_status status;

	if (!json)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "probe record: out of memory");
	status = gpusnap_record_set(registry, record_name, json, err);
	gpusnap_json_free(json);
	if (status)
		return status;
	gpusnap_registry_set_baseline(registry, evidence->baseline);
	evidence->baseline = NULL;
	return GPUSNAP_OK;
}

static gpusnap_json *encode_failure(const gpusnap_failure *failure)
{
	return gpusnap_json_pack("{s:s, s:I, s:s?, s:o, s:o, s:s}", "kind",
		gpusnap_failure_kind_name(failure->kind), "layer", (long long)failure->layer,
		"buffer", failure->buffer, "expert",
		failure->expert < 0 ? gpusnap_json_pack("n")
				    : gpusnap_json_pack("I", (long long)failure->expert),
		"leaf",
		failure->leaf < 0 ? gpusnap_json_pack("n")
				  : gpusnap_json_pack("I", (long long)failure->leaf),
		"detail", failure->detail);
}

static gpusnap_json *encode_failures(const gpusnap_validation *validation)
{
	gpusnap_json *array = gpusnap_json_pack("[]");

	for (size_t i = 0; array && i < validation->failure_count; i++)
		if (gpusnap_json_append(array, encode_failure(&validation->failures[i]))) {
			gpusnap_json_free(array);
			return NULL;
		}
	return array;
}

static gpusnap_json *encode_checks(const gpusnap_validation *validation)
{
	gpusnap_json *array = gpusnap_json_pack("[]");

	for (int i = 0; array && i < GPUSNAP_CHECKS; i++) {
		const gpusnap_check_cost *cost = &validation->costs[i];

		if (!(validation->checks & 1u << i))
			continue;
		if (gpusnap_json_append(array,
			    gpusnap_json_pack("{s:s, s:I, s:f}", "check",
				    gpusnap_check_name((gpusnap_check)i), "bytes_read",
				    (long long)cost->bytes_read, "seconds", cost->seconds))) {
			gpusnap_json_free(array);
			return NULL;
		}
	}
	return array;
}

static gpusnap_json *encode_validation(const gpusnap_validation *validation, bool recorded)
{
	char digest[GPUSNAP_DIGEST_TEXT];
	bool whole = validation->checks == GPUSNAP_CHECKS_ALL;

	return gpusnap_json_pack("{s:b, s:I, s:I, s:I, s:s?, s:b, s:b, s:o, s:o}", "proved",
		(int)validation->proved, "layers", (long long)validation->layers, "experts_swept",
		(long long)validation->experts_swept, "steps", (long long)validation->steps,
		"digest", whole ? gpusnap_digest_format(validation->digest, digest) : NULL,
		"decode_differs", (int)validation->decode_differs, "recorded", (int)recorded,
		"checks", encode_checks(validation), "failures", encode_failures(validation));
}

static gpusnap_status run(gpusnap_dispatch *dispatch, const struct request *request,
	struct evidence *evidence, gpusnap_json **ret_result, gpusnap_error *err)
{
	gpusnap_validation validation = {0};
	bool recorded = false;
	gpusnap_json *result;
	gpusnap_status status = collect_evidence(dispatch, request, evidence, err);

	if (!status)
		status = check_request(request, evidence->probe, err);
	if (!status)
		status = gpusnap_validate_checks(dispatch, evidence->probe, evidence->baseline,
			request->checks, &validation, err);
	if (!status && request->record && validation.proved) {
		status = keep_evidence(dispatch->registry, evidence, err);
		recorded = !status;
	}
	if (status)
		goto out;
	result = encode_validation(&validation, recorded);
	if (result)
		*ret_result = result;
	else
		status = gsn_fail(err, GPUSNAP_E_NOMEM, "validate: answer: out of memory");
out:
	gpusnap_validation_release(&validation);
	return status;
}

static gpusnap_status validate_command(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	gpusnap_dispatch *dispatch = user;
	struct evidence evidence = {0};
	struct request request = {0};
	gpusnap_status status = read_request(args, &request, err);

	if (status)
		return status;
	/* Recording, baseline and validation must see one and the same state. */
	gpusnap_registry_hold(registry);
	status = run(dispatch, &request, &evidence, ret_result, err);
	gpusnap_registry_release(registry);
	release_evidence(&evidence);
	return status;
}

gpusnap_status gpusnap_dispatch_serve(
	gpusnap_dispatch *dispatch, gpusnap_agent *agent, gpusnap_error *err)
{
	return gpusnap_agent_add(agent, "validate", validate_command, dispatch, err);
}
