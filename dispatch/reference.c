/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparison of one MoE block with another engine's values. Both are float32 evaluations of one
 * formula, so each output element may be off the exact value by the bound of exact.h: ours must be
 * within it of the exact value, and within twice it of the reference.
 */
#include <gpusnap/dispatch.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "dispatch/dispatch_state.h"
#include "dispatch/exact.h"
#include "dispatch/exact_route.h"
#include "dispatch/near_tie.h"
#include "formats/base/alloc.h"
#include "formats/base/fail.h"

struct token_route {
	double weight_bound; /* of a float32 evaluation, relative, of each routing weight */
	double smallest;     /* key of the chosen */
	bool near_tie;
	bool skip; /* a near tie that was ranked the other way: outputs differ rightly */
};

struct comparison {
	gpusnap_dispatch *dispatch;
	const gpusnap_reference *reference;
	uint32_t index; /* of the layer */
	const struct gsn_layer *layer;
	struct gsn_exact exact;
	struct token_route *routes; /* [tokens] */
	/* What this engine computes. */
	float *out;	/* [tokens, hidden] */
	float *weights; /* [tokens, top_k] */
	int32_t *ids;
	/* The exact output for these ids, and the bound of a float32 one. */
	double *sum; /* [tokens, hidden] */
	double *bound;
	double *exact_weights; /* [tokens, top_k], for these ids */
	double *y;	       /* [hidden] scratch */
	double *y_bound;
	double *logits; /* [experts] scratch: logits, then keys, of one token */
	gpusnap_reference_result result;
	double weight_over_bound;
	uint32_t judged; /* tokens whose outputs were compared */
};

static gpusnap_status find_module(struct comparison *cmp, gpusnap_error *err)
{
	const gpusnap_moe_model *model = cmp->dispatch->model;
	const char *module = cmp->reference->module;

	for (uint32_t i = 0; i < model->layer_count; i++) {
		if (strcmp(model->layers[i].module, module) != 0)
			continue;
		cmp->index = i;
		cmp->layer = &cmp->dispatch->layers[i];
		if (model->tp_size == 1 && model->layers[i].mask.local == model->layers[i].experts)
			return GPUSNAP_OK;
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"'%s': this rank holds %u of %u experts at tp_size %u; a reference needs "
			"the whole model on one rank",
			module, model->layers[i].mask.local, model->layers[i].experts,
			model->tp_size);
	}
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"the model has no MoE module '%s'; its first is '%s'", module,
		model->layers[0].module);
}

static gpusnap_status allocate(struct comparison *cmp, gpusnap_error *err)
{
	const gpusnap_moe_layer *spec = cmp->layer->spec;
	size_t tokens = cmp->reference->tokens;
	size_t values = tokens * spec->hidden;
	size_t pairs = tokens * spec->top_k;

	cmp->routes = gsn_alloc(tokens, sizeof *cmp->routes);
	cmp->out = gsn_alloc(values, sizeof *cmp->out);
	cmp->weights = gsn_alloc(pairs, sizeof *cmp->weights);
	cmp->ids = gsn_alloc(pairs, sizeof *cmp->ids);
	cmp->exact_weights = gsn_alloc(pairs, sizeof *cmp->exact_weights);
	cmp->sum = gsn_alloc(values, sizeof *cmp->sum);
	cmp->bound = gsn_alloc(values, sizeof *cmp->bound);
	cmp->y = gsn_alloc(spec->hidden, sizeof *cmp->y);
	cmp->y_bound = gsn_alloc(spec->hidden, sizeof *cmp->y_bound);
	cmp->logits = gsn_alloc(spec->experts, sizeof *cmp->logits);
	if (!cmp->routes || !cmp->out || !cmp->weights || !cmp->ids || !cmp->sum || !cmp->bound ||
		!cmp->exact_weights || !cmp->y || !cmp->y_bound || !cmp->logits)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "reference of %zu tokens: out of memory", tokens);
	return gsn_exact_init(&cmp->exact, cmp->dispatch, cmp->layer, err);
}

