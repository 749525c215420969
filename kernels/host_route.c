/* SPDX-License-Identifier: Apache-2.0 */
/* The host's routing: logits by rows of the router over all tokens, then top-k token by token. */
#include <fenv.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <gpusnap/moe.h>

#include "formats/base/bytes.h"
#include "kernels/host_matrix.h"
#include "kernels/host_moe.h"
#include "kernels/moe_args.h"
#include "kernels/moe_math.h"

enum {
	ROUTER_ROWS = 16, /* of one task */
	SUM_SLOTS = 32,	  /* the softmax sum is spread over these, a warp's width */
};

struct route_job {
	const struct gsn_moe_route *args;
	struct gsn_host_matrix router;
	const float *x;
	float *logits, *weights, *keys;
	int32_t *ids;
	atomic_uint faults;
};

/* Logits of some experts for up to GSN_DOT_TOKENS tokens. */
static void logits_of_tokens(
	const struct route_job *job, struct gsn_host_rows rows, uint32_t token, uint32_t count)
{
	const struct gsn_moe_route *args = job->args;
	float out[ROUTER_ROWS][GSN_DOT_TOKENS];
	const float *inputs[GSN_DOT_TOKENS] = {NULL};

	for (uint32_t t = 0; t < count; t++)
		inputs[t] = job->x + (size_t)(token + t) * args->hidden;
	gsn_host_matrix_dot(&job->router, rows, inputs, count, out[0]);
	for (uint32_t r = 0; r < rows.count; r++) {
		uint32_t expert = rows.first + r;
		float bias = args->router_bias ? gsn_host_element(args->router_bias,
							 args->router_bias_dtype, expert)
					       : 0.0f;

		for (uint32_t t = 0; t < count; t++)
			job->logits[(size_t)(token + t) * args->experts + expert] =
				gsn_canonical(out[r][t] + bias);
	}
}

/* Logits of ROUTER_ROWS experts for all tokens. */
static void logits_task(void *argument, uint64_t task)
{
	const struct route_job *job = argument;
	const struct gsn_moe_route *args = job->args;
	struct gsn_host_rows rows = {.first = (uint32_t)task * ROUTER_ROWS};

	rows.count = (uint32_t)gsn_min(ROUTER_ROWS, args->experts - rows.first);
	for (uint32_t token = 0; token < args->tokens; token += GSN_DOT_TOKENS)
		logits_of_tokens(
			job, rows, token, (uint32_t)gsn_min(GSN_DOT_TOKENS, args->tokens - token));
}

/* What an expert is chosen by: a NaN is worst, so that ids stay valid and unique. */
static float sort_key(float value)
{
	return value != value ? -INFINITY : value;
}

/* Sum of the two best keys; of one where a group has no more. */
static float group_score(const float *keys, uint32_t count)
{
	float first = -INFINITY, second = -INFINITY;

	for (uint32_t i = 0; i < count; i++) {
		float rest = keys[i] < first ? keys[i] : first;

		first = keys[i] > first ? keys[i] : first;
		second = rest > second ? rest : second;
	}
	return count > 1 ? sort_key(first + second) : first;
}

/* Groups that fewer than top_groups others beat stay: more if better, lower if equal. */
static bool group_stays(const float *scores, uint32_t groups, uint32_t group, uint32_t top_groups)
{
	uint32_t better = 0;

	for (uint32_t g = 0; g < groups; g++)
		better += scores[g] > scores[group] || (scores[g] == scores[group] && g < group);
	return better < top_groups;
}

static void drop_groups(const struct gsn_moe_route *args, float *keys)
{
	uint32_t size = args->groups ? args->experts / args->groups : 0;
	float scores[GSN_MOE_GROUPS_MAX];

	for (uint32_t g = 0; g < args->groups; g++)
		scores[g] = group_score(keys + (size_t)g * size, size);
	for (uint32_t g = 0; g < args->groups; g++)
		if (!group_stays(scores, args->groups, g, args->top_groups))
			for (uint32_t i = 0; i < size; i++)
				keys[(size_t)g * size + i] = -INFINITY;
}

