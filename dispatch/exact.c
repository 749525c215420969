/* SPDX-License-Identifier: Apache-2.0 */
/* Router and experts in double precision, with error bounds. */
#include "dispatch/exact.h"

#include <math.h>

#include "dispatch/dispatch_state.h"
#include "dispatch/peek.h"
#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/moe_math.h"

/* |silu'| has its maximum 1.0998 at 2.3994. */
#define SILU_SLOPE 1.1
/* silu(g) in float32: exponential 2 ulp, sum, quotient, product; as much again for other code. */
#define SILU_ROUNDOFF (8 * GSN_UNIT_ROUNDOFF)

double gsn_dot_bound(uint64_t length, double sum)
{
	return 4.0 * sqrt((double)length) * GSN_UNIT_ROUNDOFF * sum;
}

struct exact_dot {
	double value;
	double bound;
};

static struct exact_dot dot_floats(const double *w, const float *x, uint32_t length)
{
	double value = 0.0;
	double sum = 0.0;

	for (uint32_t i = 0; i < length; i++) {
		double term = w[i] * (double)x[i];

		value += term;
		sum += fabs(term);
	}
	return (struct exact_dot){value, gsn_dot_bound(length, sum)};
}

static struct exact_dot dot_bounded(
	const double *w, const double *x, const double *x_bound, uint32_t length)
{
	double value = 0.0;
	double sum = 0.0;
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

static double silu(double gate)
{
	return gate / (1.0 + exp(-gate));
}

/* h = silu(gate) * up of one row pair. */
static struct exact_dot activate(struct exact_dot gate, struct exact_dot up)
{
	double s = silu(gate.value);
	double s_bound = SILU_SLOPE * gate.bound + SILU_ROUNDOFF * fabs(s);
	double value = s * up.value;
	double bound = s_bound * fabs(up.value) + fabs(s) * up.bound + s_bound * up.bound;

	return (struct exact_dot){value, bound + GSN_UNIT_ROUNDOFF * (fabs(value) + bound)};
}

void gsn_exact_apply(struct gsn_exact *exact, const float *x, double *ret_y, double *ret_bound)
{
	uint32_t hidden = exact->hidden;
	uint32_t intermediate = exact->intermediate;

	for (uint32_t i = 0; i < intermediate; i++) {
		const double *gate = exact->w13 + (size_t)i * hidden;
		const double *up = gate + (size_t)intermediate * hidden;
		struct exact_dot h =
			activate(dot_floats(gate, x, hidden), dot_floats(up, x, hidden));

		exact->h[i] = h.value;
		exact->h_bound[i] = h.bound;
	}
	for (uint32_t j = 0; j < hidden; j++) {
		struct exact_dot y = dot_bounded(exact->w2 + (size_t)j * intermediate, exact->h,
			exact->h_bound, intermediate);

		ret_y[j] = y.value;
		ret_bound[j] = y.bound;
	}
}

double gsn_exact_logits(const struct gsn_exact *exact, const float *x, double *ret_logits)
{
	double largest = 0.0;

	for (uint32_t e = 0; e < exact->layer->spec->experts; e++) {
		struct exact_dot logit =
			dot_floats(exact->router + (size_t)e * exact->hidden, x, exact->hidden);

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
	logit = dot_floats(exact->gate, x, exact->hidden);
	/* A sigmoid's slope is at most its value; exponential, sum and quotient are rounded. */
	*ret_bound = logit.bound + SILU_ROUNDOFF;
	return 1.0 / (1.0 + exp(-logit.value));
}

static double decode_element(const void *raw, uint64_t index, gpusnap_dtype dtype)
{
	switch (dtype) {
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
	uint64_t width = gpusnap_dtype_bits(from->dtype) / 8;
	gpusnap_status status = gsn_peek_copy(
		exact->dispatch, from->address + first * width, count * width, exact->raw, err);

	for (uint64_t i = 0; i < count && !status; i++)
		ret_values[i] = decode_element(exact->raw, i, from->dtype);
	return status;
}

/* Matrices of rows x columns, one after the other, each with a grid of scales of its own. */
struct scaled {
	uint32_t count;
	uint32_t rows, columns;
	double *values;
};

static gpusnap_status apply_scales(const struct gsn_exact *exact, gpusnap_moe_slot slot,
	uint32_t local, struct scaled matrices, gpusnap_error *err)
{
	const struct gsn_operand *scale = &exact->layer->operands[slot];
	const gpusnap_moe_layer *spec = exact->layer->spec;
	uint64_t part = scale->bytes / spec->mask.local;
	uint64_t elements = (uint64_t)matrices.count * matrices.rows * matrices.columns;
	uint64_t grid_rows, grid_columns;
	float *scales;
	gpusnap_status status;

	if (!scale->name)
		return GPUSNAP_OK;
	grid_rows = gsn_ceil_div(matrices.rows, spec->block_n);
	grid_columns = gsn_ceil_div(matrices.columns, spec->block_k);
	scales = gsn_alloc(1, part);
	if (!scales)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "scales '%s': out of memory", scale->name);
	status = gsn_peek_copy(exact->dispatch, scale->address + local * part, part, scales, err);
	for (uint64_t i = 0; i < elements && !status; i++) {
		uint64_t matrix = i / matrices.columns / matrices.rows;
		uint64_t row = i / matrices.columns % matrices.rows;
		uint64_t column = i % matrices.columns;
		uint64_t grid_row = matrix * grid_rows + row / spec->block_n;

		matrices.values[i] *=
			(double)scales[grid_row * grid_columns + column / spec->block_k];
	}
	gsn_free(scales);
	return status;
}

gpusnap_status gsn_exact_load(struct gsn_exact *exact, uint32_t local, gpusnap_error *err)
{
	const struct gsn_operand *operands = exact->layer->operands;
	uint32_t hidden = exact->hidden;
	uint32_t intermediate = exact->layer->spec->intermediate;
	uint64_t size = (uint64_t)hidden * intermediate; /* of w2; w13 has twice as many */
	gpusnap_status status = read_elements(
		exact, &operands[GPUSNAP_MOE_W13], 2 * size * local, 2 * size, exact->w13, err);

	if (!status)
		status = apply_scales(exact, GPUSNAP_MOE_W13_SCALE, local,
			(struct scaled){2, intermediate, hidden, exact->w13}, err);
	if (!status)
		status = read_elements(
			exact, &operands[GPUSNAP_MOE_W2], size * local, size, exact->w2, err);
	if (!status)
		status = apply_scales(exact, GPUSNAP_MOE_W2_SCALE, local,
			(struct scaled){1, hidden, intermediate, exact->w2}, err);
	exact->intermediate = intermediate;
	return status;
}

gpusnap_status gsn_exact_load_shared(struct gsn_exact *exact, gpusnap_error *err)
{
	const struct gsn_operand *operands = exact->layer->operands;
	uint64_t size = (uint64_t)exact->hidden * exact->layer->spec->shared_intermediate;
	gpusnap_status status = read_elements(
		exact, &operands[GPUSNAP_MOE_SHARED_W13], 0, 2 * size, exact->w13, err);

	if (!status)
		status = read_elements(
			exact, &operands[GPUSNAP_MOE_SHARED_W2], 0, size, exact->w2, err);
	exact->intermediate = exact->layer->spec->shared_intermediate;
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
	exact->gate = gated ? gsn_alloc(spec->hidden, sizeof *exact->gate) : NULL;
	exact->w13 = gsn_alloc(2 * w2_size, sizeof *exact->w13);
	exact->w2 = gsn_alloc(w2_size, sizeof *exact->w2);
	exact->h = gsn_alloc(widest, sizeof *exact->h);
	exact->h_bound = gsn_alloc(widest, sizeof *exact->h_bound);
	exact->raw = gsn_alloc(gsn_max(2 * w2_size, router_size), sizeof(float));
	if (!exact->router || !exact->w13 || !exact->w2 || !exact->h || !exact->h_bound ||
		!exact->raw || !exact->bias || (gated && !exact->gate))
		return gsn_fail(err, GPUSNAP_E_NOMEM,
			"layer %u: comparison with a reference: out of memory", spec->layer);
	return read_tables(exact, err);
}

void gsn_exact_release(struct gsn_exact *exact)
{
	gsn_free(exact->router);
	gsn_free(exact->bias);
	gsn_free(exact->gate);
	gsn_free(exact->w13);
	gsn_free(exact->w2);
	gsn_free(exact->h);
	gsn_free(exact->h_bound);
	gsn_free(exact->raw);
	*exact = (struct gsn_exact){0};
}
