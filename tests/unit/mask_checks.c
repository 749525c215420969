/* SPDX-License-Identifier: Apache-2.0 */
/* Expert masks: length and values of each kind, and the fault that a check names. */
#include <string.h>

#include <gpusnap/mask.h>

#include "tests/support/suite.h"

/* Qwen3-30B-A3B on four expert-parallel ranks, the mask of the failure that the project began with.
 */
static const gpusnap_mask_type mori = {
	.kind = GPUSNAP_MASK_MORI, .experts = 128, .local = 32, .first = 32, .rank = 1, .world = 4};
static const gpusnap_mask_type deepep = {.kind = GPUSNAP_MASK_DEEPEP,
	.experts = 128,
	.local = 32,
	.first = 32,
	.rank = 1,
	.world = 4};
static const gpusnap_mask_type aiter = {.kind = GPUSNAP_MASK_VLLM_AITER,
	.experts = 6,
	.local = 2,
	.first = 2,
	.shared = 1,
	.rank = 1,
	.world = 3};

enum { CAPACITY = 256 };

static int32_t values[CAPACITY];
static gpusnap_error err;

static gpusnap_status check(const gpusnap_mask_type *type)
{
	return gpusnap_mask_check(type, values, gpusnap_mask_length(type), &err);
}

START_TEST(kinds_are_spelled_and_parsed)
{
	gpusnap_mask_kind kind;

	ck_assert_str_eq(gpusnap_mask_kind_name(GPUSNAP_MASK_VLLM_AITER), "vllm_aiter");
	for (int i = GPUSNAP_MASK_STANDARD; i <= GPUSNAP_MASK_VLLM_AITER; i++) {
		ck_ok(gpusnap_mask_kind_parse(
			gpusnap_mask_kind_name((gpusnap_mask_kind)i), &kind, &err));
		ck_assert_int_eq((int)kind, i);
	}
	ck_fails(gpusnap_mask_kind_parse("Mori", &kind, &err), GPUSNAP_E_FORMAT, "'Mori'");
	ck_assert_str_eq(gpusnap_mask_kind_name((gpusnap_mask_kind)0), "unknown");
}
END_TEST

START_TEST(blocks_cover_all_experts_and_the_first_ranks_hold_one_more)
{
	uint32_t first, local;

	gpusnap_expert_block(128, 3, 4, &first, &local);
	ck_assert_uint_eq(first, 96);
	ck_assert_uint_eq(local, 32);
	gpusnap_expert_block(10, 1, 4, &first, &local); /* 3 3 2 2 */
	ck_assert_uint_eq(first, 3);
	ck_assert_uint_eq(local, 3);
	gpusnap_expert_block(10, 2, 4, &first, &local);
	ck_assert_uint_eq(first, 6);
	ck_assert_uint_eq(local, 2);
	gpusnap_expert_block(2, 3, 4, &first, &local); /* more ranks than experts */
	ck_assert_uint_eq(first, 2);
	ck_assert_uint_eq(local, 0);
}
END_TEST

START_TEST(each_kind_fills_its_own_length_and_ones)
{
	static const int32_t aiter_values[] = {0, 0, 1, 1, 0, 0, 1, 0};
	gpusnap_mask_type standard = mori;

	ck_assert_uint_eq(gpusnap_mask_length(&aiter), 8);
	gpusnap_mask_fill(&aiter, values);
	ck_assert_mem_eq(values, aiter_values, sizeof aiter_values);

	ck_assert_uint_eq(gpusnap_mask_length(&deepep), 33);
	gpusnap_mask_fill(&deepep, values);
	for (int i = 0; i < 33; i++)
		ck_assert_int_eq(values[i], i < 32);

	standard.kind = GPUSNAP_MASK_STANDARD;
	ck_assert_uint_eq(gpusnap_mask_length(&standard), 128);
	gpusnap_mask_fill(&standard, values);
	for (int i = 0; i < 128; i++)
		ck_assert_int_eq(values[i], i >= 32 && i < 64);
	ck_ok(check(&standard));
}
END_TEST

START_TEST(types_that_describe_no_mask_are_refused)
{
	gpusnap_mask_type type = mori;

	type.kind = (gpusnap_mask_kind)0;
	ck_fails(gpusnap_mask_type_check(&type, &err), GPUSNAP_E_INVALID, "kind 0");
	type = mori;
	type.experts = 0;
	ck_fails(gpusnap_mask_type_check(&type, &err), GPUSNAP_E_INVALID, "0 experts");
	type.experts = GPUSNAP_EXPERTS_MAX + 1;
	ck_fails(gpusnap_mask_type_check(&type, &err), GPUSNAP_E_INVALID, "65537 experts");
	type = mori;
	type.first = 97;
	ck_fails(gpusnap_mask_type_check(&type, &err), GPUSNAP_E_INVALID, "32 experts from 97");
	type.first = UINT32_MAX;
	ck_fails(gpusnap_mask_type_check(&type, &err), GPUSNAP_E_INVALID, "leaves the 128");
	type = mori;
	type.shared = 1;
	ck_fails(gpusnap_mask_type_check(&type, &err), GPUSNAP_E_INVALID, "1 shared experts");
	type = mori;
	type.rank = 4;
	ck_fails(gpusnap_mask_type_check(&type, &err), GPUSNAP_E_INVALID, "rank 4 of a world of 4");
	ck_fails(gpusnap_mask_check(&type, values, 128, &err), GPUSNAP_E_INVALID, "rank 4");
}
END_TEST

