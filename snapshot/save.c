/* SPDX-License-Identifier: Apache-2.0 */
/* Save: freeze, lay out, write under the commit protocol, and take the file as the baseline. */
#include "snapshot/save.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/baseline.h"
#include "snapshot/commit.h"
#include "snapshot/io_options.h"
#include "snapshot/live_digest.h"
#include "snapshot/paths.h"
#include "snapshot/read_back.h"
#include "snapshot/writer.h"

struct save {
	const struct gsn_fs *fs;
	gpusnap_registry *registry;
	const char *path;
	bool replace, read_back;
	gpusnap_io_options io;
	struct gsn_layout layout;
	struct gsn_commit commit;
	gpusnap_seal seal;
	gpusnap_io_report report;
	struct gsn_read_back_report read_back_report;
	/* Made before the commit: after it nothing may fail. */
	gpusnap_baseline *baseline;
	char *absolute_path;
};

static gpusnap_status make_baseline(struct save *save, gpusnap_error *err)
{
	struct gsn_baseline_source source = {
		.segments = save->layout.segments,
		.count = save->layout.segment_count,
		.leaves = save->layout.leaves,
		.leaf_count = save->layout.leaf_count,
		.root = save->seal.root,
		.records = save->registry->records,
	};

	save->absolute_path = gsn_absolute_path(save->path);
	if (!save->absolute_path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "'%s': no memory for its path", save->path);
	return gsn_baseline_make(&source, &save->baseline, err);
}

static gpusnap_status write_file(struct save *save, gpusnap_error *err)
{
	struct gsn_direct_choice choice;
	struct gsn_write_job job = {
		.device = save->registry->device,
		.fs = save->fs,
		.fd = save->commit.fd,
		.layout = &save->layout,
		.io = &save->io,
	};
	gpusnap_status status = save->fs->choose_direct(
		save->fs, job.fd, save->path, save->io.direct, &choice, err);

	if (status)
		return status;
	status = gsn_write_file(&job, &save->seal, &save->report, err);
	if (status) {
		gsn_error_prefix(err, "'%s'", save->path);
		return status;
	}
	gsn_io_report_add(&save->report, &choice);
	return GPUSNAP_OK;
}

static gpusnap_status read_back(struct save *save, gpusnap_error *err)
{
	struct gsn_read_back_job job = {
		.fs = save->fs,
		.fd = save->commit.fd,
		.path = save->path,
		.layout = &save->layout,
		.seal = &save->seal,
		.io = &save->io,
	};
	gpusnap_status status = gsn_commit_sync(&save->commit, save->layout.file_bytes, err);

	return status ? status : gsn_read_back(&job, &save->read_back_report, err);
}

static gpusnap_status save_file(struct save *save, gpusnap_error *err)
{
	uint64_t padded;
	gpusnap_status status = gsn_layout_init(&save->layout, save->registry, err);

	if (!status)
		status = gsn_live_check(save->layout.ranges, save->layout.range_count, err);
	if (status)
		return status;
	padded = gsn_align_up(save->layout.file_bytes, GSN_DIRECT_ALIGN);
	status = gsn_commit_begin(&save->commit, save->fs, save->path, save->replace, padded, err);
	if (!status)
		status = write_file(save, err);
	if (!status)
		status = make_baseline(save, err);
	if (!status && save->read_back)
		status = read_back(save, err);
	if (!status)
		status = gsn_commit_finish(&save->commit, save->layout.file_bytes, err);
	return status;
}

/* The file stands for live state from now on. */
static void adopt_file(struct save *save)
{
	gpusnap_registry_set_baseline(save->registry, save->baseline);
	gsn_free(save->registry->snapshot_path);
	save->registry->snapshot_path = save->absolute_path;
	save->baseline = NULL;
	save->absolute_path = NULL;
}

static void fill_report(const struct save *save, double start, gpusnap_save_report *ret_report)
{
	*ret_report = (gpusnap_save_report){
		.io = save->report,
		.root = save->seal.root,
		.state_bytes = save->layout.state_bytes,
		.unclaimed_bytes = save->layout.unclaimed_bytes,
		.read_back_seconds = save->read_back_report.seconds,
	};
	memcpy(ret_report->read_back, save->read_back_report.how, sizeof ret_report->read_back);
	memcpy(ret_report->uuid, save->layout.uuid, sizeof ret_report->uuid);
	ret_report->io.bytes = save->layout.file_bytes;
	ret_report->io.seconds = gsn_clock_seconds() - start;
}

static void save_release(struct save *save)
{
	gsn_commit_end(&save->commit);
	gsn_layout_release(&save->layout);
	gpusnap_baseline_free(save->baseline);
	gsn_free(save->absolute_path);
}

gpusnap_status gsn_save_on(const struct gsn_fs *fs, gpusnap_registry *registry, const char *path,
	const gpusnap_save_options *options, gpusnap_save_report *ret_report, gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	struct save save = {
		.fs = fs, .registry = registry, .path = path, .commit = GSN_COMMIT_INIT};
	gpusnap_save_options known;
	gpusnap_status status =
		gsn_options_copy(&known, sizeof known, options, "save options", err);

	if (!status)
		status = gsn_io_options_resolve(&known.io, &save.io, err);
	if (!status)
		status = gsn_job_begin(registry, "save", err);
	if (status)
		return status;
	save.replace = known.replace;
	save.read_back = known.read_back;
	status = gsn_job_quiesce(registry, err);
	if (!status)
		status = save_file(&save, err);
	if (!status) {
		if (ret_report)
			fill_report(&save, start, ret_report);
		adopt_file(&save);
	}
	save_release(&save);
	gsn_job_end(registry);
	return status;
}

gpusnap_status gpusnap_save(gpusnap_registry *registry, const char *path,
	const gpusnap_save_options *options, gpusnap_save_report *ret_report, gpusnap_error *err)
{
	return gsn_save_on(&gsn_fs_posix, registry, path, options, ret_report, err);
}
