/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_STATE_FIXTURE_H
#define GPUSNAP_TEST_STATE_FIXTURE_H
/*
 * A small state on a faulty host device: two regions of three leaves each with a buffer of more
 * than a leaf in the middle, all bytes with a known pattern.
 */
#include <gpusnap/registry.h>

#include "tests/support/faulty_device.h"
#include "tests/support/suite.h"

enum {
	STATE_REGIONS = 2,
	STATE_REGION_BYTES = 3 * 65536,
	STATE_BUFFER_OFFSET = 1000,
	STATE_BUFFER_BYTES = 65536 + 17,
};

struct state {
	struct faulty_device faulty;
	gpusnap_registry *registry;
	uint32_t regions[STATE_REGIONS];    /* tags "first", "second" */
	const char *buffers[STATE_REGIONS]; /* "w0", "w1" */
	uint32_t seed;			    /* of the pattern, see state_fill() */
};

/* Options may be NULL; tags and sizes are the fixture's. */
void state_open(struct state *state, const gpusnap_registry_options *registry_options,
	const gpusnap_region_options *region_options);
void state_close(struct state *state);
/* Write the pattern of `seed` over all bytes, unclaimed ones included. */
void state_fill(struct state *state, uint32_t seed);
uint8_t *state_bytes(const struct state *state, size_t region);
/* Every byte of a resident region is the pattern's. */
void state_check(const struct state *state, size_t region);
/* Every region is in this state. */
void state_expect(const struct state *state, gpusnap_region_state expected);
gpusnap_region_info state_info(const struct state *state, size_t region);

#endif
