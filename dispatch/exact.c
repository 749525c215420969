/* SPDX-License-Identifier: Apache-2.0 */
/* Router and experts in double precision, with error bounds. */
#include "dispatch/exact.h"

#include <math.h>
#include <string.h>

#include "dispatch/dispatch_state.h"
#include "dispatch/peek.h"
#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/moe_math.h"

/* Largest slope of g sigmoid(g), at 2.3994, and of g sigmoid(1.702 g), at its 1.702th. */
#define SWISH_SLOPE 1.1
/* g sigmoid(a g) in float32: exponential 2 ulp, sum, quotient, product; as much again elsewhere. */
#define SWISH_ROUNDOFF (8 * GSN_UNIT_ROUNDOFF)
#define OAI_ALPHA      1.702

double gsn_dot_bound(uint64_t length, double sum)
{
	return 4.0 * sqrt((double)length) * GSN_UNIT_ROUNDOFF * sum;
}

struct exact_dot {
	double value;
	double bound;
};

static struct exact_dot dot_floats(const double *w, const float *x, uint32_t length, double bias)
{
	double value = bias;
	double sum = fabs(bias);

	for (uint32_t i = 0; i < length; i++) {
		double term = w[i] * (double)x[i];

		value += term;
		sum += fabs(term);
	}
	return (struct exact_dot){value, gsn_dot_bound(length, sum)};
}

static struct exact_dot dot_bounded(
	const double *w, const double *x, const double *x_bound, uint32_t length, double bias)
{
	double value = bias;
	double sum = fabs(bias);
	double squares = 0.0;
	double carried;

	for (uint32_t i = 0; i < length; i++) {
		value += w[i] * x[i];
		sum += fabs(w[i] * x[i]);
		squares += w[i] * w[i] * x_bound[i] * x_bound[i];
	}
	carried = sqrt(squares);
	return (struct exact_dot){value, carried + gsn_dot_bound(length, sum + carried)};
}

static struct exact_dot multiply(struct exact_dot a, struct exact_dot b)
{
	double value = a.value * b.value;
	double bound = a.bound * fabs(b.value) + fabs(a.value) * b.bound + a.bound * b.bound;

	return (struct exact_dot){value, bound + GSN_UNIT_ROUNDOFF * (fabs(value) + bound)};
}

static struct exact_dot swish(struct exact_dot gate, double alpha)
{
	double value = gate.value / (1.0 + exp(-alpha * gate.value));

	return (struct exact_dot){value, SWISH_SLOPE * gate.bound + SWISH_ROUNDOFF * fabs(value)};
}

/* What goes into w2, of one row pair. */
static struct exact_dot activate(
	const gpusnap_moe_layer *spec, struct exact_dot gate, struct exact_dot up)
{
	double limit = (double)spec->activation_limit;

	if (limit > 0.0) {
		gate.value = fmin(gate.value, limit);
		up.value = fmax(fmin(up.value, limit), -limit);
	}
	if (spec->activation == GPUSNAP_ACTIVATION_SILU)
		return multiply(swish(gate, 1.0), up);
	up.value += 1.0;
	up.bound += GSN_UNIT_ROUNDOFF * fabs(up.value);
	return multiply(swish(gate, OAI_ALPHA), up);
}

void gsn_exact_apply(struct gsn_exact *exact, const float *x, double *ret_y, double *ret_bound)
{
	const gpusnap_moe_layer *spec = exact->layer->spec;
	uint32_t hidden = exact->hidden;
	uint32_t intermediate = exact->intermediate;

	for (uint32_t i = 0; i < intermediate; i++) {
		const double *gate = exact->w13 + (size_t)i * hidden;
		const double *up = gate + (size_t)intermediate * hidden;
		struct exact_dot h = activate(spec, dot_floats(gate, x, hidden, exact->w13_bias[i]),
			dot_floats(up, x, hidden, exact->w13_bias[intermediate + i]));

		exact->h[i] = h.value;
		/* The routing weight, where it is applied here, is one rounding more. */
		exact->h_bound[i] =
			h.bound + (spec->weight_before_w2 ? GSN_UNIT_ROUNDOFF * fabs(h.value) : 0);
	}
	for (uint32_t j = 0; j < hidden; j++) {
		struct exact_dot y = dot_bounded(exact->w2 + (size_t)j * intermediate, exact->h,
			exact->h_bound, intermediate, exact->w2_bias[j]);

		ret_y[j] = y.value;
		ret_bound[j] = y.bound;
	}
}

