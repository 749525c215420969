/* SPDX-License-Identifier: Apache-2.0 */
/* Members of JSON objects, read with their range; see fields.h. */
#include "formats/fields.h"

#include <inttypes.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

static const char *const kind_names[] = {
	[GPUSNAP_JSON_NULL] = "null",
	[GPUSNAP_JSON_BOOLEAN] = "a boolean",
	[GPUSNAP_JSON_INTEGER] = "an integer",
	[GPUSNAP_JSON_REAL] = "a real number",
	[GPUSNAP_JSON_STRING] = "a string",
	[GPUSNAP_JSON_ARRAY] = "an array",
	[GPUSNAP_JSON_OBJECT] = "an object",
};

static gpusnap_status find(const gpusnap_json *object, const char *key, gpusnap_json_kind kind,
	gpusnap_json **ret_value, gpusnap_error *err)
{
	gpusnap_json *value = gpusnap_json_get(object, key);
	gpusnap_json_kind found = gpusnap_json_kind_of(value);

	if (!value)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "'%s' is missing, expected %s", key,
			kind_names[kind]);
	if (found != kind)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "'%s' is %s, expected %s", key,
			kind_names[found], kind_names[kind]);
	*ret_value = value;
	return GPUSNAP_OK;
}

gpusnap_status gsn_field_u64(const gpusnap_json *object, const char *key, uint64_t min,
	uint64_t max, uint64_t *ret_value, gpusnap_error *err)
{
	gpusnap_json *value = NULL;
	gpusnap_status status = find(object, key, GPUSNAP_JSON_INTEGER, &value, err);
	int64_t integer;

	if (status)
		return status;
	integer = gpusnap_json_integer(value, 0);
	if (integer < 0 || (uint64_t)integer < min || (uint64_t)integer > max)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'%s' is %" PRId64 ", expected %" PRIu64 " to %" PRIu64, key, integer, min,
			max);
	*ret_value = (uint64_t)integer;
	return GPUSNAP_OK;
}

gpusnap_status gsn_field_u32(const gpusnap_json *object, const char *key, uint32_t min,
	uint32_t max, uint32_t *ret_value, gpusnap_error *err)
{
	uint64_t value;
	gpusnap_status status = gsn_field_u64(object, key, min, max, &value, err);

	if (status)
		return status;
	*ret_value = (uint32_t)value;
	return GPUSNAP_OK;
}

gpusnap_status gsn_field_bool(
	const gpusnap_json *object, const char *key, bool *ret_value, gpusnap_error *err)
{
	gpusnap_json *value = NULL;
	gpusnap_status status = find(object, key, GPUSNAP_JSON_BOOLEAN, &value, err);

	if (status)
		return status;
	*ret_value = gpusnap_json_boolean(value, 0) != 0;
	return GPUSNAP_OK;
}

gpusnap_status gsn_field_text(
	const gpusnap_json *object, const char *key, const char **ret_text, gpusnap_error *err)
{
	gpusnap_json *value = NULL;
	gpusnap_status status = find(object, key, GPUSNAP_JSON_STRING, &value, err);
	const char *text;

	if (status)
		return status;
	text = gpusnap_json_text(value);
	if (text[0] == '\0')
		return gsn_fail(err, GPUSNAP_E_FORMAT, "'%s' is empty", key);
	if (strlen(text) > GPUSNAP_NAME_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "'%s' has %zu bytes, at most %u", key,
			strlen(text), GPUSNAP_NAME_MAX);
	*ret_text = text;
	return GPUSNAP_OK;
}

gpusnap_status gsn_field_copy(
	const gpusnap_json *object, const char *key, char **ret_copy, gpusnap_error *err)
{
	const char *text;
	gpusnap_status status = gsn_field_text(object, key, &text, err);
	char *copy;

	if (status)
		return status;
	copy = gsn_strdup(text);
	if (!copy)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for '%s'", key);
	*ret_copy = copy;
	return GPUSNAP_OK;
}

gpusnap_status gsn_field_digest(
	const gpusnap_json *object, const char *key, gpusnap_digest *ret_digest, gpusnap_error *err)
{
	const char *text;
	gpusnap_status status = gsn_field_text(object, key, &text, err);

	if (status)
		return status;
	status = gpusnap_digest_parse(text, ret_digest, err);
	if (status)
		gsn_error_prefix(err, "'%s'", key);
	return status;
}

gpusnap_status gsn_field_object(
	const gpusnap_json *object, const char *key, gpusnap_json **ret_value, gpusnap_error *err)
{
	return find(object, key, GPUSNAP_JSON_OBJECT, ret_value, err);
}

