/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gpu_copy.h"

#include <inttypes.h>

#include "formats/base/bytes.h"
#include "kernels/copy_args.h"
#include "kernels/gpu_device.h"
#include "kernels/gpu_memory.h"
#include "kernels/gpu_staging.h"

/* The largest pitch that every device takes (cudaDevAttrMaxPitch is 2^31 - 1). */
#define MOST_PITCH UINT64_C(0x7fffffff)

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static gpuMemcpyKind kind_of(enum gsn_copy_direction direction)
{
	switch (direction) {
	case GSN_HOST_TO_DEVICE:
		return (gpuMemcpyKind)gpuMemcpyHostToDevice;
	case GSN_DEVICE_TO_HOST:
		return (gpuMemcpyKind)gpuMemcpyDeviceToHost;
	default:
		return (gpuMemcpyKind)gpuMemcpyDeviceToDevice;
	}
}

static gpusnap_status submit_copy(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	gpuError_t code = gpuMemcpyAsync(
		pointer(dst), pointer(src), bytes, kind_of(direction), stream->handle);

	return code ? gsn_gpu_fail(stream->gpu, code, err,
			      "copy of %" PRIu64 " bytes, 0x%" PRIx64 " to 0x%" PRIx64, bytes, src,
			      dst)
		    : GPUSNAP_OK;
}

/* A runtime that must not be handed all host memory gets what is registered. */
static gpusnap_status copy_parts(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	uint64_t host = direction == GSN_HOST_TO_DEVICE ? src : dst;
	gpusnap_status status = GPUSNAP_OK;
	uint64_t at = 0;

	while (!status && at < bytes) {
		bool registered;
		uint64_t part =
			gsn_gpu_registered_part(stream->gpu, host + at, bytes - at, &registered);

		status = registered
				 ? submit_copy(stream, direction, dst + at, src + at, part, err)
				 : gsn_gpu_stage(stream, direction, dst + at, src + at, part, err);
		at += part;
	}
	return status;
}

gpusnap_status gsn_gpu_copy(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status status;

	if (bytes == 0)
		return GPUSNAP_OK;
	status = gsn_copy_check(GSN_GPU_KIND, dst, src, bytes, err);
	if (status)
		return status;
	if (gpuStagesHostMemory && direction != GSN_DEVICE_TO_DEVICE)
		return copy_parts(stream, direction, dst, src, bytes, err);
	return submit_copy(stream, direction, dst, src, bytes, err);
}

/* Rows that are not for one strided copy, one by one. */
static gpusnap_status copy_rows(struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint64_t row = 0; !status && row < copy->rows; row++)
		status = gsn_gpu_copy(stream, direction, copy->dst + row * copy->dst_stride,
			copy->src + row * copy->src_stride, copy->row_bytes, err);
	return status;
}

/* Whether the host's rows are in one registration. */
static bool is_registered(const struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy)
{
	bool up = direction == GSN_HOST_TO_DEVICE;
	uint64_t stride = up ? copy->src_stride : copy->dst_stride;
	uint64_t bytes = (copy->rows - 1) * stride + copy->row_bytes;
	bool registered;
	uint64_t part = gsn_gpu_registered_part(
		stream->gpu, up ? copy->src : copy->dst, bytes, &registered);

	return registered && part == bytes;
}

/* Whether the runtime may be given the rows as they are. */
static bool may_be_strided(const struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy)
{
	if (copy->dst_stride % gpuPitchAlignment || copy->src_stride % gpuPitchAlignment)
		return false;
	return !gpuStagesHostMemory || direction == GSN_DEVICE_TO_DEVICE ||
	       is_registered(stream, direction, copy);
}

gpusnap_status gsn_gpu_copy_strided(struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy, gpusnap_error *err)
{
	gpusnap_status status;
	gpuError_t code;

	if (copy->rows <= 1)
		return gsn_gpu_copy(
			stream, direction, copy->dst, copy->src, copy->rows * copy->row_bytes, err);
	if (copy->row_bytes == 0)
		return GPUSNAP_OK;
	status = gsn_strided_copy_check(GSN_GPU_KIND, copy, err);
	if (status)
		return status;
	if (gsn_max(copy->dst_stride, copy->src_stride) > MOST_PITCH)
		return copy_rows(stream, direction, copy, err);
	if (!may_be_strided(stream, direction, copy))
		return direction == GSN_DEVICE_TO_DEVICE
			       ? copy_rows(stream, direction, copy, err)
			       : gsn_gpu_stage_rows(stream, direction, copy, err);
	code = gpuMemcpy2DAsync(pointer(copy->dst), copy->dst_stride, pointer(copy->src),
		copy->src_stride, copy->row_bytes, copy->rows, kind_of(direction), stream->handle);
	return code ? gsn_gpu_fail(stream->gpu, code, err,
			      "copy of %" PRIu64 " rows of %" PRIu64 " bytes, 0x%" PRIx64
			      " to 0x%" PRIx64,
			      copy->rows, copy->row_bytes, copy->src, copy->dst)
		    : GPUSNAP_OK;
}

gpusnap_status gsn_gpu_fill(struct gsn_stream *stream, gpusnap_address address, uint8_t value,
	uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status status;
	gpuError_t code;

	if (bytes == 0)
		return GPUSNAP_OK;
	status = gsn_span_check(GSN_GPU_KIND, "fill", address, bytes, err);
	if (status)
		return status;
	code = gpuMemsetAsync(pointer(address), value, bytes, stream->handle);
	return code ? gsn_gpu_fail(stream->gpu, code, err,
			      "fill of %" PRIu64 " bytes at 0x%" PRIx64, bytes, address)
		    : GPUSNAP_OK;
}
