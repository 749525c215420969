/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expert index maps: what a map holds, what is wrong with one that holds something else, and the
 * way from masks and ids to maps and back.
 */
#include <gpusnap/expert_map.h>

#include <stdbool.h>

#include "formats/base/fail.h"

static int32_t expected_id(const gpusnap_mask_type *type, uint32_t expert)
{
	uint32_t local = expert - type->first; /* huge before the block */

	return local < type->local ? (int32_t)local : GPUSNAP_REMOTE;
}

void gpusnap_expert_map_fill(const gpusnap_mask_type *type, gpusnap_local_id *ids)
{
	for (uint32_t i = 0; i < type->experts; i++)
		ids[i].value = expected_id(type, i);
}

/* What one pass over the ids finds; `length` stands for no index. */
struct survey {
	uint32_t length;
	uint32_t differing;
	uint32_t first_differing, last_differing;
	uint32_t first_strange; /* id that is neither -1 nor below the local experts */
	uint32_t zeros, ones;
	uint32_t run_begin, run_end; /* ids that count up from 0 in one run, when they do */
	bool one_run;
};

static void survey_run(struct survey *s, uint32_t index, int32_t id)
{
	if (id == GPUSNAP_REMOTE)
		return;
	if (s->run_end == 0)
		s->run_begin = index;
	if ((s->run_end && s->run_end != index) || id != (int32_t)(index - s->run_begin))
		s->one_run = false;
	s->run_end = index + 1;
}

static struct survey survey_ids(const gpusnap_mask_type *type, const gpusnap_local_id *ids)
{
	struct survey s = {
		.length = type->experts, .first_strange = type->experts, .one_run = true};

	for (uint32_t i = 0; i < s.length; i++) {
		int32_t id = ids[i].value;

		s.zeros += id == 0;
		s.ones += id == 1;
		survey_run(&s, i, id);
		if ((id < GPUSNAP_REMOTE || id >= (int32_t)type->local) &&
			s.first_strange == s.length)
			s.first_strange = i;
		if (id == expected_id(type, i))
			continue;
		s.last_differing = i;
		if (s.differing++ == 0)
			s.first_differing = i;
	}
	s.one_run = s.one_run && s.run_end > 0;
	return s;
}

/* Zeros and ones alone, which only maps of one or two experts can be. */
static bool is_mask(const gpusnap_mask_type *type, const struct survey *s)
{
	return s->zeros + s->ones == s->length && s->ones == type->local;
}

static bool is_swap(
	const gpusnap_mask_type *type, const gpusnap_local_id *ids, const struct survey *s)
{
	return s->differing == 2 &&
	       ids[s->first_differing].value == expected_id(type, s->last_differing) &&
	       ids[s->last_differing].value == expected_id(type, s->first_differing);
}

static gpusnap_status fail_id(const gpusnap_mask_type *type, const gpusnap_local_id *ids,
	uint32_t at, const struct survey *s, gpusnap_error *err)
{
	int32_t expected = expected_id(type, at);

	return gsn_fail(err, GPUSNAP_E_CORRUPT,
		"expert map: expert %u has local id %d, expected %d%s (%u of %u ids differ)", at,
		ids[at].value, expected,
		expected == GPUSNAP_REMOTE ? ": another rank's"
		: ids[at].value == GPUSNAP_REMOTE
			? ": a lost expert"
			: ": its tokens would run through another's weights",
		s->differing, s->length);
}

static gpusnap_status fail_ids(const gpusnap_mask_type *type, const gpusnap_local_id *ids,
	const struct survey *s, gpusnap_error *err)
{
	uint32_t a = s->first_differing, b = s->last_differing;

	if (s->zeros == s->length && s->length > 1 && type->local > 0)
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"expert map: all %u ids are zero, expected 0 to %u from expert %u: the map "
			"was not restored",
			s->length, type->local - 1, type->first);
	if (is_mask(type, s))
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"expert map is a mask (zeros and %u ones): expected local ids and -1 for "
			"remote experts; give the map, not the mask",
			s->ones);
	if (s->first_strange < s->length)
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"expert map: id %d of expert %u is neither -1 nor one of %u local ids, "
			"expected %d (%u of %u ids differ)",
			ids[s->first_strange].value, s->first_strange, type->local,
			expected_id(type, s->first_strange), s->differing, s->length);
	if (is_swap(type, ids, s))
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"expert map: experts %u and %u are swapped: local ids %d and %d, expected "
			"%d and %d",
			a, b, ids[a].value, ids[b].value, expected_id(type, a),
			expected_id(type, b));
	if (s->one_run && s->run_begin != type->first)
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"expert map: local ids for experts [%u, %u), expected [%u, %u) of rank %u "
			"of %u: shifted, or the map of another rank or placement",
			s->run_begin, s->run_end, type->first, type->first + type->local,
			type->rank, type->world);
	return fail_id(type, ids, a, s, err);
}

