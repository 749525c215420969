/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experts of one layer in phases over the pool: inputs put in the order that the path wants,
 * rows of w13 with the activation, rows of w2 with the routing weight. A task is a range of rows of
 * one expert, and runs over all of the expert's tokens while those rows are in the cache: weights
 * are read once a step.
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

/*
 * Weights of one task: runs long enough for the memory to stream, tasks enough to share out evenly,
 * and small enough for the second-level cache, which all tokens but the first few read from.
 */
enum { TASK_BYTES = 256 << 10, SMALL_TASK_BYTES = 32 << 10, TASKS_PER_THREAD = 8, TASK_ROWS = 256 };

struct experts_job {
	const struct gsn_cpu_path *path;
	struct gsn_pool *pool;
	const struct gsn_moe_experts *args;
	struct gsn_moe_groups groups;
	struct gsn_host_matrix w13, w2;
	struct gsn_activation activation;
	const uint8_t *order; /* of inputs; NULL: as they are */
	const float *x;	      /* [tokens, x_stride] */
	float *ordered_x;     /* where x is put in order */
	float *h;	      /* [pairs, h_stride], by pair number */
	size_t x_stride, h_stride;
	const float *weights;
	const int32_t *ids;
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

/* The same for every path, since the path may be chosen later. */
uint64_t gsn_host_moe_scratch_bytes(const struct gsn_moe_experts *args)
{
	uint64_t pairs = (uint64_t)args->tokens * args->top_k;
	uint64_t groups = gsn_moe_groups_bytes(args->mask_length, args->local_experts, pairs);
	uint64_t x_bytes, h_bytes, bytes;

	if (gsn_mul_overflow(
		    args->tokens, gsn_dot_ordered_length(args->hidden) * sizeof(float), &x_bytes) ||
		gsn_mul_overflow(pairs, gsn_dot_ordered_length(args->intermediate) * sizeof(float),
			&h_bytes) ||
		gsn_add_overflow(x_bytes, h_bytes, &bytes) ||
		gsn_add_overflow(bytes, groups, &bytes))
		return UINT64_MAX;
	return bytes;
}

static struct gsn_host_rows task_range(const struct experts_job *job, uint64_t task, uint32_t rows)
{
	uint32_t first = (uint32_t)(task % job->tasks_per_expert) * job->task_rows;

