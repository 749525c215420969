/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench_rows.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/clock.h"
#include "kernels/device_calls.h"
#include "tools/bench_decode.h"
#include "tools/ceiling.h"

#define MEMORY_LIMIT ((double)((uint64_t)600 << 20)) /* besides the state, of any size */

static bool on_host(const struct bench_session *session)
{
	return session->device->ops->caps & GSN_CAP_HOST_ADDRESSABLE;
}

static gpusnap_status offload_first(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	gpusnap_status s = bench_session_cycles(session, err);

	(void)row;
	ret_pair->figure = session->cycles[repeat].first;
	return s ? s : ceiling_link(session->device, false, &ret_pair->ceiling, err);
}

static gpusnap_status resume(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	gpusnap_status s = bench_session_cycles(session, err);

	(void)row;
	ret_pair->figure = session->cycles[repeat].resume;
	return s ? s : ceiling_link(session->device, true, &ret_pair->ceiling, err);
}

static gpusnap_status offload_unchanged(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	gpusnap_status s = bench_session_cycles(session, err);

	(void)row;
	ret_pair->figure = session->cycles[repeat].unchanged;
	return s ? s : ceiling_memory(session->device, session->pool, &ret_pair->ceiling, err);
}

static gpusnap_status save(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	char plain[4200];
	gpusnap_status s;

	(void)row;
	(void)repeat;
	(void)snprintf(plain, sizeof plain, "%s/plain", session->directory);
	s = bench_session_save(session, &ret_pair->figure, err);
	return s ? s : ceiling_write(plain, session->bytes, &session->io, &ret_pair->ceiling, err);
}

static gpusnap_status restore_cold(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	gpusnap_status s = bench_session_saved(session, err);

	(void)row;
	(void)repeat;
	if (!s)
		s = bench_session_cool(session, err);
	if (!s)
		s = ceiling_read(session->path, &session->io, &ret_pair->ceiling, err);
	return s ? s : bench_session_restore(session, &ret_pair->figure, err);
}

/* The host's ceiling writes over the state, which the restore then puts back. */
static gpusnap_status restore_warm(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	gpusnap_status s = bench_session_saved(session, err);
	gpusnap_region_info info;

	(void)row;
	(void)repeat;
	if (!s)
		s = bench_session_warm(session, err);
	if (!s && on_host(session)) {
		s = gpusnap_region_at(session->registry, 0, &info, err);
		if (!s)
			s = ceiling_cached(session->path, (void *)(uintptr_t)info.address,
				session->bytes, session->pool, &ret_pair->ceiling, err);
	} else if (!s) {
		s = ceiling_link(session->device, true, &ret_pair->ceiling, err);
	}
	return s ? s : bench_session_restore(session, &ret_pair->figure, err);
}

static gpusnap_status digest(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = session->device->ops;
	void *context = session->device->context;
	uint64_t bytes = gpusnap_leaf_count(session->bytes) * sizeof(gpusnap_digest);
	struct gsn_leaf_range range = {.bytes = session->bytes};
	gpusnap_region_info info;
	gpusnap_status s =
		on_host(session)
			? ceiling_digest(session->device, session->pool, &ret_pair->ceiling, err)
			: ceiling_memory(session->device, session->pool, &ret_pair->ceiling, err);
	void *leaves = NULL;
	double start;

	(void)row;
	(void)repeat;
	if (!s && !session->registry)
		s = bench_session_state(session, &session->registry, err);
	if (!s)
		s = gpusnap_region_at(session->registry, 0, &info, err);
	if (!s)
		s = ops->pinned_alloc(context, bytes, &leaves, err);
	if (s)
		return s;
	range.address = info.address;
	range.out = leaves;
	start = gsn_clock_seconds();
	s = gsn_device_digest_sync(session->device, &range, 1, err);
	ret_pair->figure = (double)session->bytes / (gsn_clock_seconds() - start);
	ops->pinned_free(context, leaves, bytes);
	return s;
}

