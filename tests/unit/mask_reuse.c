/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <gpusnap/expert_map.h>

#include "formats/base/alloc.h"
#include "tests/support/moe_state.h"
#include "tests/support/suite.h"

enum { STEPS = 10000, TOKENS = 4 };

static void decode(const struct moe_state *state, uint32_t layer, const float *x, float *out)
{
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	gpusnap_error err;

	io.tokens = TOKENS;
	io.x = x;
	io.out = out;
	ck_ok(gpusnap_decode_layer(state->dispatch, layer, &io, &err));
	ck_assert_uint_eq(io.local_assignments + io.remote_assignments,
		(uint64_t)TOKENS * state->model->layers[layer].top_k);
}

START_TEST(steps_build_no_mask_copy_none_and_allocate_nothing)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	gpusnap_dispatch_counters before, after;
	float *x = moe_inputs(1, (size_t)TOKENS * shape.hidden);
	float *out = gsn_alloc((size_t)TOKENS * shape.hidden, sizeof *out);
	gpusnap_error err;

	shape.zero_masks = true;
	shape.maps = true;
	moe_state_make(&state, &shape);
	for (uint32_t layer = 0; layer < shape.layers; layer++) {
		ck_ok(gpusnap_dispatch_build_mask(state.dispatch, layer, &err));
		ck_ok(gpusnap_dispatch_build_map(state.dispatch, layer, &err));
	}
	decode(&state, 0, x, out);
	before = gpusnap_dispatch_get_counters(state.dispatch);
	ck_assert_uint_eq(before.mask_builds, shape.layers);
	ck_assert_uint_eq(before.map_builds, shape.layers);
	ck_assert_uint_eq(before.mask_copies, 2ull * shape.layers);
	for (uint32_t step = 0; step < STEPS; step++)
		decode(&state, step % shape.layers, x, out);
	after = gpusnap_dispatch_get_counters(state.dispatch);
	ck_assert_uint_eq(after.steps, before.steps + STEPS);
	ck_assert_uint_eq(after.mask_builds, before.mask_builds);
	ck_assert_uint_eq(after.map_builds, before.map_builds);
	ck_assert_uint_eq(after.mask_copies, before.mask_copies);
	ck_assert_uint_eq(after.allocations, before.allocations);
	moe_state_free(&state);
	gsn_free(x);
	gsn_free(out);
}
END_TEST

START_TEST(building_again_while_nothing_is_remapped_does_nothing)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	for (int i = 0; i < 3; i++)
		ck_ok(gpusnap_dispatch_build_mask(state.dispatch, 1, &err));
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).mask_builds, 1);
	ck_fails(gpusnap_dispatch_build_mask(state.dispatch, shape.layers, &err), GPUSNAP_E_INVALID,
		"layer index 2");
	moe_state_free(&state);
}
END_TEST

/* The region forgets bytes that no buffer names, as engines' memory savers do. */
static void forget_unclaimed(struct moe_state *state, const struct moe_shape *shape)
{
	struct moe_shape lost = *shape;

	lost.unregistered_masks = true;
	lost.zero_masks = true;
	lost.forget_unclaimed = true;
	moe_state_make(state, &lost);
}

START_TEST(a_remap_makes_an_owned_mask_be_written_once_more)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	float *x = moe_inputs(2, (size_t)TOKENS * shape.hidden);
	float *first = gsn_alloc((size_t)TOKENS * shape.hidden, sizeof *first);
	float *again = gsn_alloc((size_t)TOKENS * shape.hidden, sizeof *again);
	gpusnap_error err;

	forget_unclaimed(&state, &shape);
	ck_ok(gpusnap_dispatch_build_mask(state.dispatch, 0, &err));
	decode(&state, 0, x, first);
	moe_offload(&state);
	moe_resume(&state);
	for (int i = 0; i < 5; i++)
		decode(&state, 0, x, again);
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).mask_builds, 2);
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).mask_copies, 2);
	ck_assert_mem_eq(first, again, (size_t)TOKENS * shape.hidden * sizeof *first);
	moe_state_free(&state);
	gsn_free(x);
	gsn_free(first);
	gsn_free(again);
}
END_TEST

START_TEST(a_map_is_written_once_more_after_a_remap)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	float *x = moe_inputs(4, (size_t)TOKENS * shape.hidden);
	float *out = gsn_alloc((size_t)TOKENS * shape.hidden, sizeof *out);
	gpusnap_local_id *ids;
	uint64_t bytes;
	gpusnap_error err;

	shape.maps = true;
	shape.zero_masks = true;
	shape.ep_rank = 1;
	shape.ep_size = 2;
	moe_state_make(&state, &shape);
	ck_ok(gpusnap_dispatch_build_map(state.dispatch, 0, &err));
	ck_ok(gpusnap_dispatch_build_map(state.dispatch, 0, &err));
	ids = moe_state_bytes(&state, 0, GPUSNAP_MOE_MAP, &bytes);
	ck_ok(gpusnap_expert_map_check(&state.model->layers[0].mask, ids, shape.experts, &err));
	moe_offload(&state);
	moe_resume(&state);
	for (int i = 0; i < 5; i++)
		decode(&state, 0, x, out);
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).map_builds, 2);
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).mask_builds, 0);
	moe_state_free(&state);
	shape.maps = false;
	moe_state_make(&state, &shape);
	ck_fails(gpusnap_dispatch_build_map(state.dispatch, 0, &err), GPUSNAP_E_INVALID,
		"layer 0 has no map to build");
	moe_state_free(&state);
	gsn_free(x);
	gsn_free(out);
}
END_TEST

START_TEST(a_mask_that_somebody_else_fills_is_left_alone)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	float *x = moe_inputs(3, (size_t)TOKENS * shape.hidden);
	float *out = gsn_alloc((size_t)TOKENS * shape.hidden, sizeof *out);

	moe_state_make(&state, &shape);
	decode(&state, 0, x, out);
	moe_offload(&state);
	moe_resume(&state);
	decode(&state, 0, x, out);
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).mask_builds, 0);
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).mask_copies, 0);
	moe_state_free(&state);
	gsn_free(x);
	gsn_free(out);
}
END_TEST

START_TEST(no_mask_is_built_while_its_region_is_offloaded)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	moe_offload(&state);
	ck_fails(gpusnap_dispatch_build_mask(state.dispatch, 0, &err), GPUSNAP_E_STATE,
		"not resident");
	moe_resume(&state);
	ck_ok(gpusnap_dispatch_build_mask(state.dispatch, 0, &err));
	moe_state_free(&state);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		steps_build_no_mask_copy_none_and_allocate_nothing,
		building_again_while_nothing_is_remapped_does_nothing,
		a_remap_makes_an_owned_mask_be_written_once_more,
		a_map_is_written_once_more_after_a_remap,
		a_mask_that_somebody_else_fills_is_left_alone,
		no_mask_is_built_while_its_region_is_offloaded,
	};

	return RUN_SUITE("mask_reuse", tests);
}
