/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: names for ranges of bytes. Two binary trees of tsearch(3) index them: one by name, and
 * one by place, in which ranges that overlap compare equal, so that one look-up finds any clash.
 */
#include <search.h>
#include <stddef.h>
#include <string.h>

#include <gpusnap/registry.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/ranges.h"
#include "snapshot/registry_state.h"

_Static_assert(offsetof(struct gsn_buffer, name) == 0, "compare_names reads the first member");

static int compare_names(const void *a, const void *b)
{
	const char *const *x = a;
	const char *const *y = b;

	return strcmp(*x, *y);
}

static int compare_places(const void *a, const void *b)
{
	const struct gsn_buffer *x = a;
	const struct gsn_buffer *y = b;

	if (x->region != y->region)
		return x->region < y->region ? -1 : 1;
	if (x->offset + x->bytes <= y->offset)
		return -1;
	return y->offset + y->bytes <= x->offset;
}

struct gsn_buffer *gsn_registry_buffer(const gpusnap_registry *registry, const char *name)
{
	struct gsn_buffer *const *node = tfind(&name, &registry->by_name, compare_names);

	return node ? *node : NULL;
}

static gpusnap_status find_buffer(const gpusnap_registry *registry, const char *name,
	struct gsn_buffer **ret_buffer, gpusnap_error *err)
{
	struct gsn_buffer *buffer = gsn_registry_buffer(registry, name);

	if (!buffer)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"no buffer is named '%s'; the registry holds %u buffers", name,
			registry->buffer_count);
	*ret_buffer = buffer;
	return GPUSNAP_OK;
}

/* ---- register ---- */

static void free_buffer(struct gsn_buffer *buffer)
{
	if (!buffer)
		return;
	gsn_free(buffer->name);
	gsn_free(buffer->shape);
	gsn_free(buffer);
}

static gpusnap_status check_mask(const gpusnap_buffer_options *options, gpusnap_error *err)
{
	uint32_t length;
	gpusnap_status s;

	if (options->role != GPUSNAP_ROLE_EXPERT_MASK) {
		if (options->mask.kind == 0)
			return GPUSNAP_OK;
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"buffer '%s' has a mask type, but role %s; only role expert_mask takes one",
			options->name, gpusnap_role_name(options->role));
	}
	s = gpusnap_mask_type_check(&options->mask, err);
	if (s) {
		gsn_error_prefix(err, "buffer '%s' has role expert_mask", options->name);
		return s;
	}
	if (options->dtype != GPUSNAP_I32)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"buffer '%s': an expert mask has dtype I32, not %s", options->name,
			gpusnap_dtype_name(options->dtype));
	length = gpusnap_mask_length(&options->mask);
	if (options->rank != 1 || options->shape[0] != length)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"buffer '%s': a %s mask of %u experts, %u local, has shape [%u], not rank "
			"%u with %llu elements first",
			options->name, gpusnap_mask_kind_name(options->mask.kind),
			options->mask.experts, options->mask.local, length, options->rank,
			options->rank ? (unsigned long long)options->shape[0] : 0ULL);
	return GPUSNAP_OK;
}

static gpusnap_status check_options(
	const gpusnap_buffer_options *options, uint64_t *ret_bytes, gpusnap_error *err)
{
	gpusnap_status s = gsn_name_check("buffer", options->name, err);

	if (s)
		return s;
	if ((unsigned)options->role > GPUSNAP_ROLE_KV)
		return gsn_fail(err, GPUSNAP_E_INVALID, "buffer '%s': role %d is none",
			options->name, (int)options->role);
	if ((unsigned)options->dtype >= GPUSNAP_DTYPE_COUNT)
		return gsn_fail(err, GPUSNAP_E_INVALID, "buffer '%s': dtype %d is none",
			options->name, (int)options->dtype);
	if (options->rank > GPUSNAP_RANK_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID, "buffer '%s': rank %u, at most %u",
			options->name, options->rank, GPUSNAP_RANK_MAX);
	if (options->rank > 0 && !options->shape)
		return gsn_fail(err, GPUSNAP_E_INVALID, "buffer '%s': rank %u, but no shape",
			options->name, options->rank);
	s = gpusnap_dtype_tensor_bytes(
		options->dtype, options->rank, options->shape, ret_bytes, err);
	if (s) {
		gsn_error_prefix(err, "buffer '%s'", options->name);
		if (err)
			err->status = GPUSNAP_E_INVALID;
		return GPUSNAP_E_INVALID;
	}
	return check_mask(options, err);
}

