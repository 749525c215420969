/* SPDX-License-Identifier: Apache-2.0 */
/* The table of regions: reserve, adopt, hand bytes out, free, look up. No content moves here. */
#include <string.h>

#include <gpusnap/registry.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/arena.h"
#include "snapshot/region_memory.h"
#include "snapshot/registry_state.h"

enum { ALIGNMENT_DEFAULT = 256 };

const char *gpusnap_region_state_name(gpusnap_region_state state)
{
	static const char *const names[] = {
		[GPUSNAP_REGION_RESIDENT] = "resident",
		[GPUSNAP_REGION_OFFLOADED] = "offloaded",
		[GPUSNAP_REGION_DISCARDED] = "discarded",
	};

	if ((unsigned)state >= sizeof names / sizeof names[0])
		return "unknown";
	return names[state];
}

/* ---- look up ---- */

struct gsn_region *gsn_registry_region(const gpusnap_registry *registry, uint32_t id)
{
	for (uint32_t i = 0; i < registry->region_count; i++)
		if (registry->regions[i].id == id)
			return &registry->regions[i];
	return NULL;
}

gpusnap_status gsn_region_find(const gpusnap_registry *registry, uint32_t id,
	struct gsn_region **ret_region, gpusnap_error *err)
{
	struct gsn_region *region = gsn_registry_region(registry, id);

	if (!region)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"no region has id %u; the registry holds %u regions", id,
			registry->region_count);
	*ret_region = region;
	return GPUSNAP_OK;
}

uint64_t gsn_region_resident_bytes(const struct gsn_region *region)
{
	return region->managed ? gsn_min(region->mapped_bytes, region->bytes) : region->bytes;
}

gpusnap_status gsn_region_mapped(const struct gsn_region *region, gpusnap_error *err)
{
	if (region->state == GPUSNAP_REGION_OFFLOADED)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"region %u '%s' is offloaded: not resident; resume or restore first",
			region->id, region->tag);
	return GPUSNAP_OK;
}

gpusnap_status gsn_region_usable(const struct gsn_region *region, gpusnap_error *err)
{
	if (region->state == GPUSNAP_REGION_DISCARDED)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"region %u '%s' is discarded: not resident; restore it, or rewrite it and "
			"call gpusnap_region_rewritten",
			region->id, region->tag);
	return gsn_region_mapped(region, err);
}

/* ---- add ---- */

static gpusnap_status check_policy(
	const char *what, const char *tag, gpusnap_policy policy, gpusnap_error *err)
{
	if ((unsigned)policy > GPUSNAP_POLICY_RECOMPUTE)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"region '%s': %s %d is none of keep, zero, discard, recompute", tag, what,
			(int)policy);
	return GPUSNAP_OK;
}

static gpusnap_status check_options(gpusnap_region_options *known,
	const gpusnap_region_options *options, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status s = gsn_options_copy(known, sizeof *known, options, "region options", err);

	if (!s)
		s = gsn_name_check("region", known->tag, err);
	if (!s)
		s = check_policy("policy", known->tag, known->policy, err);
	if (!known->unclaimed_set)
		known->unclaimed = known->policy;
	if (!s)
		s = check_policy("unclaimed policy", known->tag, known->unclaimed, err);
	if (!s && bytes == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID, "region '%s': size is 0 bytes", known->tag);
	return s;
}

/* Room for one more region, so that nothing can fail once memory is reserved. */
static gpusnap_status make_room(gpusnap_registry *registry, gpusnap_error *err)
{
	uint32_t capacity = registry->region_capacity ? 2 * registry->region_capacity : 8;
	struct gsn_region *grown;

	if (registry->region_count == GPUSNAP_PLAN_REGIONS_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "%u regions, no snapshot holds more",
			registry->region_count);
	if (registry->region_count < registry->region_capacity)
		return GPUSNAP_OK;
	grown = gsn_grow(
		registry->regions, registry->region_capacity, capacity, sizeof *registry->regions);
	if (!grown)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for a table of %u regions", capacity);
	registry->regions = grown;
	registry->region_capacity = capacity;
	return GPUSNAP_OK;
}

static gpusnap_status new_region(gpusnap_registry *registry, const gpusnap_region_options *options,
	struct gsn_region **ret_region, gpusnap_error *err)
{
	struct gsn_region *region;
	gpusnap_status s = make_room(registry, err);

	if (s)
		return s;
	region = &registry->regions[registry->region_count];
	*region = (struct gsn_region){
		.id = registry->next_region,
		.tag = gsn_strdup(options->tag),
		.policy = options->policy,
		.unclaimed = options->unclaimed,
		.state = GPUSNAP_REGION_RESIDENT,
		.refill = options->refill,
		.remapped = options->remapped,
		.user = options->user,
	};
	if (!region->tag)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for region '%s'", options->tag);
	*ret_region = region;
	return GPUSNAP_OK;
}

