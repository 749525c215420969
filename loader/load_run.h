/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LOAD_RUN_H
#define GSN_LOAD_RUN_H
/*
 * Carrying out a copy plan: reads through the I/O ring, gathering by a pool of threads, one copy
 * a window out of pinned staging slots. Reads, gathering and copies overlap; memory is bounded by
 * slots and read buffers, whatever the model's size.
 */
#include <gpusnap/loader.h>

#include "kernels/device_ops.h"
#include "loader/checkpoint.h"
#include "loader/tensor_view.h"

struct gsn_load_job {
	struct gsn_checkpoint *checkpoint; /* its files are made direct, or mapped */
	const struct gsn_view *views;	   /* by target */
	size_t view_count;
	uint64_t bytes;		 /* of all targets */
	gpusnap_address address; /* of target 0 */
	const gpusnap_device *device;
	gpusnap_compact compact;
	const gpusnap_io_options *io;
};

/* Adds copies, runs, bytes_read and io to *report. On failure the targets hold anything. */
gpusnap_status gsn_load_run(
	const struct gsn_load_job *job, gpusnap_load_report *report, gpusnap_error *err);

#endif
