/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restore into a registry that exists already: check and match, then take the regions out of use,
 * overwrite, prove, and make them usable.
 *
 * What the file's data is worth shows only when it has been read, so damage is found after live
 * bytes are overwritten; a full read beforehand would double the time for a case that a `verify` of
 * the file covers. After such a failure nothing is usable that is not proved: what was offloaded is
 * offloaded again, with the backing it had; what was resident is poisoned and DISCARDED, until
 * another restore or the application rewrites it.
 */
#include "snapshot/restore.h"

#include "formats/base/alloc.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "snapshot/io_options.h"
#include "snapshot/match.h"
#include "snapshot/residency.h"

struct restore {
	gpusnap_registry *registry;
	gpusnap_snapshot *snapshot;  /* borrowed */
	struct gsn_region **regions; /* all of the registry's */
	size_t count;
	gpusnap_baseline *baseline;
	struct gsn_origin origin;
	gpusnap_io_report report;
};

static gpusnap_status prepare(struct restore *restore, gpusnap_error *err)
{
	gpusnap_registry *registry = restore->registry;
	gpusnap_status status;

	restore->count = registry->region_count;
	restore->regions = gsn_alloc(restore->count, sizeof(void *));
	if (!restore->regions)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a restore");
	for (size_t i = 0; i < restore->count; i++)
		restore->regions[i] = &registry->regions[i];
	status = gsn_origin_set(&restore->origin, gpusnap_snapshot_path(restore->snapshot),
		restore->snapshot, 1, err);
	if (status)
		return status;
	return gpusnap_baseline_from_snapshot(restore->snapshot, &restore->baseline, err);
}

/* Nobody may use a region, however it looks, until its bytes are proved. */
static void take_out_of_use(const struct restore *restore)
{
	for (size_t i = 0; i < restore->count; i++) {
		struct gsn_region *region = restore->regions[i];

		/* A remap has counted already. */
		if (!region->backing_name)
			region->generation++;
		region->state = GPUSNAP_REGION_DISCARDED;
	}
}

static gpusnap_status overwrite(
	struct restore *restore, const gpusnap_io_options *io, gpusnap_error *err)
{
	gpusnap_registry *registry = restore->registry;
	gpusnap_status status =
		gsn_regions_poison_rest(registry, restore->regions, restore->count, err);

	if (!status)
		status = gsn_restore_regions(registry, restore->snapshot, restore->regions,
			restore->count, io, &restore->report, err);
	if (!status)
		status = gsn_regions_finish(registry, restore->regions, restore->count, err);
	return status;
}

static void give_up(const struct restore *restore)
{
	gpusnap_registry *registry = restore->registry;

	gsn_regions_unmap(registry, restore->regions, restore->count);
	for (size_t i = 0; i < restore->count; i++)
		if (restore->regions[i]->state != GPUSNAP_REGION_OFFLOADED)
			(void)gsn_regions_poison(registry, &restore->regions[i], 1, NULL);
}

static gpusnap_status restore_all(
	struct restore *restore, bool quiesce, const gpusnap_io_options *io, gpusnap_error *err)
{
	gpusnap_registry *registry = restore->registry;
	gpusnap_status status = gsn_match(registry, restore->snapshot, err);

	if (!status && quiesce)
		status = gsn_job_quiesce(registry, err);
	if (!status)
		status = gsn_regions_map(registry, restore->regions, restore->count, err);
	if (status)
		return status;
	take_out_of_use(restore);
	status = overwrite(restore, io, err);
	if (status)
		give_up(restore);
	return status;
}

/* The file stands for live state from now on. */
static void adopt_file(struct restore *restore)
{
	gpusnap_registry *registry = restore->registry;

	gpusnap_registry_set_baseline(registry, restore->baseline);
	gsn_origin_release(&registry->origin);
	registry->origin = restore->origin;
	restore->baseline = NULL;
	restore->origin = (struct gsn_origin){NULL};
}

static void fill_report(
	const struct restore *restore, double start, gpusnap_restore_report *ret_report)
{
	*ret_report = (gpusnap_restore_report){
		.io = restore->report,
		.root = gpusnap_snapshot_seal(restore->snapshot)->root,
		.state_bytes = restore->report.bytes,
	};
	ret_report->io.seconds = gsn_clock_seconds() - start;
}

static void restore_release(struct restore *restore)
{
	gpusnap_baseline_free(restore->baseline);
	gsn_origin_release(&restore->origin);
	gsn_free(restore->regions);
}

gpusnap_status gsn_restore_snapshot(gpusnap_registry *registry, gpusnap_snapshot *snapshot,
	bool quiesce, const gpusnap_io_options *io, gpusnap_restore_report *ret_report,
	gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	struct restore restore = {.registry = registry, .snapshot = snapshot};
	gpusnap_io_options resolved;
	gpusnap_status status = gsn_io_options_resolve(io, &resolved, err);

	if (!status)
		status = gsn_job_begin(registry, "restore", err);
	if (status)
		return status;
	status = prepare(&restore, err);
	if (!status)
		status = restore_all(&restore, quiesce, &resolved, err);
	if (!status) {
		if (ret_report)
			fill_report(&restore, start, ret_report);
		adopt_file(&restore);
	}
	restore_release(&restore);
	gsn_job_end(registry);
	return status;
}

gpusnap_status gpusnap_restore_snapshot(gpusnap_registry *registry, gpusnap_snapshot *snapshot,
	const gpusnap_io_options *io, gpusnap_restore_report *ret_report, gpusnap_error *err)
{
	return gsn_restore_snapshot(registry, snapshot, true, io, ret_report, err);
}

gpusnap_status gpusnap_restore(gpusnap_registry *registry, const char *path,
	const gpusnap_io_options *io, gpusnap_restore_report *ret_report, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot;
	gpusnap_status status = gpusnap_snapshot_open(path, &snapshot, err);

	if (status)
		return status;
	status = gpusnap_restore_snapshot(registry, snapshot, io, ret_report, err);
	gpusnap_snapshot_close(snapshot);
	return status;
}
