/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_EXACT_ROUTE_H
#define GSN_EXACT_ROUTE_H
/* What a router makes of its logits, in double precision. */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/moe.h>

/* A score that does not depend on the other experts'; false: a softmax. */
bool gsn_scores_alone(gpusnap_score score);
/* Such a score of a logit. */
double gsn_exact_score(gpusnap_score score, double logit);
/* weights[top_k] of the chosen `ids`, from the exact logits of all experts. */
void gsn_exact_weights(const gpusnap_moe_layer *spec, const double *logits, const int32_t *ids,
	double *ret_weights);

#endif
