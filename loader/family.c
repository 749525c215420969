/* SPDX-License-Identifier: Apache-2.0 */
/* Matching tensor names against a family's rules, and writing names from rules. */
#include "loader/family.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"

static const char model_prefix[] = "model.";

/* Decimal without leading zeros and below 2^32 - 1, so that a number has one spelling. */
static bool take_number(const char **at, uint32_t *ret_number)
{
	const char *p = *at;
	uint64_t number = 0;

	if (*p < '0' || *p > '9' || (*p == '0' && p[1] >= '0' && p[1] <= '9'))
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		number = number * 10 + (uint64_t)(*p - '0');
		if (number >= UINT32_MAX)
			return false;
	}
	*at = p;
	*ret_number = (uint32_t)number;
	return true;
}

static bool match_pattern(const char *pattern, const char *name, struct gsn_tensor_match *match)
{
	match->layer = 0;
	match->expert = 0;
	while (*pattern) {
		if (*pattern == '*')
			return *name != '\0';
		if (*pattern != '%') {
			if (*pattern++ != *name++)
				return false;
			continue;
		}
		if (!take_number(&name, pattern[1] == 'l' ? &match->layer : &match->expert))
			return false;
		pattern += 2;
	}
	return *name == '\0';
}

static const char *without_prefix(const char *name)
{
	bool prefixed = strncmp(name, model_prefix, sizeof model_prefix - 1) == 0;

	return prefixed ? name + sizeof model_prefix - 1 : name;
}

bool gsn_family_match(
	const struct gsn_family *family, const char *name, struct gsn_tensor_match *ret_match)
{
	struct gsn_tensor_match match = {0};
	const char *bare = without_prefix(name);

	match.prefixed = bare != name;
	for (const struct gsn_tensor_rule *rule = family->rules; rule->pattern; rule++)
		if (match_pattern(rule->pattern, bare, &match)) {
			match.rule = rule;
			*ret_match = match;
			return true;
		}
	return false;
}

bool gsn_pattern_match(const char *pattern, const char *name, struct gsn_tensor_match *match)
{
	return match_pattern(pattern, without_prefix(name), match);
}

bool gsn_is_prediction(const char *name, uint32_t layers)
{
	const char *bare = without_prefix(name);
	struct gsn_tensor_match match;

	if (strncmp(bare, "mtp.", 4) == 0)
		return true;
	return match_pattern("layers.%l.*", bare, &match) && match.layer >= layers;
}

/* snprintf's way: the length that the text needs, however much of it fits. */
static size_t format_name(const struct gsn_tensor_rule *rule, bool prefixed, uint32_t layer,
	uint32_t expert, char *text, size_t room)
{
	size_t length = (size_t)snprintf(text, room, "%s", prefixed ? model_prefix : "");

	for (const char *p = rule->pattern; *p; p++) {
		char *end = length < room ? text + length : NULL;
		size_t left = length < room ? room - length : 0;

		if (*p == '%')
			length += (size_t)snprintf(end, left, "%u", *++p == 'l' ? layer : expert);
		else
			length += (size_t)snprintf(end, left, "%c", *p);
	}
	return length;
}

char *gsn_rule_name(
	const struct gsn_tensor_rule *rule, bool prefixed, uint32_t layer, uint32_t expert)
{
	size_t length = format_name(rule, prefixed, layer, expert, NULL, 0);
	char *text = gsn_alloc(length + 1, 1);

	if (text)
		(void)format_name(rule, prefixed, layer, expert, text, length + 1);
	return text;
}

bool gsn_rule_is_per_expert(const struct gsn_tensor_rule *rule)
{
	return strstr(rule->pattern, "%e") != NULL;
}
