/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One decode step of one MoE block: upload, route, translate ids to what the mask is indexed by,
 * experts, weighted sum, download. All of it is one stream of work with one wait at its end.
 */
#include "dispatch/decode.h"

#include <math.h>
#include <string.h>

#include "dispatch/dispatch_state.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"

/* What the pieces of one pass share. */
struct step {
	gpusnap_dispatch *dispatch;
	const struct gsn_device_ops *ops;
	const struct gsn_layer *layer;
	struct gsn_pass *pass;
	struct gsn_slices at;
	bool shared; /* the shared expert takes part */
	struct gsn_moe_counters shared_counters;
};

static uint64_t pair_count(const struct step *step)
{
	return (uint64_t)step->pass->tokens * step->pass->top_k;
}

static gpusnap_status upload(
	struct step *step, gpusnap_address to, const void *from, uint64_t bytes, gpusnap_error *err)
{
	return step->ops->copy(step->dispatch->stream, GSN_HOST_TO_DEVICE, to,
		(uint64_t)(uintptr_t)from, bytes, err);
}

static gpusnap_status download(
	struct step *step, void *to, gpusnap_address from, uint64_t bytes, gpusnap_error *err)
{
	if (!to)
		return GPUSNAP_OK;
	return step->ops->copy(step->dispatch->stream, GSN_DEVICE_TO_HOST, (uint64_t)(uintptr_t)to,
		from, bytes, err);
}

static gpusnap_status put_input(struct step *step, gpusnap_error *err)
{
	const gpusnap_moe_layer *spec = step->layer->spec;
	const struct gsn_operand *norm = &step->layer->operands[GPUSNAP_MOE_NORM];
	uint64_t bytes = (uint64_t)step->pass->tokens * spec->hidden * sizeof(float);
	gpusnap_status status = step->ops->fill(
		step->dispatch->stream, step->at.counters, 0, sizeof(struct gsn_moe_counters), err);

	if (!status)
		status = upload(step, step->at.x, step->pass->x, bytes, err);
	if (status || !step->pass->normalise || !norm->name)
		return status;
	status = step->ops->rms_norm(step->dispatch->stream,
		&(struct gsn_rms_norm){
			.tokens = step->pass->tokens,
			.hidden = spec->hidden,
			.epsilon = spec->norm_epsilon,
			.weight_dtype = norm->dtype,
			.x = step->at.x,
			.weight = norm->address,
			.out = step->at.normed,
		},
		err);
	step->at.x = step->at.normed;
	return status;
}

static gpusnap_status put_token_ids(struct step *step, gpusnap_error *err)
{
	if (!step->layer->spec->vocabulary)
		return GPUSNAP_OK;
	return upload(step, step->at.token_ids, step->pass->token_ids,
		(uint64_t)step->pass->tokens * sizeof(int32_t), err);
}

static gpusnap_status route(struct step *step, gpusnap_error *err)
{
	const gpusnap_moe_layer *spec = step->layer->spec;
	const struct gsn_operand *router = &step->layer->operands[GPUSNAP_MOE_ROUTER];
	const struct gsn_operand *bias = &step->layer->operands[GPUSNAP_MOE_SELECTION_BIAS];
	const struct gsn_operand *router_bias = &step->layer->operands[GPUSNAP_MOE_ROUTER_BIAS];
	const struct gsn_operand *hash = &step->layer->operands[GPUSNAP_MOE_HASH];
	gpusnap_status status = put_token_ids(step, err);

	if (status)
		return status;
	return step->ops->moe_route(step->dispatch->stream,
		&(struct gsn_moe_route){
			.tokens = step->pass->tokens,
			.hidden = spec->hidden,
			.experts = spec->experts,
			.top_k = step->pass->top_k,
			.score = (uint32_t)spec->score,
			.renormalise = spec->renormalise,
			.router_dtype = router->dtype,
			.x = step->at.x,
			.router = router->address,
			.logits = step->at.logits,
			.ids = step->at.ids,
			.weights = step->at.weights,
			.counters = step->at.counters,
			.selection_bias = bias->address,
			.selection_bias_dtype = bias->dtype,
			.groups = spec->groups,
			.top_groups = spec->top_groups,
			.scale = spec->routed_scale,
			.keys = step->at.keys,
			.router_bias = router_bias->address,
			.router_bias_dtype = router_bias->dtype,
			.hash_dtype = hash->dtype,
			.hash = hash->address,
			.token_ids = hash->name ? step->at.token_ids : 0,
			.vocabulary = spec->vocabulary,
		},
		err);
}

