/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "tests/support/moe_state.h"
#include "tests/support/suite.h"

/* Where a fault is planted: the live bytes of one buffer of layer 1, and one local expert. */
struct plant {
	const gpusnap_moe_layer *spec;
	gpusnap_dtype dtype;
	uint8_t *bytes;
	uint64_t size;
	uint8_t *expert; /* its part of the bytes */
	uint64_t part;
};

enum { LAYER = 1, LOCAL = 2 };

static int32_t *mask_of(const struct plant *at)
{
	return (int32_t *)(void *)at->bytes;
}

static void mask_all_zero(const struct plant *at)
{
	memset(at->bytes, 0, at->size);
}

static void mask_all_one(const struct plant *at)
{
	for (uint64_t i = 0; i < at->size / 4; i++)
		mask_of(at)[i] = 1;
}

static void mask_shifted(const struct plant *at)
{
	int32_t last = mask_of(at)[at->size / 4 - 1];

	memmove(at->bytes + 4, at->bytes, at->size - 4);
	mask_of(at)[0] = last;
}

/* The one-bits of a mask begin here, whatever its kind. */
static uint32_t first_one(const struct plant *at)
{
	return at->spec->mask.kind == GPUSNAP_MASK_DEEPEP ? 0 : at->spec->mask.first;
}

static void mask_lost_bit(const struct plant *at)
{
	mask_of(at)[first_one(at) + 1] = 0;
}

static void mask_extra_bit(const struct plant *at)
{
	uint32_t at_zero = at->spec->mask.kind == GPUSNAP_MASK_DEEPEP ? at->spec->mask.local : 1;

	mask_of(at)[at_zero] = 1;
}

static void mask_of_another_rank(const struct plant *at)
{
	gpusnap_mask_type other = at->spec->mask;

	other.first = 0;
	gpusnap_mask_fill(&other, mask_of(at));
}

static void mask_index_map(const struct plant *at)
{
	for (uint32_t i = 0; i < at->size / 4; i++) {
		uint32_t local = i - first_one(at);

		mask_of(at)[i] = local < at->spec->mask.local ? (int32_t)local : -1;
	}
}

static void mask_sink_set(const struct plant *at)
{
	mask_of(at)[at->size / 4 - 1] = 1;
}

static void expert_zero(const struct plant *at)
{
	memset(at->expert, 0, at->part);
}

static void expert_bit(const struct plant *at)
{
	at->expert[at->part / 2] ^= 0x10;
}

static void expert_nan(const struct plant *at)
{
	at->expert[at->part - 1] = 0x7f; /* the high byte of BF16, a code of E4M3 */
	if (at->dtype == GPUSNAP_BF16)
		at->expert[at->part - 2] = 0xc0;
}

static void expert_gate_and_up_swapped(const struct plant *at)
{
	uint64_t half = at->part / 2;
	uint8_t *gate = gsn_alloc(1, half);

	ck_assert_ptr_nonnull(gate);
	memcpy(gate, at->expert, half);
	memcpy(at->expert, at->expert + half, half);
	memcpy(at->expert + half, gate, half);
	gsn_free(gate);
}

static void scale_doubled(const struct plant *at)
{
	((float *)(void *)at->expert)[0] *= 2.0f;
}

static void scale_not_finite(const struct plant *at)
{
	((float *)(void *)at->expert)[1] = INFINITY;
}

static void rows_swapped(const struct plant *at)
{
	uint64_t row = at->size / at->spec->experts;
	uint8_t *first = gsn_alloc(1, row);

	ck_assert_ptr_nonnull(first);
	memcpy(first, at->bytes, row);
	memcpy(at->bytes, at->bytes + row, row);
	memcpy(at->bytes + row, first, row);
	gsn_free(first);
}

static void one_bit(const struct plant *at)
{
	at->bytes[at->size / 2] ^= 0x04;
}

enum { ALL = 0, FP8 = 1, NOT_DEEPEP = 2, WITH_SINK = 4 };

