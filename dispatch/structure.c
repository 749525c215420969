/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check (a): what can be said of live bytes without any record. The mask is what its type says;
 * scales are finite and positive; routers, norms and weights hold no NaN and no infinity (FP8 E4M3:
 * no NaN code, which engines that clean outputs up would hide).
 */
#include <math.h>

#include "dispatch/dispatch_state.h"
#include "dispatch/peek.h"
#include "dispatch/proof.h"
#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

static struct gsn_place at_slot(uint32_t index, gpusnap_moe_slot slot)
{
	return (struct gsn_place){GPUSNAP_FAILURE_STRUCTURE, index, slot, -1, -1};
}

static int64_t first_wrong_leaf(const int32_t *has, const int32_t *wants, uint32_t length)
{
	uint32_t i = 0;

	while (i < length && has[i] == wants[i])
		i++;
	return (int64_t)(i * sizeof *has / GPUSNAP_LEAF_BYTES);
}

static gpusnap_status check_mask(struct gsn_proof *proof, uint32_t index, gpusnap_error *err)
{
	const struct gsn_layer *layer = &proof->dispatch->layers[index];
	const struct gsn_operand *mask = &layer->operands[GPUSNAP_MOE_MASK];
	uint32_t length = gpusnap_mask_length(&layer->spec->mask);
	int32_t *values = gsn_alloc(2 * (size_t)length, sizeof *values);
	struct gsn_place place = at_slot(index, GPUSNAP_MOE_MASK);
	gpusnap_error bad;
	gpusnap_status status;

	if (!values)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "layer %u: reading mask '%s': out of memory",
			layer->spec->layer, mask->name);
	status = gsn_peek_copy(proof->dispatch, mask->address, mask->bytes, values, err);
	if (!status && gpusnap_mask_check(&layer->spec->mask, values, length, &bad)) {
		gpusnap_mask_fill(&layer->spec->mask, values + length);
		place.leaf = first_wrong_leaf(values, values + length, length);
		status = gsn_proof_found(proof, place, err, "%s", bad.message);
	}
	gsn_free(values);
	return status;
}

/* What is wrong with the scales of one buffer. */
struct bad_scales {
	uint64_t count;
	uint64_t first; /* element */
	float value;	/* of the first */
};

static gpusnap_status search_scales(gpusnap_dispatch *dispatch, const struct gsn_operand *scale,
	struct bad_scales *bad, gpusnap_error *err)
{
	const void *window;

	for (uint64_t done = 0; done < scale->bytes;) {
		uint64_t part = gsn_min(scale->bytes - done, GSN_PEEK_BYTES);
		gpusnap_status status =
			gsn_peek(dispatch, scale->address + done, part, &window, err);
		const float *values = window;

		if (status)
			return status;
		for (uint64_t i = 0; i < part / sizeof *values; i++) {
			if (isfinite(values[i]) && values[i] > 0.0f)
				continue;
			if (bad->count++ == 0) {
				bad->first = done / sizeof *values + i;
				bad->value = values[i];
			}
		}
		done += part;
	}
	return GPUSNAP_OK;
}

/* One failure for the whole table: a lost page of scales is one damaged object. */
static gpusnap_status check_scale(
	struct gsn_proof *proof, uint32_t index, gpusnap_moe_slot slot, gpusnap_error *err)
{
	const struct gsn_layer *layer = &proof->dispatch->layers[index];
	const struct gsn_operand *scale = &layer->operands[slot];
	uint64_t per_expert = scale->bytes / sizeof(float) / layer->spec->mask.local;
	struct gsn_place place = at_slot(index, slot);
	struct bad_scales bad = {0};
	gpusnap_status status = search_scales(proof->dispatch, scale, &bad, err);

	if (status || bad.count == 0)
		return status;
	place.expert = (int32_t)(layer->spec->mask.first + bad.first / per_expert);
	place.leaf = (int64_t)(bad.first * sizeof(float) / GPUSNAP_LEAF_BYTES);
	return gsn_proof_found(proof, place, err,
		"element %llu is %g and must be finite and positive; so are %llu of %llu wrong",
		(unsigned long long)bad.first, (double)bad.value, (unsigned long long)bad.count,
		(unsigned long long)(scale->bytes / sizeof(float)));
}

/* Router and norm: no expert is to blame for them. */
static gpusnap_status check_table(
	struct gsn_proof *proof, uint32_t index, gpusnap_moe_slot slot, gpusnap_error *err)
{
	const struct gsn_operand *table = &proof->dispatch->layers[index].operands[slot];
	uint64_t width = gpusnap_dtype_bits(table->dtype) / 8;
	struct gsn_place place = at_slot(index, slot);
	uint64_t first;
	gpusnap_status status = gsn_find_nonfinite(
		proof->dispatch, table->address, table->bytes, table->dtype, &first, err);

	if (status || first == GSN_ALL_FINITE)
		return status;
	place.leaf = (int64_t)(first * width / GPUSNAP_LEAF_BYTES);
	return gsn_proof_found(proof, place, err, "element %llu (%s) is NaN or infinite",
		(unsigned long long)first, gpusnap_dtype_name(table->dtype));
}

static gpusnap_status check_weights(
	struct gsn_proof *proof, uint32_t index, gpusnap_moe_slot slot, gpusnap_error *err)
{
	const struct gsn_layer *layer = &proof->dispatch->layers[index];
	const struct gsn_operand *weights = &layer->operands[slot];
	uint64_t width = gpusnap_dtype_bits(weights->dtype) / 8;
	uint64_t part = weights->bytes / layer->spec->mask.local;
	struct gsn_place place = at_slot(index, slot);

	for (uint32_t local = 0; local < layer->spec->mask.local; local++) {
		uint64_t first;
		gpusnap_status status = gsn_find_nonfinite(proof->dispatch,
			weights->address + local * part, part, weights->dtype, &first, err);

		if (!status && first != GSN_ALL_FINITE) {
			place.expert = (int32_t)(layer->spec->mask.first + local);
			place.leaf = (int64_t)((local * part + first * width) / GPUSNAP_LEAF_BYTES);
			status = gsn_proof_found(proof, place, err,
				"element %llu of expert %d (%s) is %s", (unsigned long long)first,
				place.expert, gpusnap_dtype_name(weights->dtype),
				weights->dtype == GPUSNAP_F8_E4M3 ? "a NaN code"
								  : "NaN or infinite");
		}
		if (status)
			return status;
	}
	return GPUSNAP_OK;
}

static gpusnap_status check_slot(
	struct gsn_proof *proof, uint32_t index, gpusnap_moe_slot slot, gpusnap_error *err)
{
	if (!proof->dispatch->layers[index].operands[slot].name)
		return GPUSNAP_OK;
	switch (slot) {
	case GPUSNAP_MOE_MASK:
		return check_mask(proof, index, err);
	case GPUSNAP_MOE_W13_SCALE:
	case GPUSNAP_MOE_W2_SCALE:
		return check_scale(proof, index, slot, err);
	case GPUSNAP_MOE_W13:
	case GPUSNAP_MOE_W2:
		return check_weights(proof, index, slot, err);
	default:
		return check_table(proof, index, slot, err);
	}
}

gpusnap_status gsn_proof_structure(struct gsn_proof *proof, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint32_t i = 0; i < proof->dispatch->model->layer_count; i++)
		for (int slot = 0; slot < GPUSNAP_MOE_SLOTS && !status; slot++)
			status = check_slot(proof, i, (gpusnap_moe_slot)slot, err);
	return status;
}
