/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing a plan with a registry, and listing what differs. */
#include "snapshot/match.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "snapshot/ranges.h"

enum { SHAPE_TEXT_BYTES = 64, ITEM_TEXT_BYTES = 320 };

struct match {
	const gpusnap_registry *registry;
	const gpusnap_plan *plan;
	char text[360]; /* what fits of the list */
	size_t used;
	unsigned shown, total;
};

static void note(struct match *match, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void note(struct match *match, const char *format, ...)
{
	char item[ITEM_TEXT_BYTES];
	va_list args;
	size_t length;

	match->total++;
	va_start(args, format);
	(void)vsnprintf(item, sizeof item, format, args);
	va_end(args);
	length = strlen(item);
	/* Once one does not fit the rest is only counted, so that "and N more" is the tail. */
	if (match->shown + 1 < match->total || match->used + length + 3 > sizeof match->text)
		return;
	match->used += (size_t)snprintf(match->text + match->used, sizeof match->text - match->used,
		"%s%s", match->used ? "; " : "", item);
	match->shown++;
}

static const char *quote(const char *name, char text[GSN_QUOTE_BYTES])
{
	return gsn_quote(name, strlen(name), text);
}

static const char *shape_text(const uint64_t *shape, uint32_t rank, char text[SHAPE_TEXT_BYTES])
{
	size_t used = 0;

	for (uint32_t i = 0; i < rank && used + 24 < SHAPE_TEXT_BYTES; i++)
		used += (size_t)snprintf(text + used, SHAPE_TEXT_BYTES - used, "%s%" PRIu64,
			i ? ", " : "[", shape[i]);
	(void)snprintf(text + used, SHAPE_TEXT_BYTES - used, "%s", rank ? "]" : "[]");
	return text;
}

/* ---- ranks ---- */

static void match_rank(struct match *match, const char *what, uint32_t here, uint32_t here_size,
	uint32_t there, uint32_t there_size)
{
	if (here != there || here_size != there_size)
		note(match, "%s rank %u of %u here, %u of %u in the snapshot", what, here,
			here_size, there, there_size);
}

/* ---- regions ---- */

static const gpusnap_plan_region *plan_region(const gpusnap_plan *plan, uint32_t id)
{
	for (uint32_t i = 0; i < plan->region_count; i++)
		if (plan->regions[i].id == id)
			return &plan->regions[i];
	return NULL;
}

static void match_region(
	struct match *match, const struct gsn_region *here, const gpusnap_plan_region *there)
{
	char tag[GSN_QUOTE_BYTES];

	if (strcmp(here->tag, there->tag) != 0)
		note(match, "region %u: tag '%s' here, '%s' in the snapshot", here->id, here->tag,
			quote(there->tag, tag));
	if (here->bytes != there->bytes)
		note(match, "region %u '%s': %" PRIu64 " bytes here, %" PRIu64 " in the snapshot",
			here->id, here->tag, here->bytes, there->bytes);
	if (here->policy != there->policy)
		note(match, "region %u '%s': policy %s here, %s in the snapshot", here->id,
			here->tag, gpusnap_policy_name(here->policy),
			gpusnap_policy_name(there->policy));
	if (here->unclaimed != there->unclaimed)
		note(match,
			"region %u '%s': policy for unclaimed bytes %s here, %s in the snapshot",
			here->id, here->tag, gpusnap_policy_name(here->unclaimed),
			gpusnap_policy_name(there->unclaimed));
}

static void match_regions(struct match *match)
{
	const gpusnap_registry *registry = match->registry;
	char tag[GSN_QUOTE_BYTES];

	for (uint32_t i = 0; i < match->plan->region_count; i++) {
		const gpusnap_plan_region *there = &match->plan->regions[i];
		const struct gsn_region *here = gsn_registry_region(registry, there->id);

		if (here)
			match_region(match, here, there);
		else
			note(match, "region %u '%s' is missing here", there->id,
				quote(there->tag, tag));
	}
	for (uint32_t i = 0; i < registry->region_count; i++)
		if (!plan_region(match->plan, registry->regions[i].id))
			note(match, "region %u '%s' is not in the snapshot",
				registry->regions[i].id, registry->regions[i].tag);
}

/* ---- buffers ---- */

static bool same_shape(const struct gsn_buffer *here, const gpusnap_plan_buffer *there)
{
	return here->rank == there->rank &&
	       memcmp(here->shape, there->shape, here->rank * sizeof *here->shape) == 0;
}

static bool same_mask(const gpusnap_mask_type *x, const gpusnap_mask_type *y)
{
	return x->kind == y->kind && x->experts == y->experts && x->local == y->local &&
	       x->first == y->first && x->shared == y->shared && x->rank == y->rank &&
	       x->world == y->world;
}

static void match_mask(
	struct match *match, const struct gsn_buffer *here, const gpusnap_plan_buffer *there)
{
	if (!same_mask(&here->mask, &there->mask))
		note(match,
			"buffer '%s': mask of %u of %u experts from %u, rank %u of %u, here; of %u "
			"of %u from %u, rank %u of %u, in the snapshot",
			here->name, here->mask.local, here->mask.experts, here->mask.first,
			here->mask.rank, here->mask.world, there->mask.local, there->mask.experts,
			there->mask.first, there->mask.rank, there->mask.world);
}

static void match_buffer(
	struct match *match, const struct gsn_buffer *here, const gpusnap_plan_buffer *there)
{
	char here_shape[SHAPE_TEXT_BYTES], there_shape[SHAPE_TEXT_BYTES];

	if (here->dtype != there->dtype)
		note(match, "buffer '%s': dtype %s here, %s in the snapshot", here->name,
			gpusnap_dtype_name(here->dtype), gpusnap_dtype_name(there->dtype));
	if (!same_shape(here, there))
		note(match, "buffer '%s': shape %s here, %s in the snapshot", here->name,
			shape_text(here->shape, here->rank, here_shape),
			shape_text(there->shape, there->rank, there_shape));
	if (here->region != there->region || here->offset != there->offset)
		note(match,
			"buffer '%s': at offset %" PRIu64 " of region %u here, %" PRIu64
			" of region %u in the snapshot",
			here->name, here->offset, here->region, there->offset, there->region);
	if (here->role != there->role)
		note(match, "buffer '%s': role %s here, %s in the snapshot", here->name,
			gpusnap_role_name(here->role), gpusnap_role_name(there->role));
	else
		match_mask(match, here, there);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp((*(const gpusnap_plan_buffer *const *)a)->name,
		(*(const gpusnap_plan_buffer *const *)b)->name);
}

static const gpusnap_plan_buffer *find_in_plan(
	const gpusnap_plan_buffer *const *sorted, uint32_t count, char *name)
{
	const gpusnap_plan_buffer key = {.name = name}, *wanted = &key;
	const gpusnap_plan_buffer *const *found =
		bsearch(&wanted, sorted, count, sizeof(void *), compare_names);

	return found ? *found : NULL;
}

static gpusnap_status match_buffers(struct match *match, gpusnap_error *err)
{
	const gpusnap_registry *registry = match->registry;
	const gpusnap_plan *plan = match->plan;
	const gpusnap_plan_buffer **sorted = gsn_alloc(plan->buffer_count, sizeof(void *));
	char name[GSN_QUOTE_BYTES];

	if (!sorted)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to compare %u buffers",
			plan->buffer_count);
	for (uint32_t i = 0; i < plan->buffer_count; i++)
		sorted[i] = &plan->buffers[i];
	qsort(sorted, plan->buffer_count, sizeof(void *), compare_names);
	for (uint32_t i = 0; i < registry->buffer_count; i++) {
		const struct gsn_buffer *here = registry->buffers[i];
		const gpusnap_plan_buffer *there =
			find_in_plan(sorted, plan->buffer_count, here->name);

		if (there)
			match_buffer(match, here, there);
		else
			note(match, "buffer '%s' is not in the snapshot", here->name);
	}
	for (uint32_t i = 0; i < plan->buffer_count; i++)
		if (!gsn_registry_buffer(registry, plan->buffers[i].name))
			note(match, "buffer '%s' is missing here",
				quote(plan->buffers[i].name, name));
	gsn_free(sorted);
	return GPUSNAP_OK;
}

