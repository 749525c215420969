/* SPDX-License-Identifier: Apache-2.0 */
/* The host's routing: logits by rows of the router over all tokens, then top-k token by token. */
#include <fenv.h>
#include <stdatomic.h>

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
	float *logits, *weights;
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
	for (uint32_t t = 0; t < count; t++)
		for (uint32_t r = 0; r < rows.count; r++)
			job->logits[(size_t)(token + t) * args->experts + rows.first + r] =
				out[r][t];
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
static float sort_key(float logit)
{
	return logit != logit ? -INFINITY : logit;
}

/* Best expert after `last` in the order (key descending, id ascending); last < 0: of all. */
static int32_t next_best(const float *logits, uint32_t experts, int32_t last)
{
	float last_key = last < 0 ? INFINITY : sort_key(logits[last]);
	int32_t best = -1;

	for (int32_t i = 0; i < (int32_t)experts; i++) {
		float key = sort_key(logits[i]);

		if ((key < last_key || (key == last_key && i > last)) &&
			(best < 0 || key > sort_key(logits[best])))
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

static void choose(const struct route_job *job, const float *logits, int32_t *ids)
{
	int32_t last = -1;

	for (uint32_t slot = 0; slot < job->args->top_k; slot++) {
		last = next_best(logits, job->args->experts, last);
		ids[slot] = last;
	}
}

static void weigh(
	const struct route_job *job, const float *logits, const int32_t *ids, float *weights)
{
	uint32_t top_k = job->args->top_k;
	float max = sort_key(logits[ids[0]]);
	float sum = softmax_sum(logits, job->args->experts, max);
	float chosen = 0.0f;

	for (uint32_t slot = 0; slot < top_k; slot++) {
		weights[slot] = gsn_expf(logits[ids[slot]] - max) / sum;
		chosen += weights[slot];
	}
	for (uint32_t slot = 0; slot < top_k; slot++)
		weights[slot] = gsn_canonical(
			job->args->renormalise ? weights[slot] / chosen : weights[slot]);
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

static void choose_task(void *argument, uint64_t token)
{
	struct route_job *job = argument;
	const struct gsn_moe_route *args = job->args;
	const float *logits = job->logits + token * args->experts;
	int32_t *ids = job->ids + token * args->top_k;
	unsigned faults = logit_faults(logits, args->experts);

	choose(job, logits, ids);
	weigh(job, logits, ids, job->weights + token * args->top_k);
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
	job.ids = gsn_host_pointer(args->ids);
	atomic_init(&job.faults, 0);
	gsn_pool_run(host->pool, logits_task, &job, gsn_ceil_div(args->experts, ROUTER_ROWS));
	gsn_pool_run(host->pool, choose_task, &job, args->tokens);
	fesetenv(&caller);
	counters = gsn_host_pointer(args->counters);
	counters->faults |= atomic_load(&job.faults);
	return GPUSNAP_OK;
}
