/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_STAGING_H
#define GSN_GPU_STAGING_H
/*
 * Copies by way of page-locked memory of our own: rows are gathered there, or handed out from
 * there, by host functions of the stream, so a call need not wait for the stream. For runtimes
 * that must not be handed the process's other memory, or are slow with its strides.
 */
#include "kernels/device_ops.h"

/* One run of bytes between host and device. */
gpusnap_status gsn_gpu_stage(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err);
/* Rows that are apart on either side. */
gpusnap_status gsn_gpu_stage_rows(struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy, gpusnap_error *err);

#endif