gpusnap_status gpusnap_expert_map_check(const gpusnap_mask_type *type, const gpusnap_local_id *ids,
	uint32_t length, gpusnap_error *err)
{
	gpusnap_status status = gpusnap_mask_type_check(type, err);
	struct survey s;

	if (status)
		return status;
	if (length != type->experts)
		return gsn_fail(err, GPUSNAP_E_MISMATCH, "expert map has %u ids, expected %u",
			length, type->experts);
	s = survey_ids(type, ids);
	return s.differing ? fail_ids(type, ids, &s, err) : GPUSNAP_OK;
}

/* Index in the mask of a routed expert; false: the mask has none for it. */
static bool mask_index(const gpusnap_mask_type *type, uint32_t expert, uint32_t *ret_index)
{
	*ret_index = type->kind == GPUSNAP_MASK_DEEPEP ? expert - type->first : expert;
	return type->kind != GPUSNAP_MASK_DEEPEP || *ret_index < type->local;
}

void gpusnap_expert_map_from_mask(
	const gpusnap_mask_type *type, const int32_t *mask, gpusnap_local_id *ids)
{
	uint32_t next = 0; /* wraps where values are garbage */

	for (uint32_t e = 0; e < type->experts; e++) {
		uint32_t index;
		int32_t value = mask_index(type, e, &index) ? mask[index] : 0;

		ids[e].value = value ? (int32_t)next : GPUSNAP_REMOTE;
		next += (uint32_t)value;
	}
}

void gpusnap_expert_map_to_mask(
	const gpusnap_mask_type *type, const gpusnap_local_id *ids, int32_t *mask)
{
	/* Shared experts and the sink are in no map: theirs is what the type says. */
	gpusnap_mask_fill(type, mask);
	for (uint32_t e = 0; e < type->experts; e++) {
		uint32_t index;

		if (mask_index(type, e, &index))
			mask[index] = ids[e].value != GPUSNAP_REMOTE;
	}
}

int32_t gpusnap_mask_sink(const gpusnap_mask_type *type)
{
	bool has_sink = type->kind == GPUSNAP_MASK_DEEPEP || type->kind == GPUSNAP_MASK_VLLM_AITER;

	return has_sink ? (int32_t)gpusnap_mask_length(type) - 1 : GPUSNAP_REMOTE;
}

gpusnap_status gpusnap_ids_to_local(const gpusnap_mask_type *type, const int32_t *global,
	size_t count, int32_t remote, int32_t *ret_local, gpusnap_error *err)
{
	for (size_t i = 0; i < count; i++)
		if (global[i] < 0 || (uint32_t)global[i] >= type->experts)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"global expert id %d at %zu is not one of %u experts", global[i], i,
				type->experts);
	for (size_t i = 0; i < count; i++) {
		int32_t id = expected_id(type, (uint32_t)global[i]);

		ret_local[i] = id == GPUSNAP_REMOTE ? remote : id;
	}
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_ids_to_global(const gpusnap_mask_type *type, const int32_t *local,
	size_t count, int32_t remote, int32_t *ret_global, gpusnap_error *err)
{
	for (size_t i = 0; i < count; i++)
		if (local[i] != remote && (local[i] < 0 || (uint32_t)local[i] >= type->local))
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"local expert id %d at %zu is not one of %u, nor %d for remote "
				"ones",
				local[i], i, type->local, remote);
	for (size_t i = 0; i < count; i++)
		ret_global[i] =
			local[i] == remote ? GPUSNAP_REMOTE : local[i] + (int32_t)type->first;
	return GPUSNAP_OK;
}
