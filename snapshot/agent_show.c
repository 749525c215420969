/* SPDX-License-Identifier: Apache-2.0 */
/* The show command: everything a registry holds, with the digests of what is resident. */
#include <stdbool.h>

#include <gpusnap/registry.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/agent_args.h"
#include "snapshot/agent_state.h"
#include "snapshot/ranges.h"
#include "snapshot/registry_state.h"

static gpusnap_json *show_region(const struct gsn_region *region)
{
	return gpusnap_json_pack("{s:I, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:s?}",
		"id", (long long)region->id, "tag", region->tag, "policy",
		gpusnap_policy_name(region->policy), "unclaimed_policy",
		gpusnap_policy_name(region->unclaimed), "state",
		gpusnap_region_state_name(region->state), "managed", (int)region->managed,
		"address", (long long)region->address, "bytes", (long long)region->bytes,
		"resident_bytes", (long long)gsn_region_resident_bytes(region), "unclaimed_bytes",
		(long long)(region->bytes - region->claimed_bytes), "generation",
		(long long)region->generation, "backing", region->backing_name);
}

/* An array of `count` integers, at least 0. NULL: no memory. */
static gpusnap_json *pack_shape(const uint64_t *shape, uint32_t count)
{
	gpusnap_json *array = gpusnap_json_pack("[]");

	for (uint32_t i = 0; array && i < count; i++)
		if (gpusnap_json_append(array, gpusnap_json_pack("I", (long long)shape[i]))) {
			gpusnap_json_free(array);
			return NULL;
		}
	return array;
}

static gpusnap_json *pack_strides(const int64_t *strides, uint32_t count)
{
	gpusnap_json *array = gpusnap_json_pack("[]");

	for (uint32_t i = 0; array && i < count; i++)
		if (gpusnap_json_append(array, gpusnap_json_pack("I", (long long)strides[i]))) {
			gpusnap_json_free(array);
			return NULL;
		}
	return array;
}

static gpusnap_json *show_buffer(const struct gsn_buffer *buffer, const char *digest)
{
	return gpusnap_json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:s?}", "name", buffer->name,
		"role", gpusnap_role_name(buffer->role), "dtype", gpusnap_dtype_name(buffer->dtype),
		"shape", pack_shape(buffer->shape, buffer->rank), "region",
		(long long)buffer->region, "offset", (long long)buffer->offset, "bytes",
		(long long)buffer->bytes, "digest", digest);
}

static gpusnap_json *show_view(const gpusnap_plan_view *view)
{
	return gpusnap_json_pack("{s:s, s:s, s:s, s:I, s:o, s:o}", "name", view->name, "buffer",
		view->buffer, "dtype", gpusnap_dtype_name(view->dtype), "offset",
		(long long)view->offset, "shape", pack_shape(view->shape, view->rank), "strides",
		pack_strides(view->strides, view->rank));
}

/* ---- digests ---- */

struct live_digests {
	struct gsn_range *ranges; /* of resident buffers, registration order */
	size_t count;
	gpusnap_digest *leaves;
};

static bool has_digest(const gpusnap_registry *registry, const struct gsn_buffer *buffer)
{
	return gsn_registry_region(registry, buffer->region)->state == GPUSNAP_REGION_RESIDENT;
}

static gpusnap_status digest_buffers(
	gpusnap_registry *registry, struct live_digests *live, gpusnap_error *err)
{
	live->ranges = gsn_alloc(registry->buffer_count, sizeof *live->ranges);
	if (!live->ranges)
		goto no_memory;
	for (uint32_t i = 0; i < registry->buffer_count; i++) {
		const struct gsn_buffer *buffer = registry->buffers[i];

		if (has_digest(registry, buffer))
			live->ranges[live->count++] = (struct gsn_range){
				.buffer = buffer,
				.region = gsn_registry_region(registry, buffer->region),
				.offset = buffer->offset,
				.bytes = buffer->bytes,
			};
	}
	live->leaves = gsn_alloc(
		(size_t)gsn_ranges_leaf_count(live->ranges, live->count), sizeof *live->leaves);
	if (!live->leaves)
		goto no_memory;
	return gsn_ranges_digest(registry, live->ranges, live->count, live->leaves, err);

no_memory:
	return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the digests of %u buffers",
		registry->buffer_count);
}

/* ---- lists; NULL: no memory ---- */

static gpusnap_json *list_regions(const gpusnap_registry *registry)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < registry->region_count; i++)
		if (gpusnap_json_append(list, show_region(&registry->regions[i]))) {
			gpusnap_json_free(list);
			return NULL;
		}
	return list;
}

static gpusnap_json *list_buffers(const gpusnap_registry *registry, const struct live_digests *live)
{
	gpusnap_json *list = gpusnap_json_pack("[]");
	const gpusnap_digest *leaves = live->leaves;

	for (uint32_t i = 0; list && i < registry->buffer_count; i++) {
		const struct gsn_buffer *buffer = registry->buffers[i];
		char text[GPUSNAP_DIGEST_TEXT];
		const char *digest = NULL;

		if (leaves && has_digest(registry, buffer)) {
			digest = gpusnap_digest_format(
				gpusnap_digest_of_buffer(buffer->bytes, leaves), text);
			leaves += gpusnap_leaf_count(buffer->bytes);
		}
		if (gpusnap_json_append(list, show_buffer(buffer, digest))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static gpusnap_json *list_views(const gpusnap_registry *registry)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < registry->view_count; i++)
		if (gpusnap_json_append(list, show_view(&registry->views[i]))) {
			gpusnap_json_free(list);
			return NULL;
		}
	return list;
}

static gpusnap_json *list_records(const gpusnap_registry *registry)
{
	gpusnap_json *list = gpusnap_json_pack("[]");
	gpusnap_json *records = registry->records;

	for (void *at = gpusnap_json_first(records); list && at;
		at = gpusnap_json_next(records, at))
		if (gpusnap_json_append(list, gpusnap_json_pack("s", gpusnap_json_key(at)))) {
			gpusnap_json_free(list);
			return NULL;
		}
	return list;
}

static gpusnap_json *show_all(const gpusnap_registry *registry, const struct live_digests *live)
{
	uint64_t unclaimed = 0;

	for (uint32_t i = 0; i < registry->region_count; i++)
		unclaimed += registry->regions[i].bytes - registry->regions[i].claimed_bytes;
	return gpusnap_json_pack("{s:s, s:o, s:o, s:o, s:o, s:I}", "device", registry->device->name,
		"regions", list_regions(registry), "buffers", list_buffers(registry, live), "views",
		list_views(registry), "records", list_records(registry), "unclaimed_bytes",
		(long long)unclaimed);
}

gpusnap_status gsn_agent_show(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	bool digests = true;
	const struct gsn_arg members[] = {{"digests", &digests, GSN_ARG_BOOLEAN, false}};
	struct live_digests live = {0};
	gpusnap_status s = gsn_args_parse(args, "show", members, 1, err);

	(void)user;
	if (s)
		return s;
	gsn_registry_lock(registry);
	if (digests)
		s = digest_buffers(registry, &live, err);
	if (!s)
		s = gsn_agent_result(show_all(registry, &live), ret_result, err);
	gsn_registry_unlock(registry);
	gsn_free(live.ranges);
	gsn_free(live.leaves);
	return s;
}