static void release(struct comparison *cmp)
{
	gsn_exact_release(&cmp->exact);
	gsn_free(cmp->routes);
	gsn_free(cmp->out);
	gsn_free(cmp->weights);
	gsn_free(cmp->ids);
	gsn_free(cmp->exact_weights);
	gsn_free(cmp->sum);
	gsn_free(cmp->bound);
	gsn_free(cmp->y);
	gsn_free(cmp->y_bound);
	gsn_free(cmp->logits);
}

static gpusnap_status decode(struct comparison *cmp, gpusnap_error *err)
{
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;

	io.tokens = cmp->reference->tokens;
	io.x = cmp->reference->in;
	io.token_ids = cmp->reference->token_ids;
	io.out = cmp->out;
	io.ids = cmp->ids;
	io.weights = cmp->weights;
	return gpusnap_decode_layer(cmp->dispatch, cmp->index, &io, err);
}

/* JSON has no infinity: what divides by a bound or a weight of zero is as far off as can be. */
static double relative(double difference, double to)
{
	return difference == 0.0 ? 0.0 : fmin(fabs(difference) / fabs(to), DBL_MAX);
}

/* Our own weight against the exact one. */
static void judge_weight(struct comparison *cmp, uint32_t token, uint32_t slot)
{
	size_t pair = (size_t)token * cmp->layer->spec->top_k + slot;
	double exact = cmp->exact_weights[pair];
	double error = relative((double)cmp->weights[pair] - exact, exact);

	cmp->weight_over_bound =
		fmax(cmp->weight_over_bound, error / cmp->routes[token].weight_bound);
}

/*
 * A softmax weight is off by at most twice the largest logit error, relative, and by the rounding
 * of an exponential, a sum over the experts and a quotient, twice when renormalised. So is that of
 * a sigmoid or sqrt(softplus), whose slope is at most its value: once, and once more in the sum
 * that it is divided by.
 */
static void judge_route(struct comparison *cmp, uint32_t token)
{
	const gpusnap_moe_layer *spec = cmp->layer->spec;
	struct token_route *route = &cmp->routes[token];
	double roundoff = (16.0 + 4.0 * sqrt(spec->experts)) * GSN_UNIT_ROUNDOFF;
	double logit_bound = gsn_exact_logits(
		&cmp->exact, cmp->reference->in + (size_t)token * spec->hidden, cmp->logits);

	route->weight_bound = 2.0 * logit_bound + roundoff;
	gsn_exact_weights(spec, cmp->logits, cmp->ids + (size_t)token * spec->top_k,
		cmp->exact_weights + (size_t)token * spec->top_k);
	for (uint32_t s = 0; s < spec->top_k; s++)
		judge_weight(cmp, token, s);
	route->near_tie = gsn_near_tie(spec, cmp->exact.bias, cmp->logits,
		cmp->ids + (size_t)token * spec->top_k, &route->smallest);
	cmp->result.near_ties += route->near_tie;
}

/* Position of an id among the reference's; top_k for none. */
static uint32_t find_id(const int64_t *ids, uint32_t top_k, int64_t id)
{
	uint32_t s = 0;

	while (s < top_k && ids[s] != id)
		s++;
	return s;
}

static void compare_weight(struct comparison *cmp, uint32_t token, float ours, float theirs)
{
	double error = relative((double)ours - (double)theirs, (double)theirs);

	if (!(error <= cmp->result.max_weight_error))
		cmp->result.max_weight_error = error;
	error /= 2.0 * cmp->routes[token].weight_bound;
	if (!(error <= cmp->weight_over_bound))
		cmp->weight_over_bound = error;
}