static const struct fault {
	const char *name;
	void (*plant)(const struct plant *at);
	gpusnap_moe_slot slot;
	gpusnap_failure_kind kind;
	bool of_expert;
	int only;
} faults[] = {
#define MASK(function, only)                                                                       \
	{                                                                                          \
#function, function, GPUSNAP_MOE_MASK, GPUSNAP_FAILURE_STRUCTURE, false, only      \
	}
	MASK(mask_all_zero, ALL),
	MASK(mask_all_one, ALL),
	MASK(mask_shifted, ALL),
	MASK(mask_lost_bit, ALL),
	MASK(mask_extra_bit, ALL),
	MASK(mask_of_another_rank, NOT_DEEPEP), /* a deepep mask does not say whose it is */
	MASK(mask_index_map, ALL),
	MASK(mask_sink_set, WITH_SINK),
#undef MASK
#define EXPERT(slot, function, kind, only)                                                         \
	{                                                                                          \
#slot " " #function, function, GPUSNAP_MOE_##slot, GPUSNAP_FAILURE_##kind, true,   \
			only                                                                       \
	}
	EXPERT(W13, expert_zero, EXPERT, ALL),
	EXPERT(W2, expert_zero, EXPERT, ALL),
	EXPERT(W13, expert_bit, EXPERT, ALL),
	EXPERT(W2, expert_bit, EXPERT, ALL),
	EXPERT(W13, expert_nan, STRUCTURE, ALL),
	EXPERT(W2, expert_nan, STRUCTURE, ALL),
	EXPERT(W13, expert_gate_and_up_swapped, EXPERT, ALL),
	EXPERT(W13_SCALE, expert_zero, STRUCTURE, FP8),
	EXPERT(W2_SCALE, expert_zero, STRUCTURE, FP8),
	EXPERT(W2_SCALE, scale_not_finite, STRUCTURE, FP8),
	EXPERT(W13_SCALE, scale_doubled, CONTROL, FP8),
	EXPERT(W2_SCALE, scale_doubled, CONTROL, FP8),
#undef EXPERT
	{"router rows_swapped", rows_swapped, GPUSNAP_MOE_ROUTER, GPUSNAP_FAILURE_CONTROL, false,
		ALL},
	{"router one_bit", one_bit, GPUSNAP_MOE_ROUTER, GPUSNAP_FAILURE_CONTROL, false, ALL},
	{"norm one_bit", one_bit, GPUSNAP_MOE_NORM, GPUSNAP_FAILURE_CONTROL, false, ALL},
};

enum { FAULT_COUNT = sizeof faults / sizeof faults[0] };

static bool applies(const struct fault *fault, const struct moe_state *state)
{
	const gpusnap_moe_layer *spec = &state->model->layers[LAYER];
	bool deepep = spec->mask.kind == GPUSNAP_MASK_DEEPEP;

	return !((fault->only & FP8) && spec->block_n == 0) &&
	       !((fault->only & NOT_DEEPEP) && deepep) &&
	       !((fault->only & WITH_SINK) && !deepep &&
		       spec->mask.kind != GPUSNAP_MASK_VLLM_AITER);
}

static struct plant find_place(const struct moe_state *state, gpusnap_moe_slot slot, uint32_t local)
{
	const gpusnap_moe_layer *spec = &state->model->layers[LAYER];
	struct plant at = {.spec = spec, .dtype = GPUSNAP_I32};
	gpusnap_buffer_info info;
	gpusnap_error err;

	if (slot != GPUSNAP_MOE_MASK) {
		ck_ok(gpusnap_buffer_find(state->registry, spec->buffers[slot], &info, &err));
		at.dtype = info.dtype;
	}
	at.bytes = moe_state_bytes(state, LAYER, slot, &at.size);
	at.part = at.size / spec->mask.local;
	at.expert = at.bytes + local * at.part;
	return at;
}

static gpusnap_probe *record(const struct moe_state *state)
{
	gpusnap_validate_options options = GPUSNAP_VALIDATE_OPTIONS_INIT;
	gpusnap_probe *probe;
	gpusnap_error err;

	options.steps = 2;
	ck_ok(gpusnap_probe_record(state->dispatch, &options, &probe, &err));
	return probe;
}

