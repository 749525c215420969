/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the plan's JSON: every field of the right type and in its range. */
#include "formats/plan_parts.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/fields.h"

/* 0x and 1 to 16 hexadecimal digits: addresses use all 64 bits, JSON integers do not. */
static gpusnap_status decode_address(
	const gpusnap_json *json, uint64_t *ret_address, gpusnap_error *err)
{
	const char *text, *digits = "0123456789abcdef";
	char quoted[GSN_QUOTE_BYTES];
	uint64_t address = 0;
	gpusnap_status status = gsn_field_text(json, "address", &text, err);
	size_t count;

	if (status)
		return status;
	count = strlen(text) < 2 ? 0 : strspn(text + 2, digits);
	if (strncmp(text, "0x", 2) != 0 || count < 1 || count > 16 || text[2 + count] != '\0')
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"'address' is '%s', expected 0x and 1 to 16 lower-case hexadecimal digits",
			gsn_quote(text, strlen(text), quoted));
	for (size_t i = 2; i < 2 + count; i++)
		address = address << 4 | (uint64_t)(strchr(digits, text[i]) - digits);
	*ret_address = address;
	return GPUSNAP_OK;
}

static gpusnap_status decode_policy(
	const gpusnap_json *json, const char *key, gpusnap_policy *ret_policy, gpusnap_error *err)
{
	const char *word;
	gpusnap_status status = gsn_field_text(json, key, &word, err);

	if (!status)
		status = gpusnap_policy_parse(word, ret_policy, err);
	return status;
}

static gpusnap_status decode_region(
	const gpusnap_json *json, gpusnap_plan_region *region, gpusnap_error *err)
{
	gpusnap_status status = gsn_field_u32(json, "id", 0, UINT32_MAX, &region->id, err);

	if (!status)
		status = gsn_field_copy(json, "tag", &region->tag, err);
	if (!status)
		status = decode_policy(json, "policy", &region->policy, err);
	if (!status)
		status = decode_policy(json, "unclaimed", &region->unclaimed, err);
	if (!status)
		status = gsn_field_u64(json, "bytes", 1, INT64_MAX, &region->bytes, err);
	if (!status)
		status = gsn_field_bool(json, "managed", &region->managed, err);
	if (!status)
		status = gsn_field_copy(json, "device", &region->device, err);
	if (!status)
		status = decode_address(json, &region->address, err);
	return status;
}

static gpusnap_status decode_dtype(
	const gpusnap_json *json, gpusnap_dtype *ret_dtype, gpusnap_error *err)
{
	const char *word;
	gpusnap_status status = gsn_field_text(json, "dtype", &word, err);

	if (!status)
		status = gpusnap_dtype_parse(word, ret_dtype, err);
	return status;
}

/* `key` as an array of integers from `min` up; `count_max` of them at most. */
static gpusnap_status decode_integers(const gpusnap_json *json, const char *key, int64_t min,
	uint32_t *ret_count, int64_t **ret_values, gpusnap_error *err)
{
	gpusnap_json *list;
	gpusnap_status status = gsn_field_array(json, key, 0, GPUSNAP_RANK_MAX, &list, err);
	uint32_t count;
	int64_t *values;

	if (status)
		return status;
	count = (uint32_t)gpusnap_json_size(list);
	values = gsn_alloc(count, sizeof *values);
	if (!values)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for '%s'", key);
	for (uint32_t i = 0; i < count && !status; i++)
		status = gsn_item_i64(list, i, min, INT64_MAX, &values[i], err);
	if (status) {
		gsn_error_prefix(err, "'%s'", key);
		gsn_free(values);
		return status;
	}
	*ret_count = count;
	*ret_values = values;
	return GPUSNAP_OK;
}

static gpusnap_status decode_shape(
	const gpusnap_json *json, uint32_t *ret_rank, uint64_t **ret_shape, gpusnap_error *err)
{
	int64_t *values = NULL;
	gpusnap_status status = decode_integers(json, "shape", 0, ret_rank, &values, err);

	/* None is negative, so that the signed and the unsigned type hold the same. */
	*ret_shape = (uint64_t *)values;
	return status;
}

static gpusnap_status decode_kept(const gpusnap_json *json, bool *ret_kept, gpusnap_error *err)
{
	if (!gpusnap_json_get(json, "kept")) {
		*ret_kept = true;
		return GPUSNAP_OK;
	}
	return gsn_field_bool(json, "kept", ret_kept, err);
}

