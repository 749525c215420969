/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/index_check.h"

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "loader/parallel.h"

/* Look-ups that a thread does at a time: milliseconds, and few stretches for a large index. */
#define STRETCH 8192u

static gpusnap_status open_flags(struct gsn_index_check *check, gpusnap_error *err)
{
	const struct gsn_checkpoint *checkpoint = check->checkpoint;
	size_t total = 0;

	check->first = gsn_alloc(checkpoint->shard_count, sizeof *check->first);
	for (uint32_t i = 0; check->first && i < checkpoint->shard_count; i++) {
		check->first[i] = total;
		total += gpusnap_header_tensor_count(checkpoint->shards[i].header);
	}
	check->named = gsn_alloc(total, sizeof *check->named);
	if (!check->first || !check->named)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to check the index");
	return GPUSNAP_OK;
}

void gsn_index_check_close(struct gsn_index_check *check)
{
	gsn_free(check->first);
	gsn_free(check->named);
}

static gpusnap_status check_entry(const struct gsn_index_check *check,
	const struct gsn_weight_entry *entry, gpusnap_error *err)
{
	const struct gsn_checkpoint *checkpoint = check->checkpoint;
	const struct gsn_shard *shard = gsn_checkpoint_shard(checkpoint, entry->shard);
	const gpusnap_tensor *tensor =
		shard ? gpusnap_header_find(shard->header, entry->tensor) : NULL;
	char quoted[GSN_QUOTE_BYTES];
	size_t flag;

	if (!tensor || tensor->name_length != entry->tensor_length)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%s maps tensor '%s' to %s, which does not hold it", GSN_INDEX_NAME,
			gsn_quote(entry->tensor, entry->tensor_length, quoted), entry->shard);
	flag = check->first[shard - checkpoint->shards] +
	       (size_t)(tensor - gpusnap_header_tensor(shard->header, 0));
	if (atomic_exchange_explicit(&check->named[flag], true, memory_order_relaxed))
		return gsn_fail(err, GPUSNAP_E_FORMAT, "%s names tensor '%s' twice", GSN_INDEX_NAME,
			gsn_quote(entry->tensor, entry->tensor_length, quoted));
	return GPUSNAP_OK;
}

/* A stretch of the index, by one thread; the failure is that of its first bad entry. */
struct stretch {
	const struct gsn_index_check *check;
	const struct gsn_weight_entry *entries;
	size_t count;
	gpusnap_status status;
	gpusnap_error err;
};

static void check_stretch(void *argument, uint64_t task)
{
	struct stretch *stretch = (struct stretch *)argument + task;

	for (size_t i = 0; !stretch->status && i < stretch->count; i++)
		stretch->status = check_entry(stretch->check, &stretch->entries[i], &stretch->err);
}

static gpusnap_status check_stretches(struct stretch *stretches, size_t count, gpusnap_error *err)
{
	gpusnap_status st = gsn_parallel_run(check_stretch, stretches, count, err);

	for (size_t i = 0; !st && i < count; i++) {
		st = stretches[i].status;
		if (st && err)
			*err = stretches[i].err;
	}
	return st;
}

gpusnap_status gsn_index_check_entries(
	struct gsn_index_check *check, const struct gsn_weight_map *map, gpusnap_error *err)
{
	size_t count = (size_t)gsn_ceil_div(map->count, STRETCH);
	struct stretch *stretches = gsn_alloc(count, sizeof *stretches);
	gpusnap_status st = open_flags(check, err);

	if (!st && !stretches)
		st = gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to check the index");
	for (size_t i = 0; !st && i < count; i++) {
		stretches[i].check = check;
		stretches[i].entries = map->entries + i * STRETCH;
		stretches[i].count = (size_t)gsn_min(STRETCH, map->count - i * STRETCH);
	}
	if (!st)
		st = check_stretches(stretches, count, err);
	gsn_free(stretches);
	return st;
}

/* Dropping a tensor that the index leaves out in silence would lose weights. */
gpusnap_status gsn_index_check_shards(const struct gsn_index_check *check, gpusnap_error *err)
{
	const struct gsn_checkpoint *checkpoint = check->checkpoint;
	char quoted[GSN_QUOTE_BYTES];

	for (uint32_t i = 0; i < checkpoint->shard_count; i++) {
		const struct gsn_shard *shard = &checkpoint->shards[i];
		size_t count = gpusnap_header_tensor_count(shard->header);

		for (size_t k = 0; k < count; k++) {
			const gpusnap_tensor *tensor = gpusnap_header_tensor(shard->header, k);

			if (!check->named[check->first[i] + k])
				return gsn_fail(err, GPUSNAP_E_FORMAT,
					"tensor '%s' of %s is not in %s; write the index anew",
					gsn_quote(tensor->name, tensor->name_length, quoted),
					shard->name, GSN_INDEX_NAME);
		}
	}
	return GPUSNAP_OK;
}
