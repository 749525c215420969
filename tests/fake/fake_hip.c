/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points that only HIP spells this way. */
#include <stdio.h>
#include <string.h>

#include "tests/fake/fake_state.h"

struct host_function {
	void (*run)(void *);
	void *argument;
};

static gpuError_t do_host_function(void *args)
{
	const struct host_function function = *(struct host_function *)args;

	function.run(function.argument);
	return hipSuccess;
}

static hipError_t launch_host_function(hipStream_t stream, void (*run)(void *), void *argument)
{
	const struct host_function function = {run, argument};
	hipError_t code = fake_enter("gpuLaunchHostFunc");

	return fake_leave(
		code ? code : fake_submit(stream, do_host_function, &function, sizeof function));
}

struct callback {
	hipStream_t stream;
	hipStreamCallback_t run;
	void *argument;
};

static gpuError_t do_callback(void *args)
{
	const struct callback callback = *(struct callback *)args;

	callback.run(callback.stream, hipSuccess, callback.argument);
	return hipSuccess;
}

/* Callbacks are called whatever has failed in front of them. */
hipError_t hipStreamAddCallback(
	hipStream_t stream, hipStreamCallback_t run, void *argument, unsigned flags)
{
	const struct callback callback = {stream, run, argument};
	hipError_t code = fake_enter("gpuLaunchHostFunc");

	(void)flags;
	return fake_leave(
		code ? code : fake_submit_always(stream, do_callback, &callback, sizeof callback));
}

hipError_t hipRuntimeGetVersion(int *version)
{
	fake_lock();
	*version = fake.knobs.old_runtime ? 50221153 : 60443484;
	fake_unlock();
	return hipSuccess;
}

hipError_t hipDeviceGetName(char *name, int bytes, hipDevice_t device)
{
	hipError_t code = fake_enter("gpuDeviceName");

	if (!code)
		(void)snprintf(name, (size_t)bytes, "stand-in %d", fake_physical(device));
	return fake_leave(code);
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device)
{
	hipError_t code = fake_enter("gpuMultiprocessors");

	(void)device;
	if (!code && attribute != hipDeviceAttributeMultiprocessorCount)
		code = hipErrorInvalidValue;
	if (!code)
		*value = 4;
	return fake_leave(code);
}

static hipError_t reserve(
	void **address, size_t bytes, size_t alignment, void *where, unsigned long long flags)
{
	hipError_t code = fake_enter("gpuMemReserve");
	uint64_t got = 0;

	(void)where;
	(void)flags;
	if (!code)
		code = fake_vm_reserve(bytes, alignment, &got);
	if (!code)
		*address = (void *)(uintptr_t)got;
	return fake_leave(code);
}

static hipError_t release_range(void *address, size_t bytes)
{
	hipError_t code = fake_enter("gpuMemFree");
	hipError_t done = fake_vm_free((uintptr_t)address, bytes);

	return fake_leave(code ? code : done);
}

/* The order of members as ROCm 6 has it; HIP 5.2's is in the headers that this is built with. */
struct properties_now {
	int type, handle_type;
	struct {
		int type, id;
	} location;
};

static hipError_t device_of(const void *properties, int *ret_device)
{
	const struct properties_now *now = properties;
	const hipMemAllocationProp *old = properties;

	if (fake.knobs.old_runtime) {
		*ret_device = old->location.id;
		return old->type == hipMemAllocationTypePinned &&
				       old->location.type == hipMemLocationTypeDevice
			       ? hipSuccess
			       : hipErrorInvalidValue;
	}
	*ret_device = now->location.id;
	return now->type == 1 && now->location.type == 1 ? hipSuccess : hipErrorInvalidValue;
}

static hipError_t create(
	void **handle, size_t bytes, const void *properties, unsigned long long flags)
{
	hipError_t code = fake_enter("gpuMemCreate");
	int device = 0;

	(void)flags;
	if (!code)
		code = device_of(properties, &device);
	return fake_leave(code ? code : fake_vm_create(device, bytes, handle));
}

static hipError_t release_handle(void *handle)
{
	hipError_t code = fake_enter("gpuMemRelease");
	hipError_t done = fake_vm_release(handle);

	return fake_leave(code ? code : done);
}

static hipError_t map(
	void *address, size_t bytes, size_t offset, void *handle, unsigned long long flags)
{
	hipError_t code = fake_enter("gpuMemMap");

	(void)offset;
	(void)flags;
	return fake_leave(code ? code : fake_vm_map((uintptr_t)address, bytes, handle));
}

static hipError_t allow(void *address, size_t bytes, const void *access, size_t count)
{
	const hipMemAccessDesc *desc = access;
	hipError_t code = fake_enter("gpuMemAllow");

	if (!code && (count != 1 || desc->flags != hipMemAccessFlagsProtReadWrite))
		code = hipErrorInvalidValue;
	return fake_leave(
		code ? code : fake_vm_allow(desc->location.id, (uintptr_t)address, bytes));
}

static hipError_t unmap(void *address, size_t bytes)
{
	hipError_t code = fake_enter("gpuMemUnmap");

	return fake_leave(code ? code : fake_vm_unmap((uintptr_t)address, bytes));
}

static hipError_t granularity(size_t *bytes, const void *properties, int flags)
{
	hipError_t code = fake_enter("gpuMemGranularity");
	int device;

	(void)flags;
	if (!code)
		code = device_of(properties, &device);
	if (!code)
		*bytes = FAKE_GRANULE;
	return fake_leave(code);
}

typedef void (*entry_function)(void);

static const struct entry {
	const char *name;
	entry_function function;
} entries[] = {
	{"hipLaunchHostFunc", (entry_function)launch_host_function},
	{"hipMemAddressReserve", (entry_function)reserve},
	{"hipMemAddressFree", (entry_function)release_range},
	{"hipMemCreate", (entry_function)create},
	{"hipMemRelease", (entry_function)release_handle},
	{"hipMemMap", (entry_function)map},
	{"hipMemSetAccess", (entry_function)allow},
	{"hipMemUnmap", (entry_function)unmap},
	{"hipMemGetAllocationGranularity", (entry_function)granularity},
};

/* The first one is what HIP before 5.3 lacks. */
void *gsn_hip_entry(const char *name)
{
	gpuError_t code = fake_enter("gpuEntryPoint");
	void *function = NULL;

	for (size_t i = fake.knobs.no_host_functions; i < sizeof entries / sizeof entries[0]; i++)
		if (!code && strcmp(entries[i].name, name) == 0)
			memcpy(&function, &entries[i].function, sizeof function);
	(void)fake_leave(code);
	return function;
}