static gpusnap_baseline *baseline_of(const struct moe_state *state)
{
	gpusnap_baseline *baseline;
	gpusnap_error err;

	ck_ok(gpusnap_baseline_from_live(state->registry, &baseline, &err));
	return baseline;
}

static gpusnap_validation validate(
	const struct moe_state *state, const gpusnap_probe *probe, const gpusnap_baseline *baseline)
{
	gpusnap_validation got;
	gpusnap_error err;

	ck_ok(gpusnap_validate(state->dispatch, probe, baseline, &got, &err));
	ck_assert_uint_eq(got.layers, state->model->layer_count);
	ck_assert(got.proved == (got.failure_count == 0));
	ck_assert(got.proved == gpusnap_digest_equal(got.digest, probe->digest));
	return got;
}

static void check_proved(
	const struct moe_state *state, const gpusnap_probe *probe, const gpusnap_baseline *baseline)
{
	gpusnap_validation got = validate(state, probe, baseline);

	ck_assert_msg(got.proved, "%s", got.failure_count ? got.failures[0].detail : "");
	ck_assert(!got.decode_differs);
	gpusnap_validation_release(&got);
}

/* A failure of the layer's slot; expert -1 for none. */
static void check_failure(const struct moe_state *state, const gpusnap_failure *got,
	const char *name, gpusnap_failure_kind kind, gpusnap_moe_slot slot, int32_t expert)
{
	const char *buffer = state->model->layers[LAYER].buffers[slot];

	ck_assert_msg(got->buffer && strcmp(got->buffer, buffer) == 0, "%s: names %s, not %s: %s",
		name, got->buffer ? got->buffer : "nothing", buffer, got->detail);
	ck_assert_msg(got->kind == kind, "%s: kind %s: %s", name,
		gpusnap_failure_kind_name(got->kind), got->detail);
	ck_assert_msg(got->expert == expert, "%s: expert %d, not %d: %s", name, got->expert, expert,
		got->detail);
	ck_assert_uint_eq(got->layer, state->model->layers[LAYER].layer);
	ck_assert_msg(got->leaf >= 0, "%s: no leaf: %s", name, got->detail);
	ck_assert_msg(got->detail[0] != '\0', "%s: no detail", name);
}

static void check_fault(const struct moe_state *state, const struct fault *fault,
	const gpusnap_probe *probe, const gpusnap_baseline *baseline)
{
	struct plant at = find_place(state, fault->slot, LOCAL);
	uint8_t *good = gsn_alloc(1, at.size);
	int32_t expert = fault->of_expert ? (int32_t)(at.spec->mask.first + LOCAL) : -1;
	gpusnap_validation got;

	ck_assert_ptr_nonnull(good);
	memcpy(good, at.bytes, at.size);
	fault->plant(&at);
	ck_assert_msg(memcmp(good, at.bytes, at.size) != 0, "%s plants nothing", fault->name);
	got = validate(state, probe, baseline);
	ck_assert_msg(got.failure_count == 1, "%s: %zu failures; second: %s %s", fault->name,
		got.failure_count, got.failure_count > 1 ? got.failures[1].buffer : "",
		got.failure_count > 1 ? got.failures[1].detail : "");
	check_failure(state, &got.failures[0], fault->name, fault->kind, fault->slot, expert);
	gpusnap_validation_release(&got);
	memcpy(at.bytes, good, at.size);
	gsn_free(good);
}

static void check_all_faults(const struct moe_state *state)
{
	gpusnap_probe *probe = record(state);
	gpusnap_baseline *baseline = baseline_of(state);
	int planted = 0;

	check_proved(state, probe, baseline);
	for (int i = 0; i < FAULT_COUNT; i++)
		if (applies(&faults[i], state)) {
			check_fault(state, &faults[i], probe, baseline);
			planted++;
		}
	ck_assert_int_gt(planted, 15);
	check_proved(state, probe, baseline);
	gpusnap_baseline_free(baseline);
	gpusnap_probe_free(probe);
}

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
		check_all_faults(&state);
		moe_state_free(&state);
	}
}
END_TEST

