/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots in memory: random plans come back as they were, and no damage passes. */
#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "tests/support/delta_make.h"
#include "tests/support/gsnap_make.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { PLANS = 300, MISPRINTS = 1500 };

static gpusnap_error err;

static gpusnap_policy random_policy(uint64_t *state)
{
	return random_below(state, 3) ? GPUSNAP_POLICY_KEEP
				      : (gpusnap_policy)random_below(state, 4);
}

/* Names with all that JSON must escape, and UTF-8 of every length. */
static const char *random_name(uint64_t *state, char text[64], unsigned number)
{
	static const char *const odd[] = {
		"", "\"", "\\", "/", "\n", "\x01", "é", "専門家", "🧠", "model.layers.0."};

	(void)snprintf(text, 64, "%s%u%s", odd[random_below(state, 10)], number,
		odd[random_below(state, 10)]);
	return text;
}

static uint64_t add_random_mask(
	uint64_t *state, gpusnap_plan *plan, uint32_t region, uint64_t offset, const char *name)
{
	gpusnap_mask_type type = {
		.kind = (gpusnap_mask_kind)(1 + random_below(state, 4)),
		.experts = 1 + (uint32_t)random_below(state, 40),
		.world = 1 + (uint32_t)random_below(state, 5),
	};

	type.rank = (uint32_t)random_below(state, type.world);
	type.shared = type.kind == GPUSNAP_MASK_VLLM_AITER ? (uint32_t)random_below(state, 3) : 0;
	gpusnap_expert_block(type.experts, type.rank, type.world, &type.first, &type.local);
	return make_mask(plan, name, region, offset, &type)->bytes;
}

/* A buffer at `offset`; returns its size. Even last dimensions, so that F4 and F6 fill bytes. */
static uint64_t add_random_buffer(
	uint64_t *state, gpusnap_plan *plan, uint32_t region, uint64_t offset, const char *name)
{
	uint64_t shape[4];
	uint32_t rank = 1 + (uint32_t)random_below(state, 4);
	gpusnap_plan_buffer *buffer;

	if (random_below(state, 6) == 0)
		return add_random_mask(state, plan, region, offset, name);
	for (uint32_t i = 0; i < rank; i++)
		shape[i] = random_below(state, 7);
	shape[rank - 1] *= rank == 1 && random_below(state, 4) == 0 ? 10000 : 4;
	buffer = make_buffer(plan, name, (gpusnap_dtype)random_below(state, GPUSNAP_DTYPE_COUNT),
		region, offset, rank, shape);
	buffer->role = (gpusnap_role)random_below(state, GPUSNAP_ROLE_EXPERT_MASK);
	return buffer->bytes;
}

static void add_random_view(uint64_t *state, gpusnap_plan *plan, unsigned number)
{
	const gpusnap_plan_buffer *buffer = &plan->buffers[random_below(state, plan->buffer_count)];
	uint64_t offset = random_below(state, buffer->bytes + 1);
	uint64_t shape[] = {buffer->bytes - offset};
	bool backwards = shape[0] > 0 && random_below(state, 2);
	char name[64];
	gpusnap_plan_view *view;

	view = make_view(plan, random_name(state, name, number), buffer->name, GPUSNAP_I8,
		backwards ? offset + shape[0] - 1 : offset, 1, shape);
	if (backwards)
		view->strides[0] = -1;
}

static gpusnap_plan *random_plan(uint64_t *state)
{
	gpusnap_plan *plan = make_plan();
	uint32_t regions = (uint32_t)random_below(state, 4);
	unsigned number = 0;
	char name[64];

	random_fill(state, plan->uuid, sizeof plan->uuid);
	plan->tp_size = 1 + (uint32_t)random_below(state, 8);
	plan->tp_rank = (uint32_t)random_below(state, plan->tp_size);
	for (uint32_t r = 0; r < regions; r++) {
		uint32_t id = (regions - r) * 1000, first = plan->buffer_count;
		uint64_t at = random_below(state, 3) * 7;
		gpusnap_plan_region *region;

		for (uint64_t i = random_below(state, 8); i > 0; i--) {
			random_name(state, name, number++);
			at += add_random_buffer(state, plan, id, at, name);
			at += random_below(state, 2) * random_below(state, 5000);
		}
		region = make_region(plan, id, random_name(state, name, r), at + 1);
		region->policy = random_policy(state);
		region->unclaimed = random_policy(state);
		region->managed = random_below(state, 2);
		region->address = random_u64(state);
		for (uint32_t i = first; i < plan->buffer_count; i++)
			plan->buffers[i].kept = region->policy == GPUSNAP_POLICY_KEEP;
	}
	for (uint64_t i = plan->buffer_count ? random_below(state, 4) : 0; i > 0; i--)
		add_random_view(state, plan, number++);
	return plan;
}

