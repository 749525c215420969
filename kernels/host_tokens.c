/* SPDX-License-Identifier: Apache-2.0 */
/* What the host does to whole tokens around the experts: ids made local, sum over slots, norm. */
#include <fenv.h>
#include <stdatomic.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "kernels/host_matrix.h"
#include "kernels/host_moe.h"
#include "kernels/moe_args.h"
#include "kernels/moe_math.h"

struct combine_job {
	const struct gsn_moe_combine *args;
	atomic_uint faults;
};

struct norm_job {
	const struct gsn_rms_norm *args;
	gsn_dot_fn dot;
};

gpusnap_status gsn_host_moe_localise(
	const struct gsn_host_moe *host, const struct gsn_moe_localise *args, gpusnap_error *err)
{
	const int32_t *ids = gsn_host_pointer(args->ids);
	int32_t *out = gsn_host_pointer(args->out);
	gpusnap_status status = gsn_moe_localise_check(args, err);

	(void)host;
	if (status)
		return status;
	for (uint32_t i = 0; i < args->pairs; i++) {
		int64_t local = (int64_t)ids[i] - args->first;

		out[i] = local >= 0 && local < args->local ? (int32_t)local : (int32_t)args->local;
	}
	return GPUSNAP_OK;
}

/* Columns that are added up at once. */
enum { COLUMNS = 64 };

/* @param shared  the shared expert's row, or NULL.  @return faults */
static unsigned combine_columns(const struct gsn_moe_combine *args, const float *y,
	const float *shared, uint32_t count, float *out)
{
	float sum[COLUMNS];
	unsigned faults = 0;

	memcpy(sum, y, count * sizeof *sum);
	for (uint32_t slot = 1; slot < args->top_k; slot++) {
		y += args->hidden;
		for (uint32_t i = 0; i < count; i++)
			sum[i] += y[i];
	}
	for (uint32_t i = 0; shared && i < count; i++)
		sum[i] += shared[i];
	for (uint32_t i = 0; i < count; i++) {
		out[i] = gsn_canonical(sum[i]);
		if (!gsn_is_finite(sum[i]))
			faults |= GSN_MOE_FAULT_NONFINITE;
	}
	return faults;
}

static void combine_task(void *argument, uint64_t token)
{
	struct combine_job *job = argument;
	const struct gsn_moe_combine *args = job->args;
	const float *y = gsn_host_pointer(args->y);
	const float *shared = gsn_host_pointer(args->shared);
	float *out = gsn_host_pointer(args->out);
	unsigned faults = 0;

	y += token * args->top_k * args->hidden;
	out += token * args->hidden;
	if (shared)
		shared += token * args->hidden;
	for (uint32_t i = 0; i < args->hidden; i += COLUMNS)
		faults |= combine_columns(args, y + i, shared ? shared + i : NULL,
			(uint32_t)gsn_min(COLUMNS, args->hidden - i), out + i);
	if (faults)
		atomic_fetch_or_explicit(&job->faults, faults, memory_order_relaxed);
}

gpusnap_status gsn_host_moe_combine(
	const struct gsn_host_moe *host, const struct gsn_moe_combine *args, gpusnap_error *err)
{
	struct gsn_moe_counters *counters = gsn_host_pointer(args->counters);
	struct combine_job job = {.args = args};
	fenv_t caller;
	gpusnap_status status = gsn_moe_combine_check(args, err);

	if (status)
		return status;
	fegetenv(&caller);
	fesetenv(FE_DFL_ENV);
	gsn_pool_run(host->pool, combine_task, &job, args->tokens);
	fesetenv(&caller);
	counters->faults |= atomic_load(&job.faults);
	return GPUSNAP_OK;
}

static void norm_task(void *argument, uint64_t token)
{
	const struct norm_job *job = argument;
	const struct gsn_rms_norm *args = job->args;
	const float *x = (const float *)gsn_host_pointer(args->x) + token * args->hidden;
	float *out = (float *)gsn_host_pointer(args->out) + token * args->hidden;
	struct gsn_dot_rows row = {.weights = x, .k = args->hidden, .count = 1};
	float squares, factor;

	job->dot(&row, &x, 1, &squares);
	factor = 1.0f / sqrtf(squares / (float)args->hidden + args->epsilon);
	for (uint32_t i = 0; i < args->hidden; i++)
		out[i] = gsn_canonical(
			x[i] * factor * gsn_host_element(args->weight, args->weight_dtype, i));
}

gpusnap_status gsn_host_rms_norm(
	const struct gsn_host_moe *host, const struct gsn_rms_norm *args, gpusnap_error *err)
{
	struct norm_job job = {.args = args, .dot = host->path->dot[GSN_DOT_F32]};
	fenv_t caller;
	gpusnap_status status = gsn_rms_norm_check(args, err);

	if (status)
		return status;
	fegetenv(&caller);
	fesetenv(FE_DFL_ENV);
	gsn_pool_run(host->pool, norm_task, &job, args->tokens);
	fesetenv(&caller);
	return GPUSNAP_OK;
}
