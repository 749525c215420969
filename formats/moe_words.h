/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_WORDS_H
#define GSN_MOE_WORDS_H
/* The words of a model record: slots, scores, activations. */
#include <gpusnap/moe.h>

/* E_UNSUPPORTED for a word that this build does not know. */
gpusnap_status gsn_moe_slot_parse(const char *name, gpusnap_moe_slot *ret_slot, gpusnap_error *err);
gpusnap_status gsn_score_parse(const char *word, gpusnap_score *ret_score, gpusnap_error *err);
gpusnap_status gsn_activation_parse(
	const char *word, gpusnap_activation *ret_activation, gpusnap_error *err);

/* "unknown" for a number that has no word, which parsing then refuses. */
const char *gsn_score_name(gpusnap_score score);
const char *gsn_activation_name(gpusnap_activation activation);

#endif