START_TEST(random_plans_come_back_as_they_were)
{
	uint64_t seed = random_seed(20261130), state = seed;

	for (int i = 0; i < PLANS; i++) {
		gpusnap_plan *plan = random_plan(&state), *back = NULL;
		struct gsnap_file file = make_file(plan, NULL);
		gpusnap_seal seal;
		char *before, *after;
		gpusnap_status status = read_gsnap(file.bytes, file.length, &seal, &back, &err);

		ck_assert_msg(status == GPUSNAP_OK, "seed %llu, plan %d: %s",
			(unsigned long long)seed, i, err.message);
		ck_assert_mem_eq(seal.uuid, plan->uuid, sizeof seal.uuid);
		before = gpusnap_plan_encode(plan);
		after = gpusnap_plan_encode(back);
		ck_assert_str_eq(before, after);
		gpusnap_text_free(before);
		gpusnap_text_free(after);
		gpusnap_plan_free(plan);
		gpusnap_plan_free(back);
		free_file(&file);
	}
}
END_TEST

/* Put another letter in place of one, outside of multi-byte characters. */
static void misprint(uint64_t *state, char *text)
{
	static const char letters[] = "0123456789-\"[]{},:.eakx ";
	size_t at;

	do
		at = random_below(state, strlen(text));
	while ((unsigned char)text[at] >= 0x80);
	text[at] = letters[random_below(state, sizeof letters - 1)];
}

/* A plan whose text has one wrong character is refused, or means what it says. */
START_TEST(misprinted_plans_are_refused_or_consistent)
{
	uint64_t seed = random_seed(7), state = seed;
	int refused = 0;

	for (int i = 0; i < MISPRINTS; i++) {
		gpusnap_plan *plan = random_plan(&state), *back = NULL, *again = NULL;
		char *text = gpusnap_plan_encode(plan);
		struct gsnap_file file;

		misprint(&state, text);
		file = make_file(plan, text);
		if (read_gsnap(file.bytes, file.length, NULL, &back, &err)) {
			ck_assert_int_ne((int)err.status, GPUSNAP_E_CORRUPT);
			refused++;
		} else {
			struct gsnap_file copy = make_file(back, NULL);

			ck_ok(read_gsnap(copy.bytes, copy.length, NULL, &again, &err));
			free_file(&copy);
		}
		gpusnap_plan_free(plan);
		gpusnap_plan_free(back);
		gpusnap_plan_free(again);
		gpusnap_text_free(text);
		free_file(&file);
	}
	ck_assert_int_gt(refused, MISPRINTS / 2);
	ck_assert_int_lt(refused, MISPRINTS);
}
END_TEST

/* One buffer and unclaimed bytes: seal, header, data and leaf table are all there. */
static struct gsnap_file small_file(void)
{
	const uint64_t shape[] = {10};
	gpusnap_plan *plan = make_plan();
	struct gsnap_file file;

	make_region(plan, 1, "weights", 64);
	make_buffer(plan, "w", GPUSNAP_F32, 1, 8, 1, shape);
	file = make_file(plan, NULL);
	gpusnap_plan_free(plan);
	return file;
}

