/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/expert_case.h"

#include <math.h>
#include <string.h>

#include <gpusnap/moe.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

static const double unit_roundoff = 0x1p-24;

uint32_t expert_case_width(const struct expert_case *test)
{
	return gpusnap_dtype_bits(test->dtype) / 8;
}

uint64_t expert_case_w13_bytes(const struct expert_case *test)
{
	return (uint64_t)2 * test->intermediate * test->hidden * expert_case_width(test);
}

uint64_t expert_case_w2_bytes(const struct expert_case *test)
{
	return (uint64_t)test->hidden * test->intermediate * expert_case_width(test);
}

uint64_t expert_case_w13_scales(const struct expert_case *test)
{
	return test->block_n ? 2 * gsn_ceil_div(test->intermediate, test->block_n) *
				       gsn_ceil_div(test->hidden, test->block_k)
			     : 0;
}

uint64_t expert_case_w2_scales(const struct expert_case *test)
{
	return test->block_n ? gsn_ceil_div(test->hidden, test->block_n) *
				       gsn_ceil_div(test->intermediate, test->block_k)
			     : 0;
}

uint64_t expert_case_y_count(const struct expert_case *test)
{
	return (uint64_t)test->tokens * test->top_k * test->hidden;
}

static void *must_alloc(uint64_t count, size_t size)
{
	void *memory = gsn_alloc(count, size);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

/* Codes of numbers of at most 2 in size, without NaN. */
static uint8_t *make_weights(uint64_t bytes, gpusnap_dtype dtype, uint64_t *random)
{
	uint8_t *weights = must_alloc(bytes, 1);
	uint32_t width = gpusnap_dtype_bits(dtype) / 8;

	for (uint64_t at = 0; at < bytes; at += width) {
		uint32_t bits = (uint32_t)random_u64(random);
		float value = random_unit(random);

		if (dtype == GPUSNAP_F32)
			memcpy(&bits, &value, 4);
		else if (dtype == GPUSNAP_F8_E4M3)
			bits &= 0xbf;
		else
			bits &= 0xbfff;
		memcpy(weights + at, &bits, width);
	}
	return weights;
}

static float *make_floats(uint64_t count, float scale, float offset, uint64_t *random)
{
	float *values = must_alloc(count, sizeof *values);

	for (uint64_t i = 0; i < count; i++)
		values[i] = offset + scale * random_unit(random);
	return values;
}

/* The first top_k of a shuffled list of all ids. */
static void draw_ids(struct expert_case *test, uint32_t token, int32_t *all, uint64_t *random)
{
	for (uint32_t i = 0; i < test->mask_length; i++)
		all[i] = (int32_t)i;
	for (uint32_t i = 0; i < test->top_k; i++) {
		uint32_t j = i + (uint32_t)random_below(random, test->mask_length - i);
		int32_t id = all[j];

		all[j] = all[i];
		all[i] = id;
		test->ids[token * test->top_k + i] = id;
	}
}

void expert_case_make(struct expert_case *test, uint64_t seed)
{
	uint64_t pairs = (uint64_t)test->tokens * test->top_k;
	uint64_t random = seed;
	struct gsn_moe_experts sizes;
	int32_t *all = must_alloc(test->mask_length, sizeof *all);

	test->x = make_floats((uint64_t)test->tokens * test->hidden, 2.0f, 0.0f, &random);
	test->weights = make_floats(pairs, 0.5f, 0.5f, &random);
	test->ids = must_alloc(pairs, sizeof *test->ids);
	test->mask = must_alloc(test->mask_length, sizeof *test->mask);
	for (uint32_t i = 0; i < test->mask_length; i++)
		test->mask[i] = 1;
	for (uint32_t token = 0; token < test->tokens; token++)
		draw_ids(test, token, all, &random);
	gsn_free(all);
	test->w13 = make_weights(
		test->local_experts * expert_case_w13_bytes(test), test->dtype, &random);
	test->w2 = make_weights(
		test->local_experts * expert_case_w2_bytes(test), test->dtype, &random);
	test->w13_scale = make_floats(
		test->local_experts * expert_case_w13_scales(test), 0.4f, 0.5f, &random);
	test->w2_scale =
		make_floats(test->local_experts * expert_case_w2_scales(test), 0.4f, 0.5f, &random);
	test->y = must_alloc(expert_case_y_count(test), sizeof *test->y);
	sizes = expert_case_args(test);
	test->scratch_bytes = gsn_host_moe_scratch_bytes(&sizes);
	test->scratch = must_alloc(test->scratch_bytes, 1);
}

void expert_case_free(struct expert_case *test)
{
	gsn_free(test->x);
	gsn_free(test->weights);
	gsn_free(test->ids);
	gsn_free(test->mask);
	gsn_free(test->w13);
	gsn_free(test->w2);
	gsn_free(test->w13_scale);
	gsn_free(test->w2_scale);
	gsn_free(test->y);
	gsn_free(test->scratch);
}

static gpusnap_address address(const void *memory)
{
	return (gpusnap_address)(uintptr_t)memory;
}

struct gsn_moe_experts expert_case_args(struct expert_case *test)
{
	return (struct gsn_moe_experts){
		.tokens = test->tokens,
		.hidden = test->hidden,
		.intermediate = test->intermediate,
		.top_k = test->top_k,
		.local_experts = test->local_experts,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.weight_dtype = test->dtype,
		.block_n = test->block_n,
		.block_k = test->block_k,
		.x = address(test->x),
		.ids = address(test->ids),
		.weights = address(test->weights),
		.mask = address(test->mask),
		.mask_length = test->mask_length,
		.w13 = address(test->w13),
		.w13_scale = test->block_n ? address(test->w13_scale) : 0,
		.w2 = address(test->w2),
		.w2_scale = test->block_n ? address(test->w2_scale) : 0,
		.scale_dtype = GPUSNAP_F32,
		.scratch = address(test->scratch),
		.y = address(test->y),
		.counters = address(&test->counters),
	};
}

void expert_case_run(
	struct expert_case *test, const struct gsn_cpu_path *path, struct gsn_pool *pool)
{
	const struct gsn_host_moe host = {.pool = pool, .path = path};
	struct gsn_moe_experts args = expert_case_args(test);
	gpusnap_error err;

	memset(test->scratch, 0xff, test->scratch_bytes); /* NaN, and no id */
	memset(test->y, 0xff, expert_case_y_count(test) * sizeof *test->y);
	memset(&test->counters, 0, sizeof test->counters);
	ck_ok(gsn_host_moe_experts(&host, &args, &err));
}

/* ---- float64 ---- */

/* A floating-point number from its fields; exponent field 0 is subnormal. */
static double value_of(uint32_t code, int exponent_bits, int fraction_bits)
{
	uint32_t exponent = code >> fraction_bits & ((1u << exponent_bits) - 1);
	double fraction = ldexp(code & ((1u << fraction_bits) - 1), -fraction_bits);
	int bias = (1 << (exponent_bits - 1)) - 1;
	double size =
		exponent ? ldexp(1.0 + fraction, (int)exponent - bias) : ldexp(fraction, 1 - bias);

	return code >> (exponent_bits + fraction_bits) & 1 ? -size : size;
}

static double weight_at(const struct expert_case *test, const uint8_t *weights, uint64_t index)
{
	uint32_t code = 0;

	memcpy(&code, weights + index * expert_case_width(test), expert_case_width(test));
	switch (test->dtype) {
	case GPUSNAP_F8_E4M3:
		return value_of(code, 4, 3);
	case GPUSNAP_F16:
		return value_of(code, 5, 10);
	case GPUSNAP_BF16:
		return value_of(code, 8, 7);
	default:
		return value_of(code, 8, 23);
	}
}

struct quantity {
	double value, bound;
};

/* Row of a part of `rows` x `columns` whose scales begin at scale_part. */
struct reference_row {
	const uint8_t *weights; /* of the part */
	const float *scales;	/* of the part; NULL: 1 */
	uint32_t row, columns;
};

static struct quantity reference_dot(
	const struct expert_case *test, struct reference_row row, const struct quantity *x)
{
	uint64_t scale_columns = test->block_n ? gsn_ceil_div(row.columns, test->block_k) : 0;
	struct quantity sum = {0.0, 0.0};
	double size = 0.0;

	for (uint32_t k = 0; k < row.columns; k++) {
		double w = weight_at(test, row.weights, (uint64_t)row.row * row.columns + k);

		if (row.scales)
			w *= (double)row.scales[row.row / test->block_n * scale_columns +
						k / test->block_k];
		sum.value += w * x[k].value;
		sum.bound += fabs(w) * x[k].bound;
		size += fabs(w * x[k].value);
	}
	sum.bound += 4.0 * sqrt(row.columns) * unit_roundoff * size;
	return sum;
}

/* silu(gate) * up; the slope of silu is at most 1.1, its own rounding a few units. */
static struct quantity reference_activation(struct quantity gate, struct quantity up)
{
	double silu = gate.value / (1.0 + exp(-gate.value));
	double gate_bound = 1.1 * gate.bound;
	double value = silu * up.value;

	return (struct quantity){value, gate_bound * (fabs(up.value) + up.bound) +
						fabs(silu) * up.bound +
						8.0 * unit_roundoff * fabs(value)};
}

void expert_case_reference(
	const struct expert_case *test, uint32_t pair, uint32_t expert, double *y, double *bound)
{
	const float *x = test->x + (size_t)(pair / test->top_k) * test->hidden;
	const uint8_t *w13 = test->w13 + expert * expert_case_w13_bytes(test);
	const uint8_t *w2 = test->w2 + expert * expert_case_w2_bytes(test);
	const float *s13 = test->w13_scale + expert * expert_case_w13_scales(test);
	const float *s2 = test->w2_scale + expert * expert_case_w2_scales(test);
	uint64_t up_weights = expert_case_w13_bytes(test) / 2;
	uint64_t up_scales = expert_case_w13_scales(test) / 2;
	struct quantity *in = must_alloc(test->hidden, sizeof *in);
	struct quantity *h = must_alloc(test->intermediate, sizeof *h);
	bool scaled = test->block_n != 0;

	for (uint32_t i = 0; i < test->hidden; i++)
		in[i].value = (double)x[i];
	for (uint32_t r = 0; r < test->intermediate; r++) {
		struct reference_row gate = {w13, scaled ? s13 : NULL, r, test->hidden};
		struct reference_row up = {
			w13 + up_weights, scaled ? s13 + up_scales : NULL, r, test->hidden};

		h[r] = reference_activation(
			reference_dot(test, gate, in), reference_dot(test, up, in));
	}
	for (uint32_t r = 0; r < test->hidden; r++) {
		struct reference_row down = {w2, scaled ? s2 : NULL, r, test->intermediate};
		struct quantity sum = reference_dot(test, down, h);
		double weight = (double)test->weights[pair];

		y[r] = weight * sum.value;
		bound[r] = fabs(weight) * sum.bound + unit_roundoff * fabs(y[r]) + 1e-40;
	}
	gsn_free(in);
	gsn_free(h);
}
