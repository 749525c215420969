/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gpu_staging.h"

#include <inttypes.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "kernels/gpu_device.h"

/* What one block takes, and how many of them a call has on their way. */
#define PIECE_BYTES ((uint64_t)4 << 20)
enum { PIECES_AHEAD = 4 };

struct gather {
	char *host, *block;
	uint64_t row_bytes, rows, stride; /* of the host's rows; the block's follow one another */
	bool to_host;
};

struct staging {
	struct gsn_stream *stream;
	enum gsn_copy_direction direction;
	struct gsn_gpu_block *ahead[PIECES_AHEAD];
	uint32_t pieces;
};

static void run_gather(void *argument)
{
	const struct gather *gather = argument;
	char *host = gather->host;
	char *block = gather->block;

	for (uint64_t row = 0; row < gather->rows; row++) {
		if (gather->to_host)
			memcpy(host, block, gather->row_bytes);
		else
			memcpy(block, host, gather->row_bytes);
		host += gather->stride;
		block += gather->row_bytes;
	}
}

/* The device's side of a piece: one copy where its rows touch, one for each row elsewhere. */
static gpuError_t copy_device_side(const struct staging *s, const struct gsn_strided_copy *piece)
{
	bool up = s->direction == GSN_HOST_TO_DEVICE;
	uint64_t stride = up ? piece->dst_stride : piece->src_stride;
	bool apart = piece->rows > 1 && stride != piece->row_bytes;
	uint64_t bytes = apart ? piece->row_bytes : piece->rows * piece->row_bytes;
	char *device = (char *)(uintptr_t)(up ? piece->dst : piece->src);
	char *block = s->ahead[s->pieces % PIECES_AHEAD]->host;
	gpuError_t code = (gpuError_t)gpuSuccess;

	for (uint64_t row = 0; !code && row < (apart ? piece->rows : 1); row++) {
		char *there = device + row * stride;
		char *here = block + row * piece->row_bytes;

		code = up ? gpuMemcpyAsync(there, here, bytes, (gpuMemcpyKind)gpuMemcpyHostToDevice,
				    s->stream->handle)
			  : gpuMemcpyAsync(here, there, bytes, (gpuMemcpyKind)gpuMemcpyDeviceToHost,
				    s->stream->handle);
	}
	return code;
}

static gpuError_t submit_piece(
	const struct staging *s, const struct gsn_strided_copy *piece, struct gather *gather)
{
	gpuError_t code = (gpuError_t)gpuSuccess;

	if (!gather->to_host)
		code = gpuLaunchHostFunc(s->stream->handle, run_gather, gather);
	if (!code)
		code = copy_device_side(s, piece);
	if (!code && gather->to_host)
		code = gpuLaunchHostFunc(s->stream->handle, run_gather, gather);
	return code;
}

/* A block, once the one that was taken PIECES_AHEAD pieces ago is free again. */
static gpusnap_status take_block(struct staging *s, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_gpu_block **block = &s->ahead[s->pieces % PIECES_AHEAD];
	gpuError_t code = *block ? gpuEventSynchronize((*block)->done) : (gpuError_t)gpuSuccess;

	if (code)
		return gsn_gpu_fail(s->stream->gpu, code, err, "waiting for a staged copy");
	return gsn_gpu_block_take(s->stream->gpu, bytes, block, err);
}

static gpusnap_status stage_piece(
	struct staging *s, const struct gsn_strided_copy *piece, gpusnap_error *err)
{
	struct gsn_gpu *gpu = s->stream->gpu;
	bool to_host = s->direction == GSN_DEVICE_TO_HOST;
	gpusnap_status status = take_block(s, piece->rows * piece->row_bytes, err);
	struct gsn_gpu_block *block = s->ahead[s->pieces % PIECES_AHEAD];
	struct gather *gather;
	gpuError_t code = (gpuError_t)gpuErrorMemoryAllocation;

	if (status)
		return status;
	gather = gsn_alloc(1, sizeof *gather);
	block->owned = gather;
	if (gather) {
		*gather = (struct gather){(char *)(uintptr_t)(to_host ? piece->dst : piece->src),
			block->host, piece->row_bytes, piece->rows,
			to_host ? piece->dst_stride : piece->src_stride, to_host};
		code = submit_piece(s, piece, gather);
	}
	if (code) {
		status = gsn_gpu_fail(gpu, code, err, "staged copy of %" PRIu64 " bytes",
			piece->rows * piece->row_bytes);
		(void)gsn_gpu_block_give_back(gpu, block, s->stream->handle, NULL);
		return status;
	}
	s->pieces++;
	return gsn_gpu_block_give_back(gpu, block, s->stream->handle, err);
}

static gpusnap_status stage_run(
	struct staging *s, uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint64_t at = 0; !status && at < bytes; at += PIECE_BYTES) {
		const struct gsn_strided_copy piece = {.dst = dst + at,
			.src = src + at,
			.row_bytes = gsn_min(PIECE_BYTES, bytes - at),
			.rows = 1};

		status = stage_piece(s, &piece, err);
	}
	return status;
}

static gpusnap_status stage_rows(
	struct staging *s, const struct gsn_strided_copy *copy, gpusnap_error *err)
{
	uint64_t at_once = copy->row_bytes > PIECE_BYTES ? 1 : PIECE_BYTES / copy->row_bytes;
	gpusnap_status status = GPUSNAP_OK;

	for (uint64_t row = 0; !status && row < copy->rows; row += at_once) {
		struct gsn_strided_copy piece = *copy;

		piece.dst += row * copy->dst_stride;
		piece.src += row * copy->src_stride;
		piece.rows = gsn_min(at_once, copy->rows - row);
		status = copy->row_bytes > PIECE_BYTES
				 ? stage_run(s, piece.dst, piece.src, copy->row_bytes, err)
				 : stage_piece(s, &piece, err);
	}
	return status;
}

gpusnap_status gsn_gpu_stage(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	struct staging staging = {.stream = stream, .direction = direction};
	int caller = gsn_gpu_enter(stream->gpu);
	gpusnap_status status = stage_run(&staging, dst, src, bytes, err);

	gsn_gpu_leave(caller);
	return status;
}

gpusnap_status gsn_gpu_stage_rows(struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy, gpusnap_error *err)
{
	struct staging staging = {.stream = stream, .direction = direction};
	int caller = gsn_gpu_enter(stream->gpu);
	gpusnap_status status = stage_rows(&staging, copy, err);

	gsn_gpu_leave(caller);
	return status;
}
