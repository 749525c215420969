/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way back from an arena: copies on one stream, digests of what has arrived on another, batch
 * by batch, so that proving costs no time of its own while the link is the slower one. Nor does
 * mapping: memory is mapped just before the copies to it are submitted, while earlier ones run.
 *
 * A leaf is "wrong" while the digest of its live bytes is not the arena's. In the beginning all
 * are; one pass puts the wrong ones back, a second repeats those that are wrong still.
 */
#include "snapshot/putback.h"

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/arena.h"
#include "snapshot/residency.h"

enum {
	RUN_LEAVES = 512,   /* longest copy, 32 MiB */
	BATCH_RUNS = 256,   /* runs that are digested by one call, */
	BATCH_LEAVES = 1024 /* or fewer when they are long */
};

struct putback {
	gpusnap_registry *registry;
	const struct gsn_selection *selection;
	struct gsn_stream *copying;
	struct gsn_stream *digesting;
	struct gsn_event *arrived;
	gpusnap_digest *live; /* of arena-backed regions, region by region */
	struct gsn_leaf_range batch[BATCH_RUNS];
	size_t batch_count;
	uint64_t batch_leaves;
};

/* A run of wrong leaves, where it belongs, and where the digests of its live bytes go. */
struct wrong_run {
	struct gsn_region *region;
	const struct gsn_range *range;
	struct gsn_leaf_run leaves;
	gpusnap_digest *live;
};

typedef gpusnap_status (*wrong_run_fn)(
	struct putback *p, const struct wrong_run *run, gpusnap_error *err);

/* Digest, once it has arrived, what has been given to the copying stream since the last time. */
static gpusnap_status flush(struct putback *p, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = p->registry->device->ops;
	gpusnap_status s;

	if (p->batch_count == 0)
		return GPUSNAP_OK;
	s = ops->event_record(p->arrived, p->copying, err);
	if (!s)
		s = ops->stream_wait(p->digesting, p->arrived, err);
	if (!s)
		s = ops->digest(p->digesting, p->batch, p->batch_count, err);
	p->batch_count = 0;
	p->batch_leaves = 0;
	return s;
}

static gpusnap_status settle(struct putback *p, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = p->registry->device->ops;
	gpusnap_status s = flush(p, err);

	if (!s)
		s = ops->stream_sync(p->copying, err);
	if (!s)
		s = ops->stream_sync(p->digesting, err);
	return s;
}

static gpusnap_status put_run(struct putback *p, const struct wrong_run *run, gpusnap_error *err)
{
	struct gsn_arena *arena = run->region->arena;
	uint64_t end = run->range->offset + gsn_arena_run_offset(&run->leaves) +
		       gsn_arena_run_bytes(arena, &run->leaves);
	gpusnap_status s = gsn_region_extend(p->registry, run->region, end, err);

	if (!s)
		s = gsn_arena_copy(arena, &run->leaves, p->copying, GSN_HOST_TO_DEVICE,
			run->region->address, err);
	if (s)
		return s;
	p->batch[p->batch_count++] = (struct gsn_leaf_range){
		.address = gsn_range_address(run->range) + gsn_arena_run_offset(&run->leaves),
		.bytes = gsn_arena_run_bytes(arena, &run->leaves),
		.out = run->live,
	};
	p->batch_leaves += run->leaves.count;
	if (p->batch_count == BATCH_RUNS || p->batch_leaves >= BATCH_LEAVES)
		s = flush(p, err);
	return s;
}

static gpusnap_status report_run(struct putback *p, const struct wrong_run *run, gpusnap_error *err)
{
	(void)p;
	return gsn_fail(err, GPUSNAP_E_CORRUPT,
		"region %u '%s': buffer '%s' leaf %llu of %llu does not match its digest, copied "
		"twice from the host arena; the region stays offloaded, restore a snapshot",
		run->region->id, run->region->tag, gsn_range_name(run->range),
		(unsigned long long)run->leaves.first,
		(unsigned long long)gpusnap_leaf_count(run->range->bytes));
}