static gpusnap_status put_forced_ids(struct step *step, gpusnap_error *err)
{
	uint64_t pairs = pair_count(step);
	gpusnap_status status =
		upload(step, step->at.ids, step->pass->ids, pairs * sizeof(int32_t), err);

	if (!status)
		status = upload(step, step->at.weights, step->dispatch->workspace.ones,
			pairs * sizeof(float), err);
	return status;
}

/* A deepep mask is indexed by local ids; the others take what the router gave. */
static gpusnap_status localise(struct step *step, gpusnap_address *ret_ids, gpusnap_error *err)
{
	const gpusnap_mask_type *mask = &step->layer->spec->mask;

	*ret_ids = step->at.ids;
	if (step->pass->space != GSN_IDS_GLOBAL || mask->kind != GPUSNAP_MASK_DEEPEP)
		return GPUSNAP_OK;
	*ret_ids = step->at.mask_ids;
	return step->ops->moe_localise(step->dispatch->stream,
		&(struct gsn_moe_localise){
			.pairs = (uint32_t)pair_count(step),
			.first = mask->first,
			.local = mask->local,
			.ids = step->at.ids,
			.out = step->at.mask_ids,
		},
		err);
}

/* Past the layer's mask: one of ones, which the device does not have yet. */
static gpusnap_status put_own_mask(
	struct step *step, struct gsn_moe_experts *args, gpusnap_error *err)
{
	uint32_t length = step->layer->spec->mask.local;

	if (step->pass->space != GSN_IDS_LOCAL)
		return GPUSNAP_OK;
	args->mask = step->at.mask;
	args->mask_length = length;
	step->dispatch->counters.mask_copies++;
	return upload(step, step->at.mask, step->pass->ones, length * sizeof(int32_t), err);
}

/* ---- the shared expert: a layer of one expert, which every token is sent to ---- */

/* A gate is a router of one expert: it also gives the ids, all 0. */
static gpusnap_status route_shared(struct step *step, gpusnap_error *err)
{
	const struct gsn_operand *gate = &step->layer->operands[GPUSNAP_MOE_SHARED_GATE];

	return step->ops->moe_route(step->dispatch->stream,
		&(struct gsn_moe_route){
			.tokens = step->pass->tokens,
			.hidden = step->layer->spec->hidden,
			.experts = 1,
			.top_k = 1,
			.score = GPUSNAP_SCORE_SIGMOID,
			.router_dtype = gate->dtype,
			.x = step->at.x,
			.router = gate->address,
			.logits = step->at.shared_logits,
			.ids = step->at.shared_ids,
			.weights = step->at.shared_weights,
			.counters = step->at.shared_counters,
			.keys = step->at.keys,
		},
		err);
}

static gpusnap_status put_shared_ids(struct step *step, gpusnap_error *err)
{
	uint64_t bytes = step->pass->tokens * sizeof(int32_t);
	gpusnap_status status =
		step->ops->fill(step->dispatch->stream, step->at.shared_ids, 0, bytes, err);

	if (!status)
		status = upload(
			step, step->at.shared_weights, step->dispatch->workspace.ones, bytes, err);
	return status;
}

static gpusnap_status run_shared(struct step *step, gpusnap_error *err)
{
	struct gsn_stream *stream = step->dispatch->stream;
	struct gsn_moe_experts args;
	gpusnap_status status = step->ops->fill(
		stream, step->at.shared_counters, 0, sizeof(struct gsn_moe_counters), err);

	/* A mask of one expert keeps it whatever the value is, unless that is 0. */
	if (!status)
		status = step->ops->fill(stream, step->at.shared_mask, 1, sizeof(int32_t), err);
	if (!status)
		status = step->layer->operands[GPUSNAP_MOE_SHARED_GATE].name
				 ? route_shared(step, err)
				 : put_shared_ids(step, err);
	if (status)
		return status;
	gsn_shared_args(step->layer, step->pass->tokens, &args);
	args.x = step->at.x;
	args.ids = step->at.shared_ids;
	args.weights = step->at.shared_weights;
	args.mask = step->at.shared_mask;
	args.scratch = step->at.scratch;
	args.y = step->at.shared_y;
	args.counters = step->at.shared_counters;
	return step->ops->moe_experts(stream, &args, err);
}

/* ---- */

static gpusnap_status run_experts(struct step *step, gpusnap_error *err)
{
	const struct gsn_pass *pass = step->pass;
	struct gsn_moe_experts args;
	gpusnap_status status;

	gsn_experts_args(step->layer, pass->tokens, pass->top_k, &args);
	args.x = step->at.x;
	args.weights = step->at.weights;
	args.scratch = step->at.scratch;
	args.y = step->at.y;
	args.counters = step->at.counters;
	status = localise(step, &args.ids, err);
	if (!status)
		status = put_own_mask(step, &args, err);
	if (!status)
		status = step->ops->moe_experts(step->dispatch->stream, &args, err);
	if (!status && step->shared)
		status = run_shared(step, err);
	if (status)
		return status;
	return step->ops->moe_combine(step->dispatch->stream,
		&(struct gsn_moe_combine){
			.tokens = pass->tokens,
			.hidden = args.hidden,
			.top_k = pass->top_k,
			.y = step->at.y,
			.out = step->at.out,
			.counters = step->at.counters,
			.shared = step->shared ? step->at.shared_y : 0,
		},
		err);
}

