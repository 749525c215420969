/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_FAULTY_DEVICE_H
#define GPUSNAP_TEST_FAULTY_DEVICE_H
/*
 * A device that fails on order: any real device behind a table that counts its calls, makes the
 * n-th one of a kind fail, or flips one bit of what the n-th copy has written. One at a time.
 */
#include "kernels/device_ops.h"

enum faulty_call {
	FAULTY_QUERY,
	FAULTY_RESERVE,
	FAULTY_MAP,
	FAULTY_UNMAP,
	FAULTY_PINNED_ALLOC,
	FAULTY_PIN,
	FAULTY_STREAM_CREATE,
	FAULTY_STREAM_SYNC,
	FAULTY_EVENT_CREATE,
	FAULTY_EVENT_RECORD,
	FAULTY_STREAM_WAIT,
	FAULTY_COPY,
	FAULTY_FILL,
	FAULTY_DIGEST,
	FAULTY_CALLS,
	FAULTY_ANY, /* to arm: the n-th call, whatever it is */
};

struct faulty_device {
	gpusnap_device device; /* hand out &faulty.device */
	gpusnap_device *inner;
	struct gsn_device_ops ops; /* caps may be changed after opening */
	unsigned calls[FAULTY_CALLS];
	unsigned all_calls;
	uint64_t copied_bytes[3];   /* by enum gsn_copy_direction */
	unsigned pinned_blocks;	    /* allocated or pinned, and not yet freed */
	uint64_t mapped_bytes;	    /* mapped and not yet unmapped or released */
	enum faulty_call fail_call; /* set by faulty_arm() */
	unsigned fail_in;	    /* this many more calls until it fails; 0: never */
	gpusnap_status fail_status;
	bool for_ever, stays_failing; /* so will it be after the first; so it is */
	unsigned corrupt_in;	      /* this many more copies until one is damaged; 0: never */
	unsigned corrupt_again;	      /* and so many copies after it */
};

/* Opens the device `name` ("host") behind the faulty table; aborts the test when it cannot. */
void faulty_open(struct faulty_device *faulty, const char *name);
void faulty_close(struct faulty_device *faulty);
/* The n-th call from now (1: the next) answers `status`, once. n = 0 disarms. */
void faulty_arm(
	struct faulty_device *faulty, enum faulty_call call, unsigned n, gpusnap_status status);
/* The n-th and all of its kind after it, until it is armed again. */
void faulty_arm_for_ever(
	struct faulty_device *faulty, enum faulty_call call, unsigned n, gpusnap_status status);
/* True when an armed failure has not happened yet. */
bool faulty_is_armed(const struct faulty_device *faulty);
const char *faulty_call_name(enum faulty_call call);

#endif
