/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_GROUPS_H
#define GSN_MOE_GROUPS_H
/*
 * The (token, slot) pairs of a step, sorted by the local expert that computes them: what the mask
 * keeps, what it drops, and what is wrong with the ids. Pair p is token p / top_k, slot p % top_k.
 */
#include <stdint.h>

/* Local ids of mask entries and pairs: >= 0, or one of these. */
enum { GSN_EXPERT_REMOTE = -1, GSN_EXPERT_FAULT = -2 };

struct gsn_moe_groups {
	int32_t *mask_locals; /* [mask_length] local id of each id that the mask is indexed by */
	uint32_t *begin;  /* [local_experts + 1] pairs of expert e: pairs[begin[e]..begin[e+1]) */
	uint32_t *pairs;  /* kept pairs; of one expert in ascending order */
	uint32_t *active; /* [active_count] local experts that have pairs, ascending */
	uint32_t active_count;
	uint32_t mask_length;
	uint64_t local, remote; /* pairs kept, pairs of other ranks' experts */
	uint32_t faults;	/* enum gsn_moe_fault */
};

/* Bytes that gsn_moe_groups_build() wants; UINT64_MAX when that overflows. */
uint64_t gsn_moe_groups_bytes(uint32_t mask_length, uint32_t local_experts, uint64_t pair_count);

/*
 * local id of id i = sum of mask[0..i), in 64 bits, where mask[i] is not 0.
 * @param memory  gsn_moe_groups_bytes(), 4-byte aligned; the arrays of `groups` point into it.
 */
void gsn_moe_groups_build(struct gsn_moe_groups *groups, void *memory, const int32_t *mask,
	uint32_t mask_length, uint32_t local_experts, const int32_t *ids, uint32_t pair_count);

/* Local expert of an id, or why it has none. */
int32_t gsn_moe_groups_local(const struct gsn_moe_groups *groups, int32_t id);

#endif
