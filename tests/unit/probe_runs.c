/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "dispatch/probe_input.h"
#include "formats/base/alloc.h"
#include "tests/support/moe_state.h"
#include "tests/support/suite.h"

static gpusnap_probe *record(
	const struct moe_state *state, uint64_t seed, uint32_t tokens, uint32_t steps)
{
	gpusnap_validate_options options = GPUSNAP_VALIDATE_OPTIONS_INIT;
	gpusnap_probe *probe;
	gpusnap_error err;

	options.seed = seed;
	options.tokens = tokens;
	options.steps = steps;
	ck_ok(gpusnap_probe_record(state->dispatch, &options, &probe, &err));
	return probe;
}

/* Made by an independent program from the description in probe_input.h: records depend on it. */
START_TEST(inputs_are_the_ones_that_the_header_describes)
{
	const float expected[] = {
		-1.5859375f, -1.1484375f, 0.5546875f, 0.5625f, -0.17578125f, -0.130859375f};
	float got[sizeof expected / sizeof expected[0]];

	gsn_probe_input(1, GSN_INPUT_STEP(0), got, sizeof got / sizeof got[0]);
	ck_assert_mem_eq(got, expected, sizeof expected);
}
END_TEST

START_TEST(inputs_are_never_zero_and_exact_in_bf16)
{
	enum { COUNT = 10000 };
	float *values = gsn_alloc(COUNT, sizeof *values);
	int negative = 0;

	gsn_probe_input(3, GSN_INPUT_EXPERT(7, 5), values, COUNT);
	for (int i = 0; i < COUNT; i++) {
		uint32_t bits;

		memcpy(&bits, &values[i], sizeof bits);
		ck_assert_uint_eq(bits & 0xffff, 0);
		ck_assert(fabsf(values[i]) >= 0.125f && fabsf(values[i]) < 2.0f);
		negative += values[i] < 0.0f;
	}
	ck_assert(negative > COUNT * 2 / 5 && negative < COUNT * 3 / 5);
	gsn_free(values);
}
END_TEST

START_TEST(two_records_of_one_state_are_equal)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state, twin;
	gpusnap_probe *a, *b, *c;

	moe_state_make(&state, &shape);
	moe_state_make(&twin, &shape);
	a = record(&state, 5, 4, 3);
	b = record(&state, 5, 4, 3);
	c = record(&twin, 5, 4, 3);
	ck_assert(gpusnap_digest_equal(a->digest, b->digest));
	ck_assert(gpusnap_digest_equal(a->digest, c->digest));
	gpusnap_probe_free(a);
	gpusnap_probe_free(b);
	gpusnap_probe_free(c);
	moe_state_free(&state);
	moe_state_free(&twin);
}
END_TEST

START_TEST(seed_tokens_and_steps_change_the_record)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	gpusnap_probe *base, *other;
	const uint32_t changes[][3] = {{6, 4, 3}, {5, 3, 3}, {5, 4, 2}};

	moe_state_make(&state, &shape);
	base = record(&state, 5, 4, 3);
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		other = record(&state, changes[i][0], changes[i][1], changes[i][2]);
		for (uint32_t layer = 0; layer < shape.layers; layer++)
			ck_assert(!gpusnap_digest_equal(
				base->layers[layer].output, other->layers[layer].output));
		gpusnap_probe_free(other);
	}
	gpusnap_probe_free(base);
	moe_state_free(&state);
}
END_TEST

START_TEST(defaults_are_seed_1_tokens_8_steps_4)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	ck_ok(gpusnap_probe_record(state.dispatch, NULL, &probe, &err));
	ck_assert_uint_eq(probe->seed, 1);
	ck_assert_uint_eq(probe->tokens, 8);
	ck_assert_uint_eq(probe->steps, 4);
	for (uint32_t i = 0; i < shape.layers; i++)
		ck_assert_uint_eq(probe->layers[i].local_assignments, (uint64_t)32 * shape.top_k);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

