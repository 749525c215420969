/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON values over Jansson. What Jansson does not refuse by itself (deep nesting, which it follows
 * by recursion, and -0) is found by one scan over the text before it is parsed.
 */
#include <gpusnap/json.h>

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>

#include <jansson.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

/* Position after the string that begins at text[at]; `length` when it does not end. */
static size_t skip_string(const char *text, size_t length, size_t at)
{
	for (at++; at < length && text[at] != '"'; at++)
		if (text[at] == '\\')
			at++;
	return at < length ? at + 1 : length;
}

static bool is_minus_zero(const char *text, size_t length, size_t at)
{
	char after = at + 2 < length ? text[at + 2] : '\0';

	if (text[at] != '-' || at + 1 >= length || text[at + 1] != '0')
		return false;
	/* "1e-0" is an exponent, "-0.5" and "-0e0" are reals. */
	if (at > 0 && (text[at - 1] == 'e' || text[at - 1] == 'E'))
		return false;
	return after != '.' && after != 'e' && after != 'E';
}

/* No validation: only what Jansson would not refuse, in text that may well be malformed. */
static gpusnap_status guard(const char *text, size_t length, const char *what, gpusnap_error *err)
{
	unsigned depth = 0;

	for (size_t at = 0; at < length;) {
		char c = text[at];

		if (c == '"') {
			at = skip_string(text, length, at);
			continue;
		}
		if (c == '{' || c == '[')
			depth++;
		else if ((c == '}' || c == ']') && depth > 0)
			depth--;
		if (depth > GPUSNAP_JSON_DEPTH_MAX)
			return gsn_fail_at(err, GPUSNAP_E_FORMAT, at,
				"%s: nested deeper than %u levels at byte %zu", what,
				GPUSNAP_JSON_DEPTH_MAX, at);
		if (is_minus_zero(text, length, at))
			return gsn_fail_at(err, GPUSNAP_E_FORMAT, at,
				"%s: integer -0 at byte %zu; write 0", what, at);
		at++;
	}
	return GPUSNAP_OK;
}

static gpusnap_status fail_jansson(const json_error_t *error, const char *what, gpusnap_error *err)
{
	if (json_error_code(error) == json_error_out_of_memory)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "%s: no memory for the JSON values", what);
	return gsn_fail_at(err, GPUSNAP_E_FORMAT,
		(uint64_t)(error->position > 0 ? error->position : 0), "%s: line %d, column %d: %s",
		what, error->line, error->column, error->text);
}

gpusnap_status gpusnap_json_parse(
	const char *text, size_t length, const char *what, gpusnap_json **out, gpusnap_error *err)
{
	json_error_t error;
	json_t *value;
	gpusnap_status status = guard(text, length, what, err);

	if (status)
		return status;
	value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (!value)
		return fail_jansson(&error, what, err);
	*out = value;
	return GPUSNAP_OK;
}

static char *dump(const gpusnap_json *value, size_t flags)
{
	size_t size = json_dumpb(value, NULL, 0, flags | JSON_ENCODE_ANY);
	char *text = size ? gsn_alloc(size + 1, 1) : NULL;

	if (text && json_dumpb(value, text, size, flags | JSON_ENCODE_ANY) != size) {
		gsn_free(text);
		return NULL;
	}
	return text;
}

char *gpusnap_json_dump(const gpusnap_json *value)
{
	return dump(value, JSON_COMPACT);
}

char *gpusnap_json_dump_pretty(const gpusnap_json *value)
{
	return dump(value, JSON_INDENT(2));
}

void gpusnap_text_free(char *text)
{
	gsn_free(text);
}

void gpusnap_json_free(gpusnap_json *value)
{
	json_decref(value);
}

gpusnap_json *gpusnap_json_ref(gpusnap_json *value)
{
	return json_incref(value);
}

gpusnap_json *gpusnap_json_pack(const char *format, ...)
{
	va_list args;
	json_t *value;

	va_start(args, format);
	value = json_vpack_ex(NULL, 0, format, args);
	va_end(args);
	return value;
}

/*
 * The key whose value is unpacked at format[end]: Jansson's message names the types but not the
 * key. Every argument of unpack is a pointer. NULL outside of an object.
 */
static const char *key_at(const char *format, int end, va_list args)
{
	char open[32] = {0};
	const char *key = NULL;
	bool want_key = false;
	size_t depth = 0;

	for (int i = 0; format[i] && i < end; i++) {
		char c = format[i];

		if (c == '{' || c == '[') {
			if (depth + 1 < sizeof open)
				open[++depth] = c;
			want_key = c == '{';
		} else if (c == '}' || c == ']') {
			depth -= depth > 0;
			want_key = open[depth] == '{';
		} else if (c == 's' && want_key) {
			key = va_arg(args, const char *);
			want_key = false;
		} else if (c == '%') {
			(void)va_arg(args, void *);
		} else if (isalpha((unsigned char)c)) {
			if (c != 'n')
				(void)va_arg(args, void *);
			want_key = open[depth] == '{';
		}
	}
	return key;
}

