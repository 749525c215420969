/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/moe_groups.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "kernels/device_ops.h"

uint64_t gsn_moe_groups_bytes(uint32_t mask_length, uint32_t local_experts, uint64_t pair_count)
{
	uint64_t words = (uint64_t)mask_length + 2 * (uint64_t)local_experts + 1;
	uint64_t bytes;

	if (gsn_add_overflow(words, pair_count, &words) || gsn_mul_overflow(words, 4, &bytes))
		return UINT64_MAX;
	return bytes;
}

/* Mask values are summed as they are, so a broken mask shifts ids here as it does on a GPU. */
static void number_mask(struct gsn_moe_groups *groups, const int32_t *mask, uint32_t local_experts)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < groups->mask_length; i++) {
		if (mask[i] == 0)
			groups->mask_locals[i] = GSN_EXPERT_REMOTE;
		else if (sum < 0 || sum >= (int64_t)local_experts)
			groups->mask_locals[i] = GSN_EXPERT_FAULT;
		else
			groups->mask_locals[i] = (int32_t)sum;
		sum += mask[i];
	}
}

int32_t gsn_moe_groups_local(const struct gsn_moe_groups *groups, int32_t id)
{
	if (id < 0 || (uint32_t)id >= groups->mask_length)
		return GSN_EXPERT_FAULT;
	return groups->mask_locals[id];
}

/* Pairs of expert e are counted at begin[e + 1]. */
static void count_pairs(struct gsn_moe_groups *groups, const int32_t *ids, uint32_t pair_count)
{
	for (uint32_t pair = 0; pair < pair_count; pair++) {
		int32_t expert = gsn_moe_groups_local(groups, ids[pair]);

		if (expert >= 0) {
			groups->begin[expert + 1]++;
			groups->local++;
		} else if (expert == GSN_EXPERT_REMOTE) {
			groups->remote++;
		} else if (ids[pair] < 0 || (uint32_t)ids[pair] >= groups->mask_length) {
			groups->faults |= GSN_MOE_FAULT_EXPERT_ID;
		} else {
			groups->faults |= GSN_MOE_FAULT_LOCAL_ID;
		}
	}
}

/* Turn counts into first positions; list the experts that have any. */
static void lay_out(struct gsn_moe_groups *groups, uint32_t local_experts)
{
	for (uint32_t e = 0; e < local_experts; e++) {
		if (groups->begin[e + 1] > 0)
			groups->active[groups->active_count++] = e;
		groups->begin[e + 1] += groups->begin[e];
	}
}

/* Placing moves begin[e] to where begin[e + 1] was; afterwards all move back by one. */
static void place_pairs(struct gsn_moe_groups *groups, uint32_t local_experts, const int32_t *ids,
	uint32_t pair_count)
{
	for (uint32_t pair = 0; pair < pair_count; pair++) {
		int32_t expert = gsn_moe_groups_local(groups, ids[pair]);

		if (expert >= 0)
			groups->pairs[groups->begin[expert]++] = pair;
	}
	memmove(groups->begin + 1, groups->begin, local_experts * sizeof *groups->begin);
	groups->begin[0] = 0;
}

void gsn_moe_groups_build(struct gsn_moe_groups *groups, void *memory, const int32_t *mask,
	uint32_t mask_length, uint32_t local_experts, const int32_t *ids, uint32_t pair_count)
{
	uint32_t *words = memory;

	memset(groups, 0, sizeof *groups);
	groups->mask_length = mask_length;
	groups->mask_locals = memory;
	groups->begin = words + mask_length;
	groups->active = groups->begin + local_experts + 1;
	groups->pairs = groups->active + local_experts;
	memset(groups->begin, 0, ((size_t)local_experts + 1) * sizeof *groups->begin);
	number_mask(groups, mask, local_experts);
	count_pairs(groups, ids, pair_count);
	lay_out(groups, local_experts);
	place_pairs(groups, local_experts, ids, pair_count);
}