static gpusnap_status take_outputs(struct step *step, gpusnap_error *err)
{
	struct gsn_pass *pass = step->pass;
	const gpusnap_moe_layer *spec = step->layer->spec;
	uint64_t row = (uint64_t)spec->hidden * sizeof(float);
	uint64_t pairs = pair_count(step);
	gpusnap_status status =
		download(step, &pass->counters, step->at.counters, sizeof pass->counters, err);

	if (!step->shared && pass->shared)
		memset(pass->shared, 0, pass->tokens * row);
	else if (!status && step->shared)
		status = download(step, pass->shared, step->at.shared_y, pass->tokens * row, err);
	if (!status && step->shared)
		status = download(step, &step->shared_counters, step->at.shared_counters,
			sizeof step->shared_counters, err);
	if (!status)
		status = download(step, pass->out, step->at.out, pass->tokens * row, err);
	if (!status)
		status = download(step, pass->slots, step->at.y, pairs * row, err);
	if (!status)
		status = download(step, pass->logits, step->at.logits,
			(uint64_t)pass->tokens * spec->experts * sizeof(float), err);
	if (!status)
		status = download(step, pass->routed, step->at.ids, pairs * sizeof(int32_t), err);
	if (!status)
		status =
			download(step, pass->weights, step->at.weights, pairs * sizeof(float), err);
	return status;
}

gpusnap_status gsn_decode_pass(gpusnap_dispatch *dispatch, const struct gsn_layer *layer,
	struct gsn_pass *pass, gpusnap_error *err)
{
	struct step step = {
		.dispatch = dispatch,
		.ops = gsn_dispatch_ops(dispatch),
		.layer = layer,
		.pass = pass,
		.shared = layer->spec->shared_intermediate != 0 && !pass->ids,
	};
	gpusnap_status synced;
	gpusnap_status status =
		gsn_workspace_reserve(dispatch, layer, pass->tokens, pass->top_k, &step.at, err);

	if (status)
		return status;
	status = put_input(&step, err);
	if (!status)
		status = pass->ids ? put_forced_ids(&step, err) : route(&step, err);
	if (!status)
		status = run_experts(&step, err);
	if (!status)
		status = take_outputs(&step, err);
	/* Also after a failure: work that is under way names the caller's memory. */
	synced = step.ops->stream_sync(dispatch->stream, status ? NULL : err);
	/* Its tokens are no (token, slot) pairs: only its faults count. */
	pass->counters.faults |= step.shared_counters.faults;
	return status ? status : synced;
}

gpusnap_status gsn_fault_status(const struct gsn_layer *layer, uint32_t faults, gpusnap_error *err)
{
	uint32_t number = layer->spec->layer;
	const struct gsn_operand *operands = layer->operands;
	const char *shared = operands[GPUSNAP_MOE_SHARED_W2].name;

	if (faults & GSN_MOE_FAULT_NAN_LOGIT)
		return gsn_fail(err, GPUSNAP_E_NOT_PROVED,
			"layer %u: router '%s'%s gives a logit that is NaN; restore it or load it "
			"again",
			number, operands[GPUSNAP_MOE_ROUTER].name,
			operands[GPUSNAP_MOE_SHARED_GATE].name	    ? " or the shared expert's gate"
			: operands[GPUSNAP_MOE_SELECTION_BIAS].name ? " with its selection bias"
								    : "");
	if (faults & GSN_MOE_FAULT_HASH)
		return gsn_fail(err, GPUSNAP_E_NOT_PROVED,
			"layer %u: hash table '%s' names an expert beyond the layer's %u; restore "
			"it or load it again",
			number, operands[GPUSNAP_MOE_HASH].name, layer->spec->experts);
	if (faults & GSN_MOE_FAULT_LOCAL_ID)
		return gsn_fail(err, GPUSNAP_E_NOT_PROVED,
			"layer %u: mask '%s' gives a local id beyond the rank's %u experts; "
			"validate says what it should hold",
			number, operands[GPUSNAP_MOE_MASK].name, layer->spec->mask.local);
	if (faults & GSN_MOE_FAULT_EXPERT_ID)
		return gsn_fail(err, GPUSNAP_E_NOT_PROVED,
			"layer %u: an expert id lies outside mask '%s' of %u entries", number,
			operands[GPUSNAP_MOE_MASK].name, gpusnap_mask_length(&layer->spec->mask));
	if (faults)
		return gsn_fail(err, GPUSNAP_E_NOT_PROVED,
			"layer %u: an output of experts '%s' and '%s'%s%s%s is NaN or infinite; "
			"validate says which expert",
			number, operands[GPUSNAP_MOE_W13].name, operands[GPUSNAP_MOE_W2].name,
			shared ? " or of '" : "", shared ? shared : "", shared ? "'" : "");
	return GPUSNAP_OK;
}

