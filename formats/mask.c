/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expert masks: what values a mask of some type holds, and what is wrong with a mask that holds
 * others. A damaged mask gives no error on a device, only wrong answers, so the check looks for
 * the cause (lost memory, another rank, another table) before it names a single value.
 */
#include <gpusnap/mask.h>

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "formats/base/fail.h"
#include "formats/base/text.h"

static const struct kind_row {
	const char *name;
	gpusnap_mask_kind kind;
	bool has_sink;	 /* the last value is 0 and stands for "no expert of mine" */
	bool has_shared; /* fused shared experts follow the routed ones */
} kind_rows[] = {
	{"standard", GPUSNAP_MASK_STANDARD, false, false},
	{"mori", GPUSNAP_MASK_MORI, false, false},
	{"deepep", GPUSNAP_MASK_DEEPEP, true, false},
	{"vllm_aiter", GPUSNAP_MASK_VLLM_AITER, true, true},
};

enum { KIND_COUNT = sizeof kind_rows / sizeof kind_rows[0] };

static const struct kind_row *find_kind(gpusnap_mask_kind kind)
{
	for (int i = 0; i < KIND_COUNT; i++)
		if (kind_rows[i].kind == kind)
			return &kind_rows[i];
	return NULL;
}

const char *gpusnap_mask_kind_name(gpusnap_mask_kind kind)
{
	const struct kind_row *row = find_kind(kind);

	return row ? row->name : "unknown";
}

gpusnap_status gpusnap_mask_kind_parse(
	const char *name, gpusnap_mask_kind *ret_kind, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	for (int i = 0; i < KIND_COUNT; i++) {
		if (strcmp(kind_rows[i].name, name) == 0) {
			*ret_kind = kind_rows[i].kind;
			return GPUSNAP_OK;
		}
	}
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"mask kind '%s' is unknown; known are standard, mori, deepep, vllm_aiter",
		gsn_quote(name, strlen(name), quoted));
}

void gpusnap_expert_block(
	uint32_t experts, uint32_t rank, uint32_t world, uint32_t *ret_first, uint32_t *ret_local)
{
	assert(world > 0 && rank < world);
	uint32_t each = experts / world;
	uint32_t longer = experts % world; /* ranks that hold one more */

	*ret_first = rank * each + (rank < longer ? rank : longer);
	*ret_local = each + (rank < longer);
}

gpusnap_status gpusnap_mask_type_check(const gpusnap_mask_type *type, gpusnap_error *err)
{
	const struct kind_row *row = find_kind(type->kind);

	if (!row)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"mask kind %d is unknown; known are 1 (standard) to %d (vllm_aiter)",
			(int)type->kind, KIND_COUNT);
	if (type->experts == 0 || type->experts > GPUSNAP_EXPERTS_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID, "%s mask of %u experts: not in 1..%u",
			row->name, type->experts, GPUSNAP_EXPERTS_MAX);
	if (type->first > type->experts || type->local > type->experts - type->first)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s mask: own block of %u experts from %u leaves the %u experts", row->name,
			type->local, type->first, type->experts);
	if (type->shared > (row->has_shared ? GPUSNAP_EXPERTS_MAX : 0))
		return gsn_fail(err, GPUSNAP_E_INVALID, "%s mask: %u shared experts, at most %u",
			row->name, type->shared, row->has_shared ? GPUSNAP_EXPERTS_MAX : 0);
	if (type->rank >= type->world)
		return gsn_fail(err, GPUSNAP_E_INVALID, "%s mask: rank %u of a world of %u",
			row->name, type->rank, type->world);
	return GPUSNAP_OK;
}

uint32_t gpusnap_mask_length(const gpusnap_mask_type *type)
{
	switch (type->kind) {
	case GPUSNAP_MASK_STANDARD:
	case GPUSNAP_MASK_MORI:
		return type->experts;
	case GPUSNAP_MASK_DEEPEP:
		return type->local + 1;
	case GPUSNAP_MASK_VLLM_AITER:
		return type->experts + type->shared + 1;
	}
	return 0;
}

/* Index of the first own routed expert in the mask: deepep masks count local ids. */
static uint32_t block_begin(const gpusnap_mask_type *type)
{
	return type->kind == GPUSNAP_MASK_DEEPEP ? 0 : type->first;
}

/* Values before this index are of routed experts; shared experts and the sink follow. */
static uint32_t routed_length(const gpusnap_mask_type *type)
{
	return type->kind == GPUSNAP_MASK_DEEPEP ? type->local : type->experts;
}

static int32_t expected_value(const gpusnap_mask_type *type, uint32_t index)
{
	uint32_t routed = routed_length(type);

	if (index >= routed)
		return find_kind(type->kind)->has_shared && index - routed < type->shared;
	return index >= block_begin(type) && index - block_begin(type) < type->local;
}

void gpusnap_mask_fill(const gpusnap_mask_type *type, int32_t *values)
{
	uint32_t length = gpusnap_mask_length(type);

	for (uint32_t i = 0; i < length; i++)
		values[i] = expected_value(type, i);
}

/* What one pass over the values finds. */
struct survey {
	uint32_t length;
	uint32_t ones, zeros;
	uint32_t expected_ones;
	uint32_t differing;
	uint32_t first_differing;
	uint32_t first_strange; /* first value that is neither 0 nor 1; length: none */
	uint32_t run_begin;	/* routed ones, when they are one run */
	uint32_t run_end;
	bool one_run;
	bool counts_up; /* values other than -1 are 0, 1, 2, ...: local ids */
	bool ids;	/* all values are -1 or indexes into the table, some -1, some above 1 */
};

