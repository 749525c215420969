/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_REGISTRY_H
#define GPUSNAP_REGISTRY_H
/*
 * The registry: regions of one device, the buffers and views that name their bytes, what offload
 * owes them, and where they are now. Everything is saved by address range, so bytes that nobody
 * named ("unclaimed") are saved as well.
 *
 * Thread safety: all functions take the registry's one lock. Names and structs handed out are
 * copies or stay valid until the registry is changed, as said at each function.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/device.h>
#include <gpusnap/digest.h>
#include <gpusnap/plan.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpusnap_registry gpusnap_registry;

typedef enum gpusnap_region_state {
	GPUSNAP_REGION_RESIDENT,  /* mapped, whole, usable */
	GPUSNAP_REGION_OFFLOADED, /* address range only; bytes in the arena or in a snapshot */
	GPUSNAP_REGION_DISCARDED, /* mapped and poisoned until somebody rewrites it and says so */
} gpusnap_region_state;

GPUSNAP_API const char *gpusnap_region_state_name(gpusnap_region_state state);

typedef struct gpusnap_registry_options {
	size_t struct_size;
	uint32_t tp_rank, tp_size, ep_rank, ep_size; /* sizes 0 mean 1 */
	/*
	 * Bring the application to rest before a save, an offload or a restore over its state;
	 * E_BUSY refuses. May be NULL.
	 * Called with the registry's lock held: it must not wait for a thread that is inside a call
	 * of this library, and threads between hold and release are at rest already.
	 */
	gpusnap_status (*quiesce)(void *user, gpusnap_error *err);
	/* Go on after it, whatever its outcome. May be NULL. */
	void (*unquiesce)(void *user);
	void *user;
} gpusnap_registry_options;
#define GPUSNAP_REGISTRY_OPTIONS_INIT                                                              \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_registry_options)                                    \
	}

/**
 * @param device  borrowed; must outlive the registry.
 * @param out     owned by the caller; gpusnap_registry_free() releases managed regions.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_registry_create(gpusnap_device *device,
	const gpusnap_registry_options *options, gpusnap_registry **out, gpusnap_error *err);
/** NULL is a no-op. Adopted memory is left alone. */
GPUSNAP_API void gpusnap_registry_free(gpusnap_registry *registry);
/** As created, with the sizes filled in. */
GPUSNAP_API const gpusnap_registry_options *gpusnap_registry_ranks(
	const gpusnap_registry *registry);
GPUSNAP_API gpusnap_device *gpusnap_registry_device(const gpusnap_registry *registry);

/**
 * Keep every region where it is while working on its memory directly: until the matching release
 * no job of another thread (save, offload, restore, ...) begins. Nests.
 */
GPUSNAP_API void gpusnap_registry_hold(gpusnap_registry *registry);
GPUSNAP_API void gpusnap_registry_release(gpusnap_registry *registry);

typedef struct gpusnap_region_options {
	size_t struct_size;
	const char *tag;       /* "weights", ...; copied; required */
	gpusnap_policy policy; /* default keep */
	bool unclaimed_set;    /* unclaimed bytes follow `unclaimed` instead of `policy` */
	gpusnap_policy unclaimed;
	/*
	 * policy recompute: fill the region again after a resume or restore. Without it the region
	 * comes back discarded, for the application to rewrite. This and `remapped` may look things
	 * up and write buffers; other calls answer E_BUSY. A failure leaves all regions of the
	 * resume offloaded.
	 */
	gpusnap_status (*refill)(
		void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
	/* Called after every remap, before the region is usable: re-register RDMA, IPC, graphs. */
	gpusnap_status (*remapped)(
		void *user, gpusnap_address address, uint64_t bytes, gpusnap_error *err);
	void *user;
} gpusnap_region_options;
#define GPUSNAP_REGION_OPTIONS_INIT                                                                \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_region_options)                                      \
	}

/** Reserve and map `bytes` (rounded up to the device's granule), zero-filled. Managed. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_region_reserve(gpusnap_registry *registry,
	uint64_t bytes, const gpusnap_region_options *options, uint32_t *ret_region,
	gpusnap_error *err);
/** Take note of memory that somebody else owns: saved, verified, restored in place, not offloaded.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_region_adopt(gpusnap_registry *registry,
	gpusnap_address address, uint64_t bytes, const gpusnap_region_options *options,
	uint32_t *ret_region, gpusnap_error *err);
/**
 * Hand out bytes of a managed region, lowest address first, without naming them: they are
 * unclaimed until a buffer is registered there. Never bytes below the end of a registered buffer.
 * `alignment` is a power of two and holds for the address; 0 means 256. E_LIMIT when it is full.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_region_alloc(gpusnap_registry *registry,
	uint32_t region, uint64_t bytes, uint64_t alignment, uint64_t *ret_offset,
	gpusnap_error *err);
/** Forget a region and its buffers; a managed one is unmapped. E_STATE while offloaded. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_region_free(
	gpusnap_registry *registry, uint32_t region, gpusnap_error *err);
/** A discarded region has been rewritten: make it usable. E_STATE for any other state. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_region_rewritten(
	gpusnap_registry *registry, uint32_t region, gpusnap_error *err);

typedef struct gpusnap_region_info {
	uint32_t id;
	const char *tag; /* valid until the region is freed */
	gpusnap_policy policy;
	gpusnap_policy unclaimed;
	gpusnap_region_state state;
	bool managed;
	gpusnap_address address;
	uint64_t bytes;
	uint64_t resident_bytes;  /* mapped now */
	uint64_t unclaimed_bytes; /* that no buffer names */
	uint64_t generation;	  /* grows with every remap; caches that depend on it compare it */
	/* While offloaded: "arena", "snapshot PATH", "none" (nothing is kept); else NULL. */
	const char *backing;
} gpusnap_region_info;

