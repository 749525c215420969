/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a snapshot: its words, its JSON text and its release. Reading it is in plan_decode.c,
 * holding it against the file in plan_check.c.
 */
#include <gpusnap/plan.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/fields.h"
#include "formats/plan_parts.h"

static const char *const policy_names[] = {
#define POLICY_NAME(name, constant) [GPUSNAP_POLICY_##constant] = #name,
	GPUSNAP_POLICY_MAP(POLICY_NAME)
#undef POLICY_NAME
};

static const char *const role_names[] = {
#define ROLE_NAME(name, constant) [GPUSNAP_ROLE_##constant] = #name,
	GPUSNAP_ROLE_MAP(ROLE_NAME)
#undef ROLE_NAME
};

enum {
	POLICY_COUNT = sizeof policy_names / sizeof policy_names[0],
	ROLE_COUNT = sizeof role_names / sizeof role_names[0],
};

const char *gpusnap_policy_name(gpusnap_policy policy)
{
	return (unsigned)policy < POLICY_COUNT ? policy_names[policy] : "unknown";
}

const char *gpusnap_role_name(gpusnap_role role)
{
	return (unsigned)role < ROLE_COUNT ? role_names[role] : "unknown";
}

/* Position of a word in a list of names, -1 for none. */
static int find_word(const char *word, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], word) == 0)
			return i;
	return -1;
}

gpusnap_status gpusnap_policy_parse(
	const char *name, gpusnap_policy *ret_policy, gpusnap_error *err)
{
	int at = find_word(name, policy_names, POLICY_COUNT);
	char quoted[GSN_QUOTE_BYTES];

	if (at < 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"policy '%s' is unknown; known are keep, zero, discard, recompute",
			gsn_quote(name, strlen(name), quoted));
	*ret_policy = (gpusnap_policy)at;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_role_parse(const char *name, gpusnap_role *ret_role, gpusnap_error *err)
{
	int at = find_word(name, role_names, ROLE_COUNT);
	char quoted[GSN_QUOTE_BYTES];

	if (at < 0)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"role '%s' is unknown; known are other, weight, scale, router, bias, "
			"expert_mask, expert_map, kv",
			gsn_quote(name, strlen(name), quoted));
	*ret_role = (gpusnap_role)at;
	return GPUSNAP_OK;
}

/* ---- raw names ---- */