/* What an expert scores on its own. */
static float score_of(const struct gsn_moe_route *args, float logit)
{
	return args->score == GPUSNAP_SCORE_SIGMOID ? gsn_sigmoid(logit) : gsn_sqrt_softplus(logit);
}

/* @return faults */
static unsigned make_keys(const struct gsn_moe_route *args, const float *logits, float *keys)
{
	unsigned faults = 0;

	for (uint32_t e = 0; e < args->experts; e++) {
		float key = score_of(args, logits[e]);

		if (args->selection_bias)
			key += gsn_host_element(
				args->selection_bias, args->selection_bias_dtype, e);
		if (key != key)
			faults |= GSN_MOE_FAULT_NAN_LOGIT;
		keys[e] = sort_key(key);
	}
	drop_groups(args, keys);
	return faults;
}

/* Best expert after `last` in the order (key descending, id ascending); last < 0: of all. */
static int32_t next_best(const float *keys, uint32_t experts, int32_t last)
{
	float last_key = last < 0 ? INFINITY : sort_key(keys[last]);
	int32_t best = -1;

	for (int32_t i = 0; i < (int32_t)experts; i++) {
		float key = sort_key(keys[i]);

		if ((key < last_key || (key == last_key && i > last)) &&
			(best < 0 || key > sort_key(keys[best])))
			best = i;
	}
	return best;
}

static float softmax_sum(const float *logits, uint32_t experts, float max)
{
	float sum[SUM_SLOTS] = {0};

	for (uint32_t i = 0; i < experts; i++)
		sum[i % SUM_SLOTS] += gsn_expf(logits[i] - max);
	for (uint32_t distance = 1; distance < SUM_SLOTS; distance *= 2)
		for (uint32_t i = 0; i < SUM_SLOTS; i += 2 * distance)
			sum[i] += sum[i + distance];
	return sum[0];
}

static void choose(const struct route_job *job, const float *keys, int32_t *ids)
{
	int32_t last = -1;

	for (uint32_t slot = 0; slot < job->args->top_k; slot++) {
		last = next_best(keys, job->args->experts, last);
		ids[slot] = last;
	}
}

/* Softmax over all experts, of those chosen; the best of all is the first of them. */
static void softmax_scores(
	const struct gsn_moe_route *args, const float *logits, const int32_t *ids, float *scores)
{
	float max = sort_key(logits[ids[0]]);
	float sum = softmax_sum(logits, args->experts, max);

	for (uint32_t slot = 0; slot < args->top_k; slot++)
		scores[slot] = gsn_expf(logits[ids[slot]] - max) / sum;
}

/* Softmax over those chosen alone, but for the division by their sum. */
static void chosen_scores(
	const struct gsn_moe_route *args, const float *logits, const int32_t *ids, float *scores)
{
	float max = sort_key(logits[ids[0]]);

	for (uint32_t slot = 0; slot < args->top_k; slot++)
		scores[slot] = gsn_expf(logits[ids[slot]] - max);
}

static void single_scores(
	const struct gsn_moe_route *args, const float *logits, const int32_t *ids, float *scores)
{
	for (uint32_t slot = 0; slot < args->top_k; slot++)
		scores[slot] = ids[slot] < 0 ? 0.0f : score_of(args, logits[ids[slot]]);
}

/* From scores to weights, in place. Single scores may all be 0, a softmax's best never is. */
static void weigh(const struct gsn_moe_route *args, float *weights)
{
	bool divide = args->renormalise || args->score == GPUSNAP_SCORE_SOFTMAX_CHOSEN;
	float sum = 0.0f;

	for (uint32_t slot = 0; slot < args->top_k; slot++)
		sum += weights[slot];
	if (gsn_score_is_single(args->score))
		sum += 1e-20f;
	for (uint32_t slot = 0; slot < args->top_k; slot++) {
		float weight = divide ? weights[slot] / sum : weights[slot];

		weights[slot] = gsn_canonical(args->scale != 0.0f ? weight * args->scale : weight);
	}
}

