/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experts of one layer in two phases over the pool: rows of w13 with the activation, then rows
 * of w2 with the routing weight. A task is a range of rows of one expert, and runs over all of the
 * expert's tokens while those rows are in the cache: weights are read once a step.
 */
#include "kernels/host_moe.h"

#include <fenv.h>
#include <stdatomic.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "kernels/host_matrix.h"
#include "kernels/moe_args.h"
#include "kernels/moe_groups.h"
#include "kernels/moe_math.h"

enum {
	ROW_BLOCK = 8,		/* rows that all tokens of an expert pass over in turn */
	TASK_BYTES = 128 << 10, /* weights of one task: long runs to prefetch, even shares */
};

struct experts_job {
	const struct gsn_cpu_path *path;
	const struct gsn_moe_experts *args;
	struct gsn_moe_groups groups;
	struct gsn_host_matrix w13, w2;
	const float *x, *weights;
	const int32_t *ids;
	float *h; /* [pairs, intermediate], by pair number */
	float *y;
	uint32_t task_rows; /* of the phase that runs */
	uint32_t tasks_per_expert;
	atomic_uint faults;
};

/* The pairs of one expert that a dot kernel takes at once. */
struct pair_tile {
	const uint32_t *pairs;
	const float *inputs[GSN_DOT_TOKENS];
	uint32_t count;
};

/* Rows first .. first + count of one expert: a task, or a block of one. */
struct row_range {
	uint32_t expert;
	uint32_t first;
	uint32_t count;
};

uint64_t gsn_host_moe_scratch_bytes(const struct gsn_moe_experts *args)
{
	uint64_t pairs = (uint64_t)args->tokens * args->top_k;
	uint64_t groups = gsn_moe_groups_bytes(args->mask_length, args->local_experts, pairs);
	uint64_t bytes;

	if (gsn_mul_overflow(pairs, (uint64_t)args->intermediate * sizeof(float), &bytes) ||
		gsn_add_overflow(bytes, groups, &bytes))
		return UINT64_MAX;
	return bytes;
}

static struct row_range task_range(const struct experts_job *job, uint64_t task, uint32_t rows)
{
	uint32_t first = (uint32_t)(task % job->tasks_per_expert) * job->task_rows;

	return (struct row_range){
		.expert = job->groups.active[task / job->tasks_per_expert],
		.first = first,
		.count = (uint32_t)gsn_min(job->task_rows, rows - first),
	};
}

/* Share the rows of an expert out to tasks. @return tasks of all active experts. */
static uint64_t plan_tasks(struct experts_job *job, uint32_t rows, uint64_t bytes_per_row)
{
	uint64_t blocks = gsn_max(1, TASK_BYTES / (bytes_per_row * ROW_BLOCK));

	job->task_rows = (uint32_t)gsn_min(blocks * ROW_BLOCK, gsn_align_up(rows, ROW_BLOCK));
	job->tasks_per_expert = (uint32_t)gsn_ceil_div(rows, job->task_rows);
	return (uint64_t)job->tasks_per_expert * job->groups.active_count;
}

static struct pair_tile tile_at(const struct experts_job *job, uint32_t expert, uint32_t at)
{
	const uint32_t *begin = job->groups.begin;

	return (struct pair_tile){
		.pairs = job->groups.pairs + at,
		.count = (uint32_t)gsn_min(GSN_DOT_TOKENS, begin[expert + 1] - at),
	};
}

/* ---- phase 1: h = silu(gate) * up ---- */

static void gate_up_block(
	const struct experts_job *job, struct row_range rows, const struct pair_tile *tile)
{
	float gate[GSN_DOT_TOKENS][ROW_BLOCK], up[GSN_DOT_TOKENS][ROW_BLOCK];
	uint32_t intermediate = job->args->intermediate;
	float out[GSN_DOT_TOKENS];

	for (uint32_t r = 0; r < rows.count; r++) {
		gsn_host_matrix_dot(
			&job->w13, rows.expert, 0, rows.first + r, tile->inputs, tile->count, out);
		for (uint32_t t = 0; t < tile->count; t++)
			gate[t][r] = out[t];
	}
	for (uint32_t r = 0; r < rows.count; r++) {
		gsn_host_matrix_dot(
			&job->w13, rows.expert, 1, rows.first + r, tile->inputs, tile->count, out);
		for (uint32_t t = 0; t < tile->count; t++)
			up[t][r] = out[t];
	}
	for (uint32_t t = 0; t < tile->count; t++)
		job->path->silu_mul(gate[t], up[t], rows.count,
			job->h + (size_t)tile->pairs[t] * intermediate + rows.first);
}

static void gate_up_rows(const struct experts_job *job, struct row_range rows)
{
	const struct gsn_moe_experts *args = job->args;
	const uint32_t *begin = job->groups.begin + rows.expert;

	for (uint32_t at = begin[0]; at < begin[1]; at += GSN_DOT_TOKENS) {
		struct pair_tile tile = tile_at(job, rows.expert, at);

		for (uint32_t t = 0; t < tile.count; t++)
			tile.inputs[t] =
				job->x + (size_t)(tile.pairs[t] / args->top_k) * args->hidden;
		gate_up_block(job, rows, &tile);
	}
}