START_TEST(every_planted_fault_is_named_and_nothing_else_fp8)
{
	for (int kind = GPUSNAP_MASK_STANDARD; kind <= GPUSNAP_MASK_VLLM_AITER; kind++) {
		struct moe_state state;

		make(&state, (gpusnap_mask_kind)kind, GPUSNAP_F8_E4M3);
		check_all_faults(&state);
		moe_state_free(&state);
	}
}
END_TEST

START_TEST(every_planted_fault_in_a_loaded_checkpoint_is_named_and_nothing_else)
{
	const char *const checkpoints[] = {"qwen3_moe", "qwen3_moe_fp8", "mixtral"};
	const gpusnap_mask_kind kinds[] = {
		GPUSNAP_MASK_STANDARD, GPUSNAP_MASK_DEEPEP, GPUSNAP_MASK_VLLM_AITER};

	for (int i = 0; i < 9; i++) {
		gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
		struct moe_state state;

		options.ep_rank = 1;
		options.ep_size = 2;
		options.mask = kinds[i % 3];
		options.unregistered_masks = i < 3;
		moe_state_load(&state, checkpoints[i / 3], &options);
		check_all_faults(&state);
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
	check_all_faults(&state);
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
	probe = record(&state);
	baseline = baseline_of(&state);
	mask = find_place(&state, GPUSNAP_MOE_MASK, 0);
	w2 = find_place(&state, GPUSNAP_MOE_W2, 3);
	mask_all_zero(&mask);
	expert_zero(&w2);
	got = validate(&state, probe, baseline);
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
	probe = record(&state);
	baseline = baseline_of(&state);
	at = find_place(&state, GPUSNAP_MOE_W2, 5);
	expert_zero(&at);
	at = find_place(&state, GPUSNAP_MOE_W13, 4);
	expert_zero(&at);
	at = find_place(&state, GPUSNAP_MOE_W2_SCALE, 0);
	scale_doubled(&at);
	at = find_place(&state, GPUSNAP_MOE_ROUTER, 0);
	one_bit(&at);
	got = validate(&state, probe, baseline);
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
	probe = record(&state);
	baseline = baseline_of(&state);
	at = find_place(&state, GPUSNAP_MOE_W2, 4);
	expert_zero(&at);
	at = find_place(&state, GPUSNAP_MOE_W13, 5);
	expert_zero(&at);
	got = validate(&state, probe, baseline);
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
	probe = record(&state);
	baseline = baseline_of(&state);
	at = find_place(&state, GPUSNAP_MOE_W13, 2);
	at.expert[3 * GPUSNAP_LEAF_BYTES + 1] ^= 0x40;
	got = validate(&state, probe, baseline);
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
	probe = record(&state);
	ck_assert_ptr_null(gpusnap_registry_baseline(state.registry));
	at = find_place(&state, GPUSNAP_MOE_W13, LOCAL);
	expert_zero(&at);
	got = validate(&state, probe, NULL);
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
	probe = record(&state);
	gpusnap_registry_set_baseline(state.registry, baseline_of(&state));
	at = find_place(&state, GPUSNAP_MOE_W2, LOCAL);
	expert_bit(&at);
	got = validate(&state, probe, NULL);
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
	probe = record(&state);
	baseline = baseline_of(&state);
	probe->layers[LAYER].output.bytes[3] ^= 1;
	probe->digest = gpusnap_probe_digest(probe);
	got = validate(&state, probe, baseline);
	ck_assert_uint_eq(got.failure_count, 1);
	ck_assert_int_eq(got.failures[0].kind, GPUSNAP_FAILURE_DECODE);
	ck_assert_uint_eq(got.failures[0].layer, LAYER);
	ck_assert_ptr_null(got.failures[0].buffer);
	ck_assert(got.decode_differs);
	gpusnap_validation_release(&got);
	probe->layers[LAYER].output.bytes[3] ^= 1;
	probe->layers[0].remote_assignments++;
	probe->digest = gpusnap_probe_digest(probe);
	got = validate(&state, probe, baseline);
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
	probe = record(&state);
	baseline = baseline_of(&state);
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
	probe = record(&state);
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
	probe = record(&state);
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
