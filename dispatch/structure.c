/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check (a): what can be said of live bytes without any record. Mask and map are what their type
 * says; scales are finite and positive (E8M0: no NaN code); hash tables name experts; routers,
 * biases, norms and weights hold no NaN and no infinity (FP8 E4M3: no NaN code, which engines that
 * clean outputs up would hide).
 */
#include <math.h>

#include <gpusnap/expert_map.h>

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

static gpusnap_status check_map(struct gsn_proof *proof, uint32_t index, gpusnap_error *err)
{
	const struct gsn_layer *layer = &proof->dispatch->layers[index];
	const struct gsn_operand *map = &layer->operands[GPUSNAP_MOE_MAP];
	uint32_t length = layer->spec->experts;
	gpusnap_local_id *ids = gsn_alloc(2 * (size_t)length, sizeof *ids);
	struct gsn_place place = at_slot(index, GPUSNAP_MOE_MAP);
	gpusnap_error bad;
	gpusnap_status status;

	if (!ids)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "layer %u: reading map '%s': out of memory",
			layer->spec->layer, map->name);
	status = gsn_peek_copy(proof->dispatch, map->address, map->bytes, ids, err);
	if (!status && gpusnap_expert_map_check(&layer->spec->mask, ids, length, &bad)) {
		gpusnap_expert_map_fill(&layer->spec->mask, ids + length);
		place.leaf = first_wrong_leaf(&ids->value, &ids[length].value, length);
		status = gsn_proof_found(proof, place, err, "%s", bad.message);
	}
	gsn_free(ids);
	return status;
}

/* What is wrong with the elements of one buffer. */
struct bad_elements {
	uint64_t count;
	uint64_t first; /* element */
	double value;	/* of the first */
};

/* Count element `index` of the buffer if it is bad. */
static void judge(struct bad_elements *bad, bool is_bad, uint64_t index, double value)
{
	if (!is_bad || bad->count++ > 0)
		return;
	bad->first = index;
	bad->value = value;
}

typedef void judge_fn(const void *window, uint64_t count, gpusnap_dtype dtype, uint64_t first,
	uint64_t limit, struct bad_elements *bad);

/* E8M0 codes are positive powers of two, but for the one that is NaN. */
static void judge_scales(const void *window, uint64_t count, gpusnap_dtype dtype, uint64_t first,
	uint64_t limit, struct bad_elements *bad)
{
	const uint8_t *codes = window;
	const float *values = window;

	(void)limit;
	for (uint64_t i = 0; dtype == GPUSNAP_F8_E8M0 && i < count; i++)
		judge(bad, codes[i] == 255, first + i, (double)NAN);
	for (uint64_t i = 0; dtype == GPUSNAP_F32 && i < count; i++)
		judge(bad, !(isfinite(values[i]) && values[i] > 0.0f), first + i,
			(double)values[i]);
}

/* Ids of a table, `limit` of which there are. */
static void judge_ids(const void *window, uint64_t count, gpusnap_dtype dtype, uint64_t first,
	uint64_t limit, struct bad_elements *bad)
{
	const int64_t *wide = window;
	const int32_t *narrow = window;

	for (uint64_t i = 0; i < count; i++) {
		int64_t id = dtype == GPUSNAP_I64 ? wide[i] : narrow[i];

		judge(bad, id < 0 || (uint64_t)id >= limit, first + i, (double)id);
	}
}