static gpusnap_status decode_mask(
	const gpusnap_json *json, gpusnap_plan_buffer *buffer, gpusnap_error *err)
{
	gpusnap_json *mask = gpusnap_json_get(json, "mask");
	gpusnap_status status;

	if (buffer->role != GPUSNAP_ROLE_EXPERT_MASK)
		return mask ? gsn_fail(err, GPUSNAP_E_FORMAT,
				      "'mask' is given, but the role is %s, expected expert_mask",
				      gpusnap_role_name(buffer->role))
			    : GPUSNAP_OK;
	status = gsn_field_object(json, "mask", &mask, err);
	if (!status)
		status = gsn_mask_decode(mask, &buffer->mask, err);
	if (status)
		return status;
	if (buffer->dtype != GPUSNAP_I32 || buffer->rank != 1 ||
		buffer->shape[0] != gpusnap_mask_length(&buffer->mask))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%s of rank %u and %llu bytes, expected I32 [%u] for a %s mask",
			gpusnap_dtype_name(buffer->dtype), buffer->rank,
			(unsigned long long)buffer->bytes, gpusnap_mask_length(&buffer->mask),
			gpusnap_mask_kind_name(buffer->mask.kind));
	return GPUSNAP_OK;
}

static gpusnap_status decode_buffer(
	const gpusnap_json *json, gpusnap_plan_buffer *buffer, gpusnap_error *err)
{
	const char *role;
	gpusnap_status status = gsn_field_copy(json, "name", &buffer->name, err);

	if (!status)
		status = gsn_field_text(json, "role", &role, err);
	if (!status)
		status = gpusnap_role_parse(role, &buffer->role, err);
	if (!status)
		status = decode_dtype(json, &buffer->dtype, err);
	if (!status)
		status = decode_shape(json, &buffer->rank, &buffer->shape, err);
	if (!status)
		status = gsn_field_u32(json, "region", 0, UINT32_MAX, &buffer->region, err);
	if (!status)
		status = gsn_field_u64(json, "offset", 0, INT64_MAX, &buffer->offset, err);
	if (!status)
		status = gpusnap_dtype_tensor_bytes(
			buffer->dtype, buffer->rank, buffer->shape, &buffer->bytes, err);
	if (!status)
		status = decode_kept(json, &buffer->kept, err);
	if (!status)
		status = decode_mask(json, buffer, err);
	return status;
}

static gpusnap_status decode_view(
	const gpusnap_json *json, gpusnap_plan_view *view, gpusnap_error *err)
{
	uint32_t strides;
	gpusnap_status status = gsn_field_copy(json, "name", &view->name, err);

	if (!status)
		status = gsn_field_copy(json, "buffer", &view->buffer, err);
	if (!status)
		status = decode_dtype(json, &view->dtype, err);
	if (!status)
		status = gsn_field_u64(json, "offset", 0, INT64_MAX, &view->offset, err);
	if (!status)
		status = decode_shape(json, &view->rank, &view->shape, err);
	if (!status)
		status = decode_integers(json, "strides", INT64_MIN, &strides, &view->strides, err);
	if (!status && strides != view->rank)
		status = gsn_fail(err, GPUSNAP_E_FORMAT, "%u strides for a shape of rank %u",
			strides, view->rank);
	return status;
}

static gpusnap_status decode_regions(
	const gpusnap_json *json, gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_json *list;
	gpusnap_status status =
		gsn_field_array(json, "regions", 0, GPUSNAP_PLAN_REGIONS_MAX, &list, err);

	if (status)
		return status;
	plan->region_count = (uint32_t)gpusnap_json_size(list);
	plan->regions = gsn_alloc(plan->region_count, sizeof *plan->regions);
	if (!plan->regions)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for regions");
	for (uint32_t i = 0; i < plan->region_count && !status; i++) {
		status = decode_region(gpusnap_json_at(list, i), &plan->regions[i], err);
		if (status)
			gsn_error_prefix(err, "region at position %u", i);
	}
	return status;
}

/* "buffer 'x'", or its position when it has no name yet. */
static void prefix_entry(gpusnap_error *err, const char *what, uint32_t index, const char *name)
{
	char quoted[GSN_QUOTE_BYTES];

	if (name)
		gsn_error_prefix(err, "%s '%s'", what, gsn_quote(name, strlen(name), quoted));
	else
		gsn_error_prefix(err, "%s at position %u", what, index);
}

