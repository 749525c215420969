/* SPDX-License-Identifier: Apache-2.0 */
#include "dispatch/near_tie.h"

#include <math.h>

#include "dispatch/exact_route.h"

/* Scores that differ by less, relative, may be ranked either way. */
#define NEAR_TIE 1e-6

bool gsn_keys_are_near(double key, double other)
{
	return fabs(key - other) < NEAR_TIE * fmax(fabs(key), fabs(other));
}

/*
 * Scores of an expert alone are ranked as they are, with their bias. A softmax is ranked like the
 * exponential of the logit, here relative to the largest: the sum that it is divided by is the same
 * for all.
 */
static double to_key(gpusnap_score score, double logit, double bias, double largest)
{
	return gsn_scores_alone(score) ? gsn_exact_score(score, logit) + bias
				       : exp(logit - largest);
}

static void to_keys(const gpusnap_moe_layer *spec, const double *bias, double *logits)
{
	double largest = -INFINITY;

	for (uint32_t e = 0; e < spec->experts; e++)
		largest = fmax(largest, logits[e]);
	for (uint32_t e = 0; e < spec->experts; e++)
		logits[e] = to_key(spec->score, logits[e], bias[e], largest);
}

static double group_score(const double *keys, uint32_t count)
{
	double first = -INFINITY, second = -INFINITY;

	for (uint32_t i = 0; i < count; i++) {
		second = fmax(second, fmin(first, keys[i]));
		first = fmax(first, keys[i]);
	}
	return count > 1 ? first + second : first;
}

static bool stays(const double *scores, uint32_t group, const gpusnap_moe_layer *spec)
{
	uint32_t better = 0;

	for (uint32_t g = 0; g < spec->groups; g++)
		better += scores[g] > scores[group] || (scores[g] == scores[group] && g < group);
	return better < spec->top_groups;
}

/* Give the experts of dropped groups the worst key. @return the choice of groups is close */
static bool drop_groups(const gpusnap_moe_layer *spec, double *keys)
{
	double scores[GPUSNAP_MOE_GROUPS_MAX], worst = INFINITY, best_left = -INFINITY;
	uint32_t size = spec->groups ? spec->experts / spec->groups : 0;

	for (uint32_t g = 0; g < spec->groups; g++)
		scores[g] = group_score(keys + (uint64_t)g * size, size);
	for (uint32_t g = 0; g < spec->groups; g++) {
		if (stays(scores, g, spec)) {
			worst = fmin(worst, scores[g]);
			continue;
		}
		best_left = fmax(best_left, scores[g]);
		for (uint32_t i = 0; i < size; i++)
			keys[(uint64_t)g * size + i] = -INFINITY;
	}
	return isfinite(best_left) && gsn_keys_are_near(worst, best_left);
}

static bool is_chosen(const gpusnap_moe_layer *spec, const int32_t *ids, uint32_t expert)
{
	for (uint32_t s = 0; s < spec->top_k; s++)
		if (ids[s] == (int32_t)expert)
			return true;
	return false;
}

bool gsn_near_tie(const gpusnap_moe_layer *spec, const double *bias, double *logits,
	const int32_t *ids, double *ret_smallest)
{
	double chosen = INFINITY, left = -INFINITY;
	bool close;

	to_keys(spec, bias, logits);
	*ret_smallest = -INFINITY;
	if (spec->vocabulary)
		return false;
	close = drop_groups(spec, logits);
	/* Of the chosen experts the smallest, of the others the largest. */
	for (uint32_t e = 0; e < spec->experts; e++) {
		if (is_chosen(spec, ids, e))
			chosen = fmin(chosen, logits[e]);
		else
			left = fmax(left, logits[e]);
	}
	*ret_smallest = chosen;
	return close || (isfinite(left) && gsn_keys_are_near(chosen, left));
}