START_TEST(every_bit_flip_of_a_snapshot_is_refused)
{
	struct gsnap_file file = small_file();

	ck_ok(read_gsnap(file.bytes, file.length, NULL, NULL, &err));
	for (size_t bit = 0; bit < 8 * file.length; bit++) {
		gpusnap_status status;

		file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		status = read_gsnap(file.bytes, file.length, NULL, NULL, &err);
		ck_assert_msg(status == GPUSNAP_E_CORRUPT ||
				      (status == GPUSNAP_E_FORMAT && bit / 8 < file.seal_at + 8),
			"bit %zu of byte %zu: %s", bit % 8, bit / 8, gpusnap_status_name(status));
		file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	free_file(&file);
}
END_TEST

START_TEST(every_truncation_and_every_addition_is_refused)
{
	struct gsnap_file file = small_file();
	uint8_t *longer = gsn_alloc(file.length + 4200, 1);

	ck_assert_ptr_nonnull(longer);
	memcpy(longer, file.bytes, file.length);
	for (size_t length = 0; length < file.length + 4200; length++)
		if (length != file.length)
			ck_status(read_gsnap(longer, length, NULL, NULL, &err), GPUSNAP_E_FORMAT);
	gsn_free(longer);
	free_file(&file);
}
END_TEST

/* ---- deltas ---- */

/* A delta of the plan's file in which some bytes have changed; plan->delta is set. */
static struct gsnap_file random_delta(uint64_t *state, gpusnap_plan *plan)
{
	struct gsnap_file before = make_file(plan, NULL), after = make_file(plan, NULL), delta;
	size_t data = after.leaves_at - after.header_bytes;

	for (uint64_t i = data ? random_below(state, 5) : 0; i > 0; i--)
		after.bytes[after.header_bytes + random_below(state, data)] ^= 1;
	seal_file(&after, plan);
	plan->delta =
		make_changes(&before, &after, "parent.gsnap", 1 + (uint32_t)random_below(state, 8));
	delta = make_delta(plan, &after, root_of(&before));
	free_file(&before);
	free_file(&after);
	return delta;
}

START_TEST(random_deltas_come_back_as_they_were)
{
	uint64_t seed = random_seed(20261202), state = seed;

	for (int i = 0; i < PLANS; i++) {
		gpusnap_plan *plan = random_plan(&state), *back = NULL;
		struct gsnap_file file = random_delta(&state, plan);
		char *before, *after;
		gpusnap_status status = read_gsnap(file.bytes, file.length, NULL, &back, &err);

		ck_assert_msg(status == GPUSNAP_OK, "seed %llu, plan %d: %s",
			(unsigned long long)seed, i, err.message);
		before = gpusnap_plan_encode(plan);
		after = gpusnap_plan_encode(back);
		ck_assert_str_eq(before, after);
		gpusnap_text_free(before);
		gpusnap_text_free(after);
		gpusnap_plan_free(plan);
		gpusnap_plan_free(back);
		free_file(&file);
	}
}
END_TEST

/* The header with one wrong character, and all digests right again. */
START_TEST(misprinted_deltas_are_refused_or_consistent)
{
	uint64_t seed = random_seed(8), state = seed;
	int refused = 0;

	for (int i = 0; i < MISPRINTS; i++) {
		gpusnap_plan *plan = random_plan(&state), *back = NULL;
		struct gsnap_file file = random_delta(&state, plan);
		char *text = (char *)file.bytes + 8, *delta;
		gpusnap_seal seal;

		ck_ok(gpusnap_seal_decode(file.bytes + file.seal_at, file.length, &seal, &err));
		delta = memmem(text, file.header_bytes - 8, "\\\"delta\\\"", 9);
		ck_assert_ptr_nonnull(delta);
		/* Up to where the plan's text ends and the tensors begin. */
		delta[random_below(&state, (size_t)(strstr(delta, "}\"}") - delta))] =
			"0123456789-[]{},:\\\" "[random_below(&state, 20)];
		seal.header = gpusnap_digest_of(file.bytes, file.header_bytes);
		gpusnap_seal_encode(&seal, file.bytes + file.seal_at);
		if (read_gsnap(file.bytes, file.length, NULL, &back, &err)) {
			refused++;
		} else {
			ck_assert_ptr_nonnull(back->delta);
			gpusnap_plan_free(back);
		}
		gpusnap_plan_free(plan);
		free_file(&file);
	}
	ck_assert_int_gt(refused, MISPRINTS / 2);
	ck_assert_int_lt(refused, MISPRINTS);
}
END_TEST

START_TEST(every_bit_flip_of_a_delta_is_refused)
{
	const uint64_t shape[] = {10};
	gpusnap_plan *plan = make_plan();
	struct gsnap_file file;
	uint64_t state = 3;

	make_region(plan, 1, "weights", 64);
	make_buffer(plan, "w", GPUSNAP_F32, 1, 8, 1, shape);
	file = random_delta(&state, plan);
	ck_ok(read_gsnap(file.bytes, file.length, NULL, NULL, &err));
	for (size_t bit = 0; bit < 8 * file.length; bit++) {
		gpusnap_status status;

		file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		status = read_gsnap(file.bytes, file.length, NULL, NULL, &err);
		ck_assert_msg(status == GPUSNAP_E_CORRUPT ||
				      (status == GPUSNAP_E_FORMAT && bit / 8 < file.seal_at + 8),
			"bit %zu of byte %zu: %s", bit % 8, bit / 8, gpusnap_status_name(status));
		file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	gpusnap_plan_free(plan);
	free_file(&file);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		random_plans_come_back_as_they_were,
		misprinted_plans_are_refused_or_consistent,
		every_bit_flip_of_a_snapshot_is_refused,
		every_truncation_and_every_addition_is_refused,
		random_deltas_come_back_as_they_were,
		misprinted_deltas_are_refused_or_consistent,
		every_bit_flip_of_a_delta_is_refused,
	};

	return RUN_SUITE("gsnap_roundtrip", tests);
}
