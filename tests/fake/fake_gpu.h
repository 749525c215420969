/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_FAKE_GPU_H
#define GPUSNAP_FAKE_GPU_H
/*
 * A stand-in for a vendor's GPU runtime: the entry points that the gpu_*.c files call, over host
 * memory, with a thread for each stream. It is linked into a device module in the runtime's place
 * and tests turn its knobs through the module's second symbol. Strict where vendors differ: what
 * one of them refuses is refused here. A release that is made to fail has released all the same,
 * since nobody can do more than ask for it; an unmap has not.
 */
#include <stdbool.h>
#include <stdint.h>

enum { FAKE_DEVICES_MAX = 8, FAKE_GRANULE = 64 << 10 };

/* All zero is a runtime of two devices that works. */
struct fake_knobs {
	uint32_t devices;	       /* 0: two */
	bool no_driver;		       /* the runtime finds no driver */
	bool permuted;		       /* device i is what was device `devices` - 1 - i */
	uint64_t memory;	       /* of each device; 0: 16 GiB */
	uint64_t occupied;	       /* of it, by somebody else */
	bool keeps_freed;	       /* what is given back does not become free */
	uint64_t largest_handle;       /* physical memory in one piece; 0: any */
	uint64_t largest_registration; /* of host memory in one piece; 0: any */
	bool no_host_functions;	       /* as HIP before 5.3 */
	bool old_runtime;	       /* hipMemAllocationProp as HIP before 5.3 has it */
	const char *fail_name;	       /* calls that count for fail_in; NULL: all */
	uint32_t fail_in;	       /* the n-th of them from now fails; 0: none */
	bool fail_on;		       /* and all after it */
	int fail_code;		       /* 0: the vendor's "invalid value" */
	uint32_t corrupt_in; /* one bit of what the n-th copy writes is flipped; 0: none */
	uint32_t break_in;   /* the n-th piece of stream work from now fails when its turn comes */
	uint32_t delay_us;   /* before each piece of stream work */
};

struct fake_counts {
	uint32_t calls;	       /* since the knobs were set */
	uint32_t failed;       /* of them, by a knob */
	const char *last_call; /* that a knob failed */
	uint32_t streams, events, blocks, handles, maps, reservations, registrations; /* live now */
	uint32_t unmapped_touches; /* stream work on device memory that was not there */
	uint32_t loose_copies; /* host memory of a copy that was neither allocated nor registered */
	uint32_t file_pages;   /* host memory that a file is behind, handed over */
	uint32_t strided, odd_strided; /* strided copies; with a pitch that is no multiple of 4 */
	uint32_t launches;
};

struct fake_gpu {
	void (*set)(const struct fake_knobs *knobs); /* NULL: all zero */
	struct fake_counts (*counts)(void);
	void (*fail_elsewhere)(void); /* a call of the application fails on this thread */
};

#define FAKE_GPU_SYMBOL "gpusnap_fake_gpu"
typedef const struct fake_gpu *(*fake_gpu_fn)(void);

#endif
