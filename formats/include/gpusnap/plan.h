/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_PLAN_H
#define GPUSNAP_PLAN_H
/*
 * The plan: how to put a snapshot's bytes back. JSON text in the safetensors metadata under the
 * key "gpusnap"; specified in formats/gsnap.md. Structs own what they point to.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/dtype.h>
#include <gpusnap/json.h>
#include <gpusnap/mask.h>
#include <gpusnap/safetensors.h>
#include <gpusnap/seal.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What offload owes the bytes of a region. X(name in JSON, constant) */
#define GPUSNAP_POLICY_MAP(X)                                                                      \
	X(keep, KEEP)		/* saved and put back; the default */                              \
	X(zero, ZERO)		/* comes back as zeros */                                          \
	X(discard, DISCARD)	/* comes back poisoned and unusable until rewritten */             \
	X(recompute, RECOMPUTE) /* a callback refills it */

typedef enum gpusnap_policy {
#define GPUSNAP_POLICY_ENUM(name, constant) GPUSNAP_POLICY_##constant,
	GPUSNAP_POLICY_MAP(GPUSNAP_POLICY_ENUM)
#undef GPUSNAP_POLICY_ENUM
} gpusnap_policy;

/* What a buffer is for; lets dispatch find a layer and check a mask's meaning. */
#define GPUSNAP_ROLE_MAP(X)                                                                        \
	X(other, OTHER)                                                                            \
	X(weight, WEIGHT)                                                                          \
	X(scale, SCALE)                                                                            \
	X(router, ROUTER)                                                                          \
	X(bias, BIAS)                                                                              \
	X(expert_mask, EXPERT_MASK)                                                                \
	X(expert_map, EXPERT_MAP)                                                                  \
	X(kv, KV)

typedef enum gpusnap_role {
#define GPUSNAP_ROLE_ENUM(name, constant) GPUSNAP_ROLE_##constant,
	GPUSNAP_ROLE_MAP(GPUSNAP_ROLE_ENUM)
#undef GPUSNAP_ROLE_ENUM
} gpusnap_role;

GPUSNAP_API const char *gpusnap_policy_name(gpusnap_policy policy);
GPUSNAP_API const char *gpusnap_role_name(gpusnap_role role);
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_policy_parse(
	const char *name, gpusnap_policy *ret_policy, gpusnap_error *err);
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_role_parse(
	const char *name, gpusnap_role *ret_role, gpusnap_error *err);

#define GPUSNAP_PLAN_KEY	"gpusnap"  /* metadata key */
#define GPUSNAP_RESERVED_PREFIX "gpusnap." /* tensor names that users may not take */
#define GPUSNAP_LEAVES_NAME	"gpusnap.leaves"
#define GPUSNAP_SEAL_NAME	"gpusnap.seal"
#define GPUSNAP_RAW_FORMAT	"gpusnap.raw/%u/%llu" /* region id, offset in the region */
#define GPUSNAP_DELTA_FORMAT	"gpusnap.delta/%llu"  /* position in gpusnap_plan_delta.entries */

/* Limits of a plan; a reader answers E_LIMIT beyond them. */
#define GPUSNAP_PLAN_REGIONS_MAX 65536u
#define GPUSNAP_PLAN_BUFFERS_MAX 1048576u
#define GPUSNAP_PLAN_VIEWS_MAX	 1048576u
#define GPUSNAP_NAME_MAX	 4096u /* bytes of a name, tag, device or writer */
#define GPUSNAP_DELTA_DEPTH_MAX	 8u
/* Each buffer may have unclaimed bytes before it, each region some behind the last. */
#define GPUSNAP_DELTA_ENTRIES_MAX (2 * GPUSNAP_PLAN_BUFFERS_MAX + GPUSNAP_PLAN_REGIONS_MAX)
#define GPUSNAP_DELTA_RUNS_MAX	  524288u /* of all entries together */

typedef struct gpusnap_plan_region {
	uint32_t id;
	char *tag; /* "weights", "kv_cache", "cuda_graph", any */
	gpusnap_policy policy;
	gpusnap_policy unclaimed; /* policy of bytes that no buffer names */
	uint64_t bytes;
	bool managed;	  /* reserved by gpusnap; false: adopted */
	char *device;	  /* "host", "cuda:0" */
	uint64_t address; /* at save time; informative */
} gpusnap_plan_region;