/* Whether the reference chose experts that this engine did not, all of them tied with its last. */
static bool is_tied(const struct comparison *cmp, uint32_t token)
{
	const gpusnap_moe_layer *spec = cmp->layer->spec;
	const int64_t *theirs = cmp->reference->router_ids + (size_t)token * spec->top_k;
	const int32_t *ours = cmp->ids + (size_t)token * spec->top_k;

	for (uint32_t s = 0; s < spec->top_k; s++) {
		uint32_t at = 0;

		if (theirs[s] < 0 || theirs[s] >= spec->experts ||
			find_id(theirs, s, theirs[s]) < s)
			return false;
		while (at < spec->top_k && ours[at] != (int32_t)theirs[s])
			at++;
		if (at == spec->top_k &&
			!gsn_keys_are_near(cmp->logits[theirs[s]], cmp->routes[token].smallest))
			return false;
	}
	return cmp->routes[token].near_tie;
}

/* Right behind judge_route(): needs the keys of this token. */
static void compare_route(struct comparison *cmp, uint32_t token)
{
	const gpusnap_reference *reference = cmp->reference;
	uint32_t top_k = cmp->layer->spec->top_k;
	size_t row = (size_t)token * top_k;

	for (uint32_t s = 0; s < top_k; s++) {
		uint32_t at = find_id(reference->router_ids + row, top_k, cmp->ids[row + s]);

		if (at == top_k) {
			cmp->routes[token].skip = is_tied(cmp, token);
			cmp->result.ids_equal &= cmp->routes[token].skip;
			continue;
		}
		if (reference->router_weights)
			compare_weight(cmp, token, cmp->weights[row + s],
				reference->router_weights[row + at]);
	}
}

/*
 * Add weight * y to a token's output; `weight_bound` is relative. The sum has a term a slot and one
 * for a shared expert.
 */
static void add_term(struct comparison *cmp, size_t token, double weight, double weight_bound)
{
	const gpusnap_moe_layer *spec = cmp->layer->spec;
	uint32_t terms = spec->top_k + (spec->shared_intermediate != 0);
	double slack = weight_bound + (4.0 * sqrt(terms) + 1.0) * GSN_UNIT_ROUNDOFF;

	for (uint32_t j = 0; j < spec->hidden; j++) {
		cmp->sum[token * spec->hidden + j] += weight * cmp->y[j];
		cmp->bound[token * spec->hidden + j] +=
			weight * (cmp->y_bound[j] + slack * fabs(cmp->y[j]));
	}
}

/* Add one expert's part to every token that goes through it. */
static gpusnap_status add_expert(struct comparison *cmp, uint32_t expert, gpusnap_error *err)
{
	uint32_t top_k = cmp->layer->spec->top_k;
	uint32_t hidden = cmp->layer->spec->hidden;
	size_t pairs = (size_t)cmp->reference->tokens * top_k;
	bool loaded = false;

	for (size_t pair = 0; pair < pairs; pair++) {
		size_t token = pair / top_k;

		if (cmp->ids[pair] != (int32_t)expert)
			continue;
		if (!loaded) {
			gpusnap_status status = gsn_exact_load(&cmp->exact, expert, err);

			if (status)
				return status;
			loaded = true;
		}
		gsn_exact_apply(
			&cmp->exact, cmp->reference->in + token * hidden, cmp->y, cmp->y_bound);
		add_term(cmp, token, cmp->exact_weights[pair], cmp->routes[token].weight_bound);
	}
	return GPUSNAP_OK;
}

static gpusnap_status add_shared(struct comparison *cmp, gpusnap_error *err)
{
	const gpusnap_moe_layer *spec = cmp->layer->spec;
	gpusnap_status status;

	if (!spec->shared_intermediate)
		return GPUSNAP_OK;
	status = gsn_exact_load_shared(&cmp->exact, err);
	if (status)
		return status;
	for (size_t token = 0; token < cmp->reference->tokens; token++) {
		const float *x = cmp->reference->in + token * spec->hidden;
		double weight_bound;
		double weight = gsn_exact_shared_weight(&cmp->exact, x, &weight_bound);

		gsn_exact_apply(&cmp->exact, x, cmp->y, cmp->y_bound);
		add_term(cmp, token, weight, weight_bound);
	}
	return GPUSNAP_OK;
}

