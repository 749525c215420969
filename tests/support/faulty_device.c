/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream operations do not say which device they belong to, so the one faulty device is a global;
 * Check runs every test in a process of its own.
 */
#include "tests/support/faulty_device.h"

#include <string.h>

#include "formats/base/fail.h"
#include "tests/support/suite.h"

static struct faulty_device *active;

const char *faulty_call_name(enum faulty_call call)
{
	static const char *const names[] = {"query", "reserve", "map", "unmap", "pinned_alloc",
		"pin", "stream_create", "stream_sync", "event_create", "event_record",
		"stream_wait", "copy", "fill", "digest"};

	return call < FAULTY_CALLS ? names[call] : "any";
}

void faulty_arm(
	struct faulty_device *faulty, enum faulty_call call, unsigned n, gpusnap_status status)
{
	faulty->fail_call = call;
	faulty->fail_in = n;
	faulty->fail_status = status;
	faulty->stays_failing = faulty->for_ever = false;
}

void faulty_arm_for_ever(
	struct faulty_device *faulty, enum faulty_call call, unsigned n, gpusnap_status status)
{
	faulty_arm(faulty, call, n, status);
	faulty->for_ever = true;
}

bool faulty_is_armed(const struct faulty_device *faulty)
{
	return faulty->fail_in > 0;
}

/* Count a call; the armed one fails instead of reaching the device. */
static gpusnap_status enter(enum faulty_call call, gpusnap_error *err)
{
	active->calls[call]++;
	active->all_calls++;
	if (active->fail_call != call && active->fail_call != FAULTY_ANY)
		return GPUSNAP_OK;
	if (active->fail_in == 0 && !active->stays_failing)
		return GPUSNAP_OK;
	if (active->fail_in > 0 && --active->fail_in > 0)
		return GPUSNAP_OK;
	active->stays_failing = active->for_ever;
	return gsn_fail(err, active->fail_status, "injected failure of %s", faulty_call_name(call));
}

static gpusnap_status query(void *context, gpusnap_device_properties *ret, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_QUERY, err);

	return s ? s : active->inner->ops->query(context, ret, err);
}

static gpusnap_status reserve(
	void *context, uint64_t bytes, gpusnap_address *ret_address, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_RESERVE, err);

	return s ? s : active->inner->ops->reserve(context, bytes, ret_address, err);
}

static gpusnap_status map(
	void *context, gpusnap_address address, uint64_t bytes, uint8_t fill, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_MAP, err);

	if (!s)
		s = active->inner->ops->map(context, address, bytes, fill, err);
	if (!s)
		active->mapped_bytes += bytes;
	return s;
}

static gpusnap_status unmap(
	void *context, gpusnap_address address, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_UNMAP, err);

	if (!s)
		s = active->inner->ops->unmap(context, address, bytes, err);
	if (!s)
		active->mapped_bytes -= bytes;
	return s;
}

static gpusnap_status pinned_alloc(
	void *context, uint64_t bytes, void **ret_memory, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_PINNED_ALLOC, err);

	if (!s)
		s = active->inner->ops->pinned_alloc(context, bytes, ret_memory, err);
	active->pinned_blocks += s == GPUSNAP_OK;
	return s;
}

static void pinned_free(void *context, void *memory, uint64_t bytes)
{
	active->pinned_blocks--;
	active->inner->ops->pinned_free(context, memory, bytes);
}

static gpusnap_status pin(void *context, void *memory, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_PIN, err);

	if (!s)
		s = active->inner->ops->pin(context, memory, bytes, err);
	active->pinned_blocks += s == GPUSNAP_OK;
	return s;
}

static void unpin(void *context, void *memory, uint64_t bytes)
{
	active->pinned_blocks--;
	active->inner->ops->unpin(context, memory, bytes);
}

static gpusnap_status stream_create(void *context, struct gsn_stream **ret, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_STREAM_CREATE, err);

	return s ? s : active->inner->ops->stream_create(context, ret, err);
}

