/* SPDX-License-Identifier: Apache-2.0 */
/* The table of faults: what is planted, and what validate must say of it. */
#include "tests/support/planted.h"

#include <math.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "tests/support/suite.h"

/* glm4_moe's small checkpoint has one MoE layer. */
static uint32_t plant_layer(const struct moe_state *state)
{
	return state->model->layer_count > PLANT_LAYER ? PLANT_LAYER : 0;
}

static int32_t *mask_of(const struct plant *at)
{
	return (int32_t *)(void *)at->bytes;
}

void plant_all_zero(const struct plant *at)
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
	uint32_t at_zero = first_one(at) == 0 ? at->spec->mask.local : 1;

	mask_of(at)[at_zero] = 1;
}

static void mask_of_another_rank(const struct plant *at)
{
	gpusnap_mask_type other = at->spec->mask;

	other.first = other.first ? 0 : other.local;
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

void plant_expert_zero(const struct plant *at)
{
	memset(at->expert, 0, at->part);
}

void plant_expert_bit(const struct plant *at)
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

void plant_scale_doubled(const struct plant *at)
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

void plant_one_bit(const struct plant *at)
{
	at->bytes[at->size / 2] ^= 0x04;
}

static void gate_and_up_swapped(const struct plant *at)
{
	const struct plant whole = {.expert = at->bytes, .part = at->size};

	expert_gate_and_up_swapped(&whole);
}

static void last_not_a_number(const struct plant *at)
{
	at->bytes[at->size - 1] = 0x7f;
	at->bytes[at->size - 2] = 0xff;
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
	MASK(plant_all_zero, ALL),
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
	EXPERT(W13, plant_expert_zero, EXPERT, ALL),
	EXPERT(W2, plant_expert_zero, EXPERT, ALL),
	EXPERT(W13, plant_expert_bit, EXPERT, ALL),
	EXPERT(W2, plant_expert_bit, EXPERT, ALL),
	EXPERT(W13, expert_nan, STRUCTURE, ALL),
	EXPERT(W2, expert_nan, STRUCTURE, ALL),
	EXPERT(W13, expert_gate_and_up_swapped, EXPERT, ALL),
	EXPERT(W13_SCALE, plant_expert_zero, STRUCTURE, FP8),
	EXPERT(W2_SCALE, plant_expert_zero, STRUCTURE, FP8),
	EXPERT(W2_SCALE, scale_not_finite, STRUCTURE, FP8),
	EXPERT(W13_SCALE, plant_scale_doubled, CONTROL, FP8),
	EXPERT(W2_SCALE, plant_scale_doubled, CONTROL, FP8),
#undef EXPERT
	{"router rows_swapped", rows_swapped, GPUSNAP_MOE_ROUTER, GPUSNAP_FAILURE_CONTROL, false,
		ALL},
	{"router one_bit", plant_one_bit, GPUSNAP_MOE_ROUTER, GPUSNAP_FAILURE_CONTROL, false, ALL},
	{"bias zero", plant_all_zero, GPUSNAP_MOE_SELECTION_BIAS, GPUSNAP_FAILURE_CONTROL, false,
		ALL},
	{"bias one_bit", plant_one_bit, GPUSNAP_MOE_SELECTION_BIAS, GPUSNAP_FAILURE_CONTROL, false,
		ALL},
	{"bias not finite", last_not_a_number, GPUSNAP_MOE_SELECTION_BIAS,
		GPUSNAP_FAILURE_STRUCTURE, false, ALL},
	{"shared w13 zero", plant_all_zero, GPUSNAP_MOE_SHARED_W13, GPUSNAP_FAILURE_CONTROL, false,
		ALL},
	{"shared w13 swapped", gate_and_up_swapped, GPUSNAP_MOE_SHARED_W13, GPUSNAP_FAILURE_CONTROL,
		false, ALL},
	{"shared w2 one_bit", plant_one_bit, GPUSNAP_MOE_SHARED_W2, GPUSNAP_FAILURE_CONTROL, false,
		ALL},
	{"shared w2 not finite", last_not_a_number, GPUSNAP_MOE_SHARED_W2,
		GPUSNAP_FAILURE_STRUCTURE, false, ALL},
	{"shared gate zero", plant_all_zero, GPUSNAP_MOE_SHARED_GATE, GPUSNAP_FAILURE_CONTROL,
		false, ALL},
	{"norm one_bit", plant_one_bit, GPUSNAP_MOE_NORM, GPUSNAP_FAILURE_CONTROL, false, ALL},
};

enum { FAULT_COUNT = sizeof faults / sizeof faults[0] };

static bool applies(const struct fault *fault, const struct moe_state *state)
{
	const gpusnap_moe_layer *spec = &state->model->layers[plant_layer(state)];
	bool deepep = spec->mask.kind == GPUSNAP_MASK_DEEPEP;

	return spec->buffers[fault->slot] && !((fault->only & FP8) && spec->block_n == 0) &&
	       !((fault->only & NOT_DEEPEP) && deepep) &&
	       !((fault->only & WITH_SINK) && !deepep &&
		       spec->mask.kind != GPUSNAP_MASK_VLLM_AITER);
}

struct plant plant_place(const struct moe_state *state, gpusnap_moe_slot slot, uint32_t local)
{
	const gpusnap_moe_layer *spec = &state->model->layers[plant_layer(state)];
	struct plant at = {.spec = spec, .dtype = GPUSNAP_I32};
	gpusnap_buffer_info info;
	gpusnap_error err;

	if (slot != GPUSNAP_MOE_MASK) {
		ck_ok(gpusnap_buffer_find(state->registry, spec->buffers[slot], &info, &err));
		at.dtype = info.dtype;
	}
	at.bytes = moe_state_bytes(state, plant_layer(state), slot, &at.size);
	at.part = at.size / spec->mask.local;
	at.expert = at.bytes + local * at.part;
	return at;
}

gpusnap_probe *moe_record(const struct moe_state *state)
{
	gpusnap_validate_options options = GPUSNAP_VALIDATE_OPTIONS_INIT;
	gpusnap_probe *probe;
	gpusnap_error err;

	options.steps = 2;
	ck_ok(gpusnap_probe_record(state->dispatch, &options, &probe, &err));
	return probe;
}

gpusnap_baseline *moe_baseline(const struct moe_state *state)
{
	gpusnap_baseline *baseline;
	gpusnap_error err;

	ck_ok(gpusnap_baseline_from_live(state->registry, &baseline, &err));
	return baseline;
}

gpusnap_validation moe_validate(
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

void check_proved(
	const struct moe_state *state, const gpusnap_probe *probe, const gpusnap_baseline *baseline)
{
	gpusnap_validation got = moe_validate(state, probe, baseline);

	ck_assert_msg(got.proved, "%s", got.failure_count ? got.failures[0].detail : "");
	ck_assert(!got.decode_differs);
	gpusnap_validation_release(&got);
}

/* A failure of the layer's slot; expert -1 for none. */
void check_failure(const struct moe_state *state, const gpusnap_failure *got, const char *name,
	gpusnap_failure_kind kind, gpusnap_moe_slot slot, int32_t expert)
{
	const char *buffer = state->model->layers[plant_layer(state)].buffers[slot];

	ck_assert_msg(got->buffer && strcmp(got->buffer, buffer) == 0, "%s: names %s, not %s: %s",
		name, got->buffer ? got->buffer : "nothing", buffer, got->detail);
	ck_assert_msg(got->kind == kind, "%s: kind %s: %s", name,
		gpusnap_failure_kind_name(got->kind), got->detail);
	ck_assert_msg(got->expert == expert, "%s: expert %d, not %d: %s", name, got->expert, expert,
		got->detail);
	ck_assert_uint_eq(got->layer, state->model->layers[plant_layer(state)].layer);
	ck_assert_msg(got->leaf >= 0, "%s: no leaf: %s", name, got->detail);
	ck_assert_msg(got->detail[0] != '\0', "%s: no detail", name);
}

static void check_fault(const struct moe_state *state, const struct fault *fault,
	const gpusnap_probe *probe, const gpusnap_baseline *baseline)
{
	struct plant at = plant_place(state, fault->slot, PLANT_LOCAL);
	uint8_t *good = gsn_alloc(1, at.size);
	int32_t expert = fault->of_expert ? (int32_t)(at.spec->mask.first + PLANT_LOCAL) : -1;
	gpusnap_validation got;

	ck_assert_ptr_nonnull(good);
	memcpy(good, at.bytes, at.size);
	fault->plant(&at);
	ck_assert_msg(memcmp(good, at.bytes, at.size) != 0, "%s plants nothing", fault->name);
	got = moe_validate(state, probe, baseline);
	ck_assert_msg(got.failure_count == 1, "%s: %zu failures; second: %s %s", fault->name,
		got.failure_count, got.failure_count > 1 ? got.failures[1].buffer : "",
		got.failure_count > 1 ? got.failures[1].detail : "");
	check_failure(state, &got.failures[0], fault->name, fault->kind, fault->slot, expert);
	gpusnap_validation_release(&got);
	memcpy(at.bytes, good, at.size);
	gsn_free(good);
}

void plant_all_faults(const struct moe_state *state)
{
	gpusnap_probe *probe = moe_record(state);
	gpusnap_baseline *baseline = moe_baseline(state);
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
