/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/expert_case.h"

#include <math.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

static const double unit_roundoff = 0x1p-24;

uint32_t expert_case_width(const struct expert_case *test)
{
	return test->dtype == GPUSNAP_F4 ? 1 : gpusnap_dtype_bits(test->dtype) / 8;
}

uint32_t expert_case_scale_width(const struct expert_case *test)
{
	return test->e8m0 ? 1 : sizeof(float);
}

uint32_t expert_case_bias_width(const struct expert_case *test)
{
	return gpusnap_dtype_bits(test->bias_dtype) / 8;
}

uint64_t expert_case_w13_bytes(const struct expert_case *test)
{
	return (uint64_t)2 * test->intermediate * test->hidden * gpusnap_dtype_bits(test->dtype) /
	       8;
}

uint64_t expert_case_w2_bytes(const struct expert_case *test)
{
	return (uint64_t)test->hidden * test->intermediate * gpusnap_dtype_bits(test->dtype) / 8;
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

uint8_t *expert_case_elements(uint64_t count, gpusnap_dtype dtype, uint64_t *random)
{
	uint64_t bytes = count * gpusnap_dtype_bits(dtype) / 8;
	uint8_t *weights = must_alloc(bytes, 1);
	uint32_t width = dtype == GPUSNAP_F4 ? 1 : gpusnap_dtype_bits(dtype) / 8;

	for (uint64_t at = 0; at < bytes; at += width) {
		uint32_t bits = (uint32_t)random_u64(random);
		float value = random_unit(random);

		if (dtype == GPUSNAP_F32)
			memcpy(&bits, &value, 4);
		else if (dtype == GPUSNAP_F8_E4M3)
			bits &= 0xbf;
		else if (dtype != GPUSNAP_F4)
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

/* From 0.1 to 0.9, or powers of two about as large. */
static uint8_t *make_scales(const struct expert_case *test, uint64_t count, uint64_t *random)
{
	uint8_t *scales;

	if (!test->e8m0)
		return (uint8_t *)make_floats(count, 0.4f, 0.5f, random);
	scales = must_alloc(count, 1);
	for (uint64_t i = 0; i < count; i++)
		scales[i] = (uint8_t)(123 + random_below(random, 6));
	return scales;
}

/* Numbers of at most 2 in size. */
static uint8_t *make_bias(const struct expert_case *test, uint64_t count, uint64_t *random)
{
	if (!test->biased)
		return NULL;
	return expert_case_elements(count, test->bias_dtype, random);
}

/* The first top_k of a shuffled list of all ids. */
static void draw_ids(struct expert_case *test, uint32_t token, int32_t *all, uint64_t *random)
{
	ck_assert_uint_le(test->top_k, test->mask_length);
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
	test->w13 = expert_case_elements(
		2 * (uint64_t)test->local_experts * test->intermediate * test->hidden, test->dtype,
		&random);
	test->w2 = expert_case_elements(
		(uint64_t)test->local_experts * test->intermediate * test->hidden, test->dtype,
		&random);
	test->w13_scale =
		make_scales(test, test->local_experts * expert_case_w13_scales(test), &random);
	test->w2_scale =
		make_scales(test, test->local_experts * expert_case_w2_scales(test), &random);
	test->w13_bias =
		make_bias(test, (uint64_t)test->local_experts * 2 * test->intermediate, &random);
	test->w2_bias = make_bias(test, (uint64_t)test->local_experts * test->hidden, &random);
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
	gsn_free(test->w13_bias);
	gsn_free(test->w2_bias);
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
		.activation = test->activation ? test->activation : GPUSNAP_ACTIVATION_SILU,
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
		.scale_dtype = test->e8m0 ? GPUSNAP_F8_E8M0 : GPUSNAP_F32,
		.bias_dtype = test->bias_dtype,
		.w13_bias = address(test->w13_bias),
		.w2_bias = address(test->w2_bias),
		.limit = test->limit,
		.weight_before_w2 = test->weight_before_w2,
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

double expert_case_element(gpusnap_dtype dtype, const uint8_t *values, uint64_t index)
{
	uint32_t width = gpusnap_dtype_bits(dtype) / 8, code = 0;

	if (dtype == GPUSNAP_F4)
		return value_of(values[index / 2] >> (index % 2 * 4) & 15, 2, 1);
	memcpy(&code, values + index * width, width);
	switch (dtype) {
	case GPUSNAP_F8_E4M3:
		return value_of(code, 4, 3);
	case GPUSNAP_F8_E8M0:
		return ldexp(1.0, (int)code - 127);
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

/* A row of one part of an expert's matrix, and of its scales and biases. */
struct reference_row {
	const uint8_t *weights; /* of the part */
	const uint8_t *scales;	/* of the part */
	const uint8_t *biases;	/* of the part */
	uint32_t row, columns;
};

static double bias_of(const struct expert_case *test, struct reference_row row)
{
	return test->biased ? expert_case_element(test->bias_dtype, row.biases, row.row) : 0.0;
}

/* A sum, rounded. */
static struct quantity add(struct quantity a, double b)
{
	a.value += b;
	a.bound += unit_roundoff * fabs(a.value);
	return a;
}

static struct quantity reference_dot(
	const struct expert_case *test, struct reference_row row, const struct quantity *x)
{
	uint64_t scale_columns = test->block_n ? gsn_ceil_div(row.columns, test->block_k) : 0;
	struct quantity sum = {0.0, 0.0};
	double size = 0.0;

	for (uint32_t k = 0; k < row.columns; k++) {
		double w = expert_case_element(
			test->dtype, row.weights, (uint64_t)row.row * row.columns + k);

		if (test->block_n)
			w *= expert_case_element(test->e8m0 ? GPUSNAP_F8_E8M0 : GPUSNAP_F32,
				row.scales,
				row.row / test->block_n * scale_columns + k / test->block_k);
		sum.value += w * x[k].value;
		sum.bound += fabs(w) * x[k].bound;
		size += fabs(w * x[k].value);
	}
	sum.bound += 4.0 * sqrt(row.columns) * unit_roundoff * size;
	return sum;
}

static double limited(double value, double low, double high)
{
	return fmin(fmax(value, low), high);
}

/*
 * gate * sigmoid(slope gate) * (up + one), limited. Where gate is not too large the slope of the
 * first factor is at most 1.1 (1.13 of gpt-oss); its own rounding is a few units and grows with the
 * exponent, whose rounding error e^x turns into a relative one.
 */
static struct quantity reference_activation(
	const struct expert_case *test, struct quantity gate, struct quantity up)
{
	bool oai = test->activation == GPUSNAP_ACTIVATION_SWIGLU_OAI;
	double limit = test->limit > 0.0f ? (double)test->limit : INFINITY;
	double g = limited(gate.value, -INFINITY, limit);
	double u = limited(up.value, -limit, limit) + (oai ? 1.0 : 0.0);
	double slope = oai ? (double)1.702f : 1.0;
	double silu = g / (1.0 + exp(-slope * g));
	double value = silu * u;
	double relative = 8.0 + (oai ? 2.0 * fabs(g) : 0.0);

	up.bound += oai ? unit_roundoff * fabs(u) : 0.0;
	return (struct quantity){value, 1.15 * gate.bound * (fabs(u) + up.bound) +
						fabs(silu) * up.bound +
						relative * unit_roundoff * fabs(value)};
}

/* h of row r, by which a weight may be taken already. */
static struct quantity reference_h(const struct expert_case *test, struct reference_row gate,
	struct reference_row up, const struct quantity *x, double weight)
{
	struct quantity h =
		reference_activation(test, add(reference_dot(test, gate, x), bias_of(test, gate)),
			add(reference_dot(test, up, x), bias_of(test, up)));

	if (!test->weight_before_w2)
		return h;
	h.value *= weight;
	h.bound = fabs(weight) * h.bound + unit_roundoff * fabs(h.value);
	return h;
}

static struct quantity reference_y(const struct expert_case *test, struct reference_row down,
	const struct quantity *h, double weight)
{
	struct quantity sum = reference_dot(test, down, h);
	double bias = bias_of(test, down);

	if (test->weight_before_w2) {
		sum.bound += unit_roundoff * fabs(weight * bias);
		return add(sum, weight * bias);
	}
	sum = add(sum, bias);
	sum.value *= weight;
	sum.bound = fabs(weight) * sum.bound + unit_roundoff * fabs(sum.value);
	return sum;
}

/* The matrices of one expert: rows of gate, up (part 1) and down. */
static struct reference_row w13_row(
	const struct expert_case *test, uint32_t expert, uint32_t part, uint32_t row)
{
	uint64_t half = 2 * (uint64_t)expert + part;
	uint64_t bias = test->biased ? half * test->intermediate * expert_case_bias_width(test) : 0;

	return (struct reference_row){test->w13 + half * (expert_case_w13_bytes(test) / 2),
		test->w13_scale +
			half * (expert_case_w13_scales(test) / 2) * expert_case_scale_width(test),
		test->biased ? test->w13_bias + bias : NULL, row, test->hidden};
}

static struct reference_row w2_row(const struct expert_case *test, uint32_t expert, uint32_t row)
{
	uint64_t bias =
		test->biased ? (uint64_t)expert * test->hidden * expert_case_bias_width(test) : 0;

	return (struct reference_row){test->w2 + expert * expert_case_w2_bytes(test),
		test->w2_scale +
			expert * expert_case_w2_scales(test) * expert_case_scale_width(test),
		test->biased ? test->w2_bias + bias : NULL, row, test->intermediate};
}

void expert_case_reference(
	const struct expert_case *test, uint32_t pair, uint32_t expert, double *y, double *bound)
{
	const float *x = test->x + (size_t)(pair / test->top_k) * test->hidden;
	double weight = (double)test->weights[pair];
	struct quantity *in = must_alloc(test->hidden, sizeof *in);
	struct quantity *h = must_alloc(test->intermediate, sizeof *h);

	for (uint32_t i = 0; i < test->hidden; i++)
		in[i].value = (double)x[i];
	for (uint32_t r = 0; r < test->intermediate; r++)
		h[r] = reference_h(
			test, w13_row(test, expert, 0, r), w13_row(test, expert, 1, r), in, weight);
	for (uint32_t r = 0; r < test->hidden; r++) {
		struct quantity out = reference_y(test, w2_row(test, expert, r), h, weight);

		y[r] = out.value;
		bound[r] = out.bound + 1e-40;
	}
	gsn_free(in);
	gsn_free(h);
}