static gpusnap_status memory_besides(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	gpusnap_status s = bench_session_saved(session, err);
	double rate;

	(void)row;
	(void)repeat;
	if (!s)
		s = bench_session_restore(session, &rate, err);
	ret_pair->figure = (double)session->most_besides;
	ret_pair->ceiling = MEMORY_LIMIT;
	return s;
}

static gpusnap_status decode(struct bench_session *session, const struct bench_row *row,
	uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err)
{
	gpusnap_status s = ceiling_memory(session->device, session->pool, &ret_pair->ceiling, err);

	(void)repeat;
	return s ? s : bench_decode(session, row->dtype, row->batch, &ret_pair->figure, err);
}

#define LINK_FROM "a copy to page-locked memory"
#define LINK_TO	  "a copy from page-locked memory"
#define MEMORY	  "the device's memory"
#define DECODE(row_name, format, tokens, gpu_goal)                                                 \
	{                                                                                          \
		.name = (row_name), .what = "decode of a Qwen3-30B-A3B layer, batch " #tokens,     \
		.ceiling = MEMORY, .goal = (gpu_goal), .host_goal = 0.80, .dtype = (format),       \
		.batch = (tokens), .measure = decode                                               \
	}

/*
 * Goals of a GPU's rows are those of an H200 whose link gives 55.3 GB/s, its memory 4.28 TB/s when
 * it is copied and 4.5 when it is only read.
 */
const struct bench_row bench_rows[] = {
	{.name = "offload-first",
		.what = "first offload to host memory, digested",
		.ceiling = LINK_FROM,
		.goal = 0.36,
		.host_goal = 0.36,
		.measure = offload_first},
	{.name = "resume",
		.what = "resume, verified",
		.ceiling = LINK_TO,
		.goal = 0.976,
		.host_goal = 0.976,
		.measure = resume},
	{.name = "offload-unchanged",
		.what = "offload of unchanged state",
		.ceiling = MEMORY,
		.goal = 0.70,
		.host_goal = 0.70,
		.measure = offload_unchanged},
	{.name = "save",
		.what = "save to a file, hashed",
		.ceiling = "a plain O_DIRECT writer",
		.goal = 0.95,
		.host_goal = 0.95,
		.needs_files = true,
		.measure = save},
	{.name = "restore-cold",
		.what = "restore from the disk, verified",
		.ceiling = "a plain O_DIRECT reader",
		.goal = 0.95,
		.host_goal = 0.95,
		.needs_files = true,
		.measure = restore_cold},
	{.name = "restore-warm",
		.what = "restore from the page cache, verified",
		.ceiling = "the link; host: all threads copying it",
		.goal = 0.90,
		.host_goal = 0.90,
		.needs_files = true,
		.measure = restore_warm},
	{.name = "digest",
		.what = "XXH3-128 of every leaf",
		.ceiling = "the device's memory; host: xxHash on all threads",
		.goal = 1.00,
		.host_goal = 0.90,
		.measure = digest},
	{.name = "memory",
		.what = "host memory besides the state, at most",
		.ceiling = "600 MiB",
		.goal = 1.00,
		.host_goal = 1.00,
		.at_most = true,
		.needs_files = true,
		.measure = memory_besides},
	DECODE("decode-fp8-1", GPUSNAP_F8_E4M3, 1, 0.65),
	DECODE("decode-fp8-8", GPUSNAP_F8_E4M3, 8, 0.85),
	DECODE("decode-fp8-32", GPUSNAP_F8_E4M3, 32, 0.85),
	DECODE("decode-bf16-1", GPUSNAP_BF16, 1, 0.65),
	DECODE("decode-bf16-8", GPUSNAP_BF16, 8, 0.85),
	DECODE("decode-bf16-32", GPUSNAP_BF16, 32, 0.85),
	{.name = NULL},
};

const struct bench_row *bench_row_find(const char *name)
{
	for (const struct bench_row *row = bench_rows; row->name; row++)
		if (strcmp(row->name, name) == 0)
			return row;
	return NULL;
}
