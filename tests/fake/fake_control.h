/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_FAKE_CONTROL_H
#define GPUSNAP_FAKE_CONTROL_H
/* The knobs of the stand-in that a test program loads: the module in ../lib beside it. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/fake_gpu.h"
#include "tests/support/suite.h"

/* `kind` is the module's: "cuda", "hip". */
static inline const struct fake_gpu *fake_control(const char *kind)
{
	char program[PATH_MAX] = "";
	char path[PATH_MAX + 64];
	fake_gpu_fn function;
	void *symbol;
	void *module;

	assert(readlink("/proc/self/exe", program, PATH_MAX - 1) > 0);
	*strrchr(program, '/') = '\0';
	(void)snprintf(path, sizeof path, "%s/../lib/libgpusnap-%s.so", program, kind);
	module = dlopen(path, RTLD_NOW);
	assert(module);
	symbol = dlsym(module, FAKE_GPU_SYMBOL);
	assert(symbol);
	memcpy(&function, &symbol, sizeof function);
	return function();
}

/* Nothing of the runtime's is left: all that was made is gone. */
static inline void ck_nothing_left(const struct fake_gpu *gpu)
{
	const struct fake_counts counts = gpu->counts();

	ck_assert_uint_eq(counts.streams, 0);
	ck_assert_uint_eq(counts.events, 0);
	ck_assert_uint_eq(counts.blocks, 0);
	ck_assert_uint_eq(counts.handles, 0);
	ck_assert_uint_eq(counts.maps, 0);
	ck_assert_uint_eq(counts.reservations, 0);
	ck_assert_uint_eq(counts.registrations, 0);
}

#endif
