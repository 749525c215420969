/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_DEVICE_SUPPORT_H
#define GPUSNAP_TEST_DEVICE_SUPPORT_H
/* The device under test, opened by each test on its own (a GPU context does not survive a fork). */
#include <string.h>

#include <gpusnap/device.h>

#include "kernels/device_calls.h"
#include "tests/support/suite.h"

struct fixture {
	gpusnap_device *device;
	const struct gsn_device_ops *ops;
	void *context;
	uint64_t granule;
};

static const char *device_name = "host";

static struct fixture open_fixture(void)
{
	struct fixture f = {NULL};
	gpusnap_device_properties properties;
	gpusnap_error err;

	ck_ok(gpusnap_device_open(device_name, &f.device, &err));
	ck_ok(gpusnap_device_query(f.device, &properties, &err));
	f.ops = f.device->ops;
	f.context = f.device->context;
	f.granule = properties.granule_bytes;
	return f;
}

static void close_fixture(struct fixture *f)
{
	gpusnap_device_close(f->device);
}

/* Sizes in granules. */
static gpusnap_address reserve(struct fixture *f, uint64_t granules)
{
	gpusnap_address address = 0;
	gpusnap_error err;

	ck_ok(f->ops->reserve(f->context, granules * f->granule, &address, &err));
	ck_assert_uint_eq(address % f->granule, 0);
	return address;
}

static void map(struct fixture *f, gpusnap_address address, uint64_t granules)
{
	gpusnap_error err;

	ck_ok(f->ops->map(f->context, address, granules * f->granule, &err));
}

static void unmap(struct fixture *f, gpusnap_address address, uint64_t granules)
{
	gpusnap_error err;

	ck_ok(f->ops->unmap(f->context, address, granules * f->granule, &err));
}

/* Device memory copied to the heap; free() it. */
static uint8_t *fetch(struct fixture *f, gpusnap_address address, uint64_t bytes)
{
	uint8_t *copy = malloc(bytes + 1);
	gpusnap_error err;

	ck_assert_ptr_nonnull(copy);
	ck_ok(gsn_device_copy_sync(
		f->device, GSN_DEVICE_TO_HOST, gsn_host_address(copy), address, bytes, &err));
	return copy;
}

static void ck_assert_filled(
	struct fixture *f, gpusnap_address address, uint64_t bytes, uint8_t value)
{
	uint8_t *copy = fetch(f, address, bytes);

	for (uint64_t i = 0; i < bytes; i++)
		if (copy[i] != value)
			ck_abort_msg("byte %" PRIu64 " is 0x%02x, not 0x%02x", i, copy[i], value);
	free(copy);
}

/* The device to test is the program's argument; the program ends with 77 when it is not there. */
static void choose_device(int argc, char **argv)
{
	if (argc > 1)
		device_name = argv[1];
}

#endif
