/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RANGES_H
#define GSN_RANGES_H
/*
 * Ranges: the registry's regions cut into runs of bytes that are saved under one name each. They
 * cover every byte once, so that nothing is missed for want of a name.
 */
#include "snapshot/registry_state.h"

/* A run of bytes of one region that is saved under one name: a buffer, or unclaimed bytes. */
struct gsn_range {
	char name[64];			 /* only for raw ranges; buffers use buffer->name */
	const struct gsn_buffer *buffer; /* NULL for a raw range */
	const struct gsn_region *region;
	uint64_t offset;       /* in the region */
	uint64_t bytes;	       /* 0 only for an empty buffer */
	gpusnap_policy policy; /* that governs these bytes */
};

/*
 * All ranges of the registry, region by region in the registry's order, ascending, with no gap;
 * an empty buffer stands where its offset puts it. Freed by the caller with gsn_free().
 */
gpusnap_status gsn_registry_ranges(const gpusnap_registry *registry, struct gsn_range **ret_ranges,
	size_t *ret_count, gpusnap_error *err);
const char *gsn_range_name(const struct gsn_range *range);
/* Device address of the range's first byte. */
gpusnap_address gsn_range_address(const struct gsn_range *range);

uint64_t gsn_ranges_leaf_count(const struct gsn_range *ranges, size_t count);
/*
 * Digest the live bytes of mapped ranges on the device and wait: their leaves one range after the
 * other, gsn_ranges_leaf_count() in all.
 */
gpusnap_status gsn_ranges_digest(gpusnap_registry *registry, const struct gsn_range *ranges,
	size_t count, gpusnap_digest *ret_leaves, gpusnap_error *err);
/* Only give the digests to a stream; ret_leaves must stay until it is synchronised. */
gpusnap_status gsn_ranges_digest_async(const gpusnap_registry *registry, struct gsn_stream *stream,
	const struct gsn_range *ranges, size_t count, gpusnap_digest *ret_leaves,
	gpusnap_error *err);

#endif