/* An expert's digest is its own: the same whichever rank holds it and whatever the mask. */
START_TEST(experts_have_the_same_digests_on_every_rank)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	gpusnap_probe *whole, *part;

	moe_state_make(&state, &shape);
	whole = record(&state, 1, 2, 1);
	moe_state_free(&state);
	shape.ep_size = 3;
	shape.mask = GPUSNAP_MASK_DEEPEP;
	for (shape.ep_rank = 0; shape.ep_rank < shape.ep_size; shape.ep_rank++) {
		moe_state_make(&state, &shape);
		part = record(&state, 1, 2, 1);
		for (uint32_t i = 0; i < part->layers[0].expert_count; i++)
			ck_assert(gpusnap_digest_equal(part->layers[0].experts[i],
				whole->layers[0].experts[state.model->layers[0].mask.first + i]));
		gpusnap_probe_free(part);
		moe_state_free(&state);
	}
	gpusnap_probe_free(whole);
}
END_TEST

START_TEST(a_record_survives_its_json_form)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	gpusnap_probe *probe, *back;
	gpusnap_json *json;
	gpusnap_validation got;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	probe = record(&state, INT64_MAX, 2, 1);
	json = gpusnap_probe_encode(probe);
	ck_ok(gpusnap_probe_decode(json, &back, &err));
	ck_ok(gpusnap_validate(state.dispatch, back, NULL, &got, &err));
	ck_assert(got.proved);
	gpusnap_validation_release(&got);
	gpusnap_json_free(json);
	gpusnap_probe_free(back);
	gpusnap_probe_free(probe);
	moe_state_free(&state);
}
END_TEST

static void check_refused(gpusnap_moe_slot slot, const void *bytes, size_t length, const char *text)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;
	gpusnap_probe *probe = NULL;
	uint64_t size;
	void *live;
	gpusnap_error err;

	shape.dtype = GPUSNAP_F8_E4M3;
	moe_state_make(&state, &shape);
	live = moe_state_bytes(&state, 1, slot, &size);
	memcpy(live, bytes, length);
	ck_fails(gpusnap_probe_record(state.dispatch, NULL, &probe, &err), GPUSNAP_E_NOT_PROVED,
		text);
	ck_assert_msg(strstr(err.message, state.model->layers[1].buffers[slot]) != NULL, "%s",
		err.message);
	ck_assert_ptr_null(probe);
	moe_state_free(&state);
}

START_TEST(no_record_is_made_of_a_broken_state)
{
	const int32_t zero = 0;
	const float negative = -1.0f;
	const uint8_t nan8 = 0xff;
	const uint16_t infinity16 = 0x7f80;

	check_refused(GPUSNAP_MOE_MASK, &zero, sizeof zero, "layer 1");
	check_refused(GPUSNAP_MOE_W13_SCALE, &negative, sizeof negative, "finite and positive");
	check_refused(GPUSNAP_MOE_W2, &nan8, sizeof nan8, "NaN code");
	check_refused(GPUSNAP_MOE_ROUTER, &infinity16, sizeof infinity16, "NaN or infinite");
	check_refused(GPUSNAP_MOE_NORM, &infinity16, sizeof infinity16, "NaN or infinite");
}
END_TEST

START_TEST(limits_are_told)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	gpusnap_validate_options options = GPUSNAP_VALIDATE_OPTIONS_INIT;
	struct moe_state state;
	gpusnap_probe *probe;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	options.tokens = GPUSNAP_PROBE_TOKENS_MAX + 1;
	ck_fails(gpusnap_probe_record(state.dispatch, &options, &probe, &err), GPUSNAP_E_INVALID,
		"65537 tokens");
	options.tokens = 0;
	options.steps = UINT32_MAX;
	ck_fails(gpusnap_probe_record(state.dispatch, &options, &probe, &err), GPUSNAP_E_INVALID,
		"4294967295 steps");
	options.steps = 0;
	options.seed = UINT64_MAX;
	ck_fails(gpusnap_probe_record(state.dispatch, &options, &probe, &err), GPUSNAP_E_INVALID,
		"seed");
	moe_state_free(&state);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		inputs_are_the_ones_that_the_header_describes,
		inputs_are_never_zero_and_exact_in_bf16,
		two_records_of_one_state_are_equal,
		seed_tokens_and_steps_change_the_record,
		defaults_are_seed_1_tokens_8_steps_4,
		experts_have_the_same_digests_on_every_rank,
		a_record_survives_its_json_form,
		no_record_is_made_of_a_broken_state,
		limits_are_told,
	};

	return RUN_SUITE("probe_runs", tests);
}
