/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in's knobs and counts, devices, and which memory is whose. */
#include "tests/fake/fake_state.h"

#include <stdlib.h>
#include <string.h>

#include <gpusnap/status.h>

struct fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local int current_device;
static _Thread_local gpuError_t last_code;

void fake_lock(void)
{
	(void)pthread_mutex_lock(&fake.lock);
}

void fake_unlock(void)
{
	(void)pthread_mutex_unlock(&fake.lock);
}

static bool is_to_fail(const char *name)
{
	struct fake_knobs *knobs = &fake.knobs;

	if (knobs->fail_in == 0 || (knobs->fail_name && strcmp(knobs->fail_name, name) != 0))
		return false;
	if (knobs->fail_in > 1) {
		knobs->fail_in--;
		return false;
	}
	if (!knobs->fail_on)
		knobs->fail_in = 0;
	return true;
}

gpuError_t fake_enter(const char *name)
{
	fake_lock();
	fake.counts.calls++;
	if (fake.knobs.no_driver)
		return (gpuError_t)gpuErrorInsufficientDriver;
	if (!is_to_fail(name))
		return (gpuError_t)gpuSuccess;
	fake.counts.failed++;
	fake.counts.last_call = name;
	return (gpuError_t)(fake.knobs.fail_code ? fake.knobs.fail_code
						 : (int)gpuErrorInvalidValue);
}

gpuError_t fake_leave(gpuError_t code)
{
	fake_unlock();
	if (code)
		last_code = code;
	return code;
}

/* Never fails: it answers what another call has answered. */
gpuError_t gpuClearError(void)
{
	gpuError_t code = last_code;

	last_code = (gpuError_t)gpuSuccess;
	return code;
}

const char *gpuErrorName(gpuError_t code)
{
	return (int)code == gpuErrorMemoryAllocation ? "fakeErrorMemoryAllocation" : "fakeError";
}

const char *gpuErrorString(gpuError_t code)
{
	return (int)code == gpuErrorMemoryAllocation ? "out of memory" : "the stand-in refuses";
}

uint32_t fake_device_count(void)
{
	return fake.knobs.devices ? fake.knobs.devices : 2;
}

int fake_current_device(void)
{
	return current_device;
}

int fake_physical(int device)
{
	return fake.knobs.permuted ? (int)fake_device_count() - 1 - device : device;
}

uint64_t fake_memory(void)
{
	return fake.knobs.memory ? fake.knobs.memory : UINT64_C(16) << 30;
}

gpuError_t gpuGetDeviceCount(int *count)
{
	gpuError_t code = fake_enter("gpuGetDeviceCount");

	if (!code)
		*count = (int)fake_device_count();
	return fake_leave(code);
}

gpuError_t gpuGetDevice(int *device)
{
	gpuError_t code = fake_enter("gpuGetDevice");

	if (!code)
		*device = current_device;
	return fake_leave(code);
}

gpuError_t gpuSetDevice(int device)
{
	gpuError_t code = fake_enter("gpuSetDevice");

	if (!code && (device < 0 || device >= (int)fake_device_count()))
		code = (gpuError_t)gpuErrorInvalidValue;
	if (!code)
		current_device = device;
	return fake_leave(code);
}

gpuError_t gpuMemGetInfo(size_t *available, size_t *total)
{
	gpuError_t code = fake_enter("gpuMemGetInfo");
	int device = fake_physical(current_device);
	uint64_t gone = fake.used[device] + fake.kept[device] + fake.knobs.occupied;

	if (!code) {
		*total = fake_memory();
		*available = gone < fake_memory() ? fake_memory() - gone : 0;
	}
	return fake_leave(code);
}

gpuError_t fake_take_memory(int device, uint64_t bytes)
{
	uint64_t gone = fake.used[device] + fake.knobs.occupied;

	if (gone > fake_memory() || bytes > fake_memory() - gone)
		return (gpuError_t)gpuErrorMemoryAllocation;
	fake.used[device] += bytes;
	return (gpuError_t)gpuSuccess;
}

void fake_give_memory(int device, uint64_t bytes)
{
	fake.used[device] -= bytes;
	if (fake.knobs.keeps_freed)
		fake.kept[device] += bytes;
}

static uint32_t *count_of(enum fake_kind kind)
{
	switch (kind) {
	case FAKE_RESERVATION:
		return &fake.counts.reservations;
	case FAKE_MAP:
		return &fake.counts.maps;
	case FAKE_REGISTRATION:
		return &fake.counts.registrations;
	default:
		return &fake.counts.blocks;
	}
}

struct fake_range *fake_add(enum fake_kind kind, uint64_t address, uint64_t bytes)
{
	struct fake_range *range = calloc(1, sizeof *range);

	if (!range)
		abort();
	range->kind = kind;
	range->address = address;
	range->bytes = bytes;
	range->next = fake.ranges;
	fake.ranges = range;
	++*count_of(kind);
	return range;
}

void fake_remove(struct fake_range *range)
{
	struct fake_range **at = &fake.ranges;

	while (*at != range)
		at = &(*at)->next;
	*at = range->next;
	--*count_of(range->kind);
	free(range);
}

struct fake_range *fake_find(enum fake_kind kind, uint64_t address)
{
	struct fake_range *range = fake.ranges;

	while (range && (range->kind != kind || range->address != address))
		range = range->next;
	return range;
}

struct fake_range *fake_holder(enum fake_kind kind, uint64_t address, uint64_t bytes)
{
	struct fake_range *range = fake.ranges;

	while (range && (range->kind != kind || address < range->address ||
				address + bytes > range->address + range->bytes))
		range = range->next;
	return range;
}

/* Whether a map that is open holds the whole part of the reservation that is asked for. */
static bool is_mapped(uint64_t begin, uint64_t end)
{
	while (begin < end) {
		const struct fake_range *map = fake_holder(FAKE_MAP, begin, 1);

		if (!map || !map->open)
			return false;
		begin = map->address + map->bytes;
	}
	return true;
}

/* Memory that the runtime does not know is the process's own, which GPUs with page faults reach. */
bool fake_is_device(uint64_t address, uint64_t bytes)
{
	for (const struct fake_range *range = fake.ranges; range; range = range->next) {
		uint64_t end = range->address + range->bytes;

		if (range->kind != FAKE_RESERVATION || address >= end ||
			range->address >= address + bytes)
			continue;
		if (!is_mapped(address > range->address ? address : range->address,
			    address + bytes < end ? address + bytes : end))
			return false;
	}
	return true;
}

static void set_knobs(const struct fake_knobs *knobs)
{
	fake_lock();
	memset(&fake.knobs, 0, sizeof fake.knobs);
	if (knobs)
		fake.knobs = *knobs;
	fake.counts.calls = 0;
	fake.counts.failed = 0;
	fake.counts.last_call = NULL;
	fake_unlock();
}

static struct fake_counts get_counts(void)
{
	struct fake_counts counts;

	fake_lock();
	counts = fake.counts;
	fake_unlock();
	return counts;
}

static void fail_elsewhere(void)
{
	last_code = (gpuError_t)gpuErrorInvalidValue;
}

GPUSNAP_API const struct fake_gpu *gpusnap_fake_gpu(void);

const struct fake_gpu *gpusnap_fake_gpu(void)
{
	static const struct fake_gpu control = {set_knobs, get_counts, fail_elsewhere};

	return &control;
}
