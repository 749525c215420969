/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_DEVICE_FIXTURE_H
#define GPUSNAP_TEST_DEVICE_FIXTURE_H
/*
 * The device under test. Each test opens it on its own, since a GPU context does not survive the
 * fork that Check makes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpusnap/device.h>

#include "kernels/device_calls.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

struct fixture {
	gpusnap_device *device;
	const struct gsn_device_ops *ops;
	void *context;
	uint64_t granule;
};

static inline struct fixture fixture_open(const char *name)
{
	struct fixture f = {NULL};
	gpusnap_device_properties properties;
	gpusnap_error err;

	ck_ok(gpusnap_device_open(name, &f.device, &err));
	ck_ok(gpusnap_device_query(f.device, &properties, &err));
	f.ops = f.device->ops;
	f.context = f.device->context;
	f.granule = properties.granule_bytes;
	return f;
}

static inline void fixture_close(struct fixture *f)
{
	gpusnap_device_close(f->device);
}

/* Sizes of address ranges are in granules. */
static inline gpusnap_address reserve(struct fixture *f, uint64_t granules)
{
	gpusnap_address address = 0;
	gpusnap_error err;

	ck_ok(f->ops->reserve(f->context, granules * f->granule, &address, &err));
	ck_assert_uint_ne(address, 0);
	ck_assert_uint_eq(address % f->granule, 0);
	return address;
}

static inline void map(struct fixture *f, gpusnap_address address, uint64_t granules)
{
	gpusnap_error err;

	ck_ok(f->ops->map(f->context, address, granules * f->granule, 0, &err));
}

static inline void unmap(struct fixture *f, gpusnap_address address, uint64_t granules)
{
	gpusnap_error err;

	ck_ok(f->ops->unmap(f->context, address, granules * f->granule, &err));
}

static inline void release(struct fixture *f, gpusnap_address address, uint64_t granules)
{
	f->ops->release(f->context, address, granules * f->granule);
}

/* Device memory of at least `bytes`, zero; given back by closing the device. */
static inline gpusnap_address device_memory(struct fixture *f, uint64_t bytes)
{
	uint64_t granules = bytes / f->granule + 1;
	gpusnap_address address = reserve(f, granules);

	map(f, address, granules);
	return address;
}

static inline struct gsn_stream *new_stream(struct fixture *f)
{
	struct gsn_stream *stream = NULL;
	gpusnap_error err;

	ck_ok(f->ops->stream_create(f->context, &stream, &err));
	return stream;
}

static inline struct gsn_event *new_event(struct fixture *f)
{
	struct gsn_event *event = NULL;
	gpusnap_error err;

	ck_ok(f->ops->event_create(f->context, &event, &err));
	return event;
}

static inline uint8_t *host_memory(uint64_t bytes)
{
	uint8_t *memory = calloc(1, bytes + 1);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static inline void put(struct fixture *f, gpusnap_address to, const void *from, uint64_t bytes)
{
	gpusnap_error err;

	ck_ok(gsn_device_copy_sync(
		f->device, GSN_HOST_TO_DEVICE, to, gsn_host_address(from), bytes, &err));
}

static inline void get(struct fixture *f, void *to, gpusnap_address from, uint64_t bytes)
{
	gpusnap_error err;

	ck_ok(gsn_device_copy_sync(
		f->device, GSN_DEVICE_TO_HOST, gsn_host_address(to), from, bytes, &err));
}

static inline void ck_same(const uint8_t *got, const uint8_t *expected, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (got[i] != expected[i])
			ck_abort_msg("byte %" PRIu64 " of %" PRIu64 " is 0x%02x, not 0x%02x", i,
				bytes, got[i], expected[i]);
}

/* The device's bytes are those of `expected`. */
static inline void ck_device_holds(
	struct fixture *f, gpusnap_address address, const void *expected, uint64_t bytes)
{
	uint8_t *got = host_memory(bytes);

	get(f, got, address, bytes);
	ck_same(got, expected, bytes);
	free(got);
}

static inline void ck_filled(const uint8_t *got, uint8_t value, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (got[i] != value)
			ck_abort_msg("byte %" PRIu64 " of %" PRIu64 " is 0x%02x, not 0x%02x", i,
				bytes, got[i], value);
}

static inline void ck_device_filled(
	struct fixture *f, gpusnap_address address, uint8_t value, uint64_t bytes)
{
	uint8_t *got = host_memory(bytes);

	get(f, got, address, bytes);
	ck_filled(got, value, bytes);
	free(got);
}

/* A child asks whether the device is there, so that this process makes no GPU context. */
static inline bool device_is_there(const char *name)
{
	pid_t child = fork();
	int state = 0;

	if (child == 0) {
		gpusnap_device *device;
		gpusnap_error err;
		gpusnap_status status = gpusnap_device_open(name, &device, &err);

		if (status == GPUSNAP_E_NODEV)
			(void)fprintf(stderr, "skipped: %s\n", err.message);
		_exit(status == GPUSNAP_E_NODEV ? 77 : 0);
	}
	if (child < 0 || waitpid(child, &state, 0) != child)
		abort();
	return !WIFEXITED(state) || WEXITSTATUS(state) != 77;
}

#endif
