/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting failures, and putting them in the order in which they are told. */
#include "dispatch/findings.h"

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

gpusnap_status gsn_findings_add(
	struct gsn_findings *findings, const struct gsn_finding *finding, gpusnap_error *err)
{
	if (findings->count == findings->capacity) {
		size_t capacity = findings->capacity ? 2 * findings->capacity : 8;
		struct gsn_finding *items =
			gsn_grow(findings->items, findings->capacity, capacity, sizeof *items);

		if (!items)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "%zu failures: out of memory",
				findings->count);
		findings->items = items;
		findings->capacity = capacity;
	}
	findings->items[findings->count++] = *finding;
	return GPUSNAP_OK;
}

struct gsn_finding *gsn_findings_get(
	const struct gsn_findings *findings, uint32_t index, gpusnap_moe_slot slot, int32_t expert)
{
	for (size_t i = 0; i < findings->count; i++) {
		struct gsn_finding *item = &findings->items[i];

		if (item->index == index && item->slot == slot &&
			(expert < 0 || item->failure.expert == expert))
			return item;
	}
	return NULL;
}

gpusnap_status gsn_findings_take(
	const struct gsn_findings *findings, gpusnap_failure **ret_failures, gpusnap_error *err)
{
	gpusnap_failure *failures = gsn_alloc(findings->count, sizeof *failures);
	size_t taken = 0;

	if (!failures && findings->count)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "%zu failures: out of memory", findings->count);
	for (int kind = GPUSNAP_FAILURE_STRUCTURE; kind <= GPUSNAP_FAILURE_DECODE; kind++)
		for (size_t i = 0; i < findings->count; i++)
			if ((int)findings->items[i].failure.kind == kind)
				failures[taken++] = findings->items[i].failure;
	*ret_failures = failures;
	return GPUSNAP_OK;
}

void gsn_findings_release(struct gsn_findings *findings)
{
	gsn_free(findings->items);
	*findings = (struct gsn_findings){0};
}
