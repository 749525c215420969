/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_STAGING_H
#define GSN_STAGING_H
/*
 * The staging ring: a bounded number of equal slots of host memory between device and file, pinned
 * where a device is involved. Its size does not depend on the state's.
 */
#include <gpusnap/device.h>
#include <gpusnap/io.h>

#define GSN_STAGING_BYTES_MAX (UINT64_C(512) << 20)

/*
 * Who pins the memory of staging rings and of tables of digests. To pin it takes as long as a small
 * job, so what one gives back is kept for the next, up to GSN_STAGING_KEPT_MAX.
 */
#define GSN_STAGING_KEPT_MAX (UINT64_C(64) << 20)
struct gsn_staging_source {
	gpusnap_device *device; /* borrowed */
	void *kept;
	uint64_t kept_bytes;
};
void gsn_staging_source_release(struct gsn_staging_source *source);
/* Pinned memory of at least `bytes`, with anything in it; *ret_bytes is how much to give back. */
gpusnap_status gsn_staging_source_take(struct gsn_staging_source *source, uint64_t bytes,
	void **ret_memory, uint64_t *ret_bytes, gpusnap_error *err);
/* NULL is a no-op. */
void gsn_staging_source_give(struct gsn_staging_source *source, void *memory, uint64_t bytes);

struct gsn_staging {
	struct gsn_staging_source *source; /* borrowed; NULL: memory that is not pinned */
	uint8_t *memory;
	uint64_t memory_bytes; /* of it; slots may use less */
	uint64_t slot_bytes;
	uint32_t slot_count;
	uint32_t free_count;
	uint32_t *free_slots; /* the first free_count entries */
};
#define GSN_STAGING_INIT                                                                           \
	{                                                                                          \
		NULL                                                                               \
	}

/*
 * Slots of io->block_bytes, io->depth of them in flight and `extra` more in other hands, but no
 * more than `total_bytes` of data need and the limit allows; io->depth is lowered to fit.
 */
gpusnap_status gsn_staging_open(struct gsn_staging *staging, struct gsn_staging_source *source,
	gpusnap_io_options *io, uint32_t extra, uint64_t total_bytes, gpusnap_error *err);
/* A no-op on GSN_STAGING_INIT. */
void gsn_staging_close(struct gsn_staging *staging);
/* Instead of closing it: the memory stays taken, since somebody may still write to it. */
void gsn_staging_abandon(struct gsn_staging *staging);
uint64_t gsn_staging_bytes(const struct gsn_staging *staging);
uint8_t *gsn_staging_slot(const struct gsn_staging *staging, uint32_t slot);
/* Take a free slot; false when there is none. */
bool gsn_staging_take(struct gsn_staging *staging, uint32_t *ret_slot);
void gsn_staging_give(struct gsn_staging *staging, uint32_t slot);

#endif
