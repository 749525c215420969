/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench_rows.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/fail.h"
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
	if (!s)
		s = bench_session_saved(session, err);
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
#define DECODE(name, dtype, batch, goal)                                                           \
	{                                                                                          \
		name, "decode of a Qwen3-30B-A3B layer, batch " #batch, MEMORY, goal, 0.80, false, \
			dtype, batch, decode                                                       \
	}

/* Goals of a GPU's rows are those of an H200 whose link gives 55.3 GB/s, its memory 4.5 TB/s. */
const struct bench_row bench_rows[] = {
	{"offload-first", "first offload to host memory, digested", LINK_FROM, 0.36, 0.36, false, 0,
		0, offload_first},
	{"resume", "resume, verified", LINK_TO, 0.97, 0.97, false, 0, 0, resume},
	{"offload-unchanged", "offload of unchanged state", MEMORY, 0.66, 0.66, false, 0, 0,
		offload_unchanged},
	{"save", "save to a file, hashed", "a plain O_DIRECT writer", 0.95, 0.95, false, 0, 0,
		save},
	{"restore-cold", "restore from the disk, verified", "a plain O_DIRECT reader", 0.95, 0.95,
		false, 0, 0, restore_cold},
	{"restore-warm", "restore from the page cache, verified",
		"the link; host: all threads copying it", 0.90, 0.90, false, 0, 0, restore_warm},
	{"digest", "XXH3-128 of every leaf", "the device's memory; host: xxHash on all threads",
		0.95, 0.90, false, 0, 0, digest},
	{"memory", "host memory besides the state, at most", "600 MiB", 1, 1, true, 0, 0,
		memory_besides},
	DECODE("decode-fp8-1", GPUSNAP_F8_E4M3, 1, 0.65),
	DECODE("decode-fp8-8", GPUSNAP_F8_E4M3, 8, 0.85),
	DECODE("decode-fp8-32", GPUSNAP_F8_E4M3, 32, 0.85),
	DECODE("decode-bf16-1", GPUSNAP_BF16, 1, 0.65),
	DECODE("decode-bf16-8", GPUSNAP_BF16, 8, 0.85),
	DECODE("decode-bf16-32", GPUSNAP_BF16, 32, 0.85),
	{NULL, NULL, NULL, 0, 0, false, 0, 0, NULL},
};

const struct bench_row *bench_row_find(const char *name)
{
	for (const struct bench_row *row = bench_rows; row->name; row++)
		if (strcmp(row->name, name) == 0)
			return row;
	return NULL;
}
