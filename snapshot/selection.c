/* SPDX-License-Identifier: Apache-2.0 */
/* From tags to regions: which ones a job is about, and whether each is in a state for it. */
#include "snapshot/selection.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

static bool has_tag(const struct gsn_region *region, const gpusnap_offload_options *options)
{
	for (size_t i = 0; i < options->tag_count; i++)
		if (strcmp(region->tag, options->tags[i]) == 0)
			return true;
	return false;
}

/* Without tags: what can be offloaded at all, or what is offloaded. */
static bool is_default(const struct gsn_region *region, enum gsn_selection_job job)
{
	if (job == GSN_SELECT_OFFLOAD)
		return region->managed;
	return region->state == GPUSNAP_REGION_OFFLOADED;
}

static gpusnap_status check_tags(const gpusnap_registry *registry,
	const gpusnap_offload_options *options, gpusnap_error *err)
{
	for (size_t i = 0; i < options->tag_count; i++) {
		bool found = false;

		if (!options->tags || !options->tags[i])
			return gsn_fail(err, GPUSNAP_E_INVALID, "tag %zu of %zu is NULL", i,
				options->tag_count);
		for (uint32_t r = 0; !found && r < registry->region_count; r++)
			found = strcmp(registry->regions[r].tag, options->tags[i]) == 0;
		if (!found)
			return gsn_fail(err, GPUSNAP_E_STATE,
				"no region has tag '%s'; the registry holds %u regions",
				options->tags[i], registry->region_count);
	}
	return GPUSNAP_OK;
}

static gpusnap_status pick_regions(const gpusnap_registry *registry,
	const gpusnap_offload_options *options, enum gsn_selection_job job,
	struct gsn_selection *selection, gpusnap_error *err)
{
	selection->regions = gsn_alloc(registry->region_count, sizeof(void *));
	if (!selection->regions)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %u regions", registry->region_count);
	for (uint32_t i = 0; i < registry->region_count; i++) {
		struct gsn_region *region = &registry->regions[i];

		if (options->tags ? !has_tag(region, options) : !is_default(region, job))
			continue;
		selection->regions[selection->count++] = region;
		selection->bytes += region->bytes;
	}
	if (selection->count > 0)
		return GPUSNAP_OK;
	if (job == GSN_SELECT_RESUME)
		return gsn_fail(err, GPUSNAP_E_STATE, "nothing is offloaded");
	return gsn_fail(err, GPUSNAP_E_STATE,
		"nothing to offload: the registry holds %u regions, none of them matches",
		registry->region_count);
}

/* ---- kept ranges ---- */

static bool is_kept(const struct gsn_range *range)
{
	return range->policy == GPUSNAP_POLICY_KEEP && range->bytes > 0;
}

/* Squeeze all ranges of the registry down to the kept ones of the selection, in place. */
static void filter_kept(struct gsn_selection *selection, size_t count)
{
	size_t kept = 0;
	size_t at = 0;

	for (size_t i = 0; i < selection->count; i++) {
		selection->first_kept[i] = kept;
		while (at < count && selection->kept[at].region != selection->regions[i])
			at++;
		for (; at < count && selection->kept[at].region == selection->regions[i]; at++)
			if (is_kept(&selection->kept[at]))
				selection->kept[kept++] = selection->kept[at];
	}
	selection->first_kept[selection->count] = kept;
}

static gpusnap_status collect_kept(
	const gpusnap_registry *registry, struct gsn_selection *selection, gpusnap_error *err)
{
	size_t count;
	gpusnap_status s;

	selection->first_kept = gsn_alloc(selection->count + 1, sizeof *selection->first_kept);
	if (!selection->first_kept)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu regions", selection->count);
	s = gsn_registry_ranges(registry, &selection->kept, &count, err);
	if (!s)
		filter_kept(selection, count);
	return s;
}

size_t gsn_selection_kept_count(const struct gsn_selection *selection, size_t i)
{
	return selection->first_kept[i + 1] - selection->first_kept[i];
}

const struct gsn_range *gsn_selection_kept(const struct gsn_selection *selection, size_t i)
{
	return &selection->kept[selection->first_kept[i]];
}

/* ---- states ---- */

static gpusnap_status check_offload(
	const struct gsn_region *region, size_t kept_count, gpusnap_error *err)
{
	if (!region->managed)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"region %u '%s' is adopted: only its owner can give its memory back",
			region->id, region->tag);
	if (region->state == GPUSNAP_REGION_OFFLOADED)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"region %u '%s' is offloaded already; resume it first, or name the tags of "
			"resident regions",
			region->id, region->tag);
	if (region->state == GPUSNAP_REGION_DISCARDED && kept_count > 0)
		return gsn_region_usable(region, err);
	return GPUSNAP_OK;
}

static gpusnap_status check_states(
	const struct gsn_selection *selection, enum gsn_selection_job job, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < selection->count; i++) {
		const struct gsn_region *region = selection->regions[i];

		if (job == GSN_SELECT_OFFLOAD)
			s = check_offload(region, gsn_selection_kept_count(selection, i), err);
		else if (region->state != GPUSNAP_REGION_OFFLOADED)
			s = gsn_fail(err, GPUSNAP_E_STATE,
				"region %u '%s' is %s: nothing to resume", region->id, region->tag,
				gpusnap_region_state_name(region->state));
	}
	return s;
}

gpusnap_status gsn_selection_init(const gpusnap_registry *registry,
	const gpusnap_offload_options *options, enum gsn_selection_job job,
	struct gsn_selection *ret_selection, gpusnap_error *err)
{
	gpusnap_status s;

	memset(ret_selection, 0, sizeof *ret_selection);
	s = check_tags(registry, options, err);
	if (!s)
		s = pick_regions(registry, options, job, ret_selection, err);
	if (!s)
		s = collect_kept(registry, ret_selection, err);
	if (!s)
		s = check_states(ret_selection, job, err);
	return s;
}

void gsn_selection_release(struct gsn_selection *selection)
{
	gsn_free(selection->regions);
	gsn_free(selection->kept);
	gsn_free(selection->first_kept);
}
