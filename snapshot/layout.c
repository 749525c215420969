/* SPDX-License-Identifier: Apache-2.0 */
/* From the registry's ranges to the order of a file, its plan and its header. */
#include "snapshot/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

enum { DATA_ALIGNMENT = 4096 };

uint64_t gsn_layout_alignment(uint64_t bytes)
{
	uint64_t lowest_bit = bytes & (~bytes + 1);

	return gsn_min(lowest_bit, DATA_ALIGNMENT);
}

/* Ranges stand in one array in registry order, so their addresses settle ties. */
static int compare_ranges(const void *a, const void *b)
{
	const struct gsn_range *x = *(const struct gsn_range *const *)a;
	const struct gsn_range *y = *(const struct gsn_range *const *)b;
	uint64_t x_class = gsn_layout_alignment(x->bytes), y_class = gsn_layout_alignment(y->bytes);

	if (x_class != y_class)
		return x_class > y_class ? -1 : 1;
	return (x > y) - (x < y);
}

static void collect_kept(struct gsn_layout *layout)
{
	for (size_t i = 0; i < layout->range_count; i++)
		if (layout->ranges[i].policy == GPUSNAP_POLICY_KEEP)
			layout->kept[layout->entry_count++] = &layout->ranges[i];
	qsort(layout->kept, layout->entry_count, sizeof(void *), compare_ranges);
}

/* Offsets count from the data section until the header's length is known. */
static void place_entries(struct gsn_layout *layout)
{
	for (size_t i = 0; i < layout->entry_count; i++) {
		const struct gsn_range *range = layout->kept[i];

		layout->entries[i] = (struct gsn_segment){
			.name = gsn_range_name(range),
			.region = range->region->id,
			.address = gsn_range_address(range),
			.bytes = range->bytes,
			.file_offset = layout->state_bytes,
			.first_leaf = layout->leaf_count,
		};
		layout->state_bytes += range->bytes;
		layout->leaf_count += gpusnap_leaf_count(range->bytes);
		if (!range->buffer)
			layout->unclaimed_bytes += range->bytes;
	}
}

/* ---- the plan: borrows everything from the registry ---- */

static void plan_regions(const gpusnap_registry *registry, gpusnap_plan_region *regions)
{
	for (uint32_t i = 0; i < registry->region_count; i++) {
		const struct gsn_region *region = &registry->regions[i];

		regions[i] = (gpusnap_plan_region){
			.id = region->id,
			.tag = region->tag,
			.policy = region->policy,
			.unclaimed = region->unclaimed,
			.bytes = region->bytes,
			.managed = region->managed,
			.device = registry->device->name,
			.address = region->address,
		};
	}
}

static void plan_buffers(const gpusnap_registry *registry, gpusnap_plan_buffer *buffers)
{
	for (uint32_t i = 0; i < registry->buffer_count; i++) {
		const struct gsn_buffer *buffer = registry->buffers[i];

		buffers[i] = (gpusnap_plan_buffer){
			.name = buffer->name,
			.role = buffer->role,
			.dtype = buffer->dtype,
			.rank = buffer->rank,
			.shape = buffer->shape,
			.region = buffer->region,
			.offset = buffer->offset,
			.bytes = buffer->bytes,
			.kept = gsn_registry_region(registry, buffer->region)->policy ==
				GPUSNAP_POLICY_KEEP,
			.mask = buffer->mask,
		};
	}
}

static char *encode_plan(const struct gsn_layout *layout, const gpusnap_registry *registry,
	gpusnap_plan_delta *delta)
{
	char writer[] = "gpusnap " GPUSNAP_VERSION;
	gpusnap_plan plan = {
		.writer = writer,
		.tp_rank = registry->options.tp_rank,
		.tp_size = registry->options.tp_size,
		.ep_rank = registry->options.ep_rank,
		.ep_size = registry->options.ep_size,
		.region_count = registry->region_count,
		.buffer_count = registry->buffer_count,
		.view_count = registry->view_count,
		.views = registry->views,
		.records = registry->records,
		.delta = delta,
	};
	char *text = NULL;

	memcpy(plan.uuid, layout->uuid, sizeof plan.uuid);
	plan.regions = gsn_alloc(plan.region_count, sizeof *plan.regions);
	plan.buffers = gsn_alloc(plan.buffer_count, sizeof *plan.buffers);
	if (plan.regions && plan.buffers) {
		plan_regions(registry, plan.regions);
		plan_buffers(registry, plan.buffers);
		text = gpusnap_plan_encode(&plan);
	}
	gsn_free(plan.regions);
	gsn_free(plan.buffers);
	return text;
}

/* ---- the header ---- */

static void name_tensor(gpusnap_tensor *tensor, const char *name, uint64_t begin, uint64_t bytes)
{
	tensor->name = name;
	tensor->name_length = strlen(name);
	tensor->begin = begin;
	tensor->end = begin + bytes;
}

/* Bytes without a type of their own: U8 of this shape. */
static void shape_bytes(gpusnap_tensor *tensor, uint32_t rank, const uint64_t *shape)
{
	tensor->dtype = GPUSNAP_U8;
	tensor->rank = rank;
	tensor->shape = shape;
}

static void fill_entries(const struct gsn_layout *layout, gpusnap_tensor *tensors)
{
	for (size_t i = 0; i < layout->entry_count; i++) {
		const struct gsn_range *range = layout->kept[i];
		const struct gsn_buffer *buffer = range->buffer;

		name_tensor(&tensors[i], layout->entries[i].name, layout->entries[i].file_offset,
			range->bytes);
		if (!buffer) {
			shape_bytes(&tensors[i], 1, &range->bytes);
			continue;
		}
		tensors[i].dtype = buffer->dtype;
		tensors[i].rank = buffer->rank;
		tensors[i].shape = buffer->shape;
	}
}

