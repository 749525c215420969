/* SPDX-License-Identifier: Apache-2.0 */
/* Verification: a file's data against its leaf table, and live state against a baseline. */
#include <inttypes.h>
#include <string.h>

#include <gpusnap/snapshot.h>

#include "formats/base/alloc.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "snapshot/baseline.h"
#include "snapshot/damage.h"
#include "snapshot/io_options.h"
#include "snapshot/leaf_hash.h"
#include "snapshot/live_digest.h"
#include "snapshot/reader.h"

/* ---- a file ---- */

struct file_check {
	const gpusnap_snapshot *snapshot;
	struct gsn_segment *segments; /* of all entries, by place */
	size_t count;
	gpusnap_digest *found;
	struct gsn_leaf_hash hash;
	struct gsn_reader reader;
};

static gpusnap_status file_check_open(
	struct file_check *check, const gpusnap_io_options *io, gpusnap_error *err)
{
	uint64_t leaf_count = gpusnap_snapshot_seal(check->snapshot)->leaf_count;
	gpusnap_status status;

	check->found = gsn_alloc((size_t)leaf_count, sizeof *check->found);
	if (!check->found)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %" PRIu64 " digests", leaf_count);
	status = gsn_snapshot_segments(check->snapshot, &check->segments, &check->count, err);
	if (!status)
		status = gsn_leaf_hash_open(&check->hash, err);
	if (status)
		return status;
	return gsn_reader_open(
		&check->reader, check->snapshot, NULL, check->segments, check->count, 0, io, err);
}

static void file_check_close(struct file_check *check)
{
	gsn_reader_close(&check->reader);
	gsn_leaf_hash_close(&check->hash);
	gsn_free(check->segments);
	gsn_free(check->found);
}

static gpusnap_status hash_file(struct file_check *check, gpusnap_error *err)
{
	struct gsn_cursor hashing = {check->segments, check->count, 0, 0};
	struct gsn_block block;
	struct gsn_piece piece;
	bool more;

	for (;;) {
		gpusnap_status status = gsn_reader_next(&check->reader, &block, &more, err);

		if (status || !more)
			return status;
		while (gsn_cursor_next(&hashing, block.end, &piece))
			gsn_leaf_hash_feed(&check->hash, &piece,
				block.memory + (gsn_piece_file_offset(&piece) - block.begin),
				check->found);
		gsn_reader_release(&check->reader, block.slot);
	}
}

/* An entry that is damaged: which file of the chain its first wrong leaf lies in. */
static gpusnap_status locate(const struct file_check *check, const gpusnap_snapshot_entry *entry,
	gpusnap_damage_item *item, gpusnap_error *err)
{
	struct gsn_location location = gsn_snapshot_locate(
		check->snapshot, gsn_snapshot_leaf_place(check->snapshot, entry, item->leaf));

	return gsn_damage_locate(item, location.path, location.offset, err);
}

static gpusnap_status compare_file(
	const struct file_check *check, gpusnap_damage *damage, gpusnap_error *err)
{
	const gpusnap_digest *expected = gpusnap_snapshot_leaves(check->snapshot);
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; !status && i < check->snapshot->entry_count; i++) {
		const gpusnap_snapshot_entry *entry = &check->snapshot->entries[i];
		const struct gsn_segment whole = {.name = entry->name, .bytes = entry->bytes};
		size_t before = damage->count;

		status = gsn_damage_compare(damage, &whole, expected + entry->first_leaf,
			check->found + entry->first_leaf, err);
		if (!status && damage->count > before)
			status = locate(check, entry, &damage->items[before], err);
	}
	return status;
}

