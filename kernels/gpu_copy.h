/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_COPY_H
#define GSN_GPU_COPY_H
/* Copies and fills of a GPU: slots of the device table. */
#include "kernels/device_ops.h"

gpusnap_status gsn_gpu_copy(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err);
gpusnap_status gsn_gpu_copy_strided(struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy, gpusnap_error *err);
gpusnap_status gsn_gpu_fill(struct gsn_stream *stream, gpusnap_address address, uint8_t value,
	uint64_t bytes, gpusnap_error *err);

#endif