static gpusnap_status fail_unpack(
	const json_error_t *error, const char *key, const char *what, gpusnap_error *err)
{
	if (json_error_code(error) == json_error_invalid_format)
		return gsn_fail(err, GPUSNAP_E_INVALID, "%s: %s", what, error->text);
	if (json_error_code(error) == json_error_wrong_type && key)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "%s: '%s': %s", what, key, error->text);
	return gsn_fail(err, GPUSNAP_E_FORMAT, "%s: %s", what, error->text);
}

gpusnap_status gpusnap_json_unpack(
	gpusnap_json *value, const char *what, gpusnap_error *err, const char *format, ...)
{
	json_error_t error;
	const char *key = NULL;
	va_list args;
	int failed;

	va_start(args, format);
	failed = json_vunpack_ex(value, &error, 0, format, args);
	va_end(args);
	if (!failed)
		return GPUSNAP_OK;
	va_start(args, format);
	/* Jansson counts the position from 1. */
	key = key_at(format, error.position - 1, args);
	va_end(args);
	return fail_unpack(&error, key, what, err);
}

gpusnap_status gpusnap_json_append(gpusnap_json *array, gpusnap_json *item)
{
	return json_array_append_new(array, item) ? GPUSNAP_E_NOMEM : GPUSNAP_OK;
}

gpusnap_status gpusnap_json_set(gpusnap_json *object, const char *key, gpusnap_json *item)
{
	return json_object_set_new(object, key, item) ? GPUSNAP_E_NOMEM : GPUSNAP_OK;
}

void gpusnap_json_remove(gpusnap_json *object, const char *key)
{
	(void)json_object_del(object, key);
}

gpusnap_json_kind gpusnap_json_kind_of(const gpusnap_json *value)
{
	if (!value)
		return GPUSNAP_JSON_NULL;
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return GPUSNAP_JSON_OBJECT;
	case JSON_ARRAY:
		return GPUSNAP_JSON_ARRAY;
	case JSON_STRING:
		return GPUSNAP_JSON_STRING;
	case JSON_INTEGER:
		return GPUSNAP_JSON_INTEGER;
	case JSON_REAL:
		return GPUSNAP_JSON_REAL;
	case JSON_TRUE:
	case JSON_FALSE:
		return GPUSNAP_JSON_BOOLEAN;
	default:
		return GPUSNAP_JSON_NULL;
	}
}

gpusnap_json *gpusnap_json_get(const gpusnap_json *object, const char *key)
{
	return json_object_get(object, key);
}

size_t gpusnap_json_size(const gpusnap_json *array_or_object)
{
	return json_is_array(array_or_object) ? json_array_size(array_or_object)
					      : json_object_size(array_or_object);
}

gpusnap_json *gpusnap_json_at(const gpusnap_json *array, size_t index)
{
	return json_array_get(array, index);
}

const char *gpusnap_json_key_at(const gpusnap_json *object, size_t index)
{
	/* Jansson's iterators want a mutable object and do not change it. */
	union {
		const gpusnap_json *constant;
		gpusnap_json *mutable;
	} same = {object};
	void *at = json_object_iter(same.mutable);

	while (at && index--)
		at = json_object_iter_next(same.mutable, at);
	return json_object_iter_key(at);
}

const char *gpusnap_json_text(const gpusnap_json *string)
{
	return json_string_value(string);
}

int64_t gpusnap_json_integer(const gpusnap_json *integer, int64_t fallback)
{
	return json_is_integer(integer) ? json_integer_value(integer) : fallback;
}

double gpusnap_json_real(const gpusnap_json *number, double fallback)
{
	return json_is_number(number) ? json_number_value(number) : fallback;
}

int gpusnap_json_boolean(const gpusnap_json *boolean, int fallback)
{
	return json_is_boolean(boolean) ? json_is_true(boolean) : fallback;
}

void *gpusnap_json_first(gpusnap_json *object)
{
	return json_object_iter(object);
}

void *gpusnap_json_next(gpusnap_json *object, void *at)
{
	return json_object_iter_next(object, at);
}

const char *gpusnap_json_key(void *at)
{
	return json_object_iter_key(at);
}

gpusnap_json *gpusnap_json_value(void *at)
{
	return json_object_iter_value(at);
}
