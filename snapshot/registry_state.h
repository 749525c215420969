/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_REGISTRY_STATE_H
#define GSN_REGISTRY_STATE_H
/*
 * The registry's insides, for the jobs of this module (save, offload, restore, verify). Everything
 * below is guarded by `lock`; a job holds it from beginning to end, so jobs never interleave.
 */
#include <pthread.h>

#include <gpusnap/registry.h>
#include <gpusnap/snapshot.h>

#include "kernels/device_ops.h"

struct gsn_arena; /* offload.c: pinned host copy of a region, with its leaf digests */

struct gsn_region {
	uint32_t id;
	char *tag;
	gpusnap_policy policy;
	gpusnap_policy unclaimed;
	gpusnap_region_state state;
	bool managed;
	gpusnap_address address;
	uint64_t bytes;
	uint64_t used_bytes; /* handed out by gpusnap_region_alloc */
	uint64_t generation;
	gpusnap_status (*refill)(
		void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
	gpusnap_status (*remapped)(
		void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
	void *user;
	struct gsn_arena *arena;   /* kept for the next offload; NULL before the first */
	gpusnap_snapshot *backing; /* while offloaded against a snapshot; owned */
};

struct gsn_buffer {
	char *name;
	gpusnap_role role;
	gpusnap_dtype dtype;
	uint32_t rank;
	uint64_t *shape;
	uint32_t region;
	uint64_t offset;
	uint64_t bytes;
	gpusnap_mask_type mask;
};

struct gpusnap_registry {
	pthread_mutex_t lock; /* recursive: callbacks may look things up */
	gpusnap_device *device;
	gpusnap_registry_options options;
	uint32_t next_region;
	uint32_t region_count;
	struct gsn_region *regions;
	uint32_t buffer_count;
	struct gsn_buffer **buffers; /* registration order; pointers are stable */
	uint32_t view_count;
	gpusnap_plan_view *views;
	gpusnap_json *records; /* object */
	gpusnap_baseline *baseline;
	char *snapshot_path; /* of the last save or restore that the baseline stands for */
};

/* A run of bytes of one region that is saved under one name: a buffer, or unclaimed bytes. */
struct gsn_range {
	char name[64];			 /* only for raw ranges; buffers use buffer->name */
	const struct gsn_buffer *buffer; /* NULL for a raw range */
	const struct gsn_region *region;
	uint64_t offset; /* in the region */
	uint64_t bytes;
	gpusnap_policy policy; /* that governs these bytes */
};

/* All ranges of the registry, region by region, ascending, with no gap; freed by the caller. */
gpusnap_status gsn_registry_ranges(const gpusnap_registry *registry, struct gsn_range **ret_ranges,
	size_t *ret_count, gpusnap_error *err);
const char *gsn_range_name(const struct gsn_range *range);
struct gsn_region *gsn_registry_region(const gpusnap_registry *registry, uint32_t id);
struct gsn_buffer *gsn_registry_buffer(const gpusnap_registry *registry, const char *name);

#endif