/* The token's row of the hash table; -1 for what is no expert. @return faults */
static unsigned look_up(const struct gsn_moe_route *args, uint64_t token, int32_t *ids)
{
	int64_t row = ((const int32_t *)gsn_host_pointer(args->token_ids))[token];
	const void *table = gsn_host_pointer(args->hash);
	unsigned faults = 0;

	for (uint32_t slot = 0; slot < args->top_k; slot++) {
		uint64_t at = (uint64_t)row * args->top_k + slot;
		int64_t id = -1;

		if (row >= 0 && row < args->vocabulary)
			id = args->hash_dtype == GPUSNAP_I64 ? ((const int64_t *)table)[at]
							     : ((const int32_t *)table)[at];
		if (id < 0 || id >= args->experts) {
			faults |= GSN_MOE_FAULT_HASH;
			id = -1;
		}
		ids[slot] = (int32_t)id;
	}
	return faults;
}

static unsigned logit_faults(const float *logits, uint32_t experts)
{
	unsigned faults = 0;

	for (uint32_t i = 0; i < experts; i++) {
		if (logits[i] != logits[i])
			faults |= GSN_MOE_FAULT_NAN_LOGIT;
		else if (!gsn_is_finite(logits[i]))
			faults |= GSN_MOE_FAULT_NONFINITE;
	}
	return faults;
}

/* @return faults */
static unsigned route_by_scores(
	const struct route_job *job, uint64_t token, const float *logits, int32_t *ids)
{
	const struct gsn_moe_route *args = job->args;
	float *keys = job->keys + token * args->experts;
	unsigned faults;

	if (!gsn_score_is_single(args->score)) {
		choose(job, logits, ids);
		return 0;
	}
	faults = make_keys(args, logits, keys);
	choose(job, keys, ids);
	return faults;
}

static void score_chosen(
	const struct gsn_moe_route *args, const float *logits, const int32_t *ids, float *scores)
{
	if (args->score == GPUSNAP_SCORE_SOFTMAX)
		softmax_scores(args, logits, ids, scores);
	else if (args->score == GPUSNAP_SCORE_SOFTMAX_CHOSEN)
		chosen_scores(args, logits, ids, scores);
	else
		single_scores(args, logits, ids, scores);
}

static void choose_task(void *argument, uint64_t token)
{
	struct route_job *job = argument;
	const struct gsn_moe_route *args = job->args;
	const float *logits = job->logits + token * args->experts;
	float *weights = job->weights + token * args->top_k;
	int32_t *ids = job->ids + token * args->top_k;
	unsigned faults = logit_faults(logits, args->experts);

	faults |= args->hash ? look_up(args, token, ids) : route_by_scores(job, token, logits, ids);
	score_chosen(args, logits, ids, weights);
	weigh(args, weights);
	for (uint32_t slot = 0; slot < args->top_k; slot++)
		ids[slot] = ids[slot] < 0 ? 0 : ids[slot];
	if (faults)
		atomic_fetch_or_explicit(&job->faults, faults, memory_order_relaxed);
}

gpusnap_status gsn_host_moe_route(
	const struct gsn_host_moe *host, const struct gsn_moe_route *args, gpusnap_error *err)
{
	struct gsn_moe_counters *counters;
	struct route_job job;
	fenv_t caller;
	gpusnap_status status = gsn_moe_route_check(args, err);

	if (status)
		return status;
	fegetenv(&caller);
	fesetenv(FE_DFL_ENV);
	job.args = args;
	job.router = gsn_host_matrix_of(
		host->path, args->router_dtype, args->router, 1, args->experts, args->hidden);
	job.x = gsn_host_pointer(args->x);
	job.logits = gsn_host_pointer(args->logits);
	job.weights = gsn_host_pointer(args->weights);
	job.keys = gsn_host_pointer(args->keys);
	job.ids = gsn_host_pointer(args->ids);
	atomic_init(&job.faults, 0);
	gsn_pool_run(host->pool, logits_task, &job, gsn_ceil_div(args->experts, ROUTER_ROWS));
	gsn_pool_run(host->pool, choose_task, &job, args->tokens);
	fesetenv(&caller);
	counters = gsn_host_pointer(args->counters);
	counters->faults |= atomic_load(&job.faults);
	return GPUSNAP_OK;
}