/* Also one that fails has waited: work must not go on in memory that the caller then frees. */
static gpusnap_status stream_sync(struct gsn_stream *stream, gpusnap_error *err)
{
	gpusnap_status waited = active->inner->ops->stream_sync(stream, err);
	gpusnap_status s = enter(FAULTY_STREAM_SYNC, err);

	return s ? s : waited;
}

static gpusnap_status event_create(void *context, struct gsn_event **ret, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_EVENT_CREATE, err);

	return s ? s : active->inner->ops->event_create(context, ret, err);
}

static gpusnap_status event_record(
	struct gsn_event *event, struct gsn_stream *stream, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_EVENT_RECORD, err);

	return s ? s : active->inner->ops->event_record(event, stream, err);
}

static gpusnap_status stream_wait(
	struct gsn_stream *stream, struct gsn_event *event, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_STREAM_WAIT, err);

	return s ? s : active->inner->ops->stream_wait(stream, event, err);
}

/* Flip the lowest bit of the middle byte of what a copy has written. */
static gpusnap_status damage(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = active->inner->ops;
	uint64_t at = dst + bytes / 2;
	uint8_t byte;
	gpusnap_status s = ops->stream_sync(stream, err);

	if (!s && direction == GSN_DEVICE_TO_HOST) {
		*(uint8_t *)(uintptr_t)at ^= 1;
		return GPUSNAP_OK;
	}
	if (!s)
		s = ops->copy(stream, GSN_DEVICE_TO_HOST, (uintptr_t)&byte, at, 1, err);
	if (!s)
		s = ops->stream_sync(stream, err);
	if (s)
		return s;
	byte ^= 1;
	s = ops->copy(stream, GSN_HOST_TO_DEVICE, at, (uintptr_t)&byte, 1, err);
	return s ? s : ops->stream_sync(stream, err);
}

static bool is_damaged(void)
{
	if (active->corrupt_in == 0)
		return false;
	if (--active->corrupt_in > 0)
		return false;
	if (active->corrupt_again > 0) {
		active->corrupt_again--;
		active->corrupt_in = 1;
	}
	return true;
}

static gpusnap_status copy(struct gsn_stream *stream, enum gsn_copy_direction direction,
	uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_COPY, err);

	if (!s)
		s = active->inner->ops->copy(stream, direction, dst, src, bytes, err);
	if (s)
		return s;
	active->copied_bytes[direction] += bytes;
	return is_damaged() ? damage(stream, direction, dst, bytes, err) : GPUSNAP_OK;
}

static gpusnap_status fill(struct gsn_stream *stream, gpusnap_address address, uint8_t value,
	uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_FILL, err);

	return s ? s : active->inner->ops->fill(stream, address, value, bytes, err);
}

static gpusnap_status digest(struct gsn_stream *stream, const struct gsn_leaf_range *ranges,
	size_t range_count, gpusnap_error *err)
{
	gpusnap_status s = enter(FAULTY_DIGEST, err);

	return s ? s : active->inner->ops->digest(stream, ranges, range_count, err);
}

void faulty_open(struct faulty_device *faulty, const char *name)
{
	gpusnap_error err;

	ck_assert_ptr_null(active);
	memset(faulty, 0, sizeof *faulty);
	ck_ok(gpusnap_device_open(name, &faulty->inner, &err));
	faulty->device = *faulty->inner;
	faulty->ops = *faulty->inner->ops;
	faulty->ops.query = query;
	faulty->ops.reserve = reserve;
	faulty->ops.map = map;
	faulty->ops.unmap = unmap;
	faulty->ops.pinned_alloc = pinned_alloc;
	faulty->ops.pinned_free = pinned_free;
	faulty->ops.pin = pin;
	faulty->ops.unpin = unpin;
	faulty->ops.stream_create = stream_create;
	faulty->ops.stream_sync = stream_sync;
	faulty->ops.event_create = event_create;
	faulty->ops.event_record = event_record;
	faulty->ops.stream_wait = stream_wait;
	faulty->ops.copy = copy;
	faulty->ops.fill = fill;
	faulty->ops.digest = digest;
	faulty->device.ops = &faulty->ops;
	active = faulty;
}

void faulty_close(struct faulty_device *faulty)
{
	gpusnap_device_close(faulty->inner);
	active = NULL;
}
