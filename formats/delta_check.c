/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A delta against itself and against its tensors. What passes can be read without more checks: each
 * run of changed leaves lies in its entry, and its bytes are where the runs before it end.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/plan_parts.h"

enum { ALIGNMENT_MAX = 4096 };

/* The order of data of a full snapshot: by the largest power of two that divides the size. */
static uint64_t alignment_class(uint64_t bytes)
{
	return gsn_min(bytes & (~bytes + 1), ALIGNMENT_MAX);
}

/* ---- entries ---- */

static gpusnap_status check_runs(const gpusnap_delta_entry *entry, gpusnap_error *err)
{
	uint64_t leaves = gpusnap_leaf_count(entry->bytes);
	uint64_t at = 0;

	for (uint32_t i = 0; i < entry->run_count; i++) {
		const gpusnap_delta_run *run = &entry->changed[i];

		if (run->first < at)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"changed leaves [%" PRIu64 ", %" PRIu64 ") begin before %" PRIu64
				", where those before end",
				run->first, run->first + run->count, at);
		if (run->first >= leaves || run->count > leaves - run->first)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"changed leaves [%" PRIu64 ", %" PRIu64 ") leave its %" PRIu64
				" leaves",
				run->first, run->first + run->count, leaves);
		at = run->first + run->count;
	}
	return GPUSNAP_OK;
}

/* A full snapshot of the same state is written in this order, so that nothing has to be moved. */
static gpusnap_status check_order(
	const gpusnap_delta_entry *before, const gpusnap_delta_entry *entry, gpusnap_error *err)
{
	if (alignment_class(before->bytes) >= alignment_class(entry->bytes))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"its %" PRIu64 " bytes come after %" PRIu64
		" that are aligned to less, expected descending alignment",
		entry->bytes, before->bytes);
}

static gpusnap_status check_entries(const gpusnap_plan_delta *delta, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (uint32_t i = 0; i < delta->entry_count; i++) {
		const gpusnap_delta_entry *entry = &delta->entries[i];
		gpusnap_status status = check_runs(entry, err);

		if (!status && i > 0)
			status = check_order(&delta->entries[i - 1], entry, err);
		if (status) {
			gsn_error_prefix(err, "entry '%s'",
				gsn_quote(entry->name, strlen(entry->name), quoted));
			return status;
		}
	}
	return GPUSNAP_OK;
}

/* ---- tensors ---- */

static gpusnap_status check_tensor(const gpusnap_plan_delta *delta, const gpusnap_tensor *tensor,
	uint32_t *ret_entry, gpusnap_error *err)
{
	uint64_t index, bytes;

	if (strlen(tensor->name) != tensor->name_length ||
		!gpusnap_delta_name_parse(tensor->name, &index))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"is in a delta, which holds changed leaves (gpusnap.delta/I) alone");
	if (index >= delta->entry_count)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is of entry %" PRIu64 " of %u", index,
			delta->entry_count);
	bytes = gpusnap_delta_bytes(&delta->entries[index]);
	if (tensor->dtype != GPUSNAP_U8 || tensor->rank != 1)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "is %s of rank %u, expected U8 [n]",
			gpusnap_dtype_name(tensor->dtype), tensor->rank);
	if (bytes == 0 || tensor->shape[0] != bytes)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"has %" PRIu64 " bytes, the changed leaves of its entry have %" PRIu64,
			tensor->shape[0], bytes);
	*ret_entry = (uint32_t)index;
	return GPUSNAP_OK;
}

static bool ends_the_file(const gpusnap_tensor *tensor)
{
	return strcmp(tensor->name, GPUSNAP_LEAVES_NAME) == 0 ||
	       strcmp(tensor->name, GPUSNAP_SEAL_NAME) == 0;
}

/* Names are unique, so that as many tensors as entries with changes are all of them. */
static gpusnap_status check_tensors(
	const gpusnap_plan_delta *delta, const gpusnap_header *header, gpusnap_error *err)
{
	size_t count = gpusnap_header_tensor_count(header);
	char quoted[GSN_QUOTE_BYTES];
	size_t held = 0, wanted = 0;
	uint32_t entry;

	for (size_t i = 0; i < count; i++) {
		const gpusnap_tensor *tensor = gpusnap_header_tensor(header, i);
		gpusnap_status status;

		if (ends_the_file(tensor))
			continue;
		status = check_tensor(delta, tensor, &entry, err);
		if (status) {
			gsn_error_prefix(err, "tensor '%s'",
				gsn_quote(tensor->name, tensor->name_length, quoted));
			return status;
		}
		held++;
	}
	for (uint32_t i = 0; i < delta->entry_count; i++)
		wanted += delta->entries[i].run_count > 0;
	if (held != wanted)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%zu entries have changed leaves, the file holds those of %zu", wanted,
			held);
	return GPUSNAP_OK;
}

gpusnap_status gsn_delta_check(
	const gpusnap_plan_delta *delta, const gpusnap_header *header, gpusnap_error *err)
{
	gpusnap_status status = check_entries(delta, err);

	return status ? status : check_tensors(delta, header, err);
}
