/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tests/support/planted.h"
#include "tests/support/suite.h"

/* Rank 1 of 2: its first expert is not 0, so that local and global ids cannot be mixed up. */
static void make(struct moe_state *state, gpusnap_mask_kind kind, gpusnap_dtype dtype)
{
	struct moe_shape shape = MOE_SHAPE_INIT;

	shape.mask = kind;
	shape.dtype = dtype;
	shape.ep_rank = 1;
	shape.ep_size = 2;
	moe_state_make(state, &shape);
}

/* Experts of 160 and 80 KiB: most leaves belong to one expert alone. */
static void make_large(struct moe_state *state, gpusnap_dtype dtype)
{
	struct moe_shape shape = MOE_SHAPE_INIT;

	shape.hidden = 512;
	shape.intermediate = 160;
	shape.dtype = dtype;
	moe_state_make(state, &shape);
}

START_TEST(every_planted_fault_is_named_and_nothing_else_bf16)
{
	for (int kind = GPUSNAP_MASK_STANDARD; kind <= GPUSNAP_MASK_VLLM_AITER; kind++) {
		struct moe_state state;

		make(&state, (gpusnap_mask_kind)kind, GPUSNAP_BF16);
		plant_all_faults(&state);
		moe_state_free(&state);
	}
}
END_TEST

START_TEST(every_planted_fault_is_named_and_nothing_else_fp8)
{
	for (int kind = GPUSNAP_MASK_STANDARD; kind <= GPUSNAP_MASK_VLLM_AITER; kind++) {
		struct moe_state state;

		make(&state, (gpusnap_mask_kind)kind, GPUSNAP_F8_E4M3);
		plant_all_faults(&state);
		moe_state_free(&state);
	}
}
END_TEST

START_TEST(every_planted_fault_is_named_and_nothing_else_sigmoid)
{
	for (int kind = GPUSNAP_MASK_STANDARD; kind <= GPUSNAP_MASK_VLLM_AITER; kind++)
		for (uint32_t rank = 0; rank < 2; rank++) {
			struct moe_shape shape = MOE_SHAPE_INIT;
			struct moe_state state;

			shape.sigmoid = true;
			shape.mask = (gpusnap_mask_kind)kind;
			shape.ep_rank = rank;
			shape.ep_size = 2;
			moe_state_make(&state, &shape);
			plant_all_faults(&state);
			moe_state_free(&state);
		}
}
END_TEST

START_TEST(every_planted_fault_in_a_loaded_checkpoint_is_named_and_nothing_else)
{
	const char *const checkpoints[] = {
		"qwen3_moe", "qwen3_moe_fp8", "mixtral", "qwen2_moe", "glm4_moe"};
	const gpusnap_mask_kind kinds[] = {
		GPUSNAP_MASK_STANDARD, GPUSNAP_MASK_DEEPEP, GPUSNAP_MASK_VLLM_AITER};

	for (int i = 0; i < 15; i++) {
		gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
		struct moe_state state;

		options.ep_rank = i / 3 < 3; /* shared experts are on rank 0 */
		options.ep_size = 2;
		options.mask = kinds[i % 3];
		options.unregistered_masks = i < 3;
		moe_state_load(&state, checkpoints[i / 3], &options);
		plant_all_faults(&state);
		moe_state_free(&state);
	}
}
END_TEST

START_TEST(a_mask_without_a_name_is_named_as_the_model_names_it)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;

	shape.unregistered_masks = true;
	shape.ep_rank = 1;
	shape.ep_size = 2;
	moe_state_make(&state, &shape);
	plant_all_faults(&state);
	moe_state_free(&state);
}
END_TEST

