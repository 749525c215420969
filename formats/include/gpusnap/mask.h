/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_MASK_H
#define GPUSNAP_MASK_H
/*
 * Expert masks: int32 tables that tell an expert-parallel dispatcher which experts this rank owns.
 * The type is explicit because the kinds differ in length and in meaning, and because a mask of
 * another rank has the right number of ones:
 *
 *   kind          length          ones                     ids that the kernel sees
 *   standard      E               own block                global
 *   mori          E               own block                global
 *   deepep        L+1             all but the last         local; "not mine" becomes L, the sink
 *   vllm_aiter    E + shared + 1  own block and shared     global; last is the sentinel
 *
 * E experts in all, L local ones, own block = [first, first + L). The local id of expert e is the
 * exclusive prefix sum of the mask VALUES before e, as aiter's sorting kernel computes it.
 */
#include <stdint.h>

#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSNAP_EXPERTS_MAX 65536u /* of a layer; also the most shared ones */

typedef enum gpusnap_mask_kind {
	GPUSNAP_MASK_STANDARD = 1, /* zero is "none", so that a forgotten kind is found */
	GPUSNAP_MASK_MORI,
	GPUSNAP_MASK_DEEPEP,
	GPUSNAP_MASK_VLLM_AITER,
} gpusnap_mask_kind;

typedef struct gpusnap_mask_type {
	gpusnap_mask_kind kind;
	uint32_t experts; /* E, routed experts of the whole layer */
	uint32_t local;	  /* L, routed experts of this rank */
	uint32_t first;	  /* global id of the first of them */
	uint32_t shared;  /* fused shared experts appended after the routed ones */
	uint32_t rank;	  /* expert-parallel rank and size, for reports and restore checks */
	uint32_t world;
} gpusnap_mask_type;

/** "standard", "mori", "deepep", "vllm_aiter". Static string. */
GPUSNAP_API const char *gpusnap_mask_kind_name(gpusnap_mask_kind kind);
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_mask_kind_parse(
	const char *name, gpusnap_mask_kind *ret_kind, gpusnap_error *err);
/** Contiguous expert block of a rank: the first (experts mod world) ranks hold one more. */
GPUSNAP_API void gpusnap_expert_block(
	uint32_t experts, uint32_t rank, uint32_t world, uint32_t *ret_first, uint32_t *ret_local);
/**
 * Check that a type describes a mask: a known kind, 1..GPUSNAP_EXPERTS_MAX experts, the own block
 * inside them, rank below world, shared experts only where the kind has room. E_INVALID otherwise.
 * The functions below take a type that passes.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_mask_type_check(
	const gpusnap_mask_type *type, gpusnap_error *err);
/** Elements of a mask of this type. */
GPUSNAP_API uint32_t gpusnap_mask_length(const gpusnap_mask_type *type);
/** Fill gpusnap_mask_length() values. */
GPUSNAP_API void gpusnap_mask_fill(const gpusnap_mask_type *type, int32_t *values);
/**
 * Check values against the type: each is 0 or 1, as many ones as owned, in the right place, the
 * sink 0. E_CORRUPT names the most telling fault: all zero, an index map (-1 for remote) given for
 * a mask, the block of another rank, else the first wrong index, what it holds and what it should
 * hold. E_MISMATCH when `length` is another than the type's.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_mask_check(
	const gpusnap_mask_type *type, const int32_t *values, uint32_t length, gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
