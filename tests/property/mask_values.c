/* SPDX-License-Identifier: Apache-2.0 */
/* Masks of every kind and many sizes: filled ones pass, and no single wrong value does. */
#include <stdbool.h>
#include <string.h>

#include <gpusnap/mask.h>

#include "tests/support/suite.h"

enum {
	KINDS = 4,
	EXPERTS = 20,
	WORLD = 6,
	SHARED = 3, /* 0, 1, 2 */
	CAPACITY = EXPERTS + SHARED,
	TYPES = KINDS * EXPERTS * WORLD * WORLD * SHARED,
};

static gpusnap_error err;

/* Take `number` apart into a type; false where that is none. */
static bool type_at(unsigned number, gpusnap_mask_type *type)
{
	type->kind = (gpusnap_mask_kind)(1 + number % KINDS);
	number /= KINDS;
	type->shared = number % SHARED;
	number /= SHARED;
	type->rank = number % WORLD;
	number /= WORLD;
	type->world = 1 + number % WORLD;
	type->experts = 1 + number / WORLD;
	if (type->rank >= type->world)
		return false;
	if (type->shared && type->kind != GPUSNAP_MASK_VLLM_AITER)
		return false;
	gpusnap_expert_block(type->experts, type->rank, type->world, &type->first, &type->local);
	return true;
}

START_TEST(filled_masks_pass_and_number_the_local_experts)
{
	gpusnap_mask_type type;
	int types = 0;

	for (unsigned number = 0; number < TYPES; number++) {
		int32_t values[CAPACITY + 1], sum = 0;
		uint32_t length;
		bool deepep;

		if (!type_at(number, &type))
			continue;
		types++;
		length = gpusnap_mask_length(&type);
		deepep = type.kind == GPUSNAP_MASK_DEEPEP;
		ck_assert_uint_le(length, CAPACITY);
		values[length] = 77;
		gpusnap_mask_fill(&type, values);
		ck_assert_int_eq(values[length], 77);
		ck_ok(gpusnap_mask_check(&type, values, length, &err));
		for (uint32_t i = 0; i < length; i++) {
			/* The exclusive prefix sum is the local id of every own routed expert. */
			bool own = deepep ? i < type.local
					  : i >= type.first && i < type.first + type.local;

			if (own)
				ck_assert_int_eq(sum, (int32_t)(deepep ? i : i - type.first));
			sum += values[i];
		}
		ck_assert_int_eq(sum, (int32_t)(type.local + type.shared));
	}
	ck_assert_int_eq(types, (KINDS - 1 + SHARED) * EXPERTS * WORLD * (WORLD + 1) / 2);
}
END_TEST

START_TEST(blocks_partition_the_experts)
{
	for (uint32_t experts = 1; experts <= 300; experts++) {
		for (uint32_t world = 1; world <= 17; world++) {
			uint32_t next = 0, before = UINT32_MAX;

			for (uint32_t rank = 0; rank < world; rank++) {
				uint32_t first, local;

				gpusnap_expert_block(experts, rank, world, &first, &local);
				ck_assert_uint_eq(first, next);
				ck_assert_uint_le(local, before);
				ck_assert_uint_le(experts / world, local);
				next = first + local;
				before = local;
			}
			ck_assert_uint_eq(next, experts);
		}
	}
}
END_TEST

/* `values` is a good mask; put wrong values in the place of one. */
static void check_index(const gpusnap_mask_type *type, int32_t *values, uint32_t index)
{
	static const int32_t wrong[] = {
		0, 1, -1, 2, 7, INT32_MAX, INT32_MIN, -1515870811, 65536, 16777216};
	uint32_t length = gpusnap_mask_length(type);
	int32_t right = values[index];

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		values[index] = wrong[i];
		if (wrong[i] != right)
			ck_status(
				gpusnap_mask_check(type, values, length, &err), GPUSNAP_E_CORRUPT);
	}
	values[index] = right;
}

START_TEST(every_single_wrong_value_is_found)
{
	gpusnap_mask_type type;

	for (unsigned number = 0; number < TYPES; number++) {
		int32_t values[CAPACITY];
		uint32_t length;

		if (!type_at(number, &type))
			continue;
		length = gpusnap_mask_length(&type);
		gpusnap_mask_fill(&type, values);
		for (uint32_t i = 0; i < length; i++)
			check_index(&type, values, i);
		ck_status(gpusnap_mask_check(&type, values, length - 1, &err), GPUSNAP_E_MISMATCH);
	}
}
END_TEST

/* The mask of a rank is never taken for that of another rank, whose count may be the same. */
START_TEST(every_exchange_of_ranks_is_found)
{
	gpusnap_mask_type type;

	for (unsigned number = 0; number < TYPES; number++) {
		int32_t values[CAPACITY];

		if (!type_at(number, &type) || type.kind == GPUSNAP_MASK_DEEPEP)
			continue; /* counts local ids: only the length tells ranks apart */
		for (uint32_t rank = 0; rank < type.world; rank++) {
			gpusnap_mask_type other = type;

			gpusnap_expert_block(
				type.experts, rank, type.world, &other.first, &other.local);
			if (other.first == type.first || other.local + type.local == 0)
				continue;
			gpusnap_mask_fill(&other, values);
			ck_status(
				gpusnap_mask_check(&type, values, gpusnap_mask_length(&type), &err),
				GPUSNAP_E_CORRUPT);
		}
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		filled_masks_pass_and_number_the_local_experts,
		blocks_partition_the_experts,
		every_single_wrong_value_is_found,
		every_exchange_of_ranks_is_found,
	};

	return RUN_SUITE("mask_values", tests);
}
