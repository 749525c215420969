/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attribution by leaves. A leaf that lies wholly inside an expert's bytes convicts; one that it
 * shares with a neighbour (small experts) only makes a suspect, which is passed over when a
 * neighbour's failure explains the leaf.
 */
#include "dispatch/blame.h"

#include "dispatch/dispatch_state.h"
#include "dispatch/peek.h"
#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

struct suspicion {
	bool known;   /* there are leaves to compare with */
	bool own;     /* a leaf of this expert alone differs */
	int64_t leaf; /* first that differs; -1: none */
	int64_t last; /* last that differs */
};

/* Compare the leaves that hold bytes [begin, end) of a buffer. */
static gpusnap_status compare_leaves(gpusnap_dispatch *dispatch, const struct gsn_operand *operand,
	const gpusnap_digest *leaves, uint64_t begin, uint64_t end, struct suspicion *ret,
	gpusnap_error *err)
{
	uint64_t first = begin / GPUSNAP_LEAF_BYTES;
	uint64_t count = gsn_ceil_div(end, GPUSNAP_LEAF_BYTES) - first;
	gpusnap_digest *live = gsn_alloc(count, sizeof *live);
	gpusnap_status status;

	if (!live)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "leaves of '%s': out of memory", operand->name);
	*ret = (struct suspicion){.known = true, .leaf = -1};
	status = gsn_operand_leaves(dispatch, operand, first, count, live, err);
	for (uint64_t i = 0; i < count && !status; i++) {
		uint64_t leaf_begin = (first + i) * GPUSNAP_LEAF_BYTES;
		uint64_t leaf_end = gsn_min(leaf_begin + GPUSNAP_LEAF_BYTES, operand->bytes);

		if (gpusnap_digest_equal(live[i], leaves[first + i]))
			continue;
		if (ret->leaf < 0)
			ret->leaf = (int64_t)(first + i);
		ret->last = (int64_t)(first + i);
		ret->own |= leaf_begin >= begin && leaf_end <= end;
	}
	gsn_free(live);
	return status;
}

/* `part` of `parts` equal parts of the slot's buffer. */
static gpusnap_status suspect(struct gsn_proof *proof, const gpusnap_baseline *baseline,
	const struct gsn_operand *operand, uint32_t part, uint32_t parts, struct suspicion *ret,
	gpusnap_error *err)
{
	uint64_t bytes = operand->bytes / parts;
	uint64_t count = 0;
	const gpusnap_digest *leaves = NULL;

	*ret = (struct suspicion){.leaf = -1};
	if (operand->name && baseline)
		leaves = gpusnap_baseline_leaves(baseline, operand->name, &count);
	if (!leaves || count != gpusnap_leaf_count(operand->bytes))
		return GPUSNAP_OK;
	return compare_leaves(
		proof->dispatch, operand, leaves, part * bytes, (part + 1) * bytes, ret, err);
}

gpusnap_status gsn_blame_leaf(struct gsn_proof *proof, const gpusnap_baseline *baseline,
	uint32_t index, gpusnap_moe_slot slot, int64_t *ret_leaf, gpusnap_error *err)
{
	struct suspicion suspicion;
	gpusnap_status status = suspect(proof, baseline,
		&proof->dispatch->layers[index].operands[slot], 0, 1, &suspicion, err);

	if (!status)
		*ret_leaf = suspicion.leaf;
	return status;
}

static const gpusnap_moe_slot weight_slots[] = {GPUSNAP_MOE_W13, GPUSNAP_MOE_W2};
/* Control tables of which each expert has a part. */
static const gpusnap_moe_slot table_slots[] = {
	GPUSNAP_MOE_W13_SCALE, GPUSNAP_MOE_W2_SCALE, GPUSNAP_MOE_W13_BIAS, GPUSNAP_MOE_W2_BIAS};

enum { WEIGHTS = 2, TABLES = 4 };

/* One expert whose output differs, and all that speaks for or against its buffers. */
struct inquiry {
	struct gsn_proof *proof;
	uint32_t index;
	int32_t expert; /* global id */
	const char *what;
	struct suspicion slots[GPUSNAP_MOE_SLOTS];
};

static gpusnap_status name_slot(struct inquiry *inquiry, gpusnap_moe_slot slot, gpusnap_error *err)
{
	struct gsn_place place = {GPUSNAP_FAILURE_EXPERT, inquiry->index, slot, inquiry->expert,
		inquiry->slots[slot].leaf};

	if (gsn_findings_get(&inquiry->proof->findings, inquiry->index, slot, inquiry->expert))
		return GPUSNAP_OK;
	return gsn_proof_found(inquiry->proof, place, err,
		"%s; leaf %lld differs from the baseline", inquiry->what, (long long)place.leaf);
}

static gpusnap_status name_nothing(struct inquiry *inquiry, const char *why, gpusnap_error *err)
{
	struct gsn_place place = {
		GPUSNAP_FAILURE_EXPERT, inquiry->index, GSN_NO_SLOT, inquiry->expert, -1};

	return gsn_proof_found(inquiry->proof, place, err, "%s; %s", inquiry->what, why);
}

static bool weights_named(const struct inquiry *inquiry)
{
	for (int i = 0; i < WEIGHTS; i++)
		if (gsn_findings_get(&inquiry->proof->findings, inquiry->index, weight_slots[i],
			    inquiry->expert))
			return true;
	return false;
}

