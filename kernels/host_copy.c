/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills on the host. Arguments are checked when the work is given; whether device
 * addresses are mapped is checked when it runs, as on a device that finds out only then.
 */
#include "kernels/host_copy.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "kernels/copy_args.h"
#include "kernels/host_rows.h"
#include "kernels/host_stream.h"

/* What one thread copies or fills at a time. */
#define PIECE_BYTES ((uint64_t)1 << 20)
/* Copies from here on would push everything else out of the caches. */
#define STREAMED_BYTES ((uint64_t)8 << 20)

struct copy_job {
	const struct gsn_strided_copy *copy;
	enum gsn_host_store store;
	uint64_t pieces;	/* per row */
	uint64_t rows_per_task; /* 1 when there is more than one piece */
};

struct fill {
	uint64_t address;
	uint64_t bytes;
	uint8_t value;
};

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static gpusnap_status check_mapped(struct gsn_host *host, uint64_t dst, uint64_t dst_bytes,
	uint64_t src, uint64_t src_bytes, gpusnap_error *err)
{
	gpusnap_status status = gsn_host_memory_check(&host->memory, dst, dst_bytes, "write", err);

	if (!status)
		status = gsn_host_memory_check(&host->memory, src, src_bytes, "read", err);
	return status;
}

/* Task: some rows, or a piece of one row when rows are long. */
static void copy_piece(void *argument, uint64_t task)
{
	const struct copy_job *job = argument;
	uint64_t first = task / job->pieces * job->rows_per_task;
	uint64_t offset = task % job->pieces * PIECE_BYTES;
	struct gsn_strided_copy part = *job->copy;

	part.dst += first * part.dst_stride + offset;
	part.src += first * part.src_stride + offset;
	part.rows = gsn_min(job->rows_per_task, part.rows - first);
	part.row_bytes = gsn_min(PIECE_BYTES, part.row_bytes - offset);
	gsn_host_rows_copy(&part, job->store);
}

static void copy_rows(struct gsn_host *host, const struct gsn_strided_copy *copy)
{
	uint64_t bytes = copy->rows * copy->row_bytes;
	struct copy_job job = {
		.copy = copy,
		.store = bytes < STREAMED_BYTES ? GSN_HOST_STORE_CACHED : GSN_HOST_STORE_STREAMED,
		.pieces = gsn_ceil_div(copy->row_bytes, PIECE_BYTES),
		.rows_per_task = gsn_max(1, PIECE_BYTES / copy->row_bytes),
	};

	gsn_host_run(host, bytes, copy_piece, &job,
		gsn_ceil_div(copy->rows, job.rows_per_task) * job.pieces);
}

static gpusnap_status run_copy(struct gsn_host *host, const void *args, gpusnap_error *err)
{
	const struct gsn_strided_copy *copy = args;
	uint64_t before_last = copy->rows - 1;
	gpusnap_status status =
		check_mapped(host, copy->dst, before_last * copy->dst_stride + copy->row_bytes,
			copy->src, before_last * copy->src_stride + copy->row_bytes, err);

	if (!status)
		copy_rows(host, copy);
	return status;
}

gpusnap_status gsn_host_copy(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_strided_copy copy = {
		.dst = dst, .src = src, .row_bytes = bytes, .rows = 1};
	gpusnap_status status;

	(void)direction; /* every address is a host pointer */
	if (bytes == 0)
		return GPUSNAP_OK;
	status = gsn_copy_check(gsn_host_ops.kind, dst, src, bytes, err);
	if (!status)
		gsn_host_stream_submit(stream, run_copy, &copy, sizeof copy, NULL);
	return status;
}

gpusnap_status gsn_host_copy_strided(struct gsn_stream *stream, enum gsn_copy_direction direction,
	const struct gsn_strided_copy *copy, gpusnap_error *err)
{
	gpusnap_status status;

	if (copy->rows <= 1)
		return gsn_host_copy(
			stream, direction, copy->dst, copy->src, copy->rows * copy->row_bytes, err);
	if (copy->row_bytes == 0)
		return GPUSNAP_OK;
	status = gsn_strided_copy_check(gsn_host_ops.kind, copy, err);
	if (!status)
		gsn_host_stream_submit(stream, run_copy, copy, sizeof *copy, NULL);
	return status;
}

static void fill_piece(void *argument, uint64_t task)
{
	const struct fill *fill = argument;
	uint64_t offset = task * PIECE_BYTES;

	memset(pointer(fill->address + offset), fill->value,
		(size_t)gsn_min(PIECE_BYTES, fill->bytes - offset));
}

void gsn_host_fill_now(
	struct gsn_host *host, gpusnap_address address, uint64_t bytes, uint8_t value)
{
	struct fill fill = {address, bytes, value};

	gsn_host_run(host, bytes, fill_piece, &fill, gsn_ceil_div(bytes, PIECE_BYTES));
}

static gpusnap_status run_fill(struct gsn_host *host, const void *args, gpusnap_error *err)
{
	const struct fill fill = *(const struct fill *)args;
	gpusnap_status status =
		gsn_host_memory_check(&host->memory, fill.address, fill.bytes, "fill", err);

	if (!status)
		gsn_host_fill_now(host, fill.address, fill.bytes, fill.value);
	return status;
}

gpusnap_status gsn_host_fill(struct gsn_stream *stream, gpusnap_address address, uint8_t value,
	uint64_t bytes, gpusnap_error *err)
{
	const struct fill fill = {address, bytes, value};
	gpusnap_status status;

	if (bytes == 0)
		return GPUSNAP_OK;
	status = gsn_span_check(gsn_host_ops.kind, "fill", address, bytes, err);
	if (!status)
		gsn_host_stream_submit(stream, run_fill, &fill, sizeof fill, NULL);
	return status;
}
