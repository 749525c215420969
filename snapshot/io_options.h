/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_IO_OPTIONS_H
#define GSN_IO_OPTIONS_H
/* Defaults and limits of gpusnap_io_options, applied once at the start of every job. */
#include <gpusnap/io.h>

#include "snapshot/direct.h"

#define GSN_IO_DEPTH_DEFAULT 8u
#define GSN_IO_DEPTH_MAX     1024u
#define GSN_IO_BLOCK_DEFAULT (UINT64_C(4) << 20)
#define GSN_IO_BLOCK_UNIT    (UINT64_C(64) << 10)
#define GSN_IO_BLOCK_MAX     (UINT64_C(64) << 20)

/* Every field of *ret_options is set and within its limits. struct_size 0 or NULL: defaults. */
gpusnap_status gsn_io_options_resolve(
	const gpusnap_io_options *caller, gpusnap_io_options *ret_options, gpusnap_error *err);

/* Tell the caller how far the job is; E_IO with ECANCELED when it wants to stop. */
gpusnap_status gsn_io_progress(const gpusnap_io_options *options, uint64_t bytes_done,
	uint64_t bytes_total, gpusnap_error *err);

/* The file's side of the report: why it is direct or cached stands behind the engine's reason. */
void gsn_io_report_add(gpusnap_io_report *report, const struct gsn_direct_choice *choice);

#endif
