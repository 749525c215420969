/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include <gpusnap/digest.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "kernels/device_ops.h"
#include "kernels/pool.h"
#include "tools/ceiling.h"

enum { READ_BYTES = 128 << 10, AHEAD = 8 << 10, ROUNDS_LEAST = 3 };

/* Links that have been idle take a quarter of a second to come up to speed. */
static const double seconds_least = 0.4;

#define LINK_BYTES   ((uint64_t)256 << 20)
#define MEMORY_BYTES ((uint64_t)1 << 30)

/* Two ends of copies and the stream they go through. */
struct ends {
	const gpusnap_device *device;
	uint64_t bytes;	       /* of each end, whole granules */
	gpusnap_address at[2]; /* the second one only where both are the device's */
	void *pinned;
	struct gsn_stream *stream;
};

static gpusnap_status take_memory(struct ends *ends, int i, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = ends->device->ops;
	gpusnap_status s = ops->reserve(ends->device->context, ends->bytes, &ends->at[i], err);

	if (!s)
		s = ops->map(ends->device->context, ends->at[i], ends->bytes, 1, err);
	return s;
}

static void ends_close(struct ends *ends)
{
	const struct gsn_device_ops *ops = ends->device->ops;

	ops->stream_destroy(ends->stream);
	for (int i = 0; i < 2; i++)
		if (ends->at[i])
			ops->release(ends->device->context, ends->at[i], ends->bytes);
	if (ends->pinned)
		ops->pinned_free(ends->device->context, ends->pinned, ends->bytes);
}

static gpusnap_status ends_open(struct ends *ends, const gpusnap_device *device, uint64_t bytes,
	bool link, gpusnap_error *err)
{
	gpusnap_device_properties properties;
	gpusnap_status s = device->ops->query(device->context, &properties, err);

	*ends = (struct ends){.device = device};
	if (s)
		return s;
	ends->bytes = gsn_align_up(bytes, properties.granule_bytes);
	s = device->ops->stream_create(device->context, &ends->stream, err);
	if (!s)
		s = take_memory(ends, 0, err);
	if (!s && !link)
		s = take_memory(ends, 1, err);
	if (!s && link)
		s = device->ops->pinned_alloc(device->context, ends->bytes, &ends->pinned, err);
	if (s)
		ends_close(ends);
	return s;
}

/* The best of as many copies as there is time for. */
static gpusnap_status copy_rate(struct ends *ends, enum gsn_copy_direction direction, uint64_t to,
	uint64_t from, double *ret_rate, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = ends->device->ops;
	double begun = gsn_clock_seconds(), now = begun, best = 0;

	for (int i = 0; i < ROUNDS_LEAST || now - begun < seconds_least; i++) {
		double start = gsn_clock_seconds(), rate;
		gpusnap_status s = ops->copy(ends->stream, direction, to, from, ends->bytes, err);

		if (!s)
			s = ops->stream_sync(ends->stream, err);
		if (s)
			return s;
		now = gsn_clock_seconds();
		rate = (double)ends->bytes / (now - start);
		best = rate > best ? rate : best;
	}
	*ret_rate = best;
	return GPUSNAP_OK;
}

gpusnap_status ceiling_link(
	const gpusnap_device *device, bool to_device, double *ret_rate, gpusnap_error *err)
{
	struct ends ends;
	gpusnap_status s = ends_open(&ends, device, LINK_BYTES, true, err);
	uint64_t host;

	if (s)
		return s;
	host = (uint64_t)(uintptr_t)ends.pinned;
	s = to_device ? copy_rate(&ends, GSN_HOST_TO_DEVICE, ends.at[0], host, ret_rate, err)
		      : copy_rate(&ends, GSN_DEVICE_TO_HOST, host, ends.at[0], ret_rate, err);
	ends_close(&ends);
	return s;
}

/* ---- memory that the host addresses ---- */

struct reading {
	const uint8_t *bytes;
	atomic_uint_fast64_t sum; /* what was read must be used */
};

static void read_block(void *argument, uint64_t task)
{
	typedef uint64_t wide __attribute__((vector_size(64)));
	struct reading *reading = argument;
	const wide *lines = (const wide *)(const void *)(reading->bytes + task * READ_BYTES);
	wide sums[4] = {{0}};

	for (size_t i = 0; i < READ_BYTES / sizeof(wide); i += 4)
		for (size_t k = 0; k < 4; k++) {
			__builtin_prefetch((const uint8_t *)(lines + i + k) + AHEAD);
			sums[k] ^= lines[i + k];
		}
	sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
	atomic_fetch_add_explicit(&reading->sum, sums[0][0], memory_order_relaxed);
}

static void digest_block(void *argument, uint64_t task)
{
	struct reading *reading = argument;
	gpusnap_digest digest = gpusnap_digest_of(reading->bytes + task * READ_BYTES, READ_BYTES);

	atomic_fetch_add_explicit(
		&reading->sum, gpusnap_digest_is_zero(digest), memory_order_relaxed);
}

static double reading_rate(const struct ends *ends, gsn_pool_fn function, struct gsn_pool *pool)
{
	struct reading reading = {.bytes = (const uint8_t *)(uintptr_t)ends->at[0]};
	double begun = gsn_clock_seconds(), now = begun, best = 0;

	for (int i = 0; i < ROUNDS_LEAST || now - begun < seconds_least; i++) {
		double start = gsn_clock_seconds(), rate;

		gsn_pool_run(pool, function, &reading, ends->bytes / READ_BYTES);
		now = gsn_clock_seconds();
		rate = (double)ends->bytes / (now - start);
		best = rate > best ? rate : best;
	}
	return best;
}

gpusnap_status ceiling_digest(
	const gpusnap_device *device, struct gsn_pool *pool, double *ret_rate, gpusnap_error *err)
{
	struct ends ends;
	gpusnap_status s = ends_open(&ends, device, MEMORY_BYTES, false, err);

	if (s)
		return s;
	*ret_rate = reading_rate(&ends, digest_block, pool);
	ends_close(&ends);
	return GPUSNAP_OK;
}

gpusnap_status ceiling_memory(
	const gpusnap_device *device, struct gsn_pool *pool, double *ret_rate, gpusnap_error *err)
{
	bool host = device->ops->caps & GSN_CAP_HOST_ADDRESSABLE;
	struct ends ends;
	gpusnap_status s = ends_open(&ends, device, MEMORY_BYTES, false, err);

	if (s)
		return s;
	if (host) {
		*ret_rate = reading_rate(&ends, read_block, pool);
	} else {
		s = copy_rate(&ends, GSN_DEVICE_TO_DEVICE, ends.at[1], ends.at[0], ret_rate, err);
		if (!s)
			*ret_rate *= 2;
	}
	ends_close(&ends);
	return s;
}
