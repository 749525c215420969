/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaf digests on a GPU. All ranges of a call are one launch over a table, and the kernel writes
 * the digests to the host: into the caller's memory where that is page-locked. Else they go to
 * memory that is, and a host function of the stream hands them out, so that the caller's memory may
 * be any and the call never waits.
 */
#include "kernels/gpu_digest.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/copy_args.h"
#include "kernels/gpu_device.h"
#include "kernels/gpu_kernels.h"
#include "kernels/gpu_memory.h"

/* Of the kernel's stores. */
enum { DIGEST_ALIGNMENT = 16 };

struct output {
	gpusnap_digest *to;
	uint64_t leaves;
};

/* What a call's host function needs, which may not call the vendor. */
struct delivery {
	const gpusnap_digest *digests;
	size_t count;
	struct output outputs[];
};

/* A block holds the table in both of its parts, and behind the host's the digests. */
struct digest_call {
	struct gsn_gpu_block *block;
	uint32_t ranges;
	uint64_t leaves;
	uint64_t table_bytes;
	bool direct; /* to the caller's memory */
};

static void deliver(void *argument)
{
	const struct delivery *delivery = argument;
	const gpusnap_digest *next = delivery->digests;

	for (size_t i = 0; i < delivery->count; i++) {
		memcpy(delivery->outputs[i].to, next, delivery->outputs[i].leaves * sizeof *next);
		next += delivery->outputs[i].leaves;
	}
}

static gpusnap_status count_leaves(const struct gsn_leaf_range *ranges, size_t range_count,
	struct digest_call *call, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; !status && i < range_count; i++) {
		status = gsn_leaf_range_check(GSN_GPU_KIND, &ranges[i], i, err);
		call->leaves += gpusnap_leaf_count(ranges[i].bytes);
		call->ranges += ranges[i].bytes != 0;
	}
	if (!status && range_count > UINT32_MAX)
		status = gsn_fail(err, GPUSNAP_E_LIMIT,
			"%s device: digest: %zu ranges in a call, %u are possible", GSN_GPU_KIND,
			range_count, UINT32_MAX);
	call->table_bytes = gsn_align_up(call->ranges * sizeof(struct gsn_gpu_leaf_range), 16);
	return status;
}

static bool may_be_written(struct gsn_gpu *gpu, const gpusnap_digest *out, uint64_t leaves)
{
	uint64_t bytes = leaves * sizeof *out;
	bool registered;

	if ((uintptr_t)out % DIGEST_ALIGNMENT)
		return false;
	return gsn_gpu_registered_part(gpu, (uintptr_t)out, bytes, &registered) == bytes &&
	       registered;
}

/* Whether the kernel may write where the caller wants the digests. */
static bool is_direct(struct gsn_gpu *gpu, const struct gsn_leaf_range *ranges, size_t range_count)
{
	bool direct = gpu->reaches_registered;

	for (size_t i = 0; direct && i < range_count; i++)
		if (ranges[i].bytes)
			direct = may_be_written(
				gpu, ranges[i].out, gpusnap_leaf_count(ranges[i].bytes));
	return direct;
}

static void fill_in(const struct gsn_leaf_range *ranges, size_t range_count,
	const struct digest_call *call, struct delivery *delivery)
{
	struct gsn_gpu_leaf_range *entry = call->block->host;
	char *digests = (char *)call->block->host + call->table_bytes;
	uint64_t leaf = 0;

	delivery->digests = (const gpusnap_digest *)(const void *)digests;
	for (size_t i = 0; i < range_count; i++) {
		uint64_t leaves = gpusnap_leaf_count(ranges[i].bytes);

		if (!leaves)
			continue;
		*entry++ = (struct gsn_gpu_leaf_range){ranges[i].address, ranges[i].bytes, leaf,
			call->direct ? (uintptr_t)ranges[i].out
				     : (uintptr_t)digests + leaf * sizeof(gpusnap_digest)};
		delivery->outputs[delivery->count++] = (struct output){ranges[i].out, leaves};
		leaf += leaves;
	}
}

static gpuError_t submit(
	const struct digest_call *call, struct gsn_stream *stream, struct delivery *delivery)
{
	gpuError_t code = gpuMemcpyAsync(call->block->device, call->block->host, call->table_bytes,
		(gpuMemcpyKind)gpuMemcpyHostToDevice, stream->handle);

	if (!code)
		code = (gpuError_t)gsn_gpu_launch_digest(
			call->block->device, call->ranges, call->leaves, stream->handle);
	if (!code && !call->direct)
		code = gpuLaunchHostFunc(stream->handle, deliver, delivery);
	return code;
}

static gpusnap_status run(struct gsn_stream *stream, const struct gsn_leaf_range *ranges,
	size_t range_count, struct digest_call *call, gpusnap_error *err)
{
	struct delivery *delivery =
		gsn_alloc(1, sizeof *delivery + call->ranges * sizeof delivery->outputs[0]);
	gpusnap_status status;
	gpuError_t code;

	if (!delivery)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "%s device: digest: no memory for %u ranges",
			GSN_GPU_KIND, call->ranges);
	call->direct = is_direct(stream->gpu, ranges, range_count);
	status = gsn_gpu_block_take(stream->gpu,
		call->table_bytes + (call->direct ? 0 : call->leaves * sizeof(gpusnap_digest)),
		&call->block, err);
	if (status) {
		gsn_free(delivery);
		return status;
	}
	call->block->owned = delivery;
	fill_in(ranges, range_count, call, delivery);
	code = submit(call, stream, delivery);
	if (code) {
		status = gsn_gpu_fail(stream->gpu, code, err, "digest of %u ranges", call->ranges);
		(void)gsn_gpu_block_give_back(stream->gpu, call->block, stream->handle, NULL);
		return status;
	}
	return gsn_gpu_block_give_back(stream->gpu, call->block, stream->handle, err);
}

gpusnap_status gsn_gpu_digest(struct gsn_stream *stream, const struct gsn_leaf_range *ranges,
	size_t range_count, gpusnap_error *err)
{
	struct digest_call call = {.leaves = 0};
	gpusnap_status status = count_leaves(ranges, range_count, &call, err);
	int caller;

	if (status || call.leaves == 0)
		return status;
	caller = gsn_gpu_enter(stream->gpu);
	status = run(stream, ranges, range_count, &call, err);
	gsn_gpu_leave(caller);
	return status;
}