/* The name must be free, and the bytes inside the region. */
static gpusnap_status check_place(const gpusnap_registry *registry, const struct gsn_region *region,
	const gpusnap_buffer_options *options, uint64_t bytes, gpusnap_error *err)
{
	if (gsn_registry_buffer(registry, options->name))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"a buffer is named '%s' already; unregister it first", options->name);
	if (gsn_registry_has_view(registry, options->name))
		return gsn_fail(
			err, GPUSNAP_E_INVALID, "a view is named '%s' already", options->name);
	if (options->offset > region->bytes || bytes > region->bytes - options->offset)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"buffer '%s' of %llu bytes at offset %llu leaves region %u '%s' of %llu "
			"bytes",
			options->name, (unsigned long long)bytes,
			(unsigned long long)options->offset, region->id, region->tag,
			(unsigned long long)region->bytes);
	return GPUSNAP_OK;
}

static gpusnap_status new_buffer(gpusnap_registry *registry, const gpusnap_buffer_options *options,
	uint64_t bytes, struct gsn_buffer **out, gpusnap_error *err)
{
	struct gsn_buffer *buffer = gsn_alloc(1, sizeof *buffer);

	if (!buffer)
		goto no_memory;
	buffer->name = gsn_strdup(options->name);
	buffer->shape = gsn_alloc(options->rank, sizeof *buffer->shape);
	if (!buffer->name || !buffer->shape)
		goto no_memory;
	if (options->rank > 0)
		memcpy(buffer->shape, options->shape, options->rank * sizeof *buffer->shape);
	buffer->role = options->role;
	buffer->dtype = options->dtype;
	buffer->rank = options->rank;
	buffer->region = options->region;
	buffer->offset = options->offset;
	buffer->bytes = bytes;
	buffer->mask = options->mask;
	buffer->serial = registry->next_serial;
	*out = buffer;
	return GPUSNAP_OK;

no_memory:
	free_buffer(buffer);
	return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for buffer '%s'", options->name);
}

static gpusnap_status make_room(gpusnap_registry *registry, gpusnap_error *err)
{
	uint32_t capacity = registry->buffer_capacity ? 2 * registry->buffer_capacity : 64;
	struct gsn_buffer **grown;

	if (registry->buffer_count == GPUSNAP_PLAN_BUFFERS_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"%u buffers are registered, no snapshot holds more; use views for parts",
			registry->buffer_count);
	if (registry->buffer_count < registry->buffer_capacity)
		return GPUSNAP_OK;
	grown = gsn_grow(registry->buffers, registry->buffer_capacity, capacity, sizeof(void *));
	if (!grown)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for a table of %u buffers", capacity);
	registry->buffers = grown;
	registry->buffer_capacity = capacity;
	return GPUSNAP_OK;
}

/* Enter the buffer into the tree of places, or say what it overlaps. */
static gpusnap_status enter_place(
	gpusnap_registry *registry, struct gsn_buffer *buffer, gpusnap_error *err)
{
	struct gsn_buffer *const *node;
	const struct gsn_buffer *other;

	if (buffer->bytes == 0)
		return GPUSNAP_OK;
	node = tsearch(buffer, &registry->by_place, compare_places);
	if (!node)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory to index buffer '%s'", buffer->name);
	other = *node;
	if (other == buffer)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"buffer '%s' [%llu, %llu) overlaps buffer '%s' [%llu, %llu) in region %u; register "
		"a view of that buffer instead",
		buffer->name, (unsigned long long)buffer->offset,
		(unsigned long long)(buffer->offset + buffer->bytes), other->name,
		(unsigned long long)other->offset,
		(unsigned long long)(other->offset + other->bytes), buffer->region);
}

static gpusnap_status add_buffer(gpusnap_registry *registry, struct gsn_region *region,
	struct gsn_buffer *buffer, gpusnap_error *err)
{
	gpusnap_status s = make_room(registry, err);

