/* SPDX-License-Identifier: Apache-2.0 */
/* Deciding whether the last snapshot still stands for the live bytes of some regions. */
#include "snapshot/backing.h"

#include "formats/base/fail.h"

static gpusnap_status compare_range(const gpusnap_registry *registry, const struct gsn_range *range,
	const gpusnap_digest *leaves, gpusnap_error *err)
{
	const char *name = gsn_range_name(range);
	uint64_t count = gpusnap_leaf_count(range->bytes);
	uint64_t held = 0;
	const gpusnap_digest *expected = gpusnap_baseline_leaves(registry->baseline, name, &held);

	if (!expected || held != count)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"buffer '%s' has %llu leaves, and %llu in snapshot '%s'; save again, or "
			"offload to the arena",
			name, (unsigned long long)count, expected ? (unsigned long long)held : 0ULL,
			registry->origin.path);
	for (uint64_t i = 0; i < count; i++)
		if (!gpusnap_digest_equal(leaves[i], expected[i]))
			return gsn_fail(err, GPUSNAP_E_STATE,
				"buffer '%s' leaf %llu of %llu has changed since snapshot '%s'; "
				"save again, or offload to the arena",
				name, (unsigned long long)i, (unsigned long long)count,
				registry->origin.path);
	return GPUSNAP_OK;
}

static gpusnap_status compare_live(const gpusnap_registry *registry,
	const struct gsn_selection *selection, const gpusnap_digest *leaves, gpusnap_error *err)
{
	size_t count = selection->first_kept[selection->count];

	for (size_t i = 0; i < count; i++) {
		gpusnap_status s = compare_range(registry, &selection->kept[i], leaves, err);

		if (s)
			return s;
		leaves += gpusnap_leaf_count(selection->kept[i].bytes);
	}
	return GPUSNAP_OK;
}

static gpusnap_status open_one(
	const gpusnap_registry *registry, gpusnap_snapshot **out, gpusnap_error *err)
{
	gpusnap_digest expected = gpusnap_baseline_root(registry->baseline);
	char have[GPUSNAP_DIGEST_TEXT], want[GPUSNAP_DIGEST_TEXT];
	gpusnap_snapshot *snapshot;
	gpusnap_digest root;
	gpusnap_status s = gsn_origin_open(&registry->origin, &snapshot, err);

	if (s) {
		gsn_error_prefix(err, "the snapshot that live state stands on");
		return s;
	}
	root = gpusnap_snapshot_seal(snapshot)->root;
	if (!gpusnap_digest_equal(root, expected)) {
		gpusnap_snapshot_close(snapshot);
		return gsn_fail(err, GPUSNAP_E_STATE,
			"snapshot '%s' has root %s now, live state stands on root %s: it was "
			"replaced; save again, or offload to the arena",
			registry->origin.path, gpusnap_digest_format(root, have),
			gpusnap_digest_format(expected, want));
	}
	*out = snapshot;
	return GPUSNAP_OK;
}

gpusnap_status gsn_backing_open(const gpusnap_registry *registry,
	const struct gsn_selection *selection, const gpusnap_digest *leaves,
	gpusnap_snapshot **ret_snapshots, gpusnap_error *err)
{
	gpusnap_status s;

	if (!registry->baseline || !registry->origin.path)
		return gsn_fail(err, GPUSNAP_E_STATE,
			"no snapshot stands for live state; save or restore one first, or offload "
			"to the arena");
	s = compare_live(registry, selection, leaves, err);
	for (size_t i = 0; !s && i < selection->count; i++)
		if (gsn_selection_kept_count(selection, i) > 0)
			s = open_one(registry, &ret_snapshots[i], err);
	if (!s)
		return GPUSNAP_OK;
	for (size_t i = 0; i < selection->count; i++) {
		gpusnap_snapshot_close(ret_snapshots[i]);
		ret_snapshots[i] = NULL;
	}
	return s;
}