static gpusnap_status reserve_memory(
	gpusnap_registry *registry, struct gsn_region *region, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = registry->device->ops;
	void *context = registry->device->context;
	gpusnap_status s;

	if (bytes > UINT64_MAX - registry->granule_bytes)
		return gsn_fail(err, GPUSNAP_E_INVALID, "region '%s': %llu bytes overflow",
			region->tag, (unsigned long long)bytes);
	region->bytes = gsn_ceil_div(bytes, registry->granule_bytes) * registry->granule_bytes;
	region->reserved_bytes = region->bytes;
	region->managed = true;
	s = ops->reserve(context, region->bytes, &region->address, err);
	if (s)
		return s;
	s = gsn_region_memory_map(registry, region, region->reserved_bytes, 0, err);
	if (s) {
		(void)gsn_region_memory_unmap(registry, region, NULL);
		ops->release(context, region->address, region->reserved_bytes);
	}
	return s;
}

static void add_region(
	gpusnap_registry *registry, const struct gsn_region *region, uint32_t *ret_region)
{
	*ret_region = region->id;
	registry->next_region = region->id + 1;
	registry->region_count++;
}

static gpusnap_status reserve(gpusnap_registry *registry, uint64_t bytes,
	const gpusnap_region_options *options, uint32_t *ret_region, gpusnap_error *err)
{
	struct gsn_region *region;
	gpusnap_status s = gsn_registry_idle(registry, err);

	if (!s)
		s = new_region(registry, options, &region, err);
	if (s)
		return s;
	s = reserve_memory(registry, region, bytes, err);
	if (s) {
		gsn_error_prefix(
			err, "region '%s', %llu bytes", region->tag, (unsigned long long)bytes);
		gsn_free(region->tag);
		return s;
	}
	add_region(registry, region, ret_region);
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_region_reserve(gpusnap_registry *registry, uint64_t bytes,
	const gpusnap_region_options *options, uint32_t *ret_region, gpusnap_error *err)
{
	gpusnap_region_options known;
	gpusnap_status s = check_options(&known, options, bytes, err);

	if (s)
		return s;
	gsn_registry_lock(registry);
	s = reserve(registry, bytes, &known, ret_region, err);
	gsn_registry_unlock(registry);
	return s;
}

static gpusnap_status check_apart(const gpusnap_registry *registry, const char *tag,
	gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	uint64_t end;

	if (address == 0 || gsn_add_overflow(address, bytes, &end))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"region '%s': no memory can lie at 0x%llx with %llu bytes", tag,
			(unsigned long long)address, (unsigned long long)bytes);
	for (uint32_t i = 0; i < registry->region_count; i++) {
		const struct gsn_region *other = &registry->regions[i];
		uint64_t other_end = other->address + other->bytes;

		if (address < other_end && other->address < end)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"region '%s' [0x%llx, 0x%llx) overlaps region %u '%s' "
				"[0x%llx, 0x%llx)",
				tag, (unsigned long long)address, (unsigned long long)end,
				other->id, other->tag, (unsigned long long)other->address,
				(unsigned long long)other_end);
	}
	return GPUSNAP_OK;
}

static gpusnap_status adopt(gpusnap_registry *registry, gpusnap_address address, uint64_t bytes,
	const gpusnap_region_options *options, uint32_t *ret_region, gpusnap_error *err)
{
	struct gsn_region *region;
	gpusnap_status s = gsn_registry_idle(registry, err);

	if (!s)
		s = check_apart(registry, options->tag, address, bytes, err);
	if (!s)
		s = new_region(registry, options, &region, err);
	if (s)
		return s;
	region->address = address;
	region->bytes = bytes;
	add_region(registry, region, ret_region);
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_region_adopt(gpusnap_registry *registry, gpusnap_address address,
	uint64_t bytes, const gpusnap_region_options *options, uint32_t *ret_region,
	gpusnap_error *err)
{
	gpusnap_region_options known;
	gpusnap_status s = check_options(&known, options, bytes, err);

	if (s)
		return s;
	gsn_registry_lock(registry);
	s = adopt(registry, address, bytes, &known, ret_region, err);
	gsn_registry_unlock(registry);
	return s;
}

/* ---- use ---- */

static gpusnap_status alloc_bytes(struct gsn_region *region, uint64_t bytes, uint64_t alignment,
	uint64_t *ret_offset, gpusnap_error *err)
{
	uint64_t start;

	if (!region->managed)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"region %u '%s' is adopted: its owner hands its bytes out", region->id,
			region->tag);
	if (alignment == 0)
		alignment = ALIGNMENT_DEFAULT;
	if (alignment & (alignment - 1))
		return gsn_fail(err, GPUSNAP_E_INVALID, "alignment %llu is no power of two",
			(unsigned long long)alignment);
	/* The granule aligns a region's address; larger alignments hold for the address too. */
	start = (0 - (region->address + region->used_bytes)) & (alignment - 1);
	if (start > region->bytes - region->used_bytes ||
		bytes > region->bytes - region->used_bytes - start)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"region %u '%s' is full: %llu of %llu bytes used, %llu more wanted with "
			"alignment %llu",
			region->id, region->tag, (unsigned long long)region->used_bytes,
			(unsigned long long)region->bytes, (unsigned long long)bytes,
			(unsigned long long)alignment);
	*ret_offset = region->used_bytes + start;
	region->used_bytes = *ret_offset + bytes;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_region_alloc(gpusnap_registry *registry, uint32_t region, uint64_t bytes,
	uint64_t alignment, uint64_t *ret_offset, gpusnap_error *err)
{
	struct gsn_region *found;
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = gsn_registry_idle(registry, err);
	if (!s)
		s = gsn_region_find(registry, region, &found, err);
	if (!s)
		s = gsn_region_mapped(found, err);
	if (!s)
		s = alloc_bytes(found, bytes, alignment, ret_offset, err);
	gsn_registry_unlock(registry);
	return s;
}