gpusnap_status gsn_field_array(const gpusnap_json *object, const char *key, size_t min, size_t max,
	gpusnap_json **ret_array, gpusnap_error *err)
{
	gpusnap_json *array = NULL;
	gpusnap_status status = find(object, key, GPUSNAP_JSON_ARRAY, &array, err);
	size_t size;

	if (status)
		return status;
	size = gpusnap_json_size(array);
	if (size < min)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "'%s' has %zu items, expected %zu or more",
			key, size, min);
	if (size > max)
		return gsn_fail(
			err, GPUSNAP_E_LIMIT, "'%s' has %zu items, at most %zu", key, size, max);
	*ret_array = array;
	return GPUSNAP_OK;
}

gpusnap_status gsn_item_i64(const gpusnap_json *array, size_t index, int64_t min, int64_t max,
	int64_t *ret_value, gpusnap_error *err)
{
	gpusnap_json *item = gpusnap_json_at(array, index);
	gpusnap_json_kind kind = gpusnap_json_kind_of(item);
	int64_t value = gpusnap_json_integer(item, 0);

	if (kind != GPUSNAP_JSON_INTEGER)
		return gsn_fail(err, GPUSNAP_E_FORMAT, "item %zu is %s, expected an integer", index,
			kind_names[kind]);
	if (value < min || value > max)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"item %zu is %" PRId64 ", expected %" PRId64 " to %" PRId64, index, value,
			min, max);
	*ret_value = value;
	return GPUSNAP_OK;
}

gpusnap_status gsn_field_rank(const gpusnap_json *object, const char *key, uint32_t *ret_rank,
	uint32_t *ret_size, gpusnap_error *err)
{
	gpusnap_json *pair = NULL;
	int64_t rank, size;
	gpusnap_status status = gsn_field_array(object, key, 2, 2, &pair, err);

	if (status)
		return status;
	status = gsn_item_i64(pair, 1, 1, UINT32_MAX, &size, err);
	if (!status)
		status = gsn_item_i64(pair, 0, 0, size - 1, &rank, err);
	if (status) {
		gsn_error_prefix(err, "'%s', which is [rank, size]", key);
		return status;
	}
	*ret_rank = (uint32_t)rank;
	*ret_size = (uint32_t)size;
	return GPUSNAP_OK;
}

gpusnap_json *gsn_mask_encode(const gpusnap_mask_type *type)
{
	return gpusnap_json_pack("{s:s, s:I, s:I, s:I, s:I, s:[I, I]}", "kind",
		gpusnap_mask_kind_name(type->kind), "experts", (long long)type->experts, "local",
		(long long)type->local, "first", (long long)type->first, "shared",
		(long long)type->shared, "ep", (long long)type->rank, (long long)type->world);
}

gpusnap_status gsn_mask_decode(
	const gpusnap_json *object, gpusnap_mask_type *ret_type, gpusnap_error *err)
{
	gpusnap_mask_type type = {.kind = GPUSNAP_MASK_STANDARD};
	const char *kind;
	gpusnap_status status = gsn_field_text(object, "kind", &kind, err);

	if (!status)
		status = gpusnap_mask_kind_parse(kind, &type.kind, err);
	if (!status)
		status = gsn_field_u32(
			object, "experts", 1, GPUSNAP_EXPERTS_MAX, &type.experts, err);
	if (!status)
		status = gsn_field_u32(object, "local", 0, type.experts, &type.local, err);
	if (!status)
		status = gsn_field_u32(
			object, "first", 0, type.experts - type.local, &type.first, err);
	if (!status)
		status = gsn_field_u32(object, "shared", 0, GPUSNAP_EXPERTS_MAX, &type.shared, err);
	if (!status)
		status = gsn_field_rank(object, "ep", &type.rank, &type.world, err);
	if (status)
		return status;
	if (gpusnap_mask_type_check(&type, err)) {
		if (err)
			err->status = GPUSNAP_E_FORMAT;
		return GPUSNAP_E_FORMAT;
	}
	*ret_type = type;
	return GPUSNAP_OK;
}

gpusnap_json *gsn_digest_encode(gpusnap_digest digest)
{
	char text[GPUSNAP_DIGEST_TEXT];

	return gpusnap_json_pack("s", gpusnap_digest_format(digest, text));
}

gpusnap_json *gsn_u64_encode(uint64_t value)
{
	return value > INT64_MAX ? NULL : gpusnap_json_pack("I", (long long)value);
}
