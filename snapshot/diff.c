/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing two snapshots by their leaf tables. */
#include <string.h>

#include <gpusnap/snapshot.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

static gpusnap_status add_item(
	gpusnap_differences *list, const char *name, gpusnap_difference item, gpusnap_error *err)
{
	gpusnap_difference *grown = list->items;

	item.name = gsn_strdup(name);
	/* Grows at powers of two. */
	if (item.name && (list->count & (list->count - 1)) == 0)
		grown = gsn_grow(list->items, list->count, list->count ? 2 * list->count : 1,
			sizeof *list->items);
	if (!item.name || !grown) {
		gsn_free(item.name);
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for %zu differences", list->count + 1);
	}
	list->items = grown;
	list->items[list->count++] = item;
	return GPUSNAP_OK;
}

static bool same_shape(const gpusnap_snapshot_entry *x, const gpusnap_snapshot_entry *y)
{
	return x->dtype == y->dtype && x->rank == y->rank && x->bytes == y->bytes &&
	       memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0;
}

/* All of an entry, for one that has no equal on the other side. */
static gpusnap_difference whole(const gpusnap_snapshot_entry *entry, const char *what)
{
	return (gpusnap_difference){
		.leaves_changed = entry->leaf_count,
		.bytes_changed = entry->bytes,
		.what = what,
	};
}

static gpusnap_difference compare_leaves(const gpusnap_snapshot_entry *x, const gpusnap_digest *a,
	const gpusnap_snapshot_entry *y, const gpusnap_digest *b)
{
	gpusnap_difference difference = {.what = "content"};

	for (uint64_t i = 0; i < x->leaf_count; i++) {
		if (gpusnap_digest_equal(a[x->first_leaf + i], b[y->first_leaf + i]))
			continue;
		difference.leaves_changed++;
		difference.bytes_changed +=
			gsn_min(GPUSNAP_LEAF_BYTES, x->bytes - i * GPUSNAP_LEAF_BYTES);
	}
	return difference;
}

static gpusnap_status compare_entry(const gpusnap_snapshot *a, const gpusnap_snapshot *b,
	const gpusnap_snapshot_entry *x, gpusnap_differences *list, gpusnap_error *err)
{
	const gpusnap_snapshot_entry *y = gpusnap_snapshot_entry_find(b, x->name);
	gpusnap_difference difference;

	if (!y)
		return add_item(list, x->name, whole(x, "only in first"), err);
	if (!same_shape(x, y))
		return add_item(list, x->name, whole(y, "shape"), err);
	difference = compare_leaves(x, gpusnap_snapshot_leaves(a), y, gpusnap_snapshot_leaves(b));
	return difference.leaves_changed ? add_item(list, x->name, difference, err) : GPUSNAP_OK;
}

gpusnap_status gpusnap_snapshot_diff(const gpusnap_snapshot *a, const gpusnap_snapshot *b,
	gpusnap_differences *ret_differences, gpusnap_error *err)
{
	gpusnap_differences list = {0};
	gpusnap_status status = GPUSNAP_OK;

	for (size_t i = 0; !status && i < gpusnap_snapshot_entry_count(a); i++)
		status = compare_entry(a, b, gpusnap_snapshot_entry_at(a, i), &list, err);
	for (size_t i = 0; !status && i < gpusnap_snapshot_entry_count(b); i++) {
		const gpusnap_snapshot_entry *y = gpusnap_snapshot_entry_at(b, i);

		if (!gpusnap_snapshot_entry_find(a, y->name))
			status = add_item(&list, y->name, whole(y, "only in second"), err);
	}
	if (status) {
		gpusnap_differences_release(&list);
		return status;
	}
	*ret_differences = list;
	return GPUSNAP_OK;
}

void gpusnap_differences_release(gpusnap_differences *differences)
{
	for (size_t i = 0; i < differences->count; i++)
		gsn_free(differences->items[i].name);
	gsn_free(differences->items);
	*differences = (gpusnap_differences){0};
}
