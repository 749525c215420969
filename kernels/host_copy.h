/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_COPY_H
#define GSN_HOST_COPY_H
/* Copy, strided copy and fill of the host device: slots of the device table. */
#include "kernels/device_ops.h"

struct gsn_host;

gpusnap_status gsn_host_copy(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err);
gpusnap_status gsn_host_copy_strided(struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy, gpusnap_error *err);
gpusnap_status gsn_host_fill(struct gsn_stream *stream, gpusnap_address address, uint8_t value,
	uint64_t bytes, gpusnap_error *err);
/* By the caller and the pool, without a stream. */
void gsn_host_fill_now(
	struct gsn_host *host, gpusnap_address address, uint64_t bytes, uint8_t value);

#endif
