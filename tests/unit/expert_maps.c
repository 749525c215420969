/* SPDX-License-Identifier: Apache-2.0 */
/* Index maps: their ids, the fault that a check names, and the way to masks and ids and back. */
#include <string.h>

#include <gpusnap/expert_map.h>

#include "tests/support/suite.h"

enum { EXPERTS = 12, FIRST = 4, LOCAL = 3 };

static const gpusnap_mask_type types[] = {
	{GPUSNAP_MASK_STANDARD, EXPERTS, LOCAL, FIRST, 0, 1, 4},
	{GPUSNAP_MASK_MORI, EXPERTS, LOCAL, FIRST, 0, 1, 4},
	{GPUSNAP_MASK_DEEPEP, EXPERTS, LOCAL, FIRST, 0, 1, 4},
	{GPUSNAP_MASK_VLLM_AITER, EXPERTS, LOCAL, FIRST, 2, 1, 4},
};
static const gpusnap_mask_type *const standard = &types[0];

enum { KINDS = sizeof types / sizeof types[0], MASK_MAX = EXPERTS + 3 };

static gpusnap_local_id ids[EXPERTS];
static gpusnap_error err;

static void damaged(const char *message)
{
	ck_fails(
		gpusnap_expert_map_check(standard, ids, EXPERTS, &err), GPUSNAP_E_CORRUPT, message);
	gpusnap_expert_map_fill(standard, ids);
}

START_TEST(a_map_numbers_the_own_block_and_no_other_expert)
{
	gpusnap_expert_map_fill(standard, ids);
	for (int32_t e = 0; e < EXPERTS; e++)
		ck_assert_int_eq(
			ids[e].value, e >= FIRST && e < FIRST + LOCAL ? e - FIRST : GPUSNAP_REMOTE);
	ck_ok(gpusnap_expert_map_check(standard, ids, EXPERTS, &err));
	ck_fails(gpusnap_expert_map_check(standard, ids, EXPERTS - 1, &err), GPUSNAP_E_MISMATCH,
		"expert map has 11 ids, expected 12");
}
END_TEST

START_TEST(what_differs_is_named)
{
	gpusnap_mask_type other = *standard;

	gpusnap_expert_map_fill(standard, ids);
	ids[4].value = 2;
	ids[6].value = 0;
	damaged("experts 4 and 6 are swapped: local ids 2 and 0, expected 0 and 2");
	ids[5].value = GPUSNAP_REMOTE;
	damaged("expert 5 has local id -1, expected 1: a lost expert");
	ids[0].value = 1;
	damaged("expert 0 has local id 1, expected -1: another rank's");
	ids[4].value = 1;
	damaged("expert 4 has local id 1, expected 0: its tokens would run through another's");
	ids[6].value = LOCAL;
	damaged("id 3 of expert 6 is neither -1 nor one of 3 local ids, expected 2");
	ids[6].value = -2;
	damaged("id -2 of expert 6");
	memset(ids, 0, sizeof ids);
	damaged("all 12 ids are zero, expected 0 to 2 from expert 4: the map was not restored");
	other.first = FIRST + 1;
	gpusnap_expert_map_fill(&other, ids);
	damaged("for experts [5, 8), expected [4, 7) of rank 1 of 4: shifted");
	/* An engine's mask has the same bytes; the compiler lets nobody do this by accident. */
	gpusnap_mask_fill(standard, &ids->value);
	damaged("expert map is a mask (zeros and 3 ones)");
}
END_TEST

START_TEST(a_map_in_place_of_a_mask_is_named_too)
{
	gpusnap_expert_map_fill(standard, ids);
	ck_fails(gpusnap_mask_check(standard, &ids->value, EXPERTS, &err), GPUSNAP_E_CORRUPT,
		"give the mask, not the expert map");
}
END_TEST

START_TEST(masks_of_every_kind_become_maps_and_masks_again)
{
	for (int i = 0; i < KINDS; i++) {
		int32_t mask[MASK_MAX], again[MASK_MAX];
		uint32_t length = gpusnap_mask_length(&types[i]);

		gpusnap_mask_fill(&types[i], mask);
		gpusnap_expert_map_from_mask(&types[i], mask, ids);
		ck_ok(gpusnap_expert_map_check(&types[i], ids, EXPERTS, &err));
		memset(again, 0xaa, sizeof again);
		gpusnap_expert_map_to_mask(&types[i], ids, again);
		ck_assert_mem_eq(mask, again, length * sizeof *mask);
	}
}
END_TEST

START_TEST(one_lost_bit_moves_every_later_expert)
{
	int32_t mask[MASK_MAX];

	gpusnap_mask_fill(standard, mask);
	mask[FIRST] = 0;
	gpusnap_expert_map_from_mask(standard, mask, ids);
	ck_assert_int_eq(ids[FIRST].value, GPUSNAP_REMOTE);
	ck_assert_int_eq(ids[FIRST + 1].value, 0);
	ck_assert_int_eq(ids[FIRST + 2].value, 1);
}
END_TEST

