/* SPDX-License-Identifier: Apache-2.0 */
/* A load, carried out: how its files are read, and by which reader. */
#include "loader/load_run.h"

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "loader/cached_reads.h"
#include "loader/load_stage.h"
#include "loader/parallel.h"
#include "loader/ring_reads.h"
#include "snapshot/direct.h"
#include "snapshot/io_options.h"

/* Of a file that is not in memory, what a thread copies has to be waited for. */
#define RESIDENT_PERCENT 75

static gpusnap_status choose_direct(
	struct gsn_load_stage *stage, struct gsn_direct_choice *choices, gpusnap_error *err)
{
	const struct gsn_checkpoint *checkpoint = stage->job->checkpoint;
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; !st && i < checkpoint->shard_count; i++) {
		const struct gsn_source_file *file = &checkpoint->shards[i].file;

		st = gsn_direct_choose(file->fd, file->path, stage->io.direct, &choices[i], err);
	}
	return st;
}

/* A worker of the ring would hand back each run; that pays for those that the disk delivers. */
static bool suits_cached_reads(
	const struct gsn_load_stage *stage, const struct gsn_direct_choice *choices)
{
	if (stage->io.engine == GPUSNAP_IO_MMAP)
		return true;
	if (stage->io.engine != GPUSNAP_IO_AUTO && stage->io.engine != GPUSNAP_IO_THREADS)
		return false;
	for (uint32_t i = 0; i < stage->job->checkpoint->shard_count; i++)
		if (choices[i].direct)
			return false;
	return true;
}

static uint32_t thread_count(const struct gsn_load_stage *stage, bool cached)
{
	uint64_t threads = gsn_parallel_threads(GSN_LOAD_THREADS_MAX);

	if (cached &&
		gsn_cached_percent(stage->job->checkpoint->shards[0].file.fd) < RESIDENT_PERCENT)
		threads = gsn_max(threads, stage->io.depth);
	return (uint32_t)gsn_min(threads, GSN_LOAD_THREADS_MAX);
}

static gpusnap_status run_stage(
	struct gsn_load_stage *stage, const struct gsn_direct_choice *choices, gpusnap_error *err)
{
	bool cached = suits_cached_reads(stage, choices);
	gpusnap_status st;

	stage->threads = thread_count(stage, cached);
	st = gsn_load_stage_open(stage, cached ? 0 : gsn_ring_reads_memory(stage), err);
	if (!st && cached)
		st = gsn_cached_reads_run(stage, err);
	else if (!st)
		st = gsn_ring_reads_run(stage, choices, err);
	if (!st && cached)
		gsn_io_report_add(&stage->report->io, &choices[0]);
	if (!st)
		st = stage->ops->stream_sync(stage->stream, err);
	gsn_load_stage_close(stage);
	return st;
}

gpusnap_status gsn_load_run(
	const struct gsn_load_job *job, gpusnap_load_report *report, gpusnap_error *err)
{
	struct gsn_load_stage stage = {.job = job, .report = report};
	struct gsn_direct_choice *choices;
	double start = gsn_clock_seconds();
	gpusnap_status st = gsn_io_options_resolve(job->io, &stage.io, err);

	if (st)
		return st;
	choices = gsn_alloc(job->checkpoint->shard_count, sizeof *choices);
	if (!choices)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u shards",
			job->checkpoint->shard_count);
	stage.limits = gsn_load_limits(job->bytes, &stage.io, job->compact);
	st = choose_direct(&stage, choices, err);
	if (!st)
		st = run_stage(&stage, choices, err);
	gsn_free(choices);
	report->io.bytes = report->bytes_read;
	report->io.seconds = gsn_clock_seconds() - start;
	return st;
}
