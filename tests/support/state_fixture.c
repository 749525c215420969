/* SPDX-License-Identifier: Apache-2.0 */
/* The small state that tests offload, resume, save and damage. */
#include "tests/support/state_fixture.h"

#include <string.h>

static const char *const tags[STATE_REGIONS] = {"first", "second"};
static const char *const names[STATE_REGIONS] = {"w0", "w1"};

static uint8_t pattern(uint32_t seed, size_t region, size_t at)
{
	return (uint8_t)((size_t)seed * 89 + region * 57 + at * 31 + at / 256 * 7 + at / 65536);
}

gpusnap_region_info state_info(const struct state *state, size_t region)
{
	gpusnap_region_info info;
	gpusnap_error err;

	ck_ok(gpusnap_region_get(state->registry, state->regions[region], &info, &err));
	return info;
}

uint8_t *state_bytes(const struct state *state, size_t region)
{
	return (uint8_t *)(uintptr_t)state_info(state, region).address;
}

void state_fill(struct state *state, uint32_t seed)
{
	state->seed = seed;
	for (size_t r = 0; r < STATE_REGIONS; r++) {
		uint8_t *bytes = state_bytes(state, r);

		for (size_t i = 0; i < STATE_REGION_BYTES; i++)
			bytes[i] = pattern(seed, r, i);
	}
}

void state_check(const struct state *state, size_t region)
{
	const uint8_t *bytes = state_bytes(state, region);

	for (size_t i = 0; i < STATE_REGION_BYTES; i++)
		if (bytes[i] != pattern(state->seed, region, i))
			ck_abort_msg("region %zu byte %zu is 0x%02x, expected 0x%02x", region, i,
				bytes[i], pattern(state->seed, region, i));
}

void state_expect(const struct state *state, gpusnap_region_state expected)
{
	for (size_t r = 0; r < STATE_REGIONS; r++)
		ck_assert_msg(state_info(state, r).state == expected, "region %zu is %s, not %s", r,
			gpusnap_region_state_name(state_info(state, r).state),
			gpusnap_region_state_name(expected));
}

static void open_region(struct state *state, size_t r, const gpusnap_region_options *region_options)
{
	gpusnap_region_options region = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
	uint64_t size = STATE_BUFFER_BYTES;
	gpusnap_error err;

	if (region_options)
		region = *region_options;
	region.tag = tags[r];
	ck_ok(gpusnap_region_reserve(
		state->registry, STATE_REGION_BYTES, &region, &state->regions[r], &err));
	ck_assert_uint_eq(state_info(state, r).bytes, STATE_REGION_BYTES);
	buffer.name = names[r];
	buffer.dtype = GPUSNAP_U8;
	buffer.rank = 1;
	buffer.shape = &size;
	buffer.region = state->regions[r];
	buffer.offset = STATE_BUFFER_OFFSET;
	ck_ok(gpusnap_buffer_register(state->registry, &buffer, &err));
	state->buffers[r] = names[r];
}

void state_open(struct state *state, const gpusnap_registry_options *registry_options,
	const gpusnap_region_options *region_options)
{
	gpusnap_error err;

	memset(state, 0, sizeof *state);
	faulty_open(&state->faulty, test_device());
	ck_ok(gpusnap_registry_create(
		&state->faulty.device, registry_options, &state->registry, &err));
	for (size_t r = 0; r < STATE_REGIONS; r++)
		open_region(state, r, region_options);
	state_fill(state, 1);
}

void state_close(struct state *state)
{
	gpusnap_registry_free(state->registry);
	ck_assert_uint_eq(state->faulty.pinned_blocks, 0);
	ck_assert_uint_eq(state->faulty.mapped_bytes, 0);
	faulty_close(&state->faulty);
}