static void fill_end(const struct gsn_layout *layout, const uint64_t leaves_shape[2],
	gpusnap_tensor tensors[GSN_LAYOUT_END_TENSORS])
{
	static const uint64_t seal_shape[1] = {GPUSNAP_SEAL_BYTES};
	uint64_t leaves_bytes = layout->leaf_count * GPUSNAP_DIGEST_BYTES;

	name_tensor(&tensors[0], GPUSNAP_LEAVES_NAME, layout->data_bytes, leaves_bytes);
	shape_bytes(&tensors[0], 2, leaves_shape);
	name_tensor(&tensors[1], GPUSNAP_SEAL_NAME, layout->data_bytes + leaves_bytes,
		GPUSNAP_SEAL_BYTES);
	shape_bytes(&tensors[1], 1, seal_shape);
}

static void fix_offsets(struct gsn_layout *layout)
{
	for (size_t i = 0; i < layout->segment_count; i++)
		layout->segments[i].file_offset += layout->header_bytes;
	layout->leaves_offset = layout->header_bytes + layout->data_bytes;
	layout->seal_offset = layout->leaves_offset + layout->leaf_count * GPUSNAP_DIGEST_BYTES;
	layout->file_bytes = layout->seal_offset + GPUSNAP_SEAL_BYTES;
}

gpusnap_status gsn_layout_finish(struct gsn_layout *layout, const gpusnap_registry *registry,
	gpusnap_tensor *tensors, size_t count, gpusnap_plan_delta *delta, gpusnap_error *err)
{
	uint64_t leaves_shape[2] = {layout->leaf_count, GPUSNAP_DIGEST_BYTES};
	char *plan = encode_plan(layout, registry, delta);
	gpusnap_metadata metadata = {GPUSNAP_PLAN_KEY, plan};
	gpusnap_status status;

	if (!plan)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the plan of %zu entries",
			layout->entry_count);
	fill_end(layout, leaves_shape, tensors + count);
	status = gpusnap_header_build(tensors, count + GSN_LAYOUT_END_TENSORS, &metadata, 1,
		DATA_ALIGNMENT, &layout->header, &layout->header_bytes, err);
	gpusnap_text_free(plan);
	if (!status)
		fix_offsets(layout);
	return status;
}

static gpusnap_status lay_out(
	struct gsn_layout *layout, const gpusnap_registry *registry, gpusnap_error *err)
{
	size_t count = layout->entry_count;
	gpusnap_tensor *tensors = gsn_alloc(count + GSN_LAYOUT_END_TENSORS, sizeof *tensors);
	gpusnap_status status;

	if (!tensors)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu tensors", count);
	layout->segments = layout->entries;
	layout->segment_count = count;
	layout->data_bytes = layout->state_bytes;
	fill_entries(layout, tensors);
	status = gsn_layout_finish(layout, registry, tensors, count, NULL, err);
	gsn_free(tensors);
	return status;
}

/* Random, marked as version 4 (RFC 9562, section 5.4). */
static gpusnap_status make_uuid(uint8_t uuid[GPUSNAP_UUID_BYTES], gpusnap_error *err)
{
	if (getrandom(uuid, GPUSNAP_UUID_BYTES, 0) != (ssize_t)GPUSNAP_UUID_BYTES)
		return gsn_fail_os(err, GPUSNAP_E_IO, errno, "no random bytes for a uuid: %s",
			strerror(errno));
	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x40);
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
	return GPUSNAP_OK;
}

static gpusnap_status list_entries(struct gsn_layout *layout, gpusnap_error *err)
{
	layout->kept = gsn_alloc(layout->range_count, sizeof(void *));
	if (!layout->kept)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu ranges", layout->range_count);
	collect_kept(layout);
	layout->entries = gsn_alloc(layout->entry_count, sizeof *layout->entries);
	if (!layout->entries)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu entries", layout->entry_count);
	place_entries(layout);
	layout->leaves = gsn_alloc((size_t)layout->leaf_count, sizeof *layout->leaves);
	if (!layout->leaves)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %" PRIu64 " leaf digests",
			layout->leaf_count);
	return GPUSNAP_OK;
}

gpusnap_status gsn_layout_init_entries(
	struct gsn_layout *layout, const gpusnap_registry *registry, gpusnap_error *err)
{
	gpusnap_status status;

	*layout = (struct gsn_layout){.ranges = NULL};
	status = make_uuid(layout->uuid, err);
	if (!status)
		status = gsn_registry_ranges(registry, &layout->ranges, &layout->range_count, err);
	return status ? status : list_entries(layout, err);
}

gpusnap_status gsn_layout_init(
	struct gsn_layout *layout, const gpusnap_registry *registry, gpusnap_error *err)
{
	gpusnap_status status = gsn_layout_init_entries(layout, registry, err);

	return status ? status : lay_out(layout, registry, err);
}

void gsn_layout_release(struct gsn_layout *layout)
{
	if (layout->segments != layout->entries)
		gsn_free(layout->segments);
	gsn_free(layout->ranges);
	gsn_free(layout->kept);
	gsn_free(layout->entries);
	gpusnap_header_bytes_free(layout->header);
	gsn_free(layout->leaves);
	*layout = (struct gsn_layout){.ranges = NULL};
}
