/* SPDX-License-Identifier: Apache-2.0 */
/* A fresh registry with the regions, buffers, views, records and bytes of a snapshot. */
#include <gpusnap/snapshot.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/restore.h"

static gpusnap_status create(gpusnap_device *device, const gpusnap_plan *plan,
	const gpusnap_registry_options *options, gpusnap_registry **out, gpusnap_error *err)
{
	gpusnap_registry_options known;
	gpusnap_status status =
		gsn_options_copy(&known, sizeof known, options, "registry options", err);

	if (status)
		return status;
	known.struct_size = sizeof known;
	known.tp_rank = plan->tp_rank;
	known.tp_size = plan->tp_size;
	known.ep_rank = plan->ep_rank;
	known.ep_size = plan->ep_size;
	return gpusnap_registry_create(device, &known, out, err);
}

/* Under the id that it has in the plan, since raw ranges are named by it. */
static gpusnap_status add_region(
	gpusnap_registry *registry, const gpusnap_plan_region *plan, gpusnap_error *err)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	uint32_t id;
	gpusnap_status status;

	if (plan->id == UINT32_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"region id %u leaves none for the next region", plan->id);
	options.tag = plan->tag;
	options.policy = plan->policy;
	options.unclaimed_set = true;
	options.unclaimed = plan->unclaimed;
	registry->next_region = plan->id;
	status = gpusnap_region_reserve(registry, plan->bytes, &options, &id, err);
	/* Another device's granule may be larger; the plan's size is what the file covers. */
	if (!status)
		gsn_registry_region(registry, id)->bytes = plan->bytes;
	return status;
}

static gpusnap_status add_regions(
	gpusnap_registry *registry, const gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;
	uint32_t next = registry->next_region;

	for (uint32_t i = 0; !status && i < plan->region_count; i++) {
		status = add_region(registry, &plan->regions[i], err);
		next = (uint32_t)gsn_max(next, registry->next_region);
	}
	registry->next_region = next;
	return status;
}

static gpusnap_status add_buffers(
	gpusnap_registry *registry, const gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint32_t i = 0; !status && i < plan->buffer_count; i++) {
		const gpusnap_plan_buffer *buffer = &plan->buffers[i];
		gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;

		options.name = buffer->name;
		options.role = buffer->role;
		options.dtype = buffer->dtype;
		options.rank = buffer->rank;
		options.shape = buffer->shape;
		options.region = buffer->region;
		options.offset = buffer->offset;
		options.mask = buffer->mask;
		status = gpusnap_buffer_register(registry, &options, err);
	}
	return status;
}

static gpusnap_status add_views(
	gpusnap_registry *registry, const gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint32_t i = 0; !status && i < plan->view_count; i++) {
		const gpusnap_plan_view *view = &plan->views[i];
		gpusnap_view_options options = GPUSNAP_VIEW_OPTIONS_INIT;

		options.name = view->name;
		options.buffer = view->buffer;
		options.dtype = view->dtype;
		options.offset = view->offset;
		options.rank = view->rank;
		options.shape = view->shape;
		options.strides = view->strides;
		status = gpusnap_view_register(registry, &options, err);
	}
	return status;
}

static gpusnap_status add_records(
	gpusnap_registry *registry, const gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (void *at = gpusnap_json_first(plan->records); !status && at;
		at = gpusnap_json_next(plan->records, at))
		status = gpusnap_record_set(
			registry, gpusnap_json_key(at), gpusnap_json_value(at), err);
	return status;
}

static gpusnap_status build(
	gpusnap_registry *registry, const gpusnap_plan *plan, gpusnap_error *err)
{
	gpusnap_status status = add_regions(registry, plan, err);

	if (!status)
		status = add_buffers(registry, plan, err);
	if (!status)
		status = add_views(registry, plan, err);
	if (!status)
		status = add_records(registry, plan, err);
	return status;
}

gpusnap_status gpusnap_registry_from_open(gpusnap_device *device, gpusnap_snapshot *snapshot,
	const gpusnap_registry_options *options, const gpusnap_io_options *io,
	gpusnap_registry **out, gpusnap_restore_report *ret_report, gpusnap_error *err)
{
	const gpusnap_plan *plan = gpusnap_snapshot_plan(snapshot);
	gpusnap_registry *registry;
	gpusnap_status status = create(device, plan, options, &registry, err);

	if (status)
		return status;
	status = build(registry, plan, err);
	if (status)
		gsn_error_prefix(err, "'%s'", gpusnap_snapshot_path(snapshot));
	else
		status = gsn_restore_snapshot(registry, snapshot, false, io, ret_report, err);
	if (status) {
		gpusnap_registry_free(registry);
		return status;
	}
	*out = registry;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_registry_from_snapshot(gpusnap_device *device, const char *path,
	const gpusnap_registry_options *options, const gpusnap_io_options *io,
	gpusnap_registry **out, gpusnap_restore_report *ret_report, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot;
	gpusnap_status status = gpusnap_snapshot_open(path, &snapshot, err);

	if (status)
		return status;
	status = gpusnap_registry_from_open(device, snapshot, options, io, out, ret_report, err);
	gpusnap_snapshot_close(snapshot);
	return status;
}
