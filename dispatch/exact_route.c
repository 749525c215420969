/* SPDX-License-Identifier: Apache-2.0 */
#include "dispatch/exact_route.h"

#include <math.h>

bool gsn_scores_alone(gpusnap_score score)
{
	return score == GPUSNAP_SCORE_SIGMOID || score == GPUSNAP_SCORE_SQRT_SOFTPLUS;
}

double gsn_exact_score(gpusnap_score score, double logit)
{
	if (score == GPUSNAP_SCORE_SIGMOID)
		return 1.0 / (1.0 + exp(-logit));
	/* log(1 + exp(x)), of which neither end overflows or cancels. */
	return sqrt(fmax(logit, 0.0) + log1p(exp(-fabs(logit))));
}

static double softmax_sum(
	const gpusnap_moe_layer *spec, const double *logits, const int32_t *ids, double largest)
{
	bool chosen = spec->score == GPUSNAP_SCORE_SOFTMAX_CHOSEN;
	uint32_t count = chosen ? spec->top_k : spec->experts;
	double sum = 0.0;

	for (uint32_t i = 0; i < count; i++)
		sum += exp(logits[chosen ? (uint32_t)ids[i] : i] - largest);
	return sum;
}

static void score_chosen(
	const gpusnap_moe_layer *spec, const double *logits, const int32_t *ids, double *ret_scores)
{
	double largest = -INFINITY, sum;

	for (uint32_t e = 0; e < spec->experts; e++)
		largest = fmax(largest, logits[e]);
	sum = softmax_sum(spec, logits, ids, largest);
	for (uint32_t s = 0; s < spec->top_k; s++)
		ret_scores[s] = gsn_scores_alone(spec->score)
					? gsn_exact_score(spec->score, logits[ids[s]])
					: exp(logits[ids[s]] - largest) / sum;
}

void gsn_exact_weights(const gpusnap_moe_layer *spec, const double *logits, const int32_t *ids,
	double *ret_weights)
{
	double scale = spec->routed_scale != 0.0f ? (double)spec->routed_scale : 1.0;
	double sum = gsn_scores_alone(spec->score) ? 1e-20 : 0.0;

	score_chosen(spec, logits, ids, ret_weights);
	for (uint32_t s = 0; s < spec->top_k; s++)
		sum += ret_weights[s];
	for (uint32_t s = 0; s < spec->top_k; s++)
		ret_weights[s] *= scale / (spec->renormalise ? sum : 1.0);
}
