/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_FINDINGS_H
#define GSN_FINDINGS_H
/* The list of failures that a validation makes: one for each damaged object, no object twice. */
#include <gpusnap/dispatch.h>

/* Stands for the slot of a failure that names no buffer. */
#define GSN_NO_SLOT GPUSNAP_MOE_SLOTS

struct gsn_finding {
	gpusnap_failure failure;
	uint32_t index; /* of the layer in the model's list */
	gpusnap_moe_slot slot;
};

struct gsn_findings {
	size_t count;
	size_t capacity;
	struct gsn_finding *items;
};

/* Add a copy. E_NOMEM. */
gpusnap_status gsn_findings_add(
	struct gsn_findings *findings, const struct gsn_finding *finding, gpusnap_error *err);
/* The finding about this buffer and expert; expert -1 asks for any. NULL: none. */
struct gsn_finding *gsn_findings_get(
	const struct gsn_findings *findings, uint32_t index, gpusnap_moe_slot slot, int32_t expert);
/* The failures alone, by kind and then as they were found; the caller frees them. */
gpusnap_status gsn_findings_take(
	const struct gsn_findings *findings, gpusnap_failure **ret_failures, gpusnap_error *err);
void gsn_findings_release(struct gsn_findings *findings);

#endif