typedef struct gpusnap_plan_buffer {
	char *name;
	gpusnap_role role;
	gpusnap_dtype dtype;
	uint32_t rank;
	uint64_t *shape;
	uint32_t region;
	uint64_t offset; /* in the region */
	uint64_t bytes;
	bool kept;		/* false: policy says that the file does not hold it */
	gpusnap_mask_type mask; /* kind 0 where the buffer is no expert mask */
} gpusnap_plan_buffer;

typedef struct gpusnap_plan_view {
	char *name;
	char *buffer; /* what it is a view of */
	gpusnap_dtype dtype;
	uint64_t offset; /* bytes from the start of the buffer */
	uint32_t rank;
	uint64_t *shape;
	int64_t *strides; /* elements */
} gpusnap_plan_view;

/* Consecutive leaves of an entry. */
typedef struct gpusnap_delta_run {
	uint64_t first;
	uint64_t count; /* 1 or more */
} gpusnap_delta_run;

/* A kept buffer or raw range of the state that a delta stands for. */
typedef struct gpusnap_delta_entry {
	char *name;
	uint64_t bytes; /* of all of it, not of what the file holds */
	uint32_t run_count;
	gpusnap_delta_run *changed; /* what the file holds; ascending, none overlap */
} gpusnap_delta_entry;

typedef struct gpusnap_plan_delta {
	char *parent;	/* its file's name when this was written: a hint, the seal has its root */
	uint32_t depth; /* deltas of the chain, this one included; 1: the parent is a full one */
	uint32_t entry_count;
	gpusnap_delta_entry *entries; /* all of the state, in the order of the leaf table */
} gpusnap_plan_delta;

typedef struct gpusnap_plan {
	char *writer; /* program and version */
	uint8_t uuid[GPUSNAP_UUID_BYTES];
	uint32_t tp_rank, tp_size, ep_rank, ep_size; /* rank and world */
	uint32_t region_count;
	gpusnap_plan_region *regions;
	uint32_t buffer_count;
	gpusnap_plan_buffer *buffers; /* in registration order */
	uint32_t view_count;
	gpusnap_plan_view *views;
	gpusnap_json *records;	   /* object: name -> any ("model", "probe"); NULL for none */
	gpusnap_plan_delta *delta; /* NULL: a full snapshot */
} gpusnap_plan;

/** JSON text for the metadata; gpusnap_text_free(). NULL: no memory. */
GPUSNAP_API char *gpusnap_plan_encode(const gpusnap_plan *plan);
/**
 * Parse and check the plan against the header it came in: every kept buffer is a tensor of the
 * same dtype, shape and size; every tensor is a buffer, raw bytes of a known region, the leaves or
 * the seal; buffers lie inside their regions and do not overlap; views lie inside their buffers;
 * what the policies keep is there without a gap, and nothing else is. Of a delta the entries are
 * held against the buffers instead, and the tensors against the entries' changed leaves. E_FORMAT
 * names what is not so; E_UNSUPPORTED: a newer plan; E_LIMIT: more than the limits above.
 * @param out  owned by the caller; gpusnap_plan_free().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_plan_decode(const char *text, size_t length,
	const gpusnap_header *header, gpusnap_plan **out, gpusnap_error *err);
/**
 * The seal of the same file must agree: identifier, offset of the data, number of leaves, length of
 * the file, and whether it is a delta. E_FORMAT names the two values that do not.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_plan_match_seal(const gpusnap_plan *plan,
	const gpusnap_header *header, const gpusnap_seal *seal, gpusnap_error *err);
/** NULL is a no-op. */
GPUSNAP_API void gpusnap_plan_free(gpusnap_plan *plan);
/** Parse "gpusnap.raw/R/OFFSET". False when the name is another. */
GPUSNAP_API bool gpusnap_raw_name_parse(
	const char *name, uint32_t *ret_region, uint64_t *ret_offset);
/** Parse "gpusnap.delta/I". False when the name is another. */
GPUSNAP_API bool gpusnap_delta_name_parse(const char *name, uint64_t *ret_entry);
/** Leaves that a delta holds of an entry. */
GPUSNAP_API uint64_t gpusnap_delta_leaf_count(const gpusnap_delta_entry *entry);
/** And their bytes: all have 65,536 but the last leaf of an entry. */
GPUSNAP_API uint64_t gpusnap_delta_bytes(const gpusnap_delta_entry *entry);

#ifdef __cplusplus
}
#endif
#endif
