/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in's memory: reserved addresses, physical handles, blocks, page-locked host memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake/fake_state.h"

/* What memory holds when it is got: the bytes of whoever had it before. */
enum { STALE = 0xdb };

struct handle {
	uint64_t bytes;
	int device;
	bool mapped, released;
};

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static void drop_if_unused(struct handle *handle)
{
	if (handle->mapped || !handle->released)
		return;
	fake_give_memory(handle->device, handle->bytes);
	fake.counts.handles--;
	free(handle);
}

gpuError_t fake_vm_reserve(uint64_t bytes, uint64_t alignment, uint64_t *ret_address)
{
	uint64_t whole = bytes + alignment;
	void *base = whole < bytes ? MAP_FAILED
				   : mmap(NULL, whole, PROT_NONE,
					     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t address = ((uintptr_t)base + alignment - 1) / alignment * alignment;
	struct fake_range *range;

	if (base == MAP_FAILED)
		return (gpuError_t)gpuErrorMemoryAllocation;
	range = fake_add(FAKE_RESERVATION, address, bytes);
	range->owner = base;
	*ret_address = address;
	return (gpuError_t)gpuSuccess;
}

gpuError_t fake_vm_free(uint64_t address, uint64_t bytes)
{
	struct fake_range *range = fake_find(FAKE_RESERVATION, address);

	if (!range || range->bytes != bytes)
		return (gpuError_t)gpuErrorInvalidValue;
	(void)munmap(range->owner, bytes + FAKE_GRANULE);
	fake_remove(range);
	return (gpuError_t)gpuSuccess;
}

gpuError_t fake_vm_create(int device, uint64_t bytes, void **ret_handle)
{
	struct handle *handle;
	gpuError_t code;

	if (bytes == 0 || bytes % FAKE_GRANULE)
		return (gpuError_t)gpuErrorInvalidValue;
	if (fake.knobs.largest_handle && bytes > fake.knobs.largest_handle)
		return (gpuError_t)gpuErrorInvalidValue;
	code = fake_take_memory(fake_physical(device), bytes);
	if (code)
		return code;
	handle = calloc(1, sizeof *handle);
	if (!handle)
		abort();
	handle->bytes = bytes;
	handle->device = fake_physical(device);
	fake.counts.handles++;
	*ret_handle = handle;
	return (gpuError_t)gpuSuccess;
}

gpuError_t fake_vm_release(void *handle)
{
	struct handle *h = handle;

	if (!h || h->released)
		return (gpuError_t)gpuErrorInvalidValue;
	h->released = true;
	drop_if_unused(h);
	return (gpuError_t)gpuSuccess;
}

gpuError_t fake_vm_map(uint64_t address, uint64_t bytes, void *handle)
{
	struct handle *h = handle;
	struct fake_range *range;

	if (!h || h->mapped || h->bytes != bytes || !fake_holder(FAKE_RESERVATION, address, bytes))
		return (gpuError_t)gpuErrorInvalidValue;
	for (range = fake.ranges; range; range = range->next)
		if (range->kind == FAKE_MAP && address < range->address + range->bytes &&
			range->address < address + bytes)
			return (gpuError_t)gpuErrorInvalidValue;
	range = fake_add(FAKE_MAP, address, bytes);
	range->owner = h;
	h->mapped = true;
	return (gpuError_t)gpuSuccess;
}

/* Access is given to whole maps; the memory is there from then on. */
gpuError_t fake_vm_allow(int device, uint64_t address, uint64_t bytes)
{
	uint64_t at = address;

	while (at < address + bytes) {
		struct fake_range *range = fake_find(FAKE_MAP, at);

		if (!range || at + range->bytes > address + bytes ||
			((struct handle *)range->owner)->device != fake_physical(device))
			return (gpuError_t)gpuErrorInvalidValue;
		if (mmap(pointer(at), range->bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			return (gpuError_t)gpuErrorMemoryAllocation;
		memset(pointer(at), STALE, range->bytes);
		range->open = true;
		at += range->bytes;
	}
	return (gpuError_t)gpuSuccess;
}

/* As HIP has it: a map at a time. */
gpuError_t fake_vm_unmap(uint64_t address, uint64_t bytes)
{
	struct fake_range *range = fake_find(FAKE_MAP, address);
	struct handle *handle;

	if (!range || range->bytes != bytes)
		return (gpuError_t)gpuErrorInvalidValue;
	handle = range->owner;
	(void)mmap(pointer(address), bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	fake_remove(range);
	handle->mapped = false;
	drop_if_unused(handle);
	return (gpuError_t)gpuSuccess;
}

static gpuError_t take_block(enum fake_kind kind, void **memory, size_t bytes)
{
	int device = fake_physical(fake_current_device());
	gpuError_t code =
		kind == FAKE_BLOCK ? fake_take_memory(device, bytes) : (gpuError_t)gpuSuccess;
	void *block = code ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);

	if (code)
		return code;
	if (!block)
		abort();
	memset(block, STALE, bytes);
	fake_add(kind, (uintptr_t)block, bytes)->device = device;
	*memory = block;
	return (gpuError_t)gpuSuccess;
}

static gpuError_t give_block(enum fake_kind kind, void *memory)
{
	struct fake_range *range = fake_find(kind, (uintptr_t)memory);

	if (!range)
		return (gpuError_t)gpuErrorInvalidValue;
	if (kind == FAKE_BLOCK)
		fake_give_memory(range->device, range->bytes);
	fake_remove(range);
	free(memory);
	return (gpuError_t)gpuSuccess;
}

gpuError_t gpuMalloc(void **memory, size_t bytes)
{
	gpuError_t code = fake_enter("gpuMalloc");

	return fake_leave(code ? code : take_block(FAKE_BLOCK, memory, bytes));
}

gpuError_t gpuFree(void *memory)
{
	gpuError_t code = fake_enter("gpuFree");
	gpuError_t done = give_block(FAKE_BLOCK, memory);

	return fake_leave(code ? code : done);
}

gpuError_t gpuHostAlloc(void **memory, size_t bytes, unsigned flags)
{
	gpuError_t code = fake_enter("gpuHostAlloc");

	(void)flags;
	return fake_leave(code ? code : take_block(FAKE_HOST, memory, bytes));
}

gpuError_t gpuHostFree(void *memory)
{
	gpuError_t code = fake_enter("gpuHostFree");
	gpuError_t done = give_block(FAKE_HOST, memory);

	return fake_leave(code ? code : done);
}

/* Whether a file is behind any page of the memory. */
static bool has_file_pages(uint64_t begin, uint64_t end)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	while (maps && !found && fgets(line, sizeof line, maps)) {
		char *rest = line;
		uint64_t from = strtoull(rest, &rest, 16);
		uint64_t to = strtoull(rest + 1, &rest, 16);

		/* Permissions, offset, device: the file's number is the fourth word. */
		for (int word = 0; word < 3; word++)
			rest = strchr(rest + 1, ' ');
		found = from < end && begin < to && strtoull(rest, NULL, 10) != 0;
	}
	if (maps)
		(void)fclose(maps);
	return found;
}

static gpuError_t register_memory(uint64_t address, uint64_t bytes)
{
	if (fake.knobs.largest_registration && bytes > fake.knobs.largest_registration)
		return (gpuError_t)gpuErrorMemoryAllocation;
	for (const struct fake_range *range = fake.ranges; range; range = range->next)
		if (range->kind == FAKE_REGISTRATION && address < range->address + range->bytes &&
			range->address < address + bytes)
			return (gpuError_t)gpuErrorInvalidValue;
	if (has_file_pages(address, address + bytes))
		fake.counts.file_pages++;
	(void)fake_add(FAKE_REGISTRATION, address, bytes);
	return (gpuError_t)gpuSuccess;
}

gpuError_t gpuHostRegister(void *memory, size_t bytes, unsigned flags)
{
	gpuError_t code = fake_enter("gpuHostRegister");

	(void)flags;
	return fake_leave(code ? code : register_memory((uintptr_t)memory, bytes));
}

gpuError_t gpuHostUnregister(void *memory)
{
	gpuError_t code = fake_enter("gpuHostUnregister");
	struct fake_range *range = fake_find(FAKE_REGISTRATION, (uintptr_t)memory);

	if (range)
		fake_remove(range);
	else if (!code)
		code = (gpuError_t)gpuErrorInvalidValue;
	return fake_leave(code);
}
