/* SPDX-License-Identifier: Apache-2.0 */
/* A program of somebody else: built against the installed headers and library, by pkg-config. */
#include <gpusnap/agent.h>
#include <gpusnap/dispatch.h>
#include <gpusnap/loader.h>
#include <gpusnap/registry.h>
#include <gpusnap/snapshot.h>

int main(void)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_registry *registry = NULL;
	gpusnap_device *device = NULL;
	gpusnap_error err;
	uint32_t region;

	options.tag = "weights";
	if (gpusnap_device_open("host", &device, &err) ||
		gpusnap_registry_create(device, NULL, &registry, &err) ||
		gpusnap_region_reserve(registry, 4096, &options, &region, &err))
		return 1;
	gpusnap_registry_free(registry);
	gpusnap_device_close(device);
	return 0;
}
