/* SPDX-License-Identifier: Apache-2.0 */
/* I/O options: names on the command line, defaults, limits, and the progress callback. */
#include "snapshot/io_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"

static const char *const engine_names[] = {
	[GPUSNAP_IO_AUTO] = "auto",
	[GPUSNAP_IO_URING] = "uring",
	[GPUSNAP_IO_AIO] = "aio",
	[GPUSNAP_IO_THREADS] = "threads",
	[GPUSNAP_IO_MMAP] = "mmap",
};
static const char *const direct_names[] = {
	[GPUSNAP_DIRECT_AUTO] = "auto",
	[GPUSNAP_DIRECT_ON] = "on",
	[GPUSNAP_DIRECT_OFF] = "off",
};
enum {
	ENGINE_COUNT = sizeof engine_names / sizeof engine_names[0],
	DIRECT_COUNT = sizeof direct_names / sizeof direct_names[0],
};

gpusnap_status gpusnap_io_engine_parse(
	const char *name, gpusnap_io_engine *ret_engine, gpusnap_error *err)
{
	for (int i = 0; i < ENGINE_COUNT; i++) {
		if (strcmp(name, engine_names[i]) == 0) {
			*ret_engine = (gpusnap_io_engine)i;
			return GPUSNAP_OK;
		}
	}
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"I/O engine '%s': must be auto, uring, aio, threads or mmap", name);
}

const char *gpusnap_io_engine_name(gpusnap_io_engine engine)
{
	return (unsigned)engine < ENGINE_COUNT ? engine_names[engine] : NULL;
}

gpusnap_status gpusnap_io_direct_parse(
	const char *name, gpusnap_io_direct *ret_direct, gpusnap_error *err)
{
	for (int i = 0; i < DIRECT_COUNT; i++) {
		if (strcmp(name, direct_names[i]) == 0) {
			*ret_direct = (gpusnap_io_direct)i;
			return GPUSNAP_OK;
		}
	}
	return gsn_fail(err, GPUSNAP_E_INVALID, "direct I/O '%s': must be auto, on or off", name);
}

const char *gpusnap_io_direct_name(gpusnap_io_direct direct)
{
	return (unsigned)direct < DIRECT_COUNT ? direct_names[direct] : NULL;
}

static gpusnap_status check_limits(const gpusnap_io_options *options, gpusnap_error *err)
{
	if ((unsigned)options->engine >= ENGINE_COUNT)
		return gsn_fail(err, GPUSNAP_E_INVALID, "I/O options: engine %d, must be 0 to %d",
			(int)options->engine, ENGINE_COUNT - 1);
	if ((unsigned)options->direct >= DIRECT_COUNT)
		return gsn_fail(err, GPUSNAP_E_INVALID, "I/O options: direct %d, must be 0 to %d",
			(int)options->direct, DIRECT_COUNT - 1);
	if (options->engine == GPUSNAP_IO_AIO && options->direct == GPUSNAP_DIRECT_OFF)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"I/O options: engine aio serves direct I/O only, and direct is off");
	if (options->engine == GPUSNAP_IO_MMAP && options->direct == GPUSNAP_DIRECT_ON)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"I/O options: engine mmap reads the page cache, and direct is on");
	if (options->depth > GSN_IO_DEPTH_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "I/O options: depth %u, at most %u",
			options->depth, GSN_IO_DEPTH_MAX);
	if (options->block_bytes > GSN_IO_BLOCK_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"I/O options: blocks of %llu bytes, at most %llu",
			(unsigned long long)options->block_bytes,
			(unsigned long long)GSN_IO_BLOCK_MAX);
	return GPUSNAP_OK;
}

gpusnap_status gsn_io_options_resolve(
	const gpusnap_io_options *caller, gpusnap_io_options *ret_options, gpusnap_error *err)
{
	gpusnap_io_options known;
	gpusnap_status status;

	if (caller && !caller->struct_size)
		caller = NULL;
	status = gsn_options_copy(&known, sizeof known, caller, "I/O options", err);
	if (!status)
		status = check_limits(&known, err);
	if (status)
		return status;
	if (known.engine == GPUSNAP_IO_AIO)
		known.direct = GPUSNAP_DIRECT_ON;
	if (known.engine == GPUSNAP_IO_MMAP)
		known.direct = GPUSNAP_DIRECT_OFF;
	if (!known.depth)
		known.depth = GSN_IO_DEPTH_DEFAULT;
	if (!known.block_bytes)
		known.block_bytes = GSN_IO_BLOCK_DEFAULT;
	known.block_bytes = gsn_align_up(known.block_bytes, GSN_IO_BLOCK_UNIT);
	*ret_options = known;
	return GPUSNAP_OK;
}

gpusnap_status gsn_io_progress(const gpusnap_io_options *options, uint64_t bytes_done,
	uint64_t bytes_total, gpusnap_error *err)
{
	if (!options->progress || options->progress(options->user, bytes_done, bytes_total) == 0)
		return GPUSNAP_OK;
	return gsn_fail_os(err, GPUSNAP_E_IO, ECANCELED,
		"cancelled by the caller after %llu of %llu bytes", (unsigned long long)bytes_done,
		(unsigned long long)bytes_total);
}

void gsn_io_report_add(gpusnap_io_report *report, const struct gsn_direct_choice *choice)
{
	size_t used = strlen(report->reason);

	(void)snprintf(report->reason + used, sizeof report->reason - used, "; %s", choice->why);
	memcpy(report->file_system, choice->file_system, sizeof report->file_system);
	report->alignment = choice->alignment;
	report->alignment_source = choice->alignment_source;
}
