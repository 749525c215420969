/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/plain_tensors.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "loader/name_list.h"

/* A family's names that may be missing, one after the other: needed ones, dense layers', the head.
 */
enum { FIRST_DENSE = GSN_NEEDED_MAX, HEAD = FIRST_DENSE + GSN_DENSE_MAX, NAMES };

static const char *name_at(const struct gsn_family *family, uint32_t index)
{
	if (index == HEAD)
		return family->head;
	return index < FIRST_DENSE ? family->needed[index] : family->dense[index - FIRST_DENSE];
}

/* Names that are not of a layer count as layer 0's. */
static bool *seen_at(const struct gsn_plain_tensors *plain, uint32_t index, uint32_t layer)
{
	return &plain->seen[(size_t)index * plain->config->layers + layer];
}

gpusnap_status gsn_plain_tensors_open(
	struct gsn_plain_tensors *plain, const struct gsn_config *config, gpusnap_error *err)
{
	plain->config = config;
	plain->seen = gsn_alloc((size_t)config->layers * NAMES, sizeof *plain->seen);
	if (!plain->seen)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u layers", config->layers);
	return GPUSNAP_OK;
}

void gsn_plain_tensors_close(struct gsn_plain_tensors *plain)
{
	gsn_free(plain->seen);
	memset(plain, 0, sizeof *plain);
}

bool gsn_plain_tensors_see(struct gsn_plain_tensors *plain, const char *name)
{
	const struct gsn_family *family = plain->config->family;
	struct gsn_tensor_match match;

	for (uint32_t i = 0; i < NAMES; i++)
		if (name_at(family, i) && gsn_pattern_match(name_at(family, i), name, &match) &&
			match.layer < plain->config->layers) {
			*seen_at(plain, i, match.layer) = true;
			return true;
		}
	return false;
}

bool gsn_plain_tensors_take(struct gsn_plain_tensors *plain, const char *name)
{
	struct gsn_tensor_match match;

	if (gsn_plain_tensors_see(plain, name)) {
		plain->any = true;
		return true;
	}
	for (const char *const *p = plain->config->family->plain; *p; p++)
		if (gsn_pattern_match(*p, name, &match))
			return true;
	return false;
}

static bool is_needed(
	const struct gsn_plain_tensors *plain, uint32_t index, uint32_t layer, const bool *moe)
{
	if (index == HEAD)
		return plain->config->untied;
	return index < FIRST_DENSE || !moe[layer];
}

static gpusnap_status list_missing(const struct gsn_plain_tensors *plain, uint32_t index,
	const bool *moe, bool prefixed, struct gsn_name_list *list, gpusnap_error *err)
{
	const struct gsn_tensor_rule rule = {.pattern = name_at(plain->config->family, index)};
	uint32_t layers = strstr(rule.pattern, "%l") ? plain->config->layers : 1;

	for (uint32_t l = 0; l < layers; l++) {
		char *name;

		if (*seen_at(plain, index, l) || !is_needed(plain, index, l, moe))
			continue;
		name = gsn_rule_name(&rule, prefixed && index != HEAD, l, 0);
		if (!name)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a tensor name");
		gsn_name_list_add(list, name);
		gsn_free(name);
	}
	return GPUSNAP_OK;
}

gpusnap_status gsn_plain_tensors_complete(
	const struct gsn_plain_tensors *plain, const bool *moe, bool prefixed, gpusnap_error *err)
{
	struct gsn_name_list list = {0};
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; !st && plain->any && i < NAMES; i++)
		if (name_at(plain->config->family, i))
			st = list_missing(plain, i, moe, prefixed, &list, err);
	if (st || !list.count)
		return st;
	return gsn_fail(
		err, GPUSNAP_E_FORMAT, "the model lacks %zu tensors: %s", list.count, list.text);
}