bool gsn_parse_decimal(const char **at, uint64_t max, uint64_t *ret_value)
{
	const char *p = *at;
	uint64_t value = 0;

	if (*p < '0' || *p > '9' || (p[0] == '0' && p[1] >= '0' && p[1] <= '9'))
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		uint64_t digit = (uint64_t)(*p - '0');

		if (value > (max - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*at = p;
	*ret_value = value;
	return true;
}

bool gpusnap_raw_name_parse(const char *name, uint32_t *ret_region, uint64_t *ret_offset)
{
	static const char prefix[] = "gpusnap.raw/";
	uint64_t region, offset;

	if (strncmp(name, prefix, sizeof prefix - 1) != 0)
		return false;
	name += sizeof prefix - 1;
	if (!gsn_parse_decimal(&name, UINT32_MAX, &region) || *name++ != '/')
		return false;
	if (!gsn_parse_decimal(&name, UINT64_MAX, &offset) || *name != '\0')
		return false;
	*ret_region = (uint32_t)region;
	*ret_offset = offset;
	return true;
}

/* ---- writing ---- */

typedef gpusnap_json *encode_function(const gpusnap_plan *plan, uint32_t index);

static gpusnap_json *encode_list(
	const gpusnap_plan *plan, uint32_t count, encode_function *encode_item)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < count; i++) {
		if (gpusnap_json_append(list, encode_item(plan, i))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static gpusnap_json *encode_shape(const uint64_t *shape, uint32_t rank)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < rank; i++) {
		if (gpusnap_json_append(list, gsn_u64_encode(shape[i]))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static gpusnap_json *encode_strides(const int64_t *strides, uint32_t rank)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < rank; i++) {
		if (gpusnap_json_append(list, gpusnap_json_pack("I", (long long)strides[i]))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static gpusnap_json *encode_region(const gpusnap_plan *plan, uint32_t index)
{
	const gpusnap_plan_region *region = &plan->regions[index];
	char address[2 + 16 + 1];

	(void)snprintf(address, sizeof address, "0x%" PRIx64, region->address);
	return gpusnap_json_pack("{s:I, s:s, s:s, s:s, s:o, s:b, s:s, s:s}", "id",
		(long long)region->id, "tag", region->tag, "policy",
		gpusnap_policy_name(region->policy), "unclaimed",
		gpusnap_policy_name(region->unclaimed), "bytes", gsn_u64_encode(region->bytes),
		"managed", (int)region->managed, "device", region->device, "address", address);
}

static gpusnap_json *encode_buffer(const gpusnap_plan *plan, uint32_t index)
{
	const gpusnap_plan_buffer *buffer = &plan->buffers[index];
	gpusnap_json *json =
		gpusnap_json_pack("{s:s, s:s, s:s, s:o, s:I, s:o}", "name", buffer->name, "role",
			gpusnap_role_name(buffer->role), "dtype", gpusnap_dtype_name(buffer->dtype),
			"shape", encode_shape(buffer->shape, buffer->rank), "region",
			(long long)buffer->region, "offset", gsn_u64_encode(buffer->offset));
	bool failed = !json;

	if (!failed && !buffer->kept)
		failed = gpusnap_json_set(json, "kept", gpusnap_json_pack("b", 0)) != GPUSNAP_OK;
	if (!failed && buffer->role == GPUSNAP_ROLE_EXPERT_MASK)
		failed = gpusnap_json_set(json, "mask", gsn_mask_encode(&buffer->mask)) !=
			 GPUSNAP_OK;
	if (failed) {
		gpusnap_json_free(json);
		return NULL;
	}
	return json;
}

static gpusnap_json *encode_view(const gpusnap_plan *plan, uint32_t index)
{
	const gpusnap_plan_view *view = &plan->views[index];

	return gpusnap_json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "name", view->name, "buffer",
		view->buffer, "dtype", gpusnap_dtype_name(view->dtype), "offset",
		gsn_u64_encode(view->offset), "shape", encode_shape(view->shape, view->rank),
		"strides", encode_strides(view->strides, view->rank));
}

static gpusnap_json *encode_records(const gpusnap_plan *plan)
{
	return plan->records ? gpusnap_json_ref(plan->records) : gpusnap_json_pack("{}");
}

char *gpusnap_plan_encode(const gpusnap_plan *plan)
{
	char uuid[37], *text;
	gpusnap_json *json = gpusnap_json_pack(
		"{s:i, s:s, s:s, s:[I, I], s:[I, I], s:o, s:o, s:o, s:o}", "format",
		GSN_PLAN_FORMAT, "writer", plan->writer, "uuid",
		gpusnap_uuid_format(plan->uuid, uuid), "tp", (long long)plan->tp_rank,
		(long long)plan->tp_size, "ep", (long long)plan->ep_rank, (long long)plan->ep_size,
		"regions", encode_list(plan, plan->region_count, encode_region), "buffers",
		encode_list(plan, plan->buffer_count, encode_buffer), "views",
		encode_list(plan, plan->view_count, encode_view), "records", encode_records(plan));

	if (json && plan->delta && gpusnap_json_set(json, "delta", gsn_delta_encode(plan->delta))) {
		gpusnap_json_free(json);
		return NULL;
	}
	text = json ? gpusnap_json_dump(json) : NULL;
	gpusnap_json_free(json);
	return text;
}

/* ---- release ---- */

void gpusnap_plan_free(gpusnap_plan *plan)
{
	if (!plan)
		return;
	for (uint32_t i = 0; plan->regions && i < plan->region_count; i++) {
		gsn_free(plan->regions[i].tag);
		gsn_free(plan->regions[i].device);
	}
	for (uint32_t i = 0; plan->buffers && i < plan->buffer_count; i++) {
		gsn_free(plan->buffers[i].name);
		gsn_free(plan->buffers[i].shape);
	}
	for (uint32_t i = 0; plan->views && i < plan->view_count; i++) {
		gsn_free(plan->views[i].name);
		gsn_free(plan->views[i].buffer);
		gsn_free(plan->views[i].shape);
		gsn_free(plan->views[i].strides);
	}
	gsn_free(plan->regions);
	gsn_free(plan->buffers);
	gsn_free(plan->views);
	gsn_free(plan->writer);
	gpusnap_json_free(plan->records);
	gsn_delta_free(plan->delta);
	gsn_free(plan);
}