static gpusnap_status check_token_ids(
	const gpusnap_moe_layer *spec, const gpusnap_decode_io *io, gpusnap_error *err)
{
	if (!spec->vocabulary || io->forced_ids)
		return GPUSNAP_OK;
	if (!io->token_ids)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"layer %u reads its experts from hash table '%s' by token id: give "
			"token_ids",
			spec->layer, spec->buffers[GPUSNAP_MOE_HASH]);
	for (uint32_t t = 0; t < io->tokens; t++)
		if (io->token_ids[t] < 0 || (uint32_t)io->token_ids[t] >= spec->vocabulary)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"layer %u: token id %d is not one of the %u of hash table '%s'",
				spec->layer, io->token_ids[t], spec->vocabulary,
				spec->buffers[GPUSNAP_MOE_HASH]);
	return GPUSNAP_OK;
}

static gpusnap_status check_inputs(
	const struct gsn_layer *layer, const gpusnap_decode_io *io, gpusnap_error *err)
{
	const gpusnap_moe_layer *spec = layer->spec;
	uint64_t pairs = (uint64_t)io->tokens * spec->top_k;

	if (io->tokens == 0 || io->tokens > GSN_DECODE_TOKENS || !io->x)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"layer %u: decode of %u tokens%s; give 1 to %u and their inputs",
			spec->layer, io->tokens, io->x ? "" : " without x", GSN_DECODE_TOKENS);
	if (io->forced_ids && io->logits)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"layer %u: logits are wanted of forced ids, which are not routed",
			spec->layer);
	for (uint64_t i = 0; i < (uint64_t)io->tokens * spec->hidden; i++)
		if (!isfinite(io->x[i]))
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"layer %u: x[%llu][%llu] is %f; inputs must be finite", spec->layer,
				(unsigned long long)(i / spec->hidden),
				(unsigned long long)(i % spec->hidden), (double)io->x[i]);
	for (uint64_t i = 0; io->forced_ids && i < pairs; i++)
		if (io->forced_ids[i] < 0 || (uint32_t)io->forced_ids[i] >= spec->experts)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"layer %u: forced id %d is not one of %u experts", spec->layer,
				io->forced_ids[i], spec->experts);
	return check_token_ids(spec, io, err);
}

static gpusnap_status decode_layer(
	gpusnap_dispatch *dispatch, uint32_t index, gpusnap_decode_io *io, gpusnap_error *err)
{
	struct gsn_layer *layer;
	struct gsn_pass pass;
	gpusnap_status status = gsn_dispatch_layer(dispatch, index, &layer, err);

	if (!status)
		status = check_inputs(layer, io, err);
	if (!status)
		status = gsn_layer_ready(dispatch, layer, err);
	if (status)
		return status;
	pass = (struct gsn_pass){
		.tokens = io->tokens,
		.top_k = layer->spec->top_k,
		.x = io->x,
		.ids = io->forced_ids,
		.token_ids = io->token_ids,
		.out = io->out,
		.slots = io->slots,
		.logits = io->logits,
		.weights = io->weights,
		.routed = io->ids,
		.shared = io->shared,
	};
	status = gsn_decode_pass(dispatch, layer, &pass, err);
	if (!status)
		status = gsn_fault_status(layer, pass.counters.faults, err);
	if (status)
		return status;
	dispatch->counters.steps++;
	io->local_assignments = pass.counters.local;
	io->remote_assignments = pass.counters.remote;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_decode_layer(
	gpusnap_dispatch *dispatch, uint32_t layer, gpusnap_decode_io *io, gpusnap_error *err)
{
	gpusnap_decode_io known;
	gpusnap_status status = gsn_options_copy(&known, sizeof known, io, "decode io", err);

	if (status)
		return status;
	gpusnap_registry_hold(dispatch->registry);
	status = decode_layer(dispatch, layer, &known, err);
	gpusnap_registry_release(dispatch->registry);
	if (status)
		return status;
	io->local_assignments = known.local_assignments;
	io->remote_assignments = known.remote_assignments;
	return GPUSNAP_OK;
}