static gpusnap_status decode_buffers(
	const gpusnap_json *json, gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_json *list;
	gpusnap_status status =
		gsn_field_array(json, "buffers", 0, GPUSNAP_PLAN_BUFFERS_MAX, &list, err);

	if (status)
		return status;
	plan->buffer_count = (uint32_t)gpusnap_json_size(list);
	plan->buffers = gsn_alloc(plan->buffer_count, sizeof *plan->buffers);
	if (!plan->buffers)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for buffers");
	for (uint32_t i = 0; i < plan->buffer_count && !status; i++) {
		status = decode_buffer(gpusnap_json_at(list, i), &plan->buffers[i], err);
		if (status)
			prefix_entry(err, "buffer", i, plan->buffers[i].name);
	}
	return status;
}

static gpusnap_status decode_views(const gpusnap_json *json, gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_json *list;
	gpusnap_status status =
		gsn_field_array(json, "views", 0, GPUSNAP_PLAN_VIEWS_MAX, &list, err);

	if (status)
		return status;
	plan->view_count = (uint32_t)gpusnap_json_size(list);
	plan->views = gsn_alloc(plan->view_count, sizeof *plan->views);
	if (!plan->views)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for views");
	for (uint32_t i = 0; i < plan->view_count && !status; i++) {
		status = decode_view(gpusnap_json_at(list, i), &plan->views[i], err);
		if (status)
			prefix_entry(err, "view", i, plan->views[i].name);
	}
	return status;
}

static gpusnap_status decode_uuid(const gpusnap_json *json, gpusnap_plan *plan, gpusnap_error *err)
{
	const char *text;
	gpusnap_status status = gsn_field_text(json, "uuid", &text, err);

	if (!status)
		status = gpusnap_uuid_parse(text, plan->uuid, err);
	return status;
}

static gpusnap_status decode_records(
	const gpusnap_json *json, gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_json *records;
	gpusnap_status status = gsn_field_object(json, "records", &records, err);

	if (!status)
		plan->records = gpusnap_json_ref(records);
	return status;
}

static gpusnap_status decode_delta(const gpusnap_json *json, gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_json *delta;
	gpusnap_status status;

	if (!gpusnap_json_get(json, "delta"))
		return GPUSNAP_OK;
	status = gsn_field_object(json, "delta", &delta, err);
	if (!status)
		status = gsn_delta_decode(delta, &plan->delta, err);
	if (status)
		gsn_error_prefix(err, "'delta'");
	return status;
}

static gpusnap_status decode_plan(const gpusnap_json *json, gpusnap_plan *plan, gpusnap_error *err)
{
	uint32_t format;
	gpusnap_status status = gsn_field_u32(json, "format", 1, UINT32_MAX, &format, err);

	if (!status && format != GSN_PLAN_FORMAT)
		status = gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"format %u, this build reads %d; use a newer gpusnap", format,
			GSN_PLAN_FORMAT);
	if (!status)
		status = gsn_field_copy(json, "writer", &plan->writer, err);
	if (!status)
		status = decode_uuid(json, plan, err);
	if (!status)
		status = gsn_field_rank(json, "tp", &plan->tp_rank, &plan->tp_size, err);
	if (!status)
		status = gsn_field_rank(json, "ep", &plan->ep_rank, &plan->ep_size, err);
	if (!status)
		status = decode_regions(json, plan, err);
	if (!status)
		status = decode_buffers(json, plan, err);
	if (!status)
		status = decode_views(json, plan, err);
	if (!status)
		status = decode_records(json, plan, err);
	if (!status)
		status = decode_delta(json, plan, err);
	return status;
}

gpusnap_status gpusnap_plan_decode(const char *text, size_t length, const gpusnap_header *header,
	gpusnap_plan **out, gpusnap_error *err)
{
	gpusnap_json *json;
	gpusnap_plan *plan;
	gpusnap_status status = gpusnap_json_parse(text, length, "snapshot plan", &json, err);

	if (status)
		return status;
	plan = gsn_alloc(1, sizeof *plan);
	if (!plan) {
		gpusnap_json_free(json);
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a snapshot plan");
	}
	status = decode_plan(json, plan, err);
	gpusnap_json_free(json);
	if (!status)
		status = gsn_plan_check(plan, header, err);
	if (status) {
		gsn_error_prefix(err, "snapshot plan");
		gpusnap_plan_free(plan);
		return status;
	}
	*out = plan;
	return GPUSNAP_OK;
}