static void raise_error(struct comparison *cmp, double difference, double bound)
{
	double error = relative(difference, bound);

	if (!(error <= cmp->result.max_error_over_bound))
		cmp->result.max_error_over_bound = error;
}

static void compare_outputs(struct comparison *cmp)
{
	uint32_t hidden = cmp->layer->spec->hidden;

	for (size_t i = 0; i < (size_t)cmp->reference->tokens * hidden; i++) {
		double ours = (double)cmp->out[i];

		if (cmp->routes[i / hidden].skip)
			continue;
		raise_error(cmp, ours - cmp->sum[i], cmp->bound[i]);
		raise_error(cmp, ours - (double)cmp->reference->out[i], 2.0 * cmp->bound[i]);
	}
}

static gpusnap_status compare(struct comparison *cmp, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	cmp->result.ids_equal = true;
	for (uint32_t t = 0; t < cmp->reference->tokens; t++) {
		judge_route(cmp, t);
		if (cmp->reference->router_ids)
			compare_route(cmp, t);
		cmp->judged += !cmp->routes[t].skip;
	}
	for (uint32_t e = 0; e < cmp->layer->spec->experts && !status; e++)
		status = add_expert(cmp, e, err);
	if (!status)
		status = add_shared(cmp, err);
	if (status)
		return status;
	compare_outputs(cmp);
	cmp->result.agrees = cmp->judged > 0 && cmp->result.max_error_over_bound <= 1.0 &&
			     cmp->result.ids_equal && cmp->weight_over_bound <= 1.0;
	return GPUSNAP_OK;
}

static gpusnap_status check_reference(const gpusnap_reference *reference, gpusnap_error *err)
{
	if (!reference->module || !reference->in || !reference->out || reference->tokens == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"reference '%s': needs a module, in, out and at least one token, has %u",
			reference->module ? reference->module : "", reference->tokens);
	if (reference->router_weights && !reference->router_ids)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"reference '%s': router weights cannot be compared without router ids",
			reference->module);
	return GPUSNAP_OK;
}

static gpusnap_status check_finite(const struct comparison *cmp, const char *what,
	const float *values, size_t columns, gpusnap_error *err)
{
	for (size_t i = 0; values && i < cmp->reference->tokens * columns; i++)
		if (!isfinite(values[i]))
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"reference '%s': %s[%zu][%zu] is %f; values must be finite",
				cmp->reference->module, what, i / columns, i % columns,
				(double)values[i]);
	return GPUSNAP_OK;
}

static gpusnap_status check_values(const struct comparison *cmp, gpusnap_error *err)
{
	const gpusnap_moe_layer *spec = cmp->layer->spec;
	gpusnap_status status = check_finite(cmp, "out", cmp->reference->out, spec->hidden, err);

	return status ? status
		      : check_finite(cmp, "router weights", cmp->reference->router_weights,
				spec->top_k, err);
}

gpusnap_status gpusnap_reference_compare(gpusnap_dispatch *dispatch,
	const gpusnap_reference *reference, gpusnap_reference_result *ret_result,
	gpusnap_error *err)
{
	struct comparison cmp = {.dispatch = dispatch, .reference = reference};
	gpusnap_status status = check_reference(reference, err);

	if (status)
		return status;
	gpusnap_registry_hold(dispatch->registry);
	status = find_module(&cmp, err);
	if (!status)
		status = check_values(&cmp, err);
	if (!status)
		status = gsn_layer_ready(dispatch, &dispatch->layers[cmp.index], err);
	if (!status)
		status = allocate(&cmp, err);
	if (!status)
		status = decode(&cmp, err);
	if (!status)
		status = compare(&cmp, err);
	gpusnap_registry_release(dispatch->registry);
	if (!status)
		*ret_result = cmp.result;
	release(&cmp);
	return status;
}