static gpusnap_status search(gpusnap_dispatch *dispatch, const struct gsn_operand *operand,
	judge_fn *judge_window, uint64_t limit, struct bad_elements *bad, gpusnap_error *err)
{
	uint64_t width = gpusnap_dtype_bits(operand->dtype) / 8;
	const void *window;

	for (uint64_t done = 0; done < operand->bytes;) {
		uint64_t part = gsn_min(operand->bytes - done, GSN_PEEK_BYTES);
		gpusnap_status status =
			gsn_peek(dispatch, operand->address + done, part, &window, err);

		if (status)
			return status;
		judge_window(window, part / width, operand->dtype, done / width, limit, bad);
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
	uint64_t width = gpusnap_dtype_bits(scale->dtype) / 8;
	struct gsn_place place = at_slot(index, slot);
	struct bad_elements bad = {0};
	gpusnap_status status = search(proof->dispatch, scale, judge_scales, 0, &bad, err);

	if (status || bad.count == 0)
		return status;
	if (gsn_is_expert_slot(slot))
		place.expert =
			(int32_t)(layer->spec->mask.first +
				  bad.first * width * layer->spec->mask.local / scale->bytes);
	place.leaf = (int64_t)(bad.first * width / GPUSNAP_LEAF_BYTES);
	return gsn_proof_found(proof, place, err,
		"element %llu is %g and must be finite and positive; so are %llu of %llu wrong",
		(unsigned long long)bad.first, bad.value, (unsigned long long)bad.count,
		(unsigned long long)(scale->bytes / width));
}

static gpusnap_status check_hash(struct gsn_proof *proof, uint32_t index, gpusnap_error *err)
{
	const struct gsn_layer *layer = &proof->dispatch->layers[index];
	const struct gsn_operand *hash = &layer->operands[GPUSNAP_MOE_HASH];
	uint64_t width = gpusnap_dtype_bits(hash->dtype) / 8;
	struct gsn_place place = at_slot(index, GPUSNAP_MOE_HASH);
	struct bad_elements bad = {0};
	gpusnap_status status =
		search(proof->dispatch, hash, judge_ids, layer->spec->experts, &bad, err);

	if (status || bad.count == 0)
		return status;
	place.leaf = (int64_t)(bad.first * width / GPUSNAP_LEAF_BYTES);
	return gsn_proof_found(proof, place, err,
		"token %llu is sent to expert %.0f, which is not one of %u; so are %llu of %llu "
		"ids wrong",
		(unsigned long long)(bad.first / layer->spec->top_k), bad.value,
		layer->spec->experts, (unsigned long long)bad.count,
		(unsigned long long)(hash->bytes / width));
}

static const char *nonfinite_word(gpusnap_dtype dtype)
{
	return dtype == GPUSNAP_F8_E4M3 ? "a NaN code" : "NaN or infinite";
}

/* Leaf that holds an element. */
static int64_t leaf_of(uint64_t element, gpusnap_dtype dtype)
{
	return (int64_t)(element * gpusnap_dtype_bits(dtype) / 8 / GPUSNAP_LEAF_BYTES);
}

/* Routers, norms, the shared expert and its gate: no routed expert is to blame for them. */
static gpusnap_status check_table(
	struct gsn_proof *proof, uint32_t index, gpusnap_moe_slot slot, gpusnap_error *err)
{
	const struct gsn_operand *table = &proof->dispatch->layers[index].operands[slot];
	struct gsn_place place = at_slot(index, slot);
	uint64_t first;
	gpusnap_status status = gsn_find_nonfinite(
		proof->dispatch, table->address, table->bytes, table->dtype, &first, err);

	if (status || first == GSN_ALL_FINITE)
		return status;
	place.leaf = leaf_of(first, table->dtype);
	return gsn_proof_found(proof, place, err, "element %llu (%s) is %s",
		(unsigned long long)first, gpusnap_dtype_name(table->dtype),
		nonfinite_word(table->dtype));
}

/* Equal parts of which each is one expert's: weights, and biases of its rows. */
static gpusnap_status check_parts(
	struct gsn_proof *proof, uint32_t index, gpusnap_moe_slot slot, gpusnap_error *err)
{
	const struct gsn_layer *layer = &proof->dispatch->layers[index];
	const struct gsn_operand *weights = &layer->operands[slot];
	uint64_t part = weights->bytes / layer->spec->mask.local;
	struct gsn_place place = at_slot(index, slot);

	for (uint32_t local = 0; local < layer->spec->mask.local; local++) {
		uint64_t first;
		gpusnap_status status = gsn_find_nonfinite(proof->dispatch,
			weights->address + local * part, part, weights->dtype, &first, err);

		if (!status && first != GSN_ALL_FINITE) {
			place.expert = (int32_t)(layer->spec->mask.first + local);
			place.leaf = leaf_of(
				local * part * 8 / gpusnap_dtype_bits(weights->dtype) + first,
				weights->dtype);
			status = gsn_proof_found(proof, place, err,
				"element %llu of expert %d (%s) is %s", (unsigned long long)first,
				place.expert, gpusnap_dtype_name(weights->dtype),
				nonfinite_word(weights->dtype));
		}
		if (status)
			return status;
	}
	return GPUSNAP_OK;
}

static gpusnap_status check_slot(
	struct gsn_proof *proof, uint32_t index, gpusnap_moe_slot slot, gpusnap_error *err)
{
	const struct gsn_operand *operand = &proof->dispatch->layers[index].operands[slot];

	/* Every code of F4 is a number. */
	if (!operand->name || operand->dtype == GPUSNAP_F4)
		return GPUSNAP_OK;
	proof->bytes_read += operand->bytes;
	switch (slot) {
	case GPUSNAP_MOE_MASK:
		return check_mask(proof, index, err);
	case GPUSNAP_MOE_MAP:
		return check_map(proof, index, err);
	case GPUSNAP_MOE_HASH:
		return check_hash(proof, index, err);
	case GPUSNAP_MOE_W13_SCALE:
	case GPUSNAP_MOE_W2_SCALE:
	case GPUSNAP_MOE_SHARED_W13_SCALE:
	case GPUSNAP_MOE_SHARED_W2_SCALE:
		return check_scale(proof, index, slot, err);
	default:
		return gsn_is_expert_slot(slot) ? check_parts(proof, index, slot, err)
						: check_table(proof, index, slot, err);
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
