/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_REGISTRY_STATE_H
#define GSN_REGISTRY_STATE_H
/*
 * The registry's insides, for the jobs of this module (save, offload, restore, verify). Everything
 * below is guarded by `lock`; a job holds it from beginning to end, so jobs never interleave.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/registry.h>
#include <gpusnap/snapshot.h>

#include "kernels/device_ops.h"
#include "snapshot/origin.h"
#include "snapshot/staging.h"

struct gsn_arena; /* arena.h: pinned host copy of a region, with its leaf digests */

struct gsn_region {
	uint32_t id;
	char *tag;
	gpusnap_policy policy;
	gpusnap_policy unclaimed;
	gpusnap_region_state state;
	bool managed;
	gpusnap_address address;
	uint64_t bytes;
	uint64_t
		reserved_bytes; /* what is mapped and unmapped: more than `bytes` only where a
				   snapshot came from a device with a smaller granule; adopted: 0 */
	uint64_t mapped_bytes;	/* of them, from the first on: region_memory.h */
	uint64_t used_bytes;	/* end of what was handed out or named; alloc goes on there */
	uint64_t claimed_bytes; /* that buffers name */
	uint64_t generation;
	gpusnap_status (*refill)(
		void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
	gpusnap_status (*remapped)(
		void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
	void *user;
	struct gsn_arena *arena;   /* kept for the next offload; NULL before the first */
	gpusnap_snapshot *backing; /* while offloaded against a snapshot; owned */
	char *backing_name; /* "arena", "snapshot PATH"; set from offload until usable again */
};

struct gsn_buffer {
	char *name; /* first: the tree of names compares it through the struct's address */
	gpusnap_role role;
	gpusnap_dtype dtype;
	uint32_t rank;
	uint64_t *shape;
	uint32_t region;
	uint64_t offset;
	uint64_t bytes;
	uint64_t serial; /* ascending in gpusnap_registry.buffers */
	gpusnap_mask_type mask;
};

struct gpusnap_registry {
	pthread_mutex_t lock; /* recursive: callbacks may look things up */
	gpusnap_device *device;
	struct gsn_staging_source staging; /* of the running job, then of the next one */
	struct gsn_stream *stream; /* for short copies, fills and digests that are waited for */
	uint64_t granule_bytes;
	gpusnap_registry_options options; /* sizes are at least 1 */
	const char *job;		  /* name of the running job, or NULL */
	bool quiesced;
	uint32_t next_region;
	uint32_t region_count;
	uint32_t region_capacity;
	struct gsn_region *regions; /* moves when a region is added or freed */
	uint32_t buffer_count;
	uint32_t buffer_capacity;
	struct gsn_buffer **buffers; /* registration order; what they point to stays put */
	uint64_t next_serial;
	void *by_name;	/* tsearch(3) tree of buffers */
	void *by_place; /* tree of buffers with bytes, by region and offset */
	uint32_t view_count;
	uint32_t view_capacity;
	gpusnap_plan_view *views;
	void *view_names;      /* tree of the views' names */
	gpusnap_json *records; /* object */
	gpusnap_baseline *baseline;
	struct gsn_origin origin; /* of the last save or restore that the baseline stands for */
};

void gsn_registry_lock(const gpusnap_registry *registry);
void gsn_registry_unlock(const gpusnap_registry *registry);

/*
 * Begin a job: take the lock, and until gsn_job_end() refuse (E_BUSY) other jobs and changes of
 * the tables, which callbacks of this thread might try. `job` is a static name for messages.
 */
gpusnap_status gsn_job_begin(gpusnap_registry *registry, const char *job, gpusnap_error *err);
/* Ask the application to come to rest; gsn_job_end() lets it go on. */
gpusnap_status gsn_job_quiesce(gpusnap_registry *registry, gpusnap_error *err);
void gsn_job_end(gpusnap_registry *registry);
/* For whatever changes the tables: E_BUSY inside a job. Call with the lock held. */
gpusnap_status gsn_registry_idle(const gpusnap_registry *registry, gpusnap_error *err);

/*
 * Wait for the registry's stream: after a failure `s` too, so that no work is left that touches
 * memory which is about to go. Answers `s`, or how the wait failed.
 */
gpusnap_status gsn_registry_settle(
	const gpusnap_registry *registry, gpusnap_status s, gpusnap_error *err);

struct gsn_region *gsn_registry_region(const gpusnap_registry *registry, uint32_t id);
struct gsn_buffer *gsn_registry_buffer(const gpusnap_registry *registry, const char *name);
bool gsn_registry_has_view(const gpusnap_registry *registry, const char *name);
/* gsn_registry_region() with an error: E_INVALID. */
gpusnap_status gsn_region_find(const gpusnap_registry *registry, uint32_t id,
	struct gsn_region **ret_region, gpusnap_error *err);
/* Bytes that have memory now: all, or none while it is offloaded, but for what did not unmap. */
uint64_t gsn_region_resident_bytes(const struct gsn_region *region);
/* E_STATE with the remedy while the region is offloaded. */
gpusnap_status gsn_region_mapped(const struct gsn_region *region, gpusnap_error *err);
/* E_STATE with the remedy unless the region is resident. */
gpusnap_status gsn_region_usable(const struct gsn_region *region, gpusnap_error *err);
/* Release all that a region holds and close the gap in the table; its buffers are gone already. */
void gsn_region_remove(gpusnap_registry *registry, uint32_t position);
/* Forget all buffers of a region, and their views. */
void gsn_buffers_forget(gpusnap_registry *registry, uint32_t region);
/* Forget the views whose buffer is gone. */
void gsn_views_prune(gpusnap_registry *registry);
/* Not empty, UTF-8, no reserved name; E_INVALID. `what` is "buffer", "view", ... */
gpusnap_status gsn_name_check(const char *what, const char *name, gpusnap_error *err);

#endif