	if (!s)
		s = enter_place(registry, buffer, err);
	if (s)
		return s;
	if (!tsearch(buffer, &registry->by_name, compare_names)) {
		(void)tdelete(buffer, &registry->by_place, compare_places);
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory to index buffer '%s'", buffer->name);
	}
	registry->buffers[registry->buffer_count++] = buffer;
	registry->next_serial++;
	region->claimed_bytes += buffer->bytes;
	region->used_bytes = gsn_max(region->used_bytes, buffer->offset + buffer->bytes);
	return GPUSNAP_OK;
}

static gpusnap_status register_buffer(gpusnap_registry *registry,
	const gpusnap_buffer_options *options, uint64_t bytes, gpusnap_error *err)
{
	struct gsn_region *region;
	struct gsn_buffer *buffer;
	gpusnap_status s = gsn_registry_idle(registry, err);

	if (!s)
		s = gsn_region_find(registry, options->region, &region, err);
	if (!s)
		s = gsn_region_mapped(region, err);
	if (!s)
		s = check_place(registry, region, options, bytes, err);
	if (!s)
		s = new_buffer(registry, options, bytes, &buffer, err);
	if (s)
		return s;
	s = add_buffer(registry, region, buffer, err);
	if (s)
		free_buffer(buffer);
	return s;
}

gpusnap_status gpusnap_buffer_register(
	gpusnap_registry *registry, const gpusnap_buffer_options *options, gpusnap_error *err)
{
	gpusnap_buffer_options known;
	uint64_t bytes;
	gpusnap_status s = gsn_options_copy(&known, sizeof known, options, "buffer options", err);

	if (!s)
		s = check_options(&known, &bytes, err);
	if (s)
		return s;
	gsn_registry_lock(registry);
	s = register_buffer(registry, &known, bytes, err);
	gsn_registry_unlock(registry);
	return s;
}

/* ---- unregister ---- */

