/* SPDX-License-Identifier: Apache-2.0 */
/* Resume: map all or nothing, put kept bytes back from arenas and snapshots, make usable. */
#include "snapshot/resume.h"

#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/io_options.h"
#include "snapshot/putback.h"
#include "snapshot/residency.h"
#include "snapshot/restore.h"

static gpusnap_status read_backings(gpusnap_registry *registry,
	const struct gsn_selection *selection, const gpusnap_io_options *io,
	gpusnap_io_report *ret_report, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < selection->count; i++) {
		struct gsn_region *region = selection->regions[i];

		if (region->backing)
			s = gsn_restore_regions(
				registry, region->backing, &region, 1, io, ret_report, err);
	}
	return s;
}

/*
 * What comes from a snapshot is poisoned where it arrives. Of other regions only what an offload
 * could not unmap is there already; gsn_put_back() maps and poisons the rest as it goes.
 */
static gpusnap_status begin(
	gpusnap_registry *registry, const struct gsn_selection *selection, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < selection->count; i++) {
		struct gsn_region *region = selection->regions[i];

		if (region->backing) {
			s = gsn_regions_map(registry, &region, 1, err);
			if (!s)
				s = gsn_regions_poison_rest(registry, &region, 1, err);
		} else {
			gsn_region_begin(region);
			s = gsn_regions_poison(registry, &region, 1, err);
		}
	}
	return s;
}

gpusnap_status gsn_resume_regions(gpusnap_registry *registry, const struct gsn_selection *selection,
	const gpusnap_io_options *io, gpusnap_io_report *ret_report, gpusnap_error *err)
{
	gpusnap_status s = begin(registry, selection, err);

	if (!s)
		s = gsn_put_back(registry, selection, err);
	if (!s)
		s = read_backings(registry, selection, io, ret_report, err);
	if (!s)
		s = gsn_regions_finish(registry, selection->regions, selection->count, err);
	if (s)
		gsn_regions_unmap(registry, selection->regions, selection->count);
	return s;
}

gpusnap_status gpusnap_resume(gpusnap_registry *registry, const gpusnap_offload_options *options,
	gpusnap_resume_report *ret_report, gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	gpusnap_offload_options known;
	gpusnap_io_options io;
	gpusnap_io_report report = {0};
	struct gsn_selection selection = {0};
	gpusnap_status s = gsn_options_copy(&known, sizeof known, options, "resume options", err);

	if (!s)
		s = gsn_io_options_resolve(&known.io, &io, err);
	if (!s)
		s = gsn_job_begin(registry, "resume", err);
	if (s)
		return s;
	s = gsn_selection_init(registry, &known, GSN_SELECT_RESUME, &selection, err);
	if (!s)
		s = gsn_resume_regions(registry, &selection, &io, &report, err);
	if (!s && ret_report)
		*ret_report = (gpusnap_resume_report){
			.regions = (uint32_t)selection.count,
			.bytes = selection.bytes,
			.seconds = gsn_clock_seconds() - start,
			.io = report,
		};
	gsn_selection_release(&selection);
	gsn_job_end(registry);
	return s;
}
