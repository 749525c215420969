/* SPDX-License-Identifier: Apache-2.0 */
/* Synchronous forms of the table's operations, over a stream that lives for the one call. */
#include "kernels/device_calls.h"

/* Wait, destroy, and answer the first failure: `status` of the submission, else the work's. */
static gpusnap_status finish(const gpusnap_device *device, struct gsn_stream *stream,
	gpusnap_status status, gpusnap_error *err)
{
	if (!status)
		status = device->ops->stream_sync(stream, err);
	device->ops->stream_destroy(stream);
	return status;
}

gpusnap_status gsn_device_copy_sync(const gpusnap_device *device, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_stream *stream;
	gpusnap_status status = device->ops->stream_create(device->context, &stream, err);

	if (status)
		return status;
	status = device->ops->copy(stream, direction, dst, src, bytes, err);
	return finish(device, stream, status, err);
}

gpusnap_status gsn_device_fill_sync(const gpusnap_device *device, gpusnap_address address,
	uint8_t value, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_stream *stream;
	gpusnap_status status = device->ops->stream_create(device->context, &stream, err);

	if (status)
		return status;
	status = device->ops->fill(stream, address, value, bytes, err);
	return finish(device, stream, status, err);
}

gpusnap_status gsn_device_digest_sync(const gpusnap_device *device,
	const struct gsn_leaf_range *ranges, size_t range_count, gpusnap_error *err)
{
	struct gsn_stream *stream;
	gpusnap_status status = device->ops->stream_create(device->context, &stream, err);

	if (status)
		return status;
	status = device->ops->digest(stream, ranges, range_count, err);
	return finish(device, stream, status, err);
}
