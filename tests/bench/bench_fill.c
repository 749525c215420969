/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/bench_fill.h"

#include <stdio.h>

#include "tests/support/random.h"

static gpusnap_status add_buffers(
	gpusnap_registry *registry, uint32_t region, uint64_t size, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (unsigned i = 0; !status && i < BENCH_BUFFERS; i++) {
		gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
		char name[32];

		(void)snprintf(name, sizeof name, "layers.%u.w", i);
		options.name = name;
		options.role = GPUSNAP_ROLE_WEIGHT;
		options.rank = 1;
		options.dtype = GPUSNAP_U8;
		options.shape = &size;
		options.region = region;
		options.offset = i * size;
		status = gpusnap_buffer_register(registry, &options, err);
	}
	return status;
}

gpusnap_status bench_fill(gpusnap_device *device, uint64_t bytes, uint64_t *random,
	gpusnap_registry **ret_registry, uint8_t **ret_bytes, gpusnap_error *err)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_region_info info;
	gpusnap_registry *registry = NULL;
	uint64_t *words;
	uint32_t id;
	gpusnap_status status = gpusnap_registry_create(device, NULL, &registry, err);

	options.tag = "weights";
	if (!status)
		status = gpusnap_region_reserve(registry, bytes, &options, &id, err);
	if (!status)
		status = gpusnap_region_get(registry, id, &info, err);
	if (!status)
		status = add_buffers(registry, id, bytes / BENCH_BUFFERS, err);
	if (status) {
		gpusnap_registry_free(registry);
		return status;
	}
	words = (uint64_t *)(uintptr_t)info.address;
	for (uint64_t i = 0; i < bytes / sizeof *words; i++)
		words[i] = random_u64(random);
	*ret_registry = registry;
	*ret_bytes = (uint8_t *)words;
	return GPUSNAP_OK;
}
