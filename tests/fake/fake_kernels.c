/* SPDX-License-Identifier: Apache-2.0 */
/* The launchers of gpu_kernels.cu for the stand-in: the same work by the host's reference. */
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "kernels/cpu_path.h"
#include "kernels/gpu_kernels.h"
#include "kernels/host_moe.h"
#include "tests/fake/fake_state.h"

static int launch(void *stream, fake_work_fn run, const void *args, size_t bytes)
{
	gpuError_t code = fake_enter("launch");

	fake.counts.launches++;
	(void)fake_leave(code ? code : fake_submit(stream, run, args, bytes));
	return (int)gpuClearError(); /* as a launcher learns of it */
}

struct digest_args {
	const struct gsn_gpu_leaf_range *ranges;
	uint32_t range_count;
};

static bool is_readable(uint64_t address, uint64_t bytes)
{
	bool there;

	fake_lock();
	there = fake_is_device(address, bytes);
	fake.counts.unmapped_touches += !there;
	fake_unlock();
	return there;
}

/* Host memory that a kernel may write: allocated or registered, and as aligned as its stores. */
static bool is_known(uint64_t address, uint64_t bytes)
{
	bool known;

	fake_lock();
	known = address % sizeof(gpusnap_digest) == 0 &&
		(fake_holder(FAKE_HOST, address, bytes) ||
			fake_holder(FAKE_REGISTRATION, address, bytes));
	fake_unlock();
	return known;
}

static gpusnap_digest *digests_of(const struct gsn_gpu_leaf_range *range)
{
	return (gpusnap_digest *)(uintptr_t)range->digests;
}

static gpuError_t do_digest(void *args)
{
	const struct digest_args *a = args;

	for (uint32_t i = 0; i < a->range_count; i++) {
		const struct gsn_gpu_leaf_range *range = &a->ranges[i];

		if (!is_readable(range->address, range->bytes) ||
			!is_known(range->digests,
				gpusnap_leaf_count(range->bytes) * sizeof(gpusnap_digest)))
			return (gpuError_t)fakeErrorIllegalAddress;
		for (uint64_t at = 0; at < range->bytes; at += GPUSNAP_LEAF_BYTES)
			digests_of(range)[at / GPUSNAP_LEAF_BYTES] =
				gpusnap_digest_of((const void *)(uintptr_t)(range->address + at),
					gsn_min(GPUSNAP_LEAF_BYTES, range->bytes - at));
	}
	return (gpuError_t)gpuSuccess;
}

int gsn_gpu_launch_digest(const struct gsn_gpu_leaf_range *ranges, uint32_t range_count,
	uint64_t leaves, void *stream)
{
	const struct digest_args args = {ranges, range_count};

	(void)leaves;
	return launch(stream, do_digest, &args, sizeof args);
}

/* The reference runs on the stream's own thread. */
static struct gsn_host_moe open_reference(void)
{
	struct gsn_host_moe host = {.path = gsn_cpu_path_best()};

	if (gsn_pool_create(1, &host.pool, NULL))
		abort();
	return host;
}

/* The reference wants more scratch memory than the kernels do. */
static gpusnap_status run_experts(
	const struct gsn_host_moe *host, const struct gsn_moe_experts *args, gpusnap_error *err)
{
	struct gsn_moe_experts here = *args;
	void *scratch = calloc(1, gsn_host_moe_scratch_bytes(args));
	gpusnap_status status;

	if (!scratch)
		abort();
	here.scratch = (uintptr_t)scratch;
	status = gsn_host_moe_experts(host, &here, err);
	free(scratch);
	return status;
}

#define LAUNCHER(name, type, compute)                                                              \
	static gpuError_t do_##name(void *args)                                                    \
	{                                                                                          \
		struct gsn_host_moe host = open_reference();                                       \
		gpusnap_status status = compute(&host, args, NULL);                                \
                                                                                                   \
		gsn_pool_destroy(host.pool);                                                       \
		return (gpuError_t)(status ? (int)fakeErrorIllegalAddress : (int)gpuSuccess);      \
	}                                                                                          \
                                                                                                   \
	int gsn_gpu_launch_##name(const type *args, uint32_t multiprocessors, void *stream)        \
	{                                                                                          \
		(void)multiprocessors;                                                             \
		return launch(stream, do_##name, args, sizeof *args);                              \
	}

LAUNCHER(route, struct gsn_moe_route, gsn_host_moe_route)
LAUNCHER(localise, struct gsn_moe_localise, gsn_host_moe_localise)
LAUNCHER(experts, struct gsn_moe_experts, run_experts)
LAUNCHER(combine, struct gsn_moe_combine, gsn_host_moe_combine)
LAUNCHER(rms_norm, struct gsn_rms_norm, gsn_host_rms_norm)
