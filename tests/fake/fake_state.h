/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_FAKE_STATE_H
#define GPUSNAP_FAKE_STATE_H
/*
 * What the parts of the stand-in share. A runtime is one for its process, so its state is global;
 * one lock guards all of it.
 */
#include <pthread.h>
#include <stddef.h>

#include "kernels/vendor.h"
#include "tests/fake/fake_gpu.h"

/* Codes that the product has no name for. */
enum {
#if defined(GSN_VENDOR_CUDA)
	fakeErrorNotReady = cudaErrorNotReady,
	fakeErrorIllegalAddress = cudaErrorIllegalAddress,
#else
	fakeErrorNotReady = hipErrorNotReady,
	fakeErrorIllegalAddress = hipErrorIllegalAddress,
#endif
};

/* Ranges of addresses: by kind, with what belongs to them. */
enum fake_kind {
	FAKE_RESERVATION,
	FAKE_MAP,   /* owner: its handle */
	FAKE_BLOCK, /* gpuMalloc */
	FAKE_HOST,  /* gpuHostAlloc */
	FAKE_REGISTRATION,
	FAKE_KINDS,
};

struct fake_range {
	struct fake_range *next;
	enum fake_kind kind;
	uint64_t address, bytes;
	int device;
	bool open; /* a map that has been given access */
	void *owner;
};

struct fake_state {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* stream work was done or given */
	struct fake_knobs knobs;
	struct fake_counts counts;
	struct fake_range *ranges;
	uint64_t used[FAKE_DEVICES_MAX];
	uint64_t kept[FAKE_DEVICES_MAX]; /* given back, and not free: keeps_freed */
};

extern struct fake_state fake;

void fake_lock(void);
void fake_unlock(void);

/*
 * The beginning of every entry point: counts the call, takes the lock, and answers what the call
 * must answer at once. fake_leave() ends it: gives the lock back and notes the thread's last code.
 */
gpuError_t fake_enter(const char *name);
gpuError_t fake_leave(gpuError_t code);

/* Under the lock. */
uint32_t fake_device_count(void);
int fake_current_device(void);
int fake_physical(int device);
uint64_t fake_memory(void);
struct fake_range *fake_add(enum fake_kind kind, uint64_t address, uint64_t bytes);
void fake_remove(struct fake_range *range);
/* The range of that kind that begins there, or NULL. */
struct fake_range *fake_find(enum fake_kind kind, uint64_t address);
/* A range of that kind that holds all of these bytes, or NULL. */
struct fake_range *fake_holder(enum fake_kind kind, uint64_t address, uint64_t bytes);
gpuError_t fake_take_memory(int device, uint64_t bytes);
void fake_give_memory(int device, uint64_t bytes);
/* All of it is device memory that may be touched now. */
bool fake_is_device(uint64_t address, uint64_t bytes);

/* Physical memory, and mapping it, for the vendors' own spellings. */
gpuError_t fake_vm_reserve(uint64_t bytes, uint64_t alignment, uint64_t *ret_address);
gpuError_t fake_vm_free(uint64_t address, uint64_t bytes);
gpuError_t fake_vm_create(int device, uint64_t bytes, void **ret_handle);
gpuError_t fake_vm_release(void *handle);
gpuError_t fake_vm_map(uint64_t address, uint64_t bytes, void *handle);
gpuError_t fake_vm_allow(int device, uint64_t address, uint64_t bytes);
gpuError_t fake_vm_unmap(uint64_t address, uint64_t bytes);

/* Stream work: runs on the stream's thread in its turn, unless work in front of it has failed;
 * `args` is copied. */
typedef gpuError_t (*fake_work_fn)(void *args);
gpuError_t fake_submit(gpuStream_t handle, fake_work_fn run, const void *args, size_t bytes);
/* The same for work that runs whatever has failed. */
gpuError_t fake_submit_always(gpuStream_t handle, fake_work_fn run, const void *args, size_t bytes);

#endif
