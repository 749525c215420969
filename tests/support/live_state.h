/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_LIVE_STATE_H
#define GPUSNAP_TEST_LIVE_STATE_H
/*
 * Registries with content, for tests of whatever moves content: made from a seed, and remembered,
 * so that what comes back can be compared byte by byte. Host memory only (any device whose
 * addresses are host pointers). What goes wrong aborts: only the test itself can be at fault.
 */
#include <gpusnap/registry.h>

struct live_state {
	gpusnap_registry *registry;
	uint32_t region_count;
	uint8_t **images; /* of each region, as it was when remembered */
};

/*
 * A registry with 1 to 4 regions of policy keep, in each of them buffers of awkward sizes (empty,
 * one byte, around the leaf size) with gaps between, all bytes random. The same seed gives the
 * same.
 */
void live_random(struct live_state *state, gpusnap_device *device, uint64_t seed);
/* An empty registry. */
void live_open(struct live_state *state, gpusnap_device *device);
void live_close(struct live_state *state);

/* Add a region of random bytes. */
uint32_t live_region(struct live_state *state, const char *tag, uint64_t bytes,
	gpusnap_policy policy, uint64_t *random);
/* Add a U8 buffer. */
void live_buffer(struct live_state *state, const char *name, uint32_t region, uint64_t offset,
	uint64_t bytes);
uint8_t *live_bytes(const gpusnap_registry *registry, uint32_t position);
/* Take what all regions hold now as what they should hold. */
void live_remember(struct live_state *state);
/* True when `registry` holds, region by region, what `state` remembers. */
bool live_equals(const struct live_state *state, const gpusnap_registry *registry);
/* Overwrite every byte of every region. */
void live_scribble(const gpusnap_registry *registry);

#endif
