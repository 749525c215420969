/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_DIGEST_H
#define GSN_GPU_DIGEST_H
/* Leaf digests on a GPU: the slot of the device table. */
#include "kernels/device_ops.h"

gpusnap_status gsn_gpu_digest(struct gsn_stream *stream, const struct gsn_leaf_range *ranges,
	size_t range_count, gpusnap_error *err);

#endif