START_TEST(a_mask_that_reads_as_zeros_is_said_to_be_lost)
{
	memset(values, 0, sizeof values);
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT,
		"all 128 values are zero, expected 32 ones from index 32");
	ck_fails(check(&deepep), GPUSNAP_E_CORRUPT,
		"all 33 values are zero, expected 32 ones from index 0");
}
END_TEST

START_TEST(the_mask_of_another_rank_has_the_right_count_and_is_found)
{
	gpusnap_mask_type other = mori;

	other.first = 96;
	gpusnap_mask_fill(&other, values);
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT,
		"ones at [96, 128), expected [32, 64) of rank 1 of 4");
	other = aiter;
	other.first = 4;
	gpusnap_mask_fill(&other, values);
	ck_fails(check(&aiter), GPUSNAP_E_CORRUPT, "ones at [4, 6), expected [2, 4)");
}
END_TEST

START_TEST(an_index_map_is_told_from_a_mask)
{
	for (int i = 0; i < 128; i++)
		values[i] = i >= 32 && i < 64 ? i - 32 : -1;
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT, "index map (-1 at index 0)");
	for (int i = 0; i < 128; i++) /* another placement: local ids in another order */
		values[i] = i % 4 ? -1 : 31 - i / 4;
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT, "index map (31 at index 0)");
	for (int i = 0; i < 33; i++) /* one rank: no -1 at all */
		values[i] = i;
	ck_fails(check(&deepep), GPUSNAP_E_CORRUPT, "index map (2 at index 2)");
}
END_TEST

START_TEST(noise_is_named_by_its_first_value)
{
	gpusnap_mask_fill(&mori, values);
	values[40] = -1515870811; /* 0xA5 poison */
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT,
		"value -1515870811 at index 40 is neither 0 nor 1, expected 1 (1 of 128 values "
		"differ)");
	values[40] = 5;
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT, "value 5 at index 40");
	memset(values, 0xff, sizeof values);
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT, "value -1 at index 0");
}
END_TEST

START_TEST(single_bits_are_named_with_what_they_do)
{
	gpusnap_mask_fill(&mori, values);
	values[45] = 0;
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT, "value 0 at index 45, expected 1");
	values[45] = 1;
	values[64] = 1;
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT, "value 1 at index 64, expected 0");
	values[45] = 0; /* one lost and one won: the count is right */
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT,
		"value 0 at index 45, expected 1: a lost expert, later local ones would run with "
		"the wrong weights (32 ones, expected 32)");
}
END_TEST

START_TEST(a_set_sink_is_named)
{
	gpusnap_mask_fill(&deepep, values);
	values[32] = 1;
	ck_fails(check(&deepep), GPUSNAP_E_CORRUPT, "the sink (index 32, the last) is 1");
	gpusnap_mask_fill(&aiter, values);
	values[7] = 1;
	values[0] = 1;
	ck_fails(check(&aiter), GPUSNAP_E_CORRUPT, "the sink (index 7, the last) is 1");
}
END_TEST

START_TEST(all_ones_are_named)
{
	for (int i = 0; i < 128; i++)
		values[i] = 1;
	ck_fails(check(&mori), GPUSNAP_E_CORRUPT,
		"all 128 values are one, expected 32 ones from index 32");
}
END_TEST

START_TEST(a_wrong_length_is_named_first)
{
	memset(values, 0, sizeof values);
	ck_fails(gpusnap_mask_check(&deepep, values, 128, &err), GPUSNAP_E_MISMATCH,
		"has 128 values, expected 33");
	ck_fails(gpusnap_mask_check(&mori, values, 129, &err), GPUSNAP_E_MISMATCH,
		"has 129 values, expected 128");
}
END_TEST

START_TEST(a_rank_without_experts_has_a_mask_of_zeros)
{
	gpusnap_mask_type none = mori;

	none.local = 0;
	none.first = 128;
	memset(values, 0, sizeof values);
	ck_ok(check(&none));
	values[127] = 1;
	ck_fails(check(&none), GPUSNAP_E_CORRUPT, "value 1 at index 127, expected 0");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		kinds_are_spelled_and_parsed,
		blocks_cover_all_experts_and_the_first_ranks_hold_one_more,
		each_kind_fills_its_own_length_and_ones,
		types_that_describe_no_mask_are_refused,
		a_mask_that_reads_as_zeros_is_said_to_be_lost,
		the_mask_of_another_rank_has_the_right_count_and_is_found,
		an_index_map_is_told_from_a_mask,
		noise_is_named_by_its_first_value,
		single_bits_are_named_with_what_they_do,
		a_set_sink_is_named,
		all_ones_are_named,
		a_wrong_length_is_named_first,
		a_rank_without_experts_has_a_mask_of_zeros,
	};

	return RUN_SUITE("mask", tests);
}