/* A table that is known to be damaged, now also known to break this expert. */
static bool table_named(struct inquiry *inquiry)
{
	for (int i = 0; i < TABLES; i++) {
		struct gsn_finding *known = gsn_findings_get(
			&inquiry->proof->findings, inquiry->index, table_slots[i], -1);

		if (!known)
			continue;
		if (known->failure.expert < 0)
			known->failure.expert = inquiry->expert;
		return true;
	}
	return false;
}

/* The leaf holds bytes of another expert that is known to be damaged there. */
static bool leaf_explained(const struct inquiry *inquiry, gpusnap_moe_slot slot, int64_t leaf)
{
	const struct gsn_findings *findings = &inquiry->proof->findings;
	const struct gsn_layer *layer = &inquiry->proof->dispatch->layers[inquiry->index];
	const gpusnap_mask_type *mask = &layer->spec->mask;
	uint64_t part = layer->operands[slot].bytes / mask->local;

	for (size_t i = 0; i < findings->count; i++) {
		const struct gsn_finding *other = &findings->items[i];
		uint64_t begin;

		if (other->index != inquiry->index || other->slot != slot ||
			other->failure.expert < 0)
			continue;
		begin = ((uint32_t)other->failure.expert - mask->first) * part;
		if (begin / GPUSNAP_LEAF_BYTES <= (uint64_t)leaf &&
			(begin + part - 1) / GPUSNAP_LEAF_BYTES >= (uint64_t)leaf)
			return true;
	}
	return false;
}

/* Leaves that are shared with neighbours can only be the first and the last of an expert. */
static bool slot_explained(const struct inquiry *inquiry, gpusnap_moe_slot slot)
{
	const struct suspicion *suspicion = &inquiry->slots[slot];

	return leaf_explained(inquiry, slot, suspicion->leaf) &&
	       leaf_explained(inquiry, slot, suspicion->last);
}

/* GSN_NO_SLOT when no weight can be told from a neighbour's. */
static gpusnap_moe_slot shared_suspect(const struct inquiry *inquiry, bool even_if_explained)
{
	for (int i = 0; i < WEIGHTS; i++) {
		gpusnap_moe_slot slot = weight_slots[i];

		if (inquiry->slots[slot].leaf >= 0 &&
			(even_if_explained || !slot_explained(inquiry, slot)))
			return slot;
	}
	return GSN_NO_SLOT;
}

static gpusnap_moe_slot differing_table(const struct inquiry *inquiry)
{
	for (int i = 0; i < TABLES; i++)
		if (inquiry->slots[table_slots[i]].leaf >= 0)
			return table_slots[i];
	return GSN_NO_SLOT;
}

static gpusnap_status judge_shared(struct inquiry *inquiry, gpusnap_error *err)
{
	gpusnap_moe_slot slot = shared_suspect(inquiry, false);

	if (slot == GSN_NO_SLOT && table_named(inquiry))
		return GPUSNAP_OK;
	if (slot == GSN_NO_SLOT)
		slot = differing_table(inquiry);
	if (slot == GSN_NO_SLOT)
		slot = shared_suspect(inquiry, true);
	if (slot != GSN_NO_SLOT)
		return name_slot(inquiry, slot, err);
	return name_nothing(inquiry,
		"its bytes equal the baseline: record and baseline are of different states, or the "
		"device computes otherwise than it did",
		err);
}

static gpusnap_status open_inquiry(struct inquiry *inquiry, const gpusnap_baseline *baseline,
	uint32_t local, gpusnap_error *err)
{
	const struct gsn_layer *layer = &inquiry->proof->dispatch->layers[inquiry->index];
	const gpusnap_mask_type *mask = &layer->spec->mask;
	gpusnap_status status = GPUSNAP_OK;

	inquiry->expert = (int32_t)(mask->first + local);
	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS && !status; slot++)
		if (gsn_is_expert_slot((gpusnap_moe_slot)slot))
			status = suspect(inquiry->proof, baseline, &layer->operands[slot], local,
				mask->local, &inquiry->slots[slot], err);
	return status;
}

gpusnap_status gsn_blame_convict(struct gsn_proof *proof, const gpusnap_baseline *baseline,
	uint32_t index, uint32_t local, const char *what, gpusnap_error *err)
{
	struct inquiry inquiry = {.proof = proof, .index = index, .what = what};
	gpusnap_status status = open_inquiry(&inquiry, baseline, local, err);

	for (int i = 0; i < WEIGHTS && !status; i++)
		if (inquiry.slots[weight_slots[i]].own)
			status = name_slot(&inquiry, weight_slots[i], err);
	return status;
}

gpusnap_status gsn_blame_suspect(struct gsn_proof *proof, const gpusnap_baseline *baseline,
	uint32_t index, uint32_t local, const char *what, gpusnap_error *err)
{
	struct inquiry inquiry = {.proof = proof, .index = index, .what = what};
	gpusnap_status status = open_inquiry(&inquiry, baseline, local, err);

	if (status || weights_named(&inquiry))
		return status;
	if (inquiry.slots[GPUSNAP_MOE_W13].known && inquiry.slots[GPUSNAP_MOE_W2].known)
		return judge_shared(&inquiry, err);
	if (table_named(&inquiry))
		return GPUSNAP_OK;
	return name_nothing(&inquiry,
		"no leaf digests of its buffers at hand to tell which: give the snapshot", err);
}