static uint32_t position_of(const gpusnap_registry *registry, const struct gsn_buffer *buffer)
{
	uint32_t low = 0;
	uint32_t high = registry->buffer_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (registry->buffers[middle]->serial < buffer->serial)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void unindex(gpusnap_registry *registry, const struct gsn_buffer *buffer)
{
	(void)tdelete(buffer, &registry->by_name, compare_names);
	if (buffer->bytes > 0)
		(void)tdelete(buffer, &registry->by_place, compare_places);
}

static gpusnap_status unregister(gpusnap_registry *registry, const char *name, gpusnap_error *err)
{
	struct gsn_buffer *buffer;
	struct gsn_region *region;
	uint32_t position;
	gpusnap_status s = gsn_registry_idle(registry, err);

	if (!s)
		s = find_buffer(registry, name, &buffer, err);
	if (s)
		return s;
	region = gsn_registry_region(registry, buffer->region);
	s = gsn_region_mapped(region, err);
	if (s)
		return s;
	position = position_of(registry, buffer);
	registry->buffer_count--;
	memmove(&registry->buffers[position], &registry->buffers[position + 1],
		(registry->buffer_count - position) * sizeof(void *));
	region->claimed_bytes -= buffer->bytes;
	unindex(registry, buffer);
	gsn_views_prune(registry);
	free_buffer(buffer);
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_buffer_unregister(
	gpusnap_registry *registry, const char *name, gpusnap_error *err)
{
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = unregister(registry, name, err);
	gsn_registry_unlock(registry);
	return s;
}

void gsn_buffers_forget(gpusnap_registry *registry, uint32_t region)
{
	uint32_t kept = 0;
	uint32_t count = registry->buffer_count;

	for (uint32_t i = 0; i < count; i++) {
		struct gsn_buffer *buffer = registry->buffers[i];

		if (buffer->region != region) {
			registry->buffers[kept++] = buffer;
			continue;
		}
		unindex(registry, buffer);
		free_buffer(buffer);
	}
	registry->buffer_count = kept;
	if (kept < count)
		gsn_views_prune(registry);
}

/* ---- describe ---- */

static gpusnap_buffer_info describe(
	const gpusnap_registry *registry, const struct gsn_buffer *buffer)
{
	return (gpusnap_buffer_info){
		.name = buffer->name,
		.role = buffer->role,
		.dtype = buffer->dtype,
		.rank = buffer->rank,
		.shape = buffer->shape,
		.region = buffer->region,
		.offset = buffer->offset,
		.bytes = buffer->bytes,
		.address = gsn_registry_region(registry, buffer->region)->address + buffer->offset,
		.mask = buffer->mask,
	};
}

uint32_t gpusnap_buffer_count(const gpusnap_registry *registry)
{
	uint32_t count;

	gsn_registry_lock(registry);
	count = registry->buffer_count;
	gsn_registry_unlock(registry);
	return count;
}

gpusnap_status gpusnap_buffer_at(const gpusnap_registry *registry, uint32_t position,
	gpusnap_buffer_info *ret_info, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	gsn_registry_lock(registry);
	if (position < registry->buffer_count)
		*ret_info = describe(registry, registry->buffers[position]);
	else
		s = gsn_fail(err, GPUSNAP_E_INVALID, "buffer position %u, the registry holds %u",
			position, registry->buffer_count);
	gsn_registry_unlock(registry);
	return s;
}

gpusnap_status gpusnap_buffer_find(const gpusnap_registry *registry, const char *name,
	gpusnap_buffer_info *ret_info, gpusnap_error *err)
{
	struct gsn_buffer *buffer;
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = find_buffer(registry, name, &buffer, err);
	if (!s)
		*ret_info = describe(registry, buffer);
	gsn_registry_unlock(registry);
	return s;
}

/* ---- content ---- */

static gpusnap_status check_span(
	const struct gsn_buffer *buffer, uint64_t offset, uint64_t length, gpusnap_error *err)
{
	if (offset > buffer->bytes || length > buffer->bytes - offset)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"buffer '%s': %llu bytes at offset %llu leave its %llu bytes", buffer->name,
			(unsigned long long)length, (unsigned long long)offset,
			(unsigned long long)buffer->bytes);
	return GPUSNAP_OK;
}

static gpusnap_status copy_and_wait(gpusnap_registry *registry, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t length, gpusnap_error *err)
{
	gpusnap_status s;

	if (length == 0)
		return GPUSNAP_OK;
	s = registry->device->ops->copy(registry->stream, direction, dst, src, length, err);
	return gsn_registry_settle(registry, s, err);
}

gpusnap_status gpusnap_buffer_read(gpusnap_registry *registry, const char *name, uint64_t offset,
	void *bytes, uint64_t length, gpusnap_error *err)
{
	struct gsn_buffer *buffer;
	const struct gsn_region *region = NULL;
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = find_buffer(registry, name, &buffer, err);
	if (!s) {
		region = gsn_registry_region(registry, buffer->region);
		s = gsn_region_usable(region, err);
	}
	if (!s)
		s = check_span(buffer, offset, length, err);
	if (!s)
		s = copy_and_wait(registry, GSN_DEVICE_TO_HOST, (uintptr_t)bytes,
			region->address + buffer->offset + offset, length, err);
	gsn_registry_unlock(registry);
	return s;
}

gpusnap_status gpusnap_buffer_write(gpusnap_registry *registry, const char *name, uint64_t offset,
	const void *bytes, uint64_t length, gpusnap_error *err)
{
	struct gsn_buffer *buffer;
	const struct gsn_region *region = NULL;
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = find_buffer(registry, name, &buffer, err);
	if (!s) {
		region = gsn_registry_region(registry, buffer->region);
		s = gsn_region_mapped(region, err);
	}
	if (!s)
		s = check_span(buffer, offset, length, err);
	if (!s)
		s = copy_and_wait(registry, GSN_HOST_TO_DEVICE,
			region->address + buffer->offset + offset, (uintptr_t)bytes, length, err);
	gsn_registry_unlock(registry);
	return s;
}

gpusnap_status gpusnap_buffer_leaves(gpusnap_registry *registry, const char *name,
	gpusnap_digest *ret_leaves, gpusnap_error *err)
{
	struct gsn_buffer *buffer;
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = find_buffer(registry, name, &buffer, err);
	if (!s) {
		struct gsn_range range = {
			.buffer = buffer,
			.region = gsn_registry_region(registry, buffer->region),
			.offset = buffer->offset,
			.bytes = buffer->bytes,
		};

		s = gsn_region_usable(range.region, err);
		if (!s)
			s = gsn_ranges_digest(registry, &range, 1, ret_leaves, err);
	}
	gsn_registry_unlock(registry);
	return s;
}
