/* SPDX-License-Identifier: Apache-2.0 */
/* Leaf digests on the host: the leaves of all ranges of a call are one list of equal pieces. */
#include "kernels/host_digest.h"

#include <inttypes.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/host_stream.h"

struct digest_job {
	const struct gsn_leaf_range *ranges;
	size_t count;
};

static void digest_range(const struct gsn_leaf_range *range)
{
	const uint8_t *data = (const uint8_t *)(uintptr_t)range->address;

	for (uint64_t begin = 0, i = 0; begin < range->bytes; begin += GPUSNAP_LEAF_BYTES, i++)
		range->out[i] = gpusnap_digest_of(
			data + begin, (size_t)gsn_min(GPUSNAP_LEAF_BYTES, range->bytes - begin));
}

static gpusnap_status run_digest(struct gsn_host *host, const void *args, gpusnap_error *err)
{
	const struct digest_job *job = args;
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; !status && i < job->count; i++)
		status = gsn_host_memory_check(
			&host->memory, job->ranges[i].address, job->ranges[i].bytes, "digest", err);
	for (size_t i = 0; !status && i < job->count; i++)
		digest_range(&job->ranges[i]);
	return status;
}

static gpusnap_status check_range(const struct gsn_leaf_range *range, size_t i, gpusnap_error *err)
{
	uint64_t end;

	if (range->bytes && (!range->address || !range->out ||
				    gsn_add_overflow(range->address, range->bytes, &end)))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"host device: digest: range %zu, %" PRIu64 " bytes at 0x%" PRIx64
			"%s: no such address range",
			i, range->bytes, range->address, range->out ? "" : " to a NULL output");
	return GPUSNAP_OK;
}

gpusnap_status gsn_host_digest(struct gsn_stream *stream, const struct gsn_leaf_range *ranges,
	size_t range_count, gpusnap_error *err)
{
	struct digest_job job = {.count = range_count};
	struct gsn_leaf_range *copy;

	for (size_t i = 0; i < range_count; i++) {
		gpusnap_status status = check_range(&ranges[i], i, err);

		if (status)
			return status;
	}
	if (range_count == 0)
		return GPUSNAP_OK;
	copy = gsn_alloc(range_count, sizeof *copy);
	if (!copy)
		return gsn_fail(err, GPUSNAP_E_NOMEM,
			"host device: digest: no memory for %zu ranges", range_count);
	memcpy(copy, ranges, range_count * sizeof *copy);
	job.ranges = copy;
	gsn_host_stream_submit(stream, run_digest, &job, sizeof job, copy);
	return GPUSNAP_OK;
}
