/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/moe_groups.h"

#include <string.h>

#include "kernels/device_ops.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { MAX_MASK = 64, MAX_PAIRS = 256, MAX_WORDS = 3 * MAX_MASK + 1 + MAX_PAIRS };

/*
 * The vectors of aiter's sorting kernel (op_tests/test_moe_sorting.py and its reference): five
 * tokens of three experts, without a mask and with mask 101101.
 */
static const int32_t published_ids[15] = {0, 3, 5, 2, 3, 5, 1, 3, 5, 1, 2, 3, 1, 3, 5};

/* Its output without the padding: the expert of each tile of 4 pairs. */
static uint32_t tiles_of_4(const struct gsn_moe_groups *groups, uint32_t *experts)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < groups->active_count; i++) {
		uint32_t expert = groups->active[i];
		uint32_t pairs = groups->begin[expert + 1] - groups->begin[expert];

		for (uint32_t at = 0; at < pairs; at += 4)
			experts[count++] = expert;
	}
	return count;
}

START_TEST(published_vectors_without_a_mask)
{
	const int32_t mask[6] = {1, 1, 1, 1, 1, 1};
	const uint32_t expected[7] = {0, 1, 2, 3, 3, 4, 5};
	uint32_t memory[MAX_WORDS], experts[16], real[16], count = 0;
	struct gsn_moe_groups groups;

	gsn_moe_groups_build(&groups, memory, mask, 6, 6, published_ids, 15);
	/* The kernel gives an expert without pairs a tile of padding; expert 4 has none here. */
	for (uint32_t i = 0; i < 7; i++)
		if (expected[i] != 4)
			real[count++] = expected[i];
	ck_assert_uint_eq(tiles_of_4(&groups, experts), count);
	ck_assert_mem_eq(experts, real, count * sizeof *real);
	ck_assert_uint_eq(groups.local, 15);
	ck_assert_uint_eq(groups.remote, 0);
}
END_TEST

START_TEST(published_vectors_with_mask_101101)
{
	const int32_t mask[6] = {1, 0, 1, 1, 0, 1};
	const int32_t locals[6] = {0, -1, 1, 2, -1, 3};
	const uint32_t expected[5] = {0, 1, 2, 2, 3};
	uint32_t memory[MAX_WORDS], experts[16];
	struct gsn_moe_groups groups;

	gsn_moe_groups_build(&groups, memory, mask, 6, 4, published_ids, 15);
	for (int32_t id = 0; id < 6; id++)
		ck_assert_int_eq(gsn_moe_groups_local(&groups, id), locals[id]);
	ck_assert_uint_eq(tiles_of_4(&groups, experts), 5);
	ck_assert_mem_eq(experts, expected, sizeof expected);
	ck_assert_uint_eq(groups.local, 12);
	ck_assert_uint_eq(groups.remote, 3);
	ck_assert_uint_eq(groups.faults, 0);
}
END_TEST

START_TEST(published_vectors_with_a_mask_of_zeros)
{
	const int32_t mask[6] = {0};
	uint32_t memory[MAX_WORDS];
	struct gsn_moe_groups groups;

	gsn_moe_groups_build(&groups, memory, mask, 6, 4, published_ids, 15);
	ck_assert_uint_eq(groups.active_count, 0);
	ck_assert_uint_eq(groups.remote, 15);
}
END_TEST

/* Every kept pair is in its expert's group once, in ascending order; nothing else is. */
static void check_groups(const struct gsn_moe_groups *groups, uint32_t local_experts,
	const int32_t *ids, uint32_t pair_count)
{
	uint32_t seen = 0, active = 0;

	ck_assert_uint_eq(groups->begin[0], 0);
	for (uint32_t e = 0; e < local_experts; e++) {
		ck_assert_uint_le(groups->begin[e], groups->begin[e + 1]);
		if (groups->begin[e] < groups->begin[e + 1])
			ck_assert_uint_eq(groups->active[active++], e);
		for (uint32_t at = groups->begin[e]; at < groups->begin[e + 1]; at++) {
			ck_assert_int_eq(
				gsn_moe_groups_local(groups, ids[groups->pairs[at]]), (int32_t)e);
			ck_assert(at == groups->begin[e] ||
				  groups->pairs[at - 1] < groups->pairs[at]);
			seen++;
		}
	}
	ck_assert_uint_eq(active, groups->active_count);
	ck_assert_uint_eq(seen, groups->local);
	ck_assert_uint_le(groups->local + groups->remote, pair_count);
}

START_TEST(groups_hold_each_kept_pair_once_and_in_order)
{
	uint64_t random = random_seed(1);

	for (int round = 0; round < 2000; round++) {
		uint32_t length = 1 + (uint32_t)random_below(&random, MAX_MASK);
		uint32_t pair_count = (uint32_t)random_below(&random, MAX_PAIRS);
		uint32_t memory[MAX_WORDS], local = 0, out = 0;
		int32_t mask[MAX_MASK], ids[MAX_PAIRS];
		struct gsn_moe_groups groups;

		for (uint32_t i = 0; i < length; i++) {
			mask[i] = (int32_t)random_below(&random, 2);
			local += (uint32_t)mask[i];
		}
		for (uint32_t i = 0; i < pair_count; i++) {
			ids[i] = (int32_t)random_below(&random, length + 2) - 1;
			out += ids[i] < 0 || (uint32_t)ids[i] >= length;
		}
		ck_assert_uint_le(gsn_moe_groups_bytes(length, local, pair_count), sizeof memory);
		memset(memory, 0xff, sizeof memory);
		gsn_moe_groups_build(&groups, memory, mask, length, local, ids, pair_count);
		check_groups(&groups, local, ids, pair_count);
		ck_assert_uint_eq(groups.local + groups.remote + out, pair_count);
		ck_assert_uint_eq(groups.faults, out ? GSN_MOE_FAULT_EXPERT_ID : 0);
	}
}
END_TEST

START_TEST(one_lost_bit_shifts_the_experts_behind_it)
{
	const int32_t mask[6] = {1, 1, 0, 1, 1, 1};
	const int32_t ids[6] = {0, 1, 2, 3, 4, 5};
	const int32_t locals[6] = {0, 1, GSN_EXPERT_REMOTE, 2, 3, 4};
	uint32_t memory[MAX_WORDS];
	struct gsn_moe_groups groups;

	gsn_moe_groups_build(&groups, memory, mask, 6, 6, ids, 6);
	for (int32_t id = 0; id < 6; id++)
		ck_assert_int_eq(gsn_moe_groups_local(&groups, id), locals[id]);
	ck_assert_uint_eq(groups.faults, 0); /* valid ids of wrong experts: only digests find it */
}
END_TEST

START_TEST(a_size_that_overflows_is_said)
{
	ck_assert(gsn_moe_groups_bytes(1, 1, UINT64_MAX) == UINT64_MAX);
	ck_assert(gsn_moe_groups_bytes(UINT32_MAX, UINT32_MAX, UINT64_MAX / 4) == UINT64_MAX);
	ck_assert_uint_eq(gsn_moe_groups_bytes(6, 4, 15), 120); /* 6 + 5 + 4 + 15 words */
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		published_vectors_without_a_mask,
		published_vectors_with_mask_101101,
		published_vectors_with_a_mask_of_zeros,
		groups_hold_each_kept_pair_once_and_in_order,
		one_lost_bit_shifts_the_experts_behind_it,
		a_size_that_overflows_is_said,
	};

	return RUN_SUITE("moe_groups", tests);
}