/* Visit the wrong leaves of one range in runs; `live` is the range's part of the digests. */
static gpusnap_status each_run_of(
	struct putback *p, struct wrong_run *run, wrong_run_fn visit, gpusnap_error *err)
{
	struct gsn_leaf_run whole = {.extent = run->leaves.extent};
	const gpusnap_digest *held = gsn_arena_run_leaves(run->region->arena, &whole);
	gpusnap_digest *live = run->live;
	uint64_t count = gpusnap_leaf_count(run->range->bytes);
	uint64_t at = 0;

	while (at < count) {
		uint64_t first = at;
		gpusnap_status s;

		while (at < count && at - first < RUN_LEAVES &&
			!gsn_same_leaf(&held[at], &live[at]))
			at++;
		if (at == first) {
			at++;
			continue;
		}
		run->leaves.first = first;
		run->leaves.count = at - first;
		run->live = live + first;
		s = visit(p, run, err);
		if (s)
			return s;
	}
	return GPUSNAP_OK;
}

static gpusnap_status each_wrong_run(struct putback *p, wrong_run_fn visit, gpusnap_error *err)
{
	gpusnap_digest *live = p->live;

	for (size_t i = 0; i < p->selection->count; i++) {
		struct gsn_region *region = p->selection->regions[i];
		size_t count = gsn_selection_kept_count(p->selection, i);

		for (size_t k = 0; !region->backing && k < count; k++) {
			struct wrong_run run = {
				.region = region,
				.range = gsn_selection_kept(p->selection, i) + k,
				.leaves.extent = k,
				.live = live,
			};
			gpusnap_status s = each_run_of(p, &run, visit, err);

			if (s)
				return s;
			live += gpusnap_leaf_count(run.range->bytes);
		}
	}
	return GPUSNAP_OK;
}

/* Behind the last kept byte too, and where nothing is kept. */
static gpusnap_status map_rest(struct putback *p, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < p->selection->count; i++) {
		struct gsn_region *region = p->selection->regions[i];

		if (!region->backing)
			s = gsn_region_extend(p->registry, region, region->reserved_bytes, err);
	}
	return s;
}

static gpusnap_status open_putback(struct putback *p, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = p->registry->device->ops;
	void *context = p->registry->device->context;
	const struct gsn_selection *selection = p->selection;
	uint64_t leaves =
		gsn_ranges_leaf_count(selection->kept, selection->first_kept[selection->count]);
	gpusnap_status s;

	p->digesting = p->registry->stream;
	p->live = gsn_alloc((size_t)leaves, sizeof *p->live);
	if (!p->live)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %llu digests",
			(unsigned long long)leaves);
	s = ops->stream_create(context, &p->copying, err);
	if (!s)
		s = ops->event_create(context, &p->arrived, err);
	return s;
}

static void close_putback(struct putback *p)
{
	const struct gsn_device_ops *ops = p->registry->device->ops;

	/* After a failure work may still be under way that writes to `live`. */
	ops->stream_destroy(p->copying);
	(void)ops->stream_sync(p->digesting, NULL);
	ops->event_destroy(p->arrived);
	gsn_free(p->live);
}

gpusnap_status gsn_put_back(
	gpusnap_registry *registry, const struct gsn_selection *selection, gpusnap_error *err)
{
	struct putback p = {.registry = registry, .selection = selection};
	gpusnap_status s = open_putback(&p, err);

	for (int pass = 0; !s && pass < 2; pass++) {
		s = each_wrong_run(&p, put_run, err);
		if (!s)
			s = map_rest(&p, err);
		if (!s)
			s = settle(&p, err);
	}
	if (!s)
		s = each_wrong_run(&p, report_run, err);
	close_putback(&p);
	return s;
}
