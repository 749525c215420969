/* SPDX-License-Identifier: Apache-2.0 */
/* Leaf digests on the host: the leaves of all ranges of a call are one list of equal pieces. */
#include "kernels/host_digest.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/copy_args.h"
#include "kernels/host_stream.h"

/* Leaves that one thread digests at a time: 1 MiB. */
#define TASK_LEAVES 16u

/* A range, and the number of its first leaf among the leaves of all ranges. */
struct numbered_range {
	struct gsn_leaf_range range;
	uint64_t first_leaf;
};

struct digest_job {
	const struct numbered_range *ranges;
	size_t count;
	uint64_t leaves;
	uint64_t bytes;
};

/* The last range that begins at or before `leaf`; empty ranges share their number with the next. */
static size_t range_of_leaf(const struct digest_job *job, uint64_t leaf)
{
	size_t low = 0;
	size_t high = job->count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (job->ranges[middle].first_leaf <= leaf)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static void digest_leaf(const struct gsn_leaf_range *range, uint64_t i)
{
	uint64_t begin = i * GPUSNAP_LEAF_BYTES;
	const void *data = (const void *)(uintptr_t)(range->address + begin);

	range->out[i] =
		gpusnap_digest_of(data, (size_t)gsn_min(GPUSNAP_LEAF_BYTES, range->bytes - begin));
}

static void digest_leaves(void *argument, uint64_t task)
{
	const struct digest_job *job = argument;
	uint64_t leaf = task * TASK_LEAVES;
	uint64_t end = gsn_min(leaf + TASK_LEAVES, job->leaves);
	size_t at = range_of_leaf(job, leaf);

	for (; leaf < end; leaf++) {
		while (leaf - job->ranges[at].first_leaf ==
			gpusnap_leaf_count(job->ranges[at].range.bytes))
			at++;
		digest_leaf(&job->ranges[at].range, leaf - job->ranges[at].first_leaf);
	}
}

static gpusnap_status run_digest(struct gsn_host *host, const void *args, gpusnap_error *err)
{
	struct digest_job job = *(const struct digest_job *)args;
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; !status && i < job.count; i++)
		status = gsn_host_memory_check(&host->memory, job.ranges[i].range.address,
			job.ranges[i].range.bytes, "digest", err);
	if (!status)
		gsn_host_run(host, job.bytes, digest_leaves, &job,
			gsn_ceil_div(job.leaves, TASK_LEAVES));
	return status;
}

gpusnap_status gsn_host_digest(struct gsn_stream *stream, const struct gsn_leaf_range *ranges,
	size_t range_count, gpusnap_error *err)
{
	struct digest_job job = {.count = range_count};
	struct numbered_range *numbered = gsn_alloc(range_count, sizeof *numbered);
	gpusnap_status status = GPUSNAP_OK;

	if (!numbered)
		return gsn_fail(err, GPUSNAP_E_NOMEM,
			"host device: digest: no memory for %zu ranges", range_count);
	for (size_t i = 0; !status && i < range_count; i++) {
		status = gsn_leaf_range_check(gsn_host_ops.kind, &ranges[i], i, err);
		numbered[i] = (struct numbered_range){ranges[i], job.leaves};
		job.leaves += gpusnap_leaf_count(ranges[i].bytes);
		job.bytes += ranges[i].bytes;
	}
	job.ranges = numbered;
	if (status || job.leaves == 0)
		gsn_free(numbered);
	else
		gsn_host_stream_submit(stream, run_digest, &job, sizeof job, numbered);
	return status;
}