static void gate_up_task(void *argument, uint64_t task)
{
	const struct experts_job *job = argument;
	struct row_range range = task_range(job, task, job->args->intermediate);

	for (uint32_t r = 0; r < range.count; r += ROW_BLOCK) {
		struct row_range block = {range.expert, range.first + r,
			(uint32_t)gsn_min(ROW_BLOCK, range.count - r)};

		gate_up_rows(job, block);
	}
}

/* ---- phase 2: y = weight * (w2 row . h) ---- */

/* @return faults */
static unsigned down_row(
	const struct experts_job *job, uint32_t expert, uint32_t row, const struct pair_tile *tile)
{
	unsigned faults = 0;
	float out[GSN_DOT_TOKENS];

	gsn_host_matrix_dot(&job->w2, expert, 0, row, tile->inputs, tile->count, out);
	for (uint32_t t = 0; t < tile->count; t++) {
		uint32_t pair = tile->pairs[t];
		float y = gsn_canonical(job->weights[pair] * out[t]);

		job->y[(size_t)pair * job->args->hidden + row] = y;
		if (!gsn_is_finite(y))
			faults |= GSN_MOE_FAULT_NONFINITE;
	}
	return faults;
}

/* @return faults */
static unsigned down_rows(const struct experts_job *job, struct row_range rows)
{
	const uint32_t *begin = job->groups.begin + rows.expert;
	unsigned faults = 0;

	for (uint32_t at = begin[0]; at < begin[1]; at += GSN_DOT_TOKENS) {
		struct pair_tile tile = tile_at(job, rows.expert, at);

		for (uint32_t t = 0; t < tile.count; t++)
			tile.inputs[t] = job->h + (size_t)tile.pairs[t] * job->args->intermediate;
		for (uint32_t r = 0; r < rows.count; r++)
			faults |= down_row(job, rows.expert, rows.first + r, &tile);
	}
	return faults;
}

static void clear_dropped_pairs(const struct experts_job *job, uint64_t token)
{
	const struct gsn_moe_experts *args = job->args;

	for (uint32_t slot = 0; slot < args->top_k; slot++) {
		size_t pair = (size_t)token * args->top_k + slot;

		if (gsn_moe_groups_local(&job->groups, job->ids[pair]) < 0)
			memset(job->y + pair * args->hidden, 0, args->hidden * sizeof(float));
	}
}

/* The first tasks are one a token, the others rows of experts. */
static void down_task(void *argument, uint64_t task)
{
	struct experts_job *job = argument;
	struct row_range range;
	unsigned faults = 0;

	if (task < job->args->tokens) {
		clear_dropped_pairs(job, task);
		return;
	}
	range = task_range(job, task - job->args->tokens, job->args->hidden);
	for (uint32_t r = 0; r < range.count; r += ROW_BLOCK) {
		struct row_range block = {range.expert, range.first + r,
			(uint32_t)gsn_min(ROW_BLOCK, range.count - r)};

		faults |= down_rows(job, block);
	}
	if (faults)
		atomic_fetch_or_explicit(&job->faults, faults, memory_order_relaxed);
}

/* ---- */

static void set_up_job(struct experts_job *job, const struct gsn_host_moe *host,
	const struct gsn_moe_experts *args)
{
	size_t pairs = (size_t)args->tokens * args->top_k;

	job->path = host->path;
	job->args = args;
	job->x = gsn_host_pointer(args->x);
	job->weights = gsn_host_pointer(args->weights);
	job->ids = gsn_host_pointer(args->ids);
	job->y = gsn_host_pointer(args->y);
	job->h = gsn_host_pointer(args->scratch);
	job->w13 = gsn_host_matrix_of(
		host->path, args->weight_dtype, args->w13, 2, args->intermediate, args->hidden);
	job->w2 = gsn_host_matrix_of(
		host->path, args->weight_dtype, args->w2, 1, args->hidden, args->intermediate);
	gsn_host_matrix_scale(&job->w13, args->w13_scale, args->block_n, args->block_k);
	gsn_host_matrix_scale(&job->w2, args->w2_scale, args->block_n, args->block_k);
	gsn_moe_groups_build(&job->groups, job->h + pairs * args->intermediate,
		gsn_host_pointer(args->mask), args->mask_length, args->local_experts, job->ids,
		(uint32_t)pairs);
	atomic_init(&job->faults, job->groups.faults);
}

gpusnap_status gsn_host_moe_experts(
	const struct gsn_host_moe *host, const struct gsn_moe_experts *args, gpusnap_error *err)
{
	struct gsn_moe_counters *counters;
	struct experts_job job;
	uint64_t tasks;
	fenv_t caller;
	gpusnap_status status = gsn_moe_experts_check(args, err);

	if (status)
		return status;
	fegetenv(&caller);
	fesetenv(FE_DFL_ENV);
	set_up_job(&job, host, args);
	tasks = plan_tasks(&job, args->intermediate, 2 * job.w13.row_bytes);
	gsn_pool_run(host->pool, gate_up_task, &job, tasks);
	tasks = plan_tasks(&job, args->hidden, job.w2.row_bytes);
	gsn_pool_run(host->pool, down_task, &job, tasks + args->tokens);
	fesetenv(&caller);
	counters = gsn_host_pointer(args->counters);
	counters->local += job.groups.local;
	counters->remote += job.groups.remote;
	counters->faults |= atomic_load(&job.faults);
	return GPUSNAP_OK;
}