static gpusnap_status rewritten(struct gsn_region *region, gpusnap_error *err)
{
	if (region->state != GPUSNAP_REGION_DISCARDED)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"region %u '%s' is %s; only a discarded region can be declared rewritten",
			region->id, region->tag, gpusnap_region_state_name(region->state));
	region->state = GPUSNAP_REGION_RESIDENT;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_region_rewritten(
	gpusnap_registry *registry, uint32_t region, gpusnap_error *err)
{
	struct gsn_region *found;
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = gsn_registry_idle(registry, err);
	if (!s)
		s = gsn_region_find(registry, region, &found, err);
	if (!s)
		s = rewritten(found, err);
	gsn_registry_unlock(registry);
	return s;
}

/* ---- free ---- */

void gsn_region_remove(gpusnap_registry *registry, uint32_t position)
{
	const struct gsn_device_ops *ops = registry->device->ops;
	void *context = registry->device->context;
	struct gsn_region *region = &registry->regions[position];

	if (region->managed) {
		/* Releasing the range gives the memory back even where unmapping fails. */
		(void)gsn_region_memory_unmap(registry, region, NULL);
		ops->release(context, region->address, region->reserved_bytes);
	}
	gsn_arena_free(region->arena);
	gpusnap_snapshot_close(region->backing);
	gsn_free(region->backing_name);
	gsn_free(region->tag);
	registry->region_count--;
	memmove(region, region + 1, (registry->region_count - position) * sizeof *region);
}

gpusnap_status gpusnap_region_free(gpusnap_registry *registry, uint32_t region, gpusnap_error *err)
{
	struct gsn_region *found;
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = gsn_registry_idle(registry, err);
	if (!s)
		s = gsn_region_find(registry, region, &found, err);
	if (!s)
		s = gsn_region_mapped(found, err);
	if (!s) {
		gsn_buffers_forget(registry, region);
		gsn_region_remove(registry, (uint32_t)(found - registry->regions));
	}
	gsn_registry_unlock(registry);
	return s;
}

/* ---- describe ---- */

static gpusnap_region_info describe(const struct gsn_region *region)
{
	return (gpusnap_region_info){
		.id = region->id,
		.tag = region->tag,
		.policy = region->policy,
		.unclaimed = region->unclaimed,
		.state = region->state,
		.managed = region->managed,
		.address = region->address,
		.bytes = region->bytes,
		.resident_bytes = gsn_region_resident_bytes(region),
		.unclaimed_bytes = region->bytes - region->claimed_bytes,
		.generation = region->generation,
		.backing = region->backing_name,
	};
}

uint32_t gpusnap_region_count(const gpusnap_registry *registry)
{
	uint32_t count;

	gsn_registry_lock(registry);
	count = registry->region_count;
	gsn_registry_unlock(registry);
	return count;
}

gpusnap_status gpusnap_region_at(const gpusnap_registry *registry, uint32_t position,
	gpusnap_region_info *ret_info, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	gsn_registry_lock(registry);
	if (position < registry->region_count)
		*ret_info = describe(&registry->regions[position]);
	else
		s = gsn_fail(err, GPUSNAP_E_INVALID, "region position %u, the registry holds %u",
			position, registry->region_count);
	gsn_registry_unlock(registry);
	return s;
}

gpusnap_status gpusnap_region_get(const gpusnap_registry *registry, uint32_t region,
	gpusnap_region_info *ret_info, gpusnap_error *err)
{
	struct gsn_region *found;
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = gsn_region_find(registry, region, &found, err);
	if (!s)
		*ret_info = describe(found);
	gsn_registry_unlock(registry);
	return s;
}
