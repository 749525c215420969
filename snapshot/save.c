/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Save: freeze, lay out, write under the commit protocol, and take the file as the baseline. With a
 * parent the layout follows a digest of live state. What that finds unchanged is not read again, so
 * that bytes which change meanwhile are either in the delta as they are when written, or as the
 * parent has them.
 */
#include "snapshot/save.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "formats/base/utf8.h"
#include "snapshot/baseline.h"
#include "snapshot/chain.h"
#include "snapshot/commit.h"
#include "snapshot/delta_layout.h"
#include "snapshot/io_options.h"
#include "snapshot/live_digest.h"
#include "snapshot/match.h"
#include "snapshot/read_back.h"
#include "snapshot/writer.h"

/* Blocks of a delta, where the caller does not say how large they are. */
enum { BLOCKS_WANTED = 64, BLOCK_LEAST = 512 << 10 };

struct save {
	const struct gsn_fs *fs;
	gpusnap_registry *registry;
	const char *path;
	gpusnap_save_options options;
	gpusnap_io_options io;
	gpusnap_snapshot *parent; /* NULL: in full */
	char *parent_name;
	uint32_t depth;
	double start, digest_seconds;
	struct gsn_layout layout;
	struct gsn_commit commit;
	gpusnap_seal seal;
	gpusnap_io_report report;
	struct gsn_read_back_report read_back_report;
	/* Made before the commit: after it nothing may fail. */
	gpusnap_baseline *baseline;
	struct gsn_origin origin;
};

/* ---- a delta's parent ---- */

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static gpusnap_status open_parent(struct save *save, gpusnap_error *err)
{
	const gpusnap_snapshot_open_options options = {
		.struct_size = sizeof options,
		.parent_dirs = save->options.parent_dirs,
		.parent_dir_count = save->options.parent_dir_count,
	};
	const char *path = save->options.parent;
	gpusnap_status status;

	if (!path)
		return GPUSNAP_OK;
	if (!gsn_utf8_valid(path, strlen(path)))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"parent: its name is not UTF-8, and could not be noted; rename it");
	save->parent_name = gsn_strdup(file_name(path));
	if (!save->parent_name)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "parent '%s': no memory for its name", path);
	status = gpusnap_snapshot_open_with(path, &options, &save->parent, err);
	if (status)
		return status;
	save->depth = (uint32_t)gpusnap_snapshot_link_count(save->parent);
	if (save->depth > GPUSNAP_DELTA_DEPTH_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"parent '%s' has depth %u, and a delta of it would have %u, at most %u; "
			"make a full one of it (gpusnap flatten)",
			path, save->depth - 1, save->depth, GPUSNAP_DELTA_DEPTH_MAX);
	return GPUSNAP_OK;
}

static gpusnap_status digest_live(struct save *save, gpusnap_error *err)
{
	const struct gsn_layout *layout = &save->layout;
	const gpusnap_registry *registry = save->registry;
	struct gsn_leaf_range *ranges = gsn_alloc(layout->entry_count, sizeof *ranges);
	double start = gsn_clock_seconds();
	gpusnap_status status = GPUSNAP_OK;
	size_t count = 0;

	if (!ranges)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to digest %zu ranges",
			layout->entry_count);
	for (size_t i = 0; i < layout->entry_count; i++)
		if (layout->entries[i].bytes)
			ranges[count++] = (struct gsn_leaf_range){
				.address = layout->entries[i].address,
				.bytes = layout->entries[i].bytes,
				.out = &layout->leaves[layout->entries[i].first_leaf],
			};
	if (count > 0)
		status = registry->device->ops->digest(registry->stream, ranges, count, err);
	status = gsn_registry_settle(registry, status, err);
	gsn_free(ranges);
	save->digest_seconds = gsn_clock_seconds() - start;
	return status;
}

static gpusnap_status lay_out_delta(struct save *save, gpusnap_error *err)
{
	const struct gsn_delta_parent parent = {
		.snapshot = save->parent,
		.name = save->parent_name,
		.depth = save->depth,
		.runs_max = GPUSNAP_DELTA_RUNS_MAX,
	};
	struct gsn_layout *layout = &save->layout;
	gpusnap_status status = gsn_match(save->registry, save->parent, err);

	if (!status)
		status = gsn_layout_init_entries(layout, save->registry, err);
	if (!status)
		status = gsn_live_check(layout->ranges, layout->range_count, err);
	if (!status)
		status = digest_live(save, err);
	return status ? status : gsn_delta_layout(layout, save->registry, &parent, err);
}

static gpusnap_status lay_out(struct save *save, gpusnap_error *err)
{
	struct gsn_layout *layout = &save->layout;
	gpusnap_status status;

	if (save->parent)
		return lay_out_delta(save, err);
	status = gsn_layout_init(layout, save->registry, err);
	return status ? status : gsn_live_check(layout->ranges, layout->range_count, err);
}

/* A delta in the place of its parent would take away what it needs. */
static gpusnap_status check_target(const struct save *save, gpusnap_error *err)
{
	const struct gsn_commit *commit = &save->commit;
	struct stat target;

	if (!save->parent ||
		save->fs->status_at(save->fs, commit->directory_fd, commit->name, &target))
		return GPUSNAP_OK;
	return gsn_chain_guard(save->parent, 0, &target, save->path, err);
}

/* ---- the file ---- */