gpusnap_status gpusnap_snapshot_verify(gpusnap_snapshot *snapshot, const gpusnap_io_options *io,
	gpusnap_damage *ret_damage, gpusnap_io_report *ret_report, gpusnap_error *err)
{
	double start = gsn_clock_seconds();
	struct file_check check = {
		.snapshot = snapshot, .hash = GSN_LEAF_HASH_INIT, .reader = GSN_READER_INIT};
	gpusnap_damage damage = {0};
	gpusnap_io_options resolved;
	gpusnap_status status = gsn_io_options_resolve(io, &resolved, err);

	if (status)
		return status;
	status = file_check_open(&check, &resolved, err);
	if (!status)
		status = hash_file(&check, err);
	if (!status)
		status = compare_file(&check, &damage, err);
	if (!status && ret_report) {
		*ret_report = check.reader.report;
		ret_report->bytes = damage.bytes;
		ret_report->seconds = gsn_clock_seconds() - start;
	}
	file_check_close(&check);
	if (status) {
		gpusnap_damage_release(&damage);
		return status;
	}
	*ret_damage = damage;
	return GPUSNAP_OK;
}

/* ---- live state ---- */

/* A buffer that only one side has cannot be checked, and that is an error. */
static gpusnap_status check_names(
	const struct gsn_live *live, const gpusnap_baseline *baseline, gpusnap_error *err)
{
	size_t matched = 0;

	for (size_t i = 0; i < live->count; i++) {
		const struct gsn_segment *here = &live->segments[i];
		const struct gsn_segment *there = gsn_baseline_find(baseline, here->name);

		if (!there)
			return gsn_fail(err, GPUSNAP_E_MISMATCH,
				"buffer '%s' is not in the baseline; save again to have one that "
				"holds it",
				here->name);
		if (there->bytes != here->bytes)
			return gsn_fail(err, GPUSNAP_E_MISMATCH,
				"buffer '%s' has %" PRIu64 " bytes here, %" PRIu64
				" in the baseline; save again",
				here->name, here->bytes, there->bytes);
		matched++;
	}
	if (matched < gsn_baseline_count(baseline))
		return gsn_fail(err, GPUSNAP_E_MISMATCH,
			"%zu of the baseline's %zu buffers are not registered here; save again",
			gsn_baseline_count(baseline) - matched, gsn_baseline_count(baseline));
	return GPUSNAP_OK;
}

static gpusnap_status compare_live(const struct gsn_live *live, const gpusnap_baseline *baseline,
	gpusnap_damage *damage, gpusnap_error *err)
{
	gpusnap_status status = check_names(live, baseline, err);

	for (size_t i = 0; !status && i < live->count; i++) {
		const struct gsn_segment *here = &live->segments[i];
		const struct gsn_segment *there = gsn_baseline_find(baseline, here->name);
		const gpusnap_digest *expected =
			gpusnap_baseline_leaves(baseline, here->name, NULL);

		status = gsn_damage_compare(
			damage, there, expected, live->leaves + here->first_leaf, err);
	}
	return status;
}

static gpusnap_status verify(gpusnap_registry *registry, const gpusnap_baseline *baseline,
	gpusnap_damage *damage, gpusnap_error *err)
{
	struct gsn_live live = GSN_LIVE_INIT;
	gpusnap_status status;

	if (!baseline)
		baseline = registry->baseline;
	if (!baseline)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"there is nothing to verify against; save or restore a snapshot first");
	status = gsn_live_digest(&live, registry, err);
	if (!status)
		status = compare_live(&live, baseline, damage, err);
	gsn_live_release(&live);
	return status;
}

gpusnap_status gpusnap_verify(gpusnap_registry *registry, const gpusnap_baseline *baseline,
	gpusnap_damage *ret_damage, gpusnap_error *err)
{
	gpusnap_damage damage = {0};
	gpusnap_status status = gsn_job_begin(registry, "verify", err);

	if (status)
		return status;
	status = verify(registry, baseline, &damage, err);
	gsn_job_end(registry);
	if (status) {
		gpusnap_damage_release(&damage);
		return status;
	}
	*ret_damage = damage;
	return GPUSNAP_OK;
}