/* ---- what is kept ---- */

/* Equal plans cut into equal ranges; this holds the file itself against them. */
static gpusnap_status match_ranges(
	struct match *match, const gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	struct gsn_range *ranges;
	size_t count, kept = 0;
	gpusnap_status status;

	if (match->total)
		return GPUSNAP_OK; /* said in better words already */
	status = gsn_registry_ranges(match->registry, &ranges, &count, err);

	if (status)
		return status;
	for (size_t i = 0; i < count; i++) {
		const char *name = gsn_range_name(&ranges[i]);
		const gpusnap_snapshot_entry *entry;

		if (ranges[i].policy != GPUSNAP_POLICY_KEEP)
			continue;
		kept++;
		entry = gpusnap_snapshot_entry_find(snapshot, name);
		if (!entry || entry->bytes != ranges[i].bytes)
			note(match, "'%s': %" PRIu64 " bytes here, %" PRIu64 " in the snapshot",
				name, ranges[i].bytes, entry ? entry->bytes : 0);
	}
	if (kept != gpusnap_snapshot_entry_count(snapshot))
		note(match, "%zu kept ranges here, %zu in the snapshot", kept,
			gpusnap_snapshot_entry_count(snapshot));
	gsn_free(ranges);
	return GPUSNAP_OK;
}

static gpusnap_status fail_mismatch(
	const struct match *match, const gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	const char *path = gpusnap_snapshot_path(snapshot);
	unsigned rest = match->total - match->shown;

	if (rest)
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"'%.80s' does not fit this process: %s; and %u more", path, match->text,
			rest);
	return gsn_fail(err, GPUSNAP_E_MISMATCH, "'%.80s' does not fit this process: %s", path,
		match->text);
}

gpusnap_status gsn_match(
	const gpusnap_registry *registry, const gpusnap_snapshot *snapshot, gpusnap_error *err)
{
	const gpusnap_registry_options *here = &registry->options;
	const gpusnap_plan *there = gpusnap_snapshot_plan(snapshot);
	struct match match = {.registry = registry, .plan = there};
	gpusnap_status status;

	match_rank(&match, "tensor-parallel", here->tp_rank, here->tp_size, there->tp_rank,
		there->tp_size);
	match_rank(&match, "expert-parallel", here->ep_rank, here->ep_size, there->ep_rank,
		there->ep_size);
	match_regions(&match);
	status = match_buffers(&match, err);
	if (!status)
		status = match_ranges(&match, snapshot, err);
	if (!status && match.total)
		status = fail_mismatch(&match, snapshot, err);
	return status;
}
