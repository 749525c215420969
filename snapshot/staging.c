/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the staging ring and the list of its free slots. */
#include "snapshot/staging.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/device_ops.h"
#include "snapshot/direct.h"

/* Without a device: page-aligned memory, in huge pages where the system has them. */
static gpusnap_status map_memory(uint64_t bytes, void **ret_memory, gpusnap_error *err)
{
	void *memory = mmap(
		NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return gsn_fail_os(err, GPUSNAP_E_NOMEM, errno,
			"no memory for a staging ring of %llu bytes: %s", (unsigned long long)bytes,
			strerror(errno));
	(void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
	*ret_memory = memory;
	return GPUSNAP_OK;
}

void gsn_staging_source_release(struct gsn_staging_source *source)
{
	if (source->kept)
		source->device->ops->pinned_free(
			source->device->context, source->kept, source->kept_bytes);
	source->kept = NULL;
}

/* What is kept, where it is enough, or else new memory in its place. */
gpusnap_status gsn_staging_source_take(struct gsn_staging_source *source, uint64_t bytes,
	void **ret_memory, uint64_t *ret_bytes, gpusnap_error *err)
{
	gpusnap_status status;

	if (source->kept && source->kept_bytes >= bytes) {
		*ret_memory = source->kept;
		*ret_bytes = source->kept_bytes;
		source->kept = NULL;
		return GPUSNAP_OK;
	}
	gsn_staging_source_release(source);
	status = source->device->ops->pinned_alloc(source->device->context, bytes, ret_memory, err);
	if (!status)
		*ret_bytes = bytes;
	return status;
}

void gsn_staging_source_give(struct gsn_staging_source *source, void *memory, uint64_t bytes)
{
	if (!memory)
		return;
	gsn_staging_source_release(source);
	source->kept = memory;
	source->kept_bytes = bytes;
	if (bytes > GSN_STAGING_KEPT_MAX)
		gsn_staging_source_release(source);
}

static gpusnap_status take_memory(struct gsn_staging *staging, gpusnap_error *err)
{
	uint64_t bytes = gsn_staging_bytes(staging), taken = bytes;
	void *memory;
	gpusnap_status status = staging->source ? gsn_staging_source_take(staging->source, bytes,
							  &memory, &taken, err)
						: map_memory(bytes, &memory, err);

	if (status)
		return status;
	staging->memory = memory;
	staging->memory_bytes = taken;
	return GPUSNAP_OK;
}

/* How many slots serve: never more than there are blocks, nor than the limit holds. */
static uint32_t count_slots(gpusnap_io_options *io, uint32_t extra, uint64_t total_bytes)
{
	/* A range that begins inside a block touches one block more than its length fills. */
	uint64_t blocks = gsn_ceil_div(total_bytes, io->block_bytes) + 1;
	uint64_t most = gsn_min(blocks, GSN_STAGING_BYTES_MAX / io->block_bytes);
	uint64_t slots = gsn_max(2, gsn_min(most, (uint64_t)io->depth + extra));

	io->depth = (uint32_t)gsn_min(io->depth, slots > extra ? slots - extra : 1);
	return (uint32_t)slots;
}

gpusnap_status gsn_staging_open(struct gsn_staging *staging, struct gsn_staging_source *source,
	gpusnap_io_options *io, uint32_t extra, uint64_t total_bytes, gpusnap_error *err)
{
	gpusnap_status status;

	/* A small state needs no large block. */
	io->block_bytes = gsn_max(GSN_DIRECT_ALIGN,
		gsn_min(io->block_bytes, gsn_align_up(total_bytes, GSN_DIRECT_ALIGN)));
	staging->source = source;
	staging->slot_bytes = io->block_bytes;
	staging->slot_count = count_slots(io, extra, total_bytes);
	staging->free_slots = gsn_alloc(staging->slot_count, sizeof *staging->free_slots);
	if (!staging->free_slots)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a staging ring");
	status = take_memory(staging, err);
	if (status)
		return status;
	for (uint32_t i = 0; i < staging->slot_count; i++)
		staging->free_slots[i] = staging->slot_count - 1 - i;
	staging->free_count = staging->slot_count;
	return GPUSNAP_OK;
}

void gsn_staging_close(struct gsn_staging *staging)
{
	if (staging->memory && staging->source)
		gsn_staging_source_give(staging->source, staging->memory, staging->memory_bytes);
	else if (staging->memory)
		(void)munmap(staging->memory, (size_t)staging->memory_bytes);
	gsn_free(staging->free_slots);
	*staging = (struct gsn_staging)GSN_STAGING_INIT;
}

void gsn_staging_abandon(struct gsn_staging *staging)
{
	gsn_free(staging->free_slots);
	*staging = (struct gsn_staging)GSN_STAGING_INIT;
}

uint64_t gsn_staging_bytes(const struct gsn_staging *staging)
{
	return staging->slot_bytes * staging->slot_count;
}

uint8_t *gsn_staging_slot(const struct gsn_staging *staging, uint32_t slot)
{
	return staging->memory + slot * staging->slot_bytes;
}

bool gsn_staging_take(struct gsn_staging *staging, uint32_t *ret_slot)
{
	if (!staging->free_count)
		return false;
	*ret_slot = staging->free_slots[--staging->free_count];
	return true;
}

void gsn_staging_give(struct gsn_staging *staging, uint32_t slot)
{
	assert(staging->free_count < staging->slot_count);
	staging->free_slots[staging->free_count++] = slot;
}