START_TEST(ids_go_to_local_and_back)
{
	const int32_t global[] = {0, 4, 6, 5, 11, 4};
	enum { COUNT = sizeof global / sizeof global[0] };

	for (int i = 0; i < KINDS; i++) {
		int32_t sink = gpusnap_mask_sink(&types[i]), local[COUNT], back[COUNT];
		const int32_t expected[] = {sink, 0, 2, 1, sink, 0};

		ck_ok(gpusnap_ids_to_local(&types[i], global, COUNT, sink, local, &err));
		ck_assert_mem_eq(local, expected, sizeof expected);
		ck_ok(gpusnap_ids_to_global(&types[i], local, COUNT, sink, back, &err));
		for (int j = 0; j < COUNT; j++)
			ck_assert_int_eq(back[j], expected[j] == sink ? GPUSNAP_REMOTE : global[j]);
	}
	ck_assert_int_eq(gpusnap_mask_sink(&types[0]), GPUSNAP_REMOTE);
	ck_assert_int_eq(gpusnap_mask_sink(&types[2]), LOCAL);
	ck_assert_int_eq(gpusnap_mask_sink(&types[3]), EXPERTS + 2);
}
END_TEST

START_TEST(ids_that_are_none_are_refused_and_nothing_is_written)
{
	int32_t in_place[] = {4, -1, 5};

	ck_fails(gpusnap_ids_to_local(standard, in_place, 3, -1, in_place, &err), GPUSNAP_E_INVALID,
		"global expert id -1 at 1 is not one of 12");
	ck_assert_int_eq(in_place[0], 4);
	in_place[1] = 3;
	ck_fails(gpusnap_ids_to_global(standard, in_place, 3, -1, in_place, &err),
		GPUSNAP_E_INVALID, "local expert id 4 at 0 is not one of 3, nor -1");
	ck_assert_int_eq(in_place[2], 5);
}
END_TEST

/* ---- the vectors that aiter's sorting kernel is tested with, blocks of 4 rows ---- */

enum { SORT_EXPERTS = 6, SORT_BLOCK = 4, PAIRS = 15, TILES_MAX = 16 };

static const int32_t topk[PAIRS] = {0, 3, 5, 2, 3, 5, 1, 3, 5, 1, 2, 3, 1, 3, 5};

/* Local experts of the tiles that the sort makes: one at least for each expert that is kept. */
static uint32_t sort_tiles(const int32_t *mask, int32_t *ret_experts)
{
	const gpusnap_mask_type type = {
		GPUSNAP_MASK_STANDARD, SORT_EXPERTS, SORT_EXPERTS, 0, 0, 0, 1};
	gpusnap_local_id map[SORT_EXPERTS];
	uint32_t tiles = 0;

	gpusnap_expert_map_from_mask(&type, mask, map);
	for (int32_t e = 0; e < SORT_EXPERTS; e++) {
		uint32_t rows = 0, count;

		for (int p = 0; p < PAIRS; p++)
			rows += topk[p] == e;
		count = rows ? (rows + SORT_BLOCK - 1) / SORT_BLOCK : 1;
		for (uint32_t i = 0; map[e].value != GPUSNAP_REMOTE && i < count; i++)
			ret_experts[tiles++] = map[e].value;
	}
	return tiles;
}

START_TEST(published_sorting_vectors)
{
	static const int32_t all[] = {1, 1, 1, 1, 1, 1}, some[] = {1, 0, 1, 1, 0, 1};
	static const int32_t none[SORT_EXPERTS] = {0};
	static const int32_t all_tiles[] = {0, 1, 2, 3, 3, 4, 5}, some_tiles[] = {0, 1, 2, 2, 3};
	static const int32_t some_map[] = {0, -1, 1, 2, -1, 3};
	const gpusnap_mask_type type = {
		GPUSNAP_MASK_STANDARD, SORT_EXPERTS, SORT_EXPERTS, 0, 0, 0, 1};
	int32_t tiles[TILES_MAX];

	ck_assert_uint_eq(sort_tiles(all, tiles), 28 / SORT_BLOCK);
	ck_assert_mem_eq(tiles, all_tiles, sizeof all_tiles);
	ck_assert_uint_eq(sort_tiles(some, tiles), 20 / SORT_BLOCK);
	ck_assert_mem_eq(tiles, some_tiles, sizeof some_tiles);
	ck_assert_uint_eq(sort_tiles(none, tiles), 0);
	gpusnap_expert_map_from_mask(&type, some, ids);
	ck_assert_mem_eq(ids, some_map, sizeof some_map);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_map_numbers_the_own_block_and_no_other_expert,
		what_differs_is_named,
		a_map_in_place_of_a_mask_is_named_too,
		masks_of_every_kind_become_maps_and_masks_again,
		one_lost_bit_moves_every_later_expert,
		ids_go_to_local_and_back,
		ids_that_are_none_are_refused_and_nothing_is_written,
		published_sorting_vectors,
	};

	return RUN_SUITE("expert_maps", tests);
}