GPUSNAP_API uint32_t gpusnap_region_count(const gpusnap_registry *registry);
/** By position, 0 first. E_INVALID past the end. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_region_at(const gpusnap_registry *registry,
	uint32_t position, gpusnap_region_info *ret_info, gpusnap_error *err);
/** By id. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_region_get(const gpusnap_registry *registry,
	uint32_t region, gpusnap_region_info *ret_info, gpusnap_error *err);

typedef struct gpusnap_buffer_options {
	size_t struct_size;
	const char *name; /* copied; not empty, no "gpusnap." prefix, no NUL, unique */
	gpusnap_role role;
	gpusnap_dtype dtype;
	uint32_t rank;
	const uint64_t *shape; /* copied */
	uint32_t region;
	uint64_t offset;	/* bytes from the region's start */
	gpusnap_mask_type mask; /* required for role expert_mask */
} gpusnap_buffer_options;
#define GPUSNAP_BUFFER_OPTIONS_INIT                                                                \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_buffer_options)                                      \
	}

/**
 * Name bytes. E_INVALID: outside the region, overlapping another buffer (use a view), name taken,
 * a mask whose type does not fit; E_STATE while the region is offloaded.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_buffer_register(
	gpusnap_registry *registry, const gpusnap_buffer_options *options, gpusnap_error *err);
/** Forget the name and its views; its bytes become unclaimed. E_STATE while offloaded. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_buffer_unregister(
	gpusnap_registry *registry, const char *name, gpusnap_error *err);

typedef struct gpusnap_buffer_info {
	const char *name; /* these pointers stay valid until the buffer is unregistered */
	gpusnap_role role;
	gpusnap_dtype dtype;
	uint32_t rank;
	const uint64_t *shape;
	uint32_t region;
	uint64_t offset;
	uint64_t bytes;
	gpusnap_address address;
	gpusnap_mask_type mask;
} gpusnap_buffer_info;

GPUSNAP_API uint32_t gpusnap_buffer_count(const gpusnap_registry *registry);
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_buffer_at(const gpusnap_registry *registry,
	uint32_t position, gpusnap_buffer_info *ret_info, gpusnap_error *err);
/** E_INVALID when no buffer has that name. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_buffer_find(const gpusnap_registry *registry,
	const char *name, gpusnap_buffer_info *ret_info, gpusnap_error *err);
/**
 * Copy to or from host memory. E_STATE unless the region is resident ("not resident"); a discarded
 * one may be written, since it must be rewritten.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_buffer_read(gpusnap_registry *registry,
	const char *name, uint64_t offset, void *bytes, uint64_t length, gpusnap_error *err);
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_buffer_write(gpusnap_registry *registry,
	const char *name, uint64_t offset, const void *bytes, uint64_t length, gpusnap_error *err);
/** Leaves of a buffer's live bytes, digested on the device; gpusnap_leaf_count(bytes) entries. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_buffer_leaves(gpusnap_registry *registry,
	const char *name, gpusnap_digest *ret_leaves, gpusnap_error *err);

typedef struct gpusnap_view_options {
	size_t struct_size;
	const char *name;
	const char *buffer;
	gpusnap_dtype dtype;
	uint64_t offset; /* bytes from the buffer's start */
	uint32_t rank;
	const uint64_t *shape;
	const int64_t *strides; /* elements */
} gpusnap_view_options;
#define GPUSNAP_VIEW_OPTIONS_INIT                                                                  \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_view_options)                                        \
	}

/** Another name for part of a buffer, recorded in the plan. E_INVALID when it leaves the buffer. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_view_register(
	gpusnap_registry *registry, const gpusnap_view_options *options, gpusnap_error *err);

/**
 * Attach a JSON value that travels in the snapshot ("model", "probe"); replaces one of that name.
 * `value` is referenced, not consumed; NULL removes it.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_record_set(
	gpusnap_registry *registry, const char *name, gpusnap_json *value, gpusnap_error *err);
/** A new reference, to be freed by the caller; NULL when there is none. */
GPUSNAP_API gpusnap_json *gpusnap_record_get(const gpusnap_registry *registry, const char *name);

#ifdef __cplusplus
}
#endif
#endif