static void survey_run(struct survey *s, uint32_t index)
{
	if (s->run_end == 0)
		s->run_begin = index;
	else if (s->run_end != index)
		s->one_run = false;
	s->run_end = index + 1;
}

static struct survey survey_values(
	const gpusnap_mask_type *type, const int32_t *values, uint32_t length)
{
	struct survey s = {
		.length = length, .first_strange = length, .one_run = true, .counts_up = true};
	uint32_t routed = routed_length(type), remote = 0, large = 0, outside = 0;
	int32_t next_id = 0;

	for (uint32_t i = 0; i < length; i++) {
		int32_t value = values[i], expected = expected_value(type, i);

		s.expected_ones += expected == 1;
		s.ones += value == 1;
		s.zeros += value == 0;
		remote += value == -1;
		large += value > 1;
		outside += value < -1 || (value > 1 && (uint32_t)value >= length);
		if (value != expected && s.differing++ == 0)
			s.first_differing = i;
		if (value != 0 && value != 1 && s.first_strange == length)
			s.first_strange = i;
		if (value == 1 && i < routed)
			survey_run(&s, i);
		if (value != -1 && value != next_id++)
			s.counts_up = false;
	}
	s.counts_up = s.counts_up && next_id > 0;
	s.one_run = s.one_run && s.run_end > 0;
	s.ids = remote > 0 && large > 0 && outside == 0;
	return s;
}

static gpusnap_status fail_strange(const gpusnap_mask_type *type, const int32_t *values,
	const struct survey *s, gpusnap_error *err)
{
	uint32_t at = s->first_strange;

	if (s->counts_up || s->ids)
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"%s mask is an index map (%d at index %u): expected 0 and 1, found local "
			"ids "
			"and -1 for remote experts; give the mask, not the expert map",
			gpusnap_mask_kind_name(type->kind), values[at], at);
	return gsn_fail(err, GPUSNAP_E_CORRUPT,
		"%s mask: value %d at index %u is neither 0 nor 1, expected %d (%u of %u values "
		"differ)",
		gpusnap_mask_kind_name(type->kind), values[at], at, expected_value(type, at),
		s->differing, s->length);
}

/* One value differs, or no larger pattern explains the difference. */
static gpusnap_status fail_value(
	const gpusnap_mask_type *type, uint32_t at, const struct survey *s, gpusnap_error *err)
{
	const struct kind_row *row = find_kind(type->kind);

	if (row->has_sink && at == s->length - 1)
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"%s mask: the sink (index %u, the last) is 1, expected 0: tokens of other "
			"ranks would be computed here",
			row->name, at);
	if (expected_value(type, at) == 1)
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"%s mask: value 0 at index %u, expected 1: a lost expert, later local ones "
			"would run with the wrong weights (%u ones, expected %u)",
			row->name, at, s->ones, s->expected_ones);
	return gsn_fail(err, GPUSNAP_E_CORRUPT,
		"%s mask: value 1 at index %u, expected 0: an expert that this rank does not hold "
		"(%u ones, expected %u)",
		row->name, at, s->ones, s->expected_ones);
}

static gpusnap_status fail_pattern(const gpusnap_mask_type *type, const int32_t *values,
	const struct survey *s, gpusnap_error *err)
{
	const struct kind_row *row = find_kind(type->kind);
	uint32_t begin = block_begin(type), last = s->length - 1;

	if (s->ones == 0)
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"%s mask: all %u values are zero, expected %u ones from index %u: the mask "
			"was "
			"not restored",
			row->name, s->length, s->expected_ones, begin);
	if (s->differing == 1)
		return fail_value(type, s->first_differing, s, err);
	if (s->zeros == 0)
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"%s mask: all %u values are one, expected %u ones from index %u", row->name,
			s->length, s->expected_ones, begin);
	if (row->has_sink && values[last] == 1)
		return fail_value(type, last, s, err);
	if (s->one_run && (s->run_begin < begin || s->run_end > begin + type->local))
		return gsn_fail(err, GPUSNAP_E_CORRUPT,
			"%s mask: ones at [%u, %u), expected [%u, %u) of rank %u of %u: the mask "
			"of "
			"another rank or placement",
			row->name, s->run_begin, s->run_end, begin, begin + type->local, type->rank,
			type->world);
	return fail_value(type, s->first_differing, s, err);
}

gpusnap_status gpusnap_mask_check(
	const gpusnap_mask_type *type, const int32_t *values, uint32_t length, gpusnap_error *err)
{
	gpusnap_status status = gpusnap_mask_type_check(type, err);
	struct survey s;

	if (status)
		return status;
	if (length != gpusnap_mask_length(type))
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"%s mask has %u values, expected %u (%u experts, %u local, %u shared)",
			gpusnap_mask_kind_name(type->kind), length, gpusnap_mask_length(type),
			type->experts, type->local, type->shared);
	s = survey_values(type, values, length);
	if (s.differing == 0)
		return GPUSNAP_OK;
	if (s.first_strange < length)
		return fail_strange(type, values, &s, err);
	return fail_pattern(type, values, &s, err);
}
