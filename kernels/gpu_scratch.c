/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gpu_scratch.h"

#include <inttypes.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "kernels/gpu_device.h"

#define LEAST_BYTES ((uint64_t)64 << 10)

void gsn_gpu_scratch_init(struct gsn_gpu_scratch *scratch)
{
	(void)pthread_mutex_init(&scratch->lock, NULL); /* cannot fail on Linux */
}

static void destroy(struct gsn_gpu_block *block)
{
	if (block->done)
		(void)gpuEventDestroy(block->done);
	if (block->device)
		(void)gpuFree(block->device);
	if (block->host)
		(void)gpuHostFree(block->host);
	gsn_free(block->owned);
	gsn_free(block);
}

void gsn_gpu_scratch_release(struct gsn_gpu_scratch *scratch)
{
	while (scratch->blocks) {
		struct gsn_gpu_block *block = scratch->blocks;

		scratch->blocks = block->next;
		destroy(block);
	}
	(void)pthread_mutex_destroy(&scratch->lock);
}

/* A block that is large enough and whose last work is done. */
static struct gsn_gpu_block *find_free(struct gsn_gpu_scratch *scratch, uint64_t bytes)
{
	struct gsn_gpu_block *block;

	for (block = scratch->blocks; block; block = block->next)
		if (!block->lent && block->bytes >= bytes && !gpuEventQuery(block->done))
			break;
	(void)gpuClearError(); /* "not ready" is no failure, nor is an older one the launch's */
	return block;
}

/* Sizes are powers of two, so that calls that grow a little find what is there. */
static gpusnap_status create(
	struct gsn_gpu *gpu, uint64_t wanted, struct gsn_gpu_block **ret_block, gpusnap_error *err)
{
	struct gsn_gpu_block *block = gsn_alloc(1, sizeof *block);
	uint64_t bytes = LEAST_BYTES;
	gpuError_t code;

	if (!block)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "%s:%d: scratch memory: no memory",
			GSN_GPU_KIND, gpu->index);
	while (bytes < wanted && bytes < UINT64_C(1) << 62)
		bytes *= 2;
	block->bytes = bytes;
	code = gpuHostAlloc(&block->host, bytes, gpuHostDefault);
	if (!code)
		code = gpuMalloc(&block->device, bytes);
	if (!code)
		code = gpuEventCreate(&block->done, gpuEventDisableTiming);
	if (code) {
		destroy(block);
		return gsn_gpu_fail(gpu, code, err, "scratch memory of %" PRIu64 " bytes", bytes);
	}
	*ret_block = block;
	return GPUSNAP_OK;
}

gpusnap_status gsn_gpu_block_take(
	struct gsn_gpu *gpu, uint64_t bytes, struct gsn_gpu_block **ret_block, gpusnap_error *err)
{
	struct gsn_gpu_scratch *scratch = &gpu->scratch;
	struct gsn_gpu_block *block;
	gpusnap_status status = GPUSNAP_OK;

	(void)pthread_mutex_lock(&scratch->lock);
	block = find_free(scratch, bytes);
	if (!block) {
		status = create(gpu, bytes, &block, err);
		if (!status) {
			block->next = scratch->blocks;
			scratch->blocks = block;
		}
	}
	if (!status) {
		gsn_free(block->owned);
		block->owned = NULL;
		block->lent = true;
		*ret_block = block;
	}
	(void)pthread_mutex_unlock(&scratch->lock);
	return status;
}

gpusnap_status gsn_gpu_block_give_back(
	struct gsn_gpu *gpu, struct gsn_gpu_block *block, gpuStream_t stream, gpusnap_error *err)
{
	gpuError_t code = gpuEventRecord(block->done, stream);

	/* Without a record nobody knows when it is free: it stays lent until the device closes. */
	if (code)
		return gsn_gpu_fail(gpu, code, err, "recording an event");
	(void)pthread_mutex_lock(&gpu->scratch.lock);
	block->lent = false;
	(void)pthread_mutex_unlock(&gpu->scratch.lock);
	return GPUSNAP_OK;
}
