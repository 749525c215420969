/* SPDX-License-Identifier: Apache-2.0 */
/* Registries with remembered content. */
#include "tests/support/live_state.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/random.h"
#include "tests/support/suite.h"

#define LEAF ((uint64_t)GPUSNAP_LEAF_BYTES)

enum { REGIONS_MAX = 4, BUFFERS_MAX = 12 };

static void must(gpusnap_status status, const gpusnap_error *err)
{
	if (status)
		(void)fprintf(stderr, "test state: %s\n", err->message);
	assert(status == GPUSNAP_OK);
}

static gpusnap_region_info info_of(const gpusnap_registry *registry, uint32_t position)
{
	gpusnap_region_info info;
	gpusnap_error err;

	must(gpusnap_region_at(registry, position, &info, &err), &err);
	return info;
}

uint8_t *live_bytes(const gpusnap_registry *registry, uint32_t position)
{
	return (uint8_t *)(uintptr_t)info_of(registry, position).address;
}

void live_open(struct live_state *state, gpusnap_device *device)
{
	gpusnap_error err;

	*state = (struct live_state){NULL};
	must(gpusnap_registry_create(device, NULL, &state->registry, &err), &err);
}

static void forget(struct live_state *state)
{
	for (uint32_t i = 0; i < state->region_count; i++)
		free(state->images[i]);
	free(state->images);
	state->images = NULL;
	state->region_count = 0;
}

void live_close(struct live_state *state)
{
	forget(state);
	gpusnap_registry_free(state->registry);
	state->registry = NULL;
}

uint32_t live_region(struct live_state *state, const char *tag, uint64_t bytes,
	gpusnap_policy policy, uint64_t *random)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_region_info info;
	gpusnap_error err;
	uint32_t id;

	options.tag = tag;
	options.policy = policy;
	must(gpusnap_region_reserve(state->registry, bytes, &options, &id, &err), &err);
	must(gpusnap_region_get(state->registry, id, &info, &err), &err);
	random_fill(random, (void *)(uintptr_t)info.address, info.bytes);
	return id;
}

void live_buffer(struct live_state *state, const char *name, uint32_t region, uint64_t offset,
	uint64_t bytes)
{
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_error err;

	options.name = name;
	options.role = GPUSNAP_ROLE_WEIGHT;
	options.dtype = GPUSNAP_U8;
	options.rank = 1;
	options.shape = &bytes;
	options.region = region;
	options.offset = offset;
	must(gpusnap_buffer_register(state->registry, &options, &err), &err);
}

static void random_buffers(
	struct live_state *state, uint32_t region, uint64_t region_bytes, uint64_t *random)
{
	static const uint64_t sizes[] = {
		0, 1, 3, 4096, LEAF - 1, LEAF, LEAF + 1, 2 * LEAF, 3 * LEAF - 5, 256, 12288};
	uint64_t count = random_below(random, BUFFERS_MAX + 1), offset = 0;
	char name[32];

	for (uint64_t i = 0; i < count; i++) {
		uint64_t bytes = sizes[random_below(random, sizeof sizes / sizeof sizes[0])];

		offset += random_below(random, 3) ? 0 : random_below(random, 5000);
		if (offset + bytes > region_bytes)
			break;
		(void)snprintf(name, sizeof name, "r%u.b%u", region, (unsigned)i);
		live_buffer(state, name, region, offset, bytes);
		offset += bytes;
	}
}

void live_random(struct live_state *state, gpusnap_device *device, uint64_t seed)
{
	uint64_t random = seed, count;

	live_open(state, device);
	count = 1 + random_below(&random, REGIONS_MAX);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t bytes = 1 + random_below(&random, 8 * LEAF);
		uint32_t id = live_region(state, "state", bytes, GPUSNAP_POLICY_KEEP, &random);

		random_buffers(state, id, bytes, &random);
	}
	live_remember(state);
}

void live_remember(struct live_state *state)
{
	uint32_t count = gpusnap_region_count(state->registry);

	forget(state);
	state->images = calloc(count ? count : 1, sizeof *state->images);
	assert(state->images);
	state->region_count = count;
	for (uint32_t i = 0; i < count; i++) {
		gpusnap_region_info info = info_of(state->registry, i);

		state->images[i] = malloc(info.bytes);
		assert(state->images[i]);
		memcpy(state->images[i], live_bytes(state->registry, i), info.bytes);
	}
}

bool live_equals(const struct live_state *state, const gpusnap_registry *registry)
{
	if (gpusnap_region_count(registry) != state->region_count)
		return false;
	for (uint32_t i = 0; i < state->region_count; i++) {
		gpusnap_region_info info = info_of(registry, i);

		if (info.bytes != info_of(state->registry, i).bytes ||
			memcmp(state->images[i], live_bytes(registry, i), info.bytes) != 0)
			return false;
	}
	return true;
}

void live_scribble(const gpusnap_registry *registry)
{
	for (uint32_t i = 0; i < gpusnap_region_count(registry); i++) {
		uint8_t *bytes = live_bytes(registry, i);
		uint64_t length = info_of(registry, i).bytes;

		for (uint64_t k = 0; k < length; k++)
			bytes[k] = (uint8_t)~bytes[k];
	}
}
