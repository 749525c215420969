/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of damaged buffers. */
#include "snapshot/damage.h"

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

static gpusnap_status add_item(
	gpusnap_damage *damage, const char *buffer, gpusnap_damage_item item, gpusnap_error *err)
{
	gpusnap_damage_item *grown = damage->items;

	item.buffer = gsn_strdup(buffer);

	/* Grows at powers of two. */
	if (item.buffer && (damage->count & (damage->count - 1)) == 0)
		grown = gsn_grow(damage->items, damage->count,
			damage->count ? 2 * damage->count : 1, sizeof *damage->items);
	if (!item.buffer || !grown) {
		gsn_free(item.buffer);
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a list of %zu damaged buffers",
			damage->count + 1);
	}
	damage->items = grown;
	damage->items[damage->count++] = item;
	return GPUSNAP_OK;
}

gpusnap_status gsn_damage_compare(gpusnap_damage *damage, const struct gsn_segment *segment,
	const gpusnap_digest *expected, const gpusnap_digest *found, gpusnap_error *err)
{
	uint64_t count = gpusnap_leaf_count(segment->bytes);
	uint64_t first = 0, wrong = 0;

	damage->buffers++;
	damage->bytes += segment->bytes;
	for (uint64_t i = 0; i < count; i++) {
		if (gpusnap_digest_equal(expected[i], found[i]))
			continue;
		if (wrong++ == 0)
			first = i;
	}
	if (!wrong)
		return GPUSNAP_OK;
	return add_item(damage, segment->name,
		(gpusnap_damage_item){
			.leaf = first,
			.leaf_count = wrong,
			.file_offset = segment->file_offset
					       ? segment->file_offset + first * GPUSNAP_LEAF_BYTES
					       : 0,
		},
		err);
}

gpusnap_status gsn_damage_locate(
	gpusnap_damage_item *item, const char *file, uint64_t offset, gpusnap_error *err)
{
	item->file = gsn_strdup(file);
	if (!item->file)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a path");
	item->file_offset = offset;
	return GPUSNAP_OK;
}

void gpusnap_damage_release(gpusnap_damage *damage)
{
	for (size_t i = 0; i < damage->count; i++) {
		gsn_free(damage->items[i].buffer);
		gsn_free(damage->items[i].file);
	}
	gsn_free(damage->items);
	*damage = (gpusnap_damage){0};
}
