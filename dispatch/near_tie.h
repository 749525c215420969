/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_NEAR_TIE_H
#define GSN_NEAR_TIE_H
/* Choices of experts that rounding decides: another engine may rightly choose otherwise. */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/moe.h>

/*
 * Is what a token's experts (or their groups) are chosen by so close to what the others have that
 * either may be ranked first?
 * @param bias    [experts], of the selection; zeros where there is none
 * @param logits  [experts], exact; overwritten by keys, what experts are chosen by: minus infinity
 *                for those of dropped groups
 * @param ids     [top_k], the experts that were chosen
 * @param ret_smallest  key of the chosen; minus infinity where a table chooses: that is no tie
 */
bool gsn_near_tie(const gpusnap_moe_layer *spec, const double *bias, double *logits,
	const int32_t *ids, double *ret_smallest);
/* Either key may be ranked first. */
bool gsn_keys_are_near(double key, double other);

#endif