double gsn_exact_logits(const struct gsn_exact *exact, const float *x, double *ret_logits)
{
	double largest = 0.0;

	for (uint32_t e = 0; e < exact->layer->spec->experts; e++) {
		struct exact_dot logit = dot_floats(exact->router + (size_t)e * exact->hidden, x,
			exact->hidden, exact->router_bias[e]);

		ret_logits[e] = logit.value;
		largest = fmax(largest, logit.bound);
	}
	return largest;
}

double gsn_exact_shared_weight(const struct gsn_exact *exact, const float *x, double *ret_bound)
{
	struct exact_dot logit;

	*ret_bound = 0.0;
	if (!exact->gate)
		return 1.0;
	logit = dot_floats(exact->gate, x, exact->hidden, 0.0);
	/* A sigmoid's slope is at most its value; exponential, sum and quotient are rounded. */
	*ret_bound = logit.bound + SWISH_ROUNDOFF;
	return 1.0 / (1.0 + exp(-logit.value));
}

/* E2M1, the even element in the low nibble. */
static double decode_f4(const uint8_t *raw, uint64_t index)
{
	static const double magnitudes[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
	unsigned code = raw[index / 2] >> (index % 2 ? 4 : 0);

	return code & 8u ? -magnitudes[code & 7u] : magnitudes[code & 7u];
}

static double decode_element(const void *raw, uint64_t index, gpusnap_dtype dtype)
{
	switch (dtype) {
	case GPUSNAP_F4:
		return decode_f4(raw, index);
	case GPUSNAP_F8_E8M0:
		return ldexp(1.0, ((const uint8_t *)raw)[index] - 127);
	case GPUSNAP_F8_E4M3:
		return (double)gsn_decode_f8_e4m3(((const uint8_t *)raw)[index]);
	case GPUSNAP_BF16:
		return (double)gsn_decode_bf16(((const uint16_t *)raw)[index]);
	case GPUSNAP_F16:
		return (double)gsn_decode_f16(((const uint16_t *)raw)[index]);
	default: /* GPUSNAP_F32: bind.c lets no other through */
		return (double)((const float *)raw)[index];
	}
}

/* `count` elements from element `first` of a buffer. */
static gpusnap_status read_elements(struct gsn_exact *exact, const struct gsn_operand *from,
	uint64_t first, uint64_t count, double *ret_values, gpusnap_error *err)
{
	uint64_t bits = gpusnap_dtype_bits(from->dtype);
	gpusnap_status status = gsn_peek_copy(exact->dispatch, from->address + first * bits / 8,
		count * bits / 8, exact->raw, err);

	for (uint64_t i = 0; i < count && !status; i++)
		ret_values[i] = decode_element(exact->raw, i, from->dtype);
	return status;
}

/* Matrices of rows x columns, one after the other, each with a grid of scales of its own. */
struct scaled {
	uint32_t count;
	uint32_t rows, columns;
	uint32_t block_n, block_k;
	double *values;
};

static double scale_at(const void *scales, gpusnap_dtype dtype, const struct scaled *m, uint64_t i)
{
	uint64_t row = i / m->columns, column = i % m->columns;
	uint64_t grid_rows = gsn_ceil_div(m->rows, m->block_n);
	uint64_t grid_columns = gsn_ceil_div(m->columns, m->block_k);
	uint64_t grid_row = row / m->rows * grid_rows + row % m->rows / m->block_n;

	return decode_element(scales, grid_row * grid_columns + column / m->block_k, dtype);
}

/* `part` of the slot's `parts`, which belong to as many experts. */
static gpusnap_status apply_scales(struct gsn_exact *exact, gpusnap_moe_slot slot, uint32_t part,
	uint32_t parts, struct scaled matrices, gpusnap_error *err)
{
	const struct gsn_operand *scale = &exact->layer->operands[slot];
	uint64_t bytes = scale->bytes / parts;
	uint64_t elements = (uint64_t)matrices.count * matrices.rows * matrices.columns;
	gpusnap_status status;

	if (!scale->name)
		return GPUSNAP_OK;
	/* There are no more scales than weights, so they fit where these were. */
	status = gsn_peek_copy(
		exact->dispatch, scale->address + part * bytes, bytes, exact->raw, err);
	for (uint64_t i = 0; i < elements && !status; i++)
		matrices.values[i] *= scale_at(exact->raw, scale->dtype, &matrices, i);
	return status;
}

/* Row `local` of a table of biases; zeros where there is none. */
static gpusnap_status read_bias(struct gsn_exact *exact, gpusnap_moe_slot slot, uint32_t local,
	uint64_t count, double *ret_values, gpusnap_error *err)
{
	const struct gsn_operand *bias = &exact->layer->operands[slot];

	if (bias->name)
		return read_elements(exact, bias, local * count, count, ret_values, err);
	memset(ret_values, 0, count * sizeof *ret_values);
	return GPUSNAP_OK;
}

gpusnap_status gsn_exact_load(struct gsn_exact *exact, uint32_t local, gpusnap_error *err)
{
	const struct gsn_operand *operands = exact->layer->operands;
	const gpusnap_moe_layer *spec = exact->layer->spec;
	uint32_t hidden = exact->hidden, inner = spec->intermediate;
	uint64_t size = (uint64_t)hidden * inner; /* of w2; w13 has twice as many */
	struct scaled w13 = {2, inner, hidden, spec->block_n, spec->block_k, exact->w13};
	struct scaled w2 = {1, hidden, inner, spec->block_n, spec->block_k, exact->w2};
	uint32_t parts = spec->mask.local;
	gpusnap_status status = read_elements(
		exact, &operands[GPUSNAP_MOE_W13], 2 * size * local, 2 * size, exact->w13, err);

	if (!status)
		status = apply_scales(exact, GPUSNAP_MOE_W13_SCALE, local, parts, w13, err);
	if (!status)
		status = read_elements(
			exact, &operands[GPUSNAP_MOE_W2], size * local, size, exact->w2, err);
	if (!status)
		status = apply_scales(exact, GPUSNAP_MOE_W2_SCALE, local, parts, w2, err);
	if (!status)
		status = read_bias(
			exact, GPUSNAP_MOE_W13_BIAS, local, 2ull * inner, exact->w13_bias, err);
	if (!status)
		status = read_bias(exact, GPUSNAP_MOE_W2_BIAS, local, hidden, exact->w2_bias, err);
	exact->intermediate = inner;
	return status;
}

gpusnap_status gsn_exact_load_shared(struct gsn_exact *exact, gpusnap_error *err)
{
	const struct gsn_operand *operands = exact->layer->operands;
	const gpusnap_moe_layer *spec = exact->layer->spec;
	uint32_t hidden = exact->hidden, inner = spec->shared_intermediate;
	uint64_t size = (uint64_t)hidden * inner;
	struct scaled w13 = {
		2, inner, hidden, spec->shared_block_n, spec->shared_block_k, exact->w13};
	struct scaled w2 = {
		1, hidden, inner, spec->shared_block_n, spec->shared_block_k, exact->w2};
	gpusnap_status status = read_elements(
		exact, &operands[GPUSNAP_MOE_SHARED_W13], 0, 2 * size, exact->w13, err);

	if (!status)
		status = apply_scales(exact, GPUSNAP_MOE_SHARED_W13_SCALE, 0, 1, w13, err);
	if (!status)
		status = read_elements(
			exact, &operands[GPUSNAP_MOE_SHARED_W2], 0, size, exact->w2, err);
	if (!status)
		status = apply_scales(exact, GPUSNAP_MOE_SHARED_W2_SCALE, 0, 1, w2, err);
	memset(exact->w13_bias, 0, 2ull * inner * sizeof *exact->w13_bias);
	memset(exact->w2_bias, 0, hidden * sizeof *exact->w2_bias);
	exact->intermediate = inner;
	return status;
}

/* The tables that choose and weigh; `bias` and `gate` where the layer has them. */
static gpusnap_status read_tables(struct gsn_exact *exact, gpusnap_error *err)
{
	const struct gsn_operand *operands = exact->layer->operands;
	uint32_t experts = exact->layer->spec->experts;
	gpusnap_status status = read_elements(exact, &operands[GPUSNAP_MOE_ROUTER], 0,
		(uint64_t)experts * exact->hidden, exact->router, err);

	if (!status && operands[GPUSNAP_MOE_SELECTION_BIAS].name)
		status = read_elements(
			exact, &operands[GPUSNAP_MOE_SELECTION_BIAS], 0, experts, exact->bias, err);
	if (!status && operands[GPUSNAP_MOE_ROUTER_BIAS].name)
		status = read_elements(exact, &operands[GPUSNAP_MOE_ROUTER_BIAS], 0, experts,
			exact->router_bias, err);
	if (!status && exact->gate)
		status = read_elements(exact, &operands[GPUSNAP_MOE_SHARED_GATE], 0, exact->hidden,
			exact->gate, err);
	return status;
}

gpusnap_status gsn_exact_init(struct gsn_exact *exact, gpusnap_dispatch *dispatch,
	const struct gsn_layer *layer, gpusnap_error *err)
{
	const gpusnap_moe_layer *spec = layer->spec;
	size_t widest = gsn_max(spec->intermediate, spec->shared_intermediate);
	size_t w2_size = (size_t)spec->hidden * widest;
	bool gated = layer->operands[GPUSNAP_MOE_SHARED_GATE].name != NULL;
	size_t router_size = (size_t)spec->experts * spec->hidden;

	*exact = (struct gsn_exact){
		.dispatch = dispatch,
		.layer = layer,
		.hidden = spec->hidden,
	};
	exact->router = gsn_alloc(router_size, sizeof *exact->router);
	exact->bias = gsn_alloc(spec->experts, sizeof *exact->bias);
	exact->router_bias = gsn_alloc(spec->experts, sizeof *exact->router_bias);
	exact->w13_bias = gsn_alloc(2 * widest, sizeof *exact->w13_bias);
	exact->w2_bias = gsn_alloc(spec->hidden, sizeof *exact->w2_bias);
	exact->gate = gated ? gsn_alloc(spec->hidden, sizeof *exact->gate) : NULL;
	exact->w13 = gsn_alloc(2 * w2_size, sizeof *exact->w13);
	exact->w2 = gsn_alloc(w2_size, sizeof *exact->w2);
	exact->h = gsn_alloc(widest, sizeof *exact->h);
	exact->h_bound = gsn_alloc(widest, sizeof *exact->h_bound);
	exact->raw = gsn_alloc(gsn_max(2 * w2_size, router_size), sizeof(float));
	if (!exact->router || !exact->w13 || !exact->w2 || !exact->h || !exact->h_bound ||
		!exact->raw || !exact->bias || !exact->router_bias || !exact->w13_bias ||
		!exact->w2_bias || (gated && !exact->gate))
		return gsn_fail(err, GPUSNAP_E_NOMEM,
			"layer %u: comparison with a reference: out of memory", spec->layer);
	return read_tables(exact, err);
}

void gsn_exact_release(struct gsn_exact *exact)
{
	gsn_free(exact->router);
	gsn_free(exact->bias);
	gsn_free(exact->router_bias);
	gsn_free(exact->w13_bias);
	gsn_free(exact->w2_bias);
	gsn_free(exact->gate);
	gsn_free(exact->w13);
	gsn_free(exact->w2);
	gsn_free(exact->h);
	gsn_free(exact->h_bound);
	gsn_free(exact->raw);
	*exact = (struct gsn_exact){0};
}