static gpusnap_status make_baseline(struct save *save, gpusnap_error *err)
{
	struct gsn_baseline_source source = {
		.segments = save->layout.entries,
		.count = save->layout.entry_count,
		.leaves = save->layout.leaves,
		.leaf_count = save->layout.leaf_count,
		.root = save->seal.root,
		.records = save->registry->records,
	};

	gpusnap_status status = gsn_origin_set(&save->origin, save->path, save->parent, 0, err);

	if (status)
		return status;
	return gsn_baseline_make(&source, &save->baseline, err);
}

static gpusnap_status write_file(struct save *save, gpusnap_error *err)
{
	struct gsn_direct_choice choice;
	struct gsn_write_job job = {
		.device = save->registry->device,
		.staging = &save->registry->staging,
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

/* Getting the memory of a whole staging ring would take longer than a small delta itself. */
static void fit_blocks(struct save *save)
{
	uint64_t fitting = save->layout.data_bytes / BLOCKS_WANTED;

	if (save->parent && !save->options.io.block_bytes)
		save->io.block_bytes = gsn_min(save->io.block_bytes,
			gsn_align_up(gsn_max(fitting, BLOCK_LEAST), GSN_IO_BLOCK_UNIT));
}

static gpusnap_status save_file(struct save *save, gpusnap_error *err)
{
	uint64_t padded;
	gpusnap_status status = lay_out(save, err);

	if (status)
		return status;
	fit_blocks(save);
	padded = gsn_align_up(save->layout.file_bytes, GSN_DIRECT_ALIGN);
	status = gsn_commit_begin(
		&save->commit, save->fs, save->path, save->options.replace, padded, err);
	if (!status)
		status = check_target(save, err);
	if (!status)
		status = write_file(save, err);
	if (!status)
		status = make_baseline(save, err);
	if (!status && save->options.read_back)
		status = read_back(save, err);
	if (!status)
		status = gsn_commit_finish(&save->commit, save->layout.file_bytes, err);
	return status;
}

/* The file stands for live state from now on. */
static void adopt_file(struct save *save)
{
	gpusnap_registry_set_baseline(save->registry, save->baseline);
	gsn_origin_release(&save->registry->origin);
	save->registry->origin = save->origin;
	save->baseline = NULL;
	save->origin = (struct gsn_origin){NULL};
}

static uint64_t leaves_written(const struct gsn_layout *layout)
{
	uint64_t leaves = 0;

	for (size_t i = 0; i < layout->segment_count; i++)
		leaves += gpusnap_leaf_count(layout->segments[i].bytes);
	return leaves;
}

static void fill_report(const struct save *save, gpusnap_save_report *ret_report)
{
	*ret_report = (gpusnap_save_report){
		.io = save->report,
		.root = save->seal.root,
		.state_bytes = save->layout.state_bytes,
		.unclaimed_bytes = save->layout.unclaimed_bytes,
		.read_back_seconds = save->read_back_report.seconds,
		.leaves = save->layout.leaf_count,
		.leaves_written = leaves_written(&save->layout),
		.depth = save->depth,
		.parent_root = save->layout.parent_root,
		.digest_seconds = save->digest_seconds,
	};
	memcpy(ret_report->read_back, save->read_back_report.how, sizeof ret_report->read_back);
	memcpy(ret_report->uuid, save->layout.uuid, sizeof ret_report->uuid);
	ret_report->io.bytes = save->layout.file_bytes;
	ret_report->io.seconds = gsn_clock_seconds() - save->start;
}

static void save_release(struct save *save)
{
	gpusnap_baseline_free(save->baseline);
	gsn_origin_release(&save->origin);
	gpusnap_snapshot_close(save->parent);
	gsn_free(save->parent_name);
}

static gpusnap_status run(struct save *save, gpusnap_save_report *ret_report, gpusnap_error *err)
{
	gpusnap_status status = gsn_job_begin(save->registry, "save", err);

	if (status)
		return status;
	status = gsn_job_quiesce(save->registry, err);
	if (!status)
		status = save_file(save, err);
	if (!status) {
		if (ret_report)
			fill_report(save, ret_report);
		adopt_file(save);
	}
	/* Before the job ends, which frees what the layout borrows. */
	gsn_commit_end(&save->commit);
	gsn_layout_release(&save->layout);
	gsn_job_end(save->registry);
	return status;
}

gpusnap_status gsn_save_on(const struct gsn_fs *fs, gpusnap_registry *registry, const char *path,
	const gpusnap_save_options *options, gpusnap_save_report *ret_report, gpusnap_error *err)
{
	struct save save = {
		.fs = fs,
		.registry = registry,
		.path = path,
		.start = gsn_clock_seconds(),
		.commit = GSN_COMMIT_INIT,
	};
	gpusnap_status status =
		gsn_options_copy(&save.options, sizeof save.options, options, "save options", err);

	if (!status)
		status = gsn_io_options_resolve(&save.options.io, &save.io, err);
	if (!status)
		status = open_parent(&save, err);
	if (!status)
		status = run(&save, ret_report, err);
	save_release(&save);
	return status;
}

gpusnap_status gpusnap_save(gpusnap_registry *registry, const char *path,
	const gpusnap_save_options *options, gpusnap_save_report *ret_report, gpusnap_error *err)
{
	return gsn_save_on(&gsn_fs_posix, registry, path, options, ret_report, err);
}