	return (struct gsn_host_rows){
		.expert = job->groups.active[task / job->tasks_per_expert],
		.first = first,
		.count = (uint32_t)gsn_min(job->task_rows, rows - first),
	};
}

/* Share `rows` rows of every active expert out to tasks. @return tasks */
static uint64_t plan_tasks(struct experts_job *job, uint32_t rows, uint64_t bytes_per_row)
{
	uint64_t threads = gsn_pool_threads(job->pool);
	uint64_t share = bytes_per_row * rows * job->groups.active_count / threads;
	uint64_t bytes = gsn_min(TASK_BYTES, gsn_max(SMALL_TASK_BYTES, share / TASKS_PER_THREAD));

	job->task_rows = (uint32_t)gsn_max(1, gsn_min(TASK_ROWS, bytes / bytes_per_row));
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

/* ---- phase 1, where inputs have an order ---- */

/* The token's x in order; zeros behind the h of its pairs, which phase 2 fills up to there. */
static void order_task(void *argument, uint64_t token)
{
	const struct experts_job *job = argument;
	const struct gsn_moe_experts *args = job->args;
	const float *x = gsn_host_pointer(args->x);
	size_t whole = args->intermediate - args->intermediate % GSN_DOT_GROUP;

	gsn_dot_order(job->order, x + token * args->hidden, args->hidden,
		job->ordered_x + token * job->x_stride);
	for (uint32_t slot = 0; slot < args->top_k; slot++)
		memset(job->h + (token * args->top_k + slot) * job->h_stride + whole, 0,
			(job->h_stride - whole) * sizeof(float));
}

/* ---- phase 2: h = activation(gate + bias, up + bias) ---- */

static void store_h(const struct experts_job *job, uint32_t pair, struct gsn_host_rows rows,
	const float *values)
{
	float *h = job->h + pair * job->h_stride;
	float weight = job->args->weight_before_w2 ? job->weights[pair] : 1.0f;

	for (uint32_t r = 0; r < rows.count; r++) {
		uint32_t at = rows.first + r;

		h[job->order ? gsn_dot_position(job->order, at) : at] = values[r] * weight;
	}
}

/* The rows' elements of a bias [experts, parts, rows]; zeros where there is none. */
static void load_bias(const struct experts_job *job, const struct gsn_host_matrix *matrix,
	gpusnap_address bias, struct gsn_host_rows rows, float *values)
{
	uint64_t part = (uint64_t)rows.expert * matrix->parts + rows.part;
	uint64_t first = part * matrix->rows + rows.first;

	if (!bias) {
		memset(values, 0, rows.count * sizeof *values);
		return;
	}
	for (uint32_t r = 0; r < rows.count; r++)
		values[r] = gsn_host_element(bias, job->args->bias_dtype, first + r);
}

/* One token's values of what a dot kernel gave for rows and tokens, with the rows' bias. */
static void pick_token(
	const float *dots, const float *bias, uint32_t rows, uint32_t token, float *values)
{
	for (uint32_t r = 0; r < rows; r++)
		values[r] = dots[r * GSN_DOT_TOKENS + token] + bias[r];
}

static void gate_up_tile(
	const struct experts_job *job, struct gsn_host_rows rows, const struct pair_tile *tile)
{
	float gates[TASK_ROWS * GSN_DOT_TOKENS], ups[TASK_ROWS * GSN_DOT_TOKENS];
	float gate_bias[TASK_ROWS], up_bias[TASK_ROWS];
	float gate[TASK_ROWS], up[TASK_ROWS], h[TASK_ROWS];

	gsn_host_matrix_dot(&job->w13, rows, tile->inputs, tile->count, gates);
	load_bias(job, &job->w13, job->args->w13_bias, rows, gate_bias);
	rows.part = 1;
	gsn_host_matrix_dot(&job->w13, rows, tile->inputs, tile->count, ups);
	load_bias(job, &job->w13, job->args->w13_bias, rows, up_bias);
	for (uint32_t t = 0; t < tile->count; t++) {
		pick_token(gates, gate_bias, rows.count, t, gate);
		pick_token(ups, up_bias, rows.count, t, up);
		job->path->activate(job->activation, gate, up, rows.count, h);
		store_h(job, tile->pairs[t], rows, h);
	}
}

static void gate_up_task(void *argument, uint64_t task)
{
	const struct experts_job *job = argument;
	const struct gsn_moe_experts *args = job->args;
	struct gsn_host_rows rows = task_range(job, task, args->intermediate);
	const uint32_t *begin = job->groups.begin + rows.expert;

	for (uint32_t at = begin[0]; at < begin[1]; at += GSN_DOT_TOKENS) {
		struct pair_tile tile = tile_at(job, rows.expert, at);

		for (uint32_t t = 0; t < tile.count; t++)
			tile.inputs[t] = job->x + tile.pairs[t] / args->top_k * job->x_stride;
		gate_up_tile(job, rows, &tile);
	}
}

/* ---- phase 3: y = weight * (w2 row . h + bias) ---- */

/* @return faults */
static unsigned down_tile(
	const struct experts_job *job, struct gsn_host_rows rows, const struct pair_tile *tile)
{
	float out[TASK_ROWS][GSN_DOT_TOKENS], bias[TASK_ROWS];
	unsigned faults = 0;

	gsn_host_matrix_dot(&job->w2, rows, tile->inputs, tile->count, out[0]);
	load_bias(job, &job->w2, job->args->w2_bias, rows, bias);
	for (uint32_t t = 0; t < tile->count; t++) {
		float *y = job->y + (size_t)tile->pairs[t] * job->args->hidden + rows.first;
		float weight = job->weights[tile->pairs[t]];

		for (uint32_t r = 0; r < rows.count; r++) {
			y[r] = gsn_weighted_row(
				out[r][t], bias[r], weight, job->args->weight_before_w2);
			if (!gsn_is_finite(y[r]))
				faults |= GSN_MOE_FAULT_NONFINITE;
		}
	}
	return faults;
}

/* @return faults */
static unsigned down_rows(const struct experts_job *job, struct gsn_host_rows rows)
{
	const uint32_t *begin = job->groups.begin + rows.expert;
	unsigned faults = 0;

	for (uint32_t at = begin[0]; at < begin[1]; at += GSN_DOT_TOKENS) {
		struct pair_tile tile = tile_at(job, rows.expert, at);

		for (uint32_t t = 0; t < tile.count; t++)
			tile.inputs[t] = job->h + tile.pairs[t] * job->h_stride;
		faults |= down_tile(job, rows, &tile);
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
	unsigned faults;

	if (task < job->args->tokens) {
		clear_dropped_pairs(job, task);
		return;
	}
	faults = down_rows(job, task_range(job, task - job->args->tokens, job->args->hidden));
	if (faults)
		atomic_fetch_or_explicit(&job->faults, faults, memory_order_relaxed);
}

/* ---- */

/* Scratch: ordered x, h, groups. */
static void lay_out_scratch(struct experts_job *job)
{
	const struct gsn_moe_experts *args = job->args;
	size_t pairs = (size_t)args->tokens * args->top_k;

	job->order = job->w13.order;
	job->ordered_x = gsn_host_pointer(args->scratch);
	job->x = gsn_host_pointer(args->x);
	job->x_stride = args->hidden;
	job->h_stride = gsn_dot_ordered_length(args->intermediate);
	job->h = job->ordered_x + args->tokens * gsn_dot_ordered_length(args->hidden);
	if (job->order) {
		job->x = job->ordered_x;
		job->x_stride = gsn_dot_ordered_length(args->hidden);
	}
	gsn_moe_groups_build(&job->groups, job->h + pairs * job->h_stride,
		gsn_host_pointer(args->mask), args->mask_length, args->local_experts, job->ids,
		(uint32_t)pairs);
}

static void set_up_job(struct experts_job *job, const struct gsn_host_moe *host,
	const struct gsn_moe_experts *args)
{
	job->path = host->path;
	job->pool = host->pool;
	job->args = args;
	job->weights = gsn_host_pointer(args->weights);
	job->ids = gsn_host_pointer(args->ids);
	job->y = gsn_host_pointer(args->y);
	job->w13 = gsn_host_matrix_of(
		host->path, args->weight_dtype, args->w13, 2, args->intermediate, args->hidden);
	job->w2 = gsn_host_matrix_of(
		host->path, args->weight_dtype, args->w2, 1, args->hidden, args->intermediate);
	gsn_host_matrix_scale(
		&job->w13, args->w13_scale, args->scale_dtype, args->block_n, args->block_k);
	gsn_host_matrix_scale(
		&job->w2, args->w2_scale, args->scale_dtype, args->block_n, args->block_k);
	job->activation = (struct gsn_activation){
		args->activation, args->limit > 0.0f ? args->limit : INFINITY};
	lay_out_scratch(job);
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
	if (job.order)
		gsn_pool_run(host->pool, order_task, &job, args->tokens);
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