/* Plant several faults at once: each is told once, in the order of checks. */
START_TEST(a_bad_mask_hides_no_expert_and_accuses_none)
{
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_baseline *baseline;
	gpusnap_validation got;
	struct plant mask, w2;

	make(&state, GPUSNAP_MASK_STANDARD, GPUSNAP_BF16);
	probe = moe_record(&state);
	baseline = moe_baseline(&state);
	mask = plant_place(&state, GPUSNAP_MOE_MASK, 0);
	w2 = plant_place(&state, GPUSNAP_MOE_W2, 3);
	plant_all_zero(&mask);
	plant_expert_zero(&w2);
	got = moe_validate(&state, probe, baseline);
	ck_assert_uint_eq(got.failure_count, 2);
	check_failure(
		&state, &got.failures[0], "mask", GPUSNAP_FAILURE_STRUCTURE, GPUSNAP_MOE_MASK, -1);
	check_failure(&state, &got.failures[1], "w2", GPUSNAP_FAILURE_EXPERT, GPUSNAP_MOE_W2, 7);
	ck_assert(got.decode_differs);
	gpusnap_validation_release(&got);
	gpusnap_baseline_free(baseline);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

START_TEST(large_experts_that_break_together_are_told_apart)
{
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_baseline *baseline;
	gpusnap_validation got;
	struct plant at;

	make_large(&state, GPUSNAP_F8_E4M3);
	probe = moe_record(&state);
	baseline = moe_baseline(&state);
	at = plant_place(&state, GPUSNAP_MOE_W2, 5);
	plant_expert_zero(&at);
	at = plant_place(&state, GPUSNAP_MOE_W13, 4);
	plant_expert_zero(&at);
	at = plant_place(&state, GPUSNAP_MOE_W2_SCALE, 0);
	plant_scale_doubled(&at);
	at = plant_place(&state, GPUSNAP_MOE_ROUTER, 0);
	plant_one_bit(&at);
	got = moe_validate(&state, probe, baseline);
	ck_assert_uint_eq(got.failure_count, 4);
	check_failure(&state, &got.failures[0], "router", GPUSNAP_FAILURE_CONTROL,
		GPUSNAP_MOE_ROUTER, -1);
	check_failure(&state, &got.failures[1], "scale", GPUSNAP_FAILURE_CONTROL,
		GPUSNAP_MOE_W2_SCALE, 0);
	check_failure(&state, &got.failures[2], "w13", GPUSNAP_FAILURE_EXPERT, GPUSNAP_MOE_W13, 4);
	check_failure(&state, &got.failures[3], "w2", GPUSNAP_FAILURE_EXPERT, GPUSNAP_MOE_W2, 5);
	gpusnap_validation_release(&got);
	gpusnap_baseline_free(baseline);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

/* The other way round: the neighbour whose leaf is shared comes later. */
START_TEST(a_later_neighbour_does_not_accuse_an_earlier_expert)
{
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_baseline *baseline;
	gpusnap_validation got;
	struct plant at;

	make_large(&state, GPUSNAP_F8_E4M3);
	probe = moe_record(&state);
	baseline = moe_baseline(&state);
	at = plant_place(&state, GPUSNAP_MOE_W2, 4);
	plant_expert_zero(&at);
	at = plant_place(&state, GPUSNAP_MOE_W13, 5);
	plant_expert_zero(&at);
	got = moe_validate(&state, probe, baseline);
	ck_assert_uint_eq(got.failure_count, 2);
	check_failure(&state, &got.failures[0], "w2", GPUSNAP_FAILURE_EXPERT, GPUSNAP_MOE_W2, 4);
	check_failure(&state, &got.failures[1], "w13", GPUSNAP_FAILURE_EXPERT, GPUSNAP_MOE_W13, 5);
	gpusnap_validation_release(&got);
	gpusnap_baseline_free(baseline);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

START_TEST(the_leaf_is_the_first_that_differs)
{
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_baseline *baseline;
	gpusnap_validation got;
	struct plant at;

	make_large(
		&state, GPUSNAP_BF16); /* w13: 320 KiB an expert, so expert 2 has leaves 10..14 */
	probe = moe_record(&state);
	baseline = moe_baseline(&state);
	at = plant_place(&state, GPUSNAP_MOE_W13, 2);
	at.expert[3 * GPUSNAP_LEAF_BYTES + 1] ^= 0x40;
	got = moe_validate(&state, probe, baseline);
	ck_assert_uint_eq(got.failure_count, 1);
	ck_assert_int_eq(got.failures[0].leaf, 13);
	ck_assert_int_eq(got.failures[0].expert, 2);
	gpusnap_validation_release(&got);
	gpusnap_baseline_free(baseline);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

START_TEST(without_leaves_the_expert_is_named_and_no_buffer)
{
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_validation got;
	struct plant at;

	make(&state, GPUSNAP_MASK_STANDARD, GPUSNAP_BF16);
	probe = moe_record(&state);
	ck_assert_ptr_null(gpusnap_registry_baseline(state.registry));
	at = plant_place(&state, GPUSNAP_MOE_W13, PLANT_LOCAL);
	plant_expert_zero(&at);
	got = moe_validate(&state, probe, NULL);
	ck_assert_uint_eq(got.failure_count, 1);
	ck_assert_int_eq(got.failures[0].kind, GPUSNAP_FAILURE_EXPERT);
	ck_assert_ptr_null(got.failures[0].buffer);
	ck_assert_int_eq(got.failures[0].expert, 6);
	ck_assert_int_eq(got.failures[0].leaf, -1);
	ck_assert_msg(strstr(got.failures[0].detail, "no leaf digests") != NULL, "%s",
		got.failures[0].detail);
	gpusnap_validation_release(&got);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

START_TEST(the_registrys_baseline_is_used_when_none_is_given)
{
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_validation got;
	struct plant at;

	make(&state, GPUSNAP_MASK_STANDARD, GPUSNAP_BF16);
	probe = moe_record(&state);
	gpusnap_registry_set_baseline(state.registry, moe_baseline(&state));
	at = plant_place(&state, GPUSNAP_MOE_W2, PLANT_LOCAL);
	plant_expert_bit(&at);
	got = moe_validate(&state, probe, NULL);
	ck_assert_uint_eq(got.failure_count, 1);
	check_failure(&state, &got.failures[0], "w2", GPUSNAP_FAILURE_EXPERT, GPUSNAP_MOE_W2, 6);
	gpusnap_validation_release(&got);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

START_TEST(a_difference_that_nothing_explains_is_a_decode_failure)
{
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_baseline *baseline;
	gpusnap_validation got;

	make(&state, GPUSNAP_MASK_STANDARD, GPUSNAP_BF16);
	probe = moe_record(&state);
	baseline = moe_baseline(&state);
	probe->layers[PLANT_LAYER].output.bytes[3] ^= 1;
	probe->digest = gpusnap_probe_digest(probe);
	got = moe_validate(&state, probe, baseline);
	ck_assert_uint_eq(got.failure_count, 1);
	ck_assert_int_eq(got.failures[0].kind, GPUSNAP_FAILURE_DECODE);
	ck_assert_uint_eq(got.failures[0].layer, PLANT_LAYER);
	ck_assert_ptr_null(got.failures[0].buffer);
	ck_assert(got.decode_differs);
	gpusnap_validation_release(&got);
	probe->layers[PLANT_LAYER].output.bytes[3] ^= 1;
	probe->layers[0].remote_assignments++;
	probe->digest = gpusnap_probe_digest(probe);
	got = moe_validate(&state, probe, baseline);
	ck_assert_uint_eq(got.failure_count, 1);
	ck_assert_uint_eq(got.failures[0].layer, 0);
	ck_assert_msg(
		strstr(got.failures[0].detail, "remote") != NULL, "%s", got.failures[0].detail);
	gpusnap_validation_release(&got);
	gpusnap_baseline_free(baseline);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

START_TEST(bytes_outside_moe_layers_are_not_its_business)
{
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
	const uint64_t size = 1000;
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_baseline *baseline;
	gpusnap_damage damage;
	uint8_t byte = 9;
	gpusnap_error err;

	make(&state, GPUSNAP_MASK_STANDARD, GPUSNAP_BF16);
	options.name = "embedding";
	options.dtype = GPUSNAP_U8;
	options.rank = 1;
	options.shape = &size;
	options.region = state.mask_region;
	ck_ok(gpusnap_region_alloc(
		state.registry, state.mask_region, size, 64, &options.offset, &err));
	ck_ok(gpusnap_buffer_register(state.registry, &options, &err));
	probe = moe_record(&state);
	baseline = moe_baseline(&state);
	ck_ok(gpusnap_buffer_write(state.registry, "embedding", 7, &byte, 1, &err));
	check_proved(&state, probe, baseline);
	ck_ok(gpusnap_verify(state.registry, baseline, &damage, &err));
	ck_assert_uint_eq(damage.count, 1);
	ck_assert_str_eq(damage.items[0].buffer, "embedding");
	gpusnap_damage_release(&damage);
	gpusnap_baseline_free(baseline);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

START_TEST(state_that_comes_back_from_offload_is_proved)
{
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_validation got;
	gpusnap_error err;

	make(&state, GPUSNAP_MASK_DEEPEP, GPUSNAP_F8_E4M3);
	probe = moe_record(&state);
	moe_offload(&state);
	ck_fails(gpusnap_validate(state.dispatch, probe, NULL, &got, &err), GPUSNAP_E_STATE,
		"not resident");
	moe_resume(&state);
	check_proved(&state, probe, NULL);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

START_TEST(a_record_of_something_else_is_refused)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state, other;
	gpusnap_probe *probe;
	gpusnap_validation got;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	probe = moe_record(&state);
	shape.layers = 1;
	moe_state_make(&other, &shape);
	ck_fails(gpusnap_validate(other.dispatch, probe, NULL, &got, &err), GPUSNAP_E_MISMATCH,
		"of 2 layers, the model has 1");
	moe_state_free(&other);
	shape.layers = 2;
	shape.ep_size = 2;
	moe_state_make(&other, &shape);
	ck_fails(gpusnap_validate(other.dispatch, probe, NULL, &got, &err), GPUSNAP_E_MISMATCH,
		"8 experts of layer 0, this rank 4");
	moe_state_free(&other);
	probe->tokens = 0;
	ck_fails(gpusnap_validate(state.dispatch, probe, NULL, &got, &err), GPUSNAP_E_INVALID,
		"0 tokens");
	probe->tokens = 9;
	ck_fails(gpusnap_validate(state.dispatch, probe, NULL, &got, &err), GPUSNAP_E_CORRUPT,
		"digest");
	probe->version = 7;
	ck_fails(gpusnap_validate(state.dispatch, probe, NULL, &got, &err), GPUSNAP_E_UNSUPPORTED,
		"version 7");
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_planted_fault_is_named_and_nothing_else_bf16,
		every_planted_fault_is_named_and_nothing_else_fp8,
		every_planted_fault_is_named_and_nothing_else_sigmoid,
		every_planted_fault_in_a_loaded_checkpoint_is_named_and_nothing_else,
		a_mask_without_a_name_is_named_as_the_model_names_it,
		a_bad_mask_hides_no_expert_and_accuses_none,
		large_experts_that_break_together_are_told_apart,
		a_later_neighbour_does_not_accuse_an_earlier_expert,
		the_leaf_is_the_first_that_differs,
		without_leaves_the_expert_is_named_and_no_buffer,
		the_registrys_baseline_is_used_when_none_is_given,
		a_difference_that_nothing_explains_is_a_decode_failure,
		bytes_outside_moe_layers_are_not_its_business,
		state_that_comes_back_from_offload_is_proved,
		a_record_of_something_else_is_refused,
	};

	return RUN_SUITE("planted_faults", tests);
}
