/* SPDX-License-Identifier: Apache-2.0 */
/* Leaf digests of passing pieces. */
#include "snapshot/leaf_hash.h"

#include "formats/base/bytes.h"
#include "formats/base/fail.h"

gpusnap_status gsn_leaf_hash_open(struct gsn_leaf_hash *hash, gpusnap_error *err)
{
	hash->carried = gpusnap_digest_stream_new();
	if (!hash->carried)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a digest");
	return GPUSNAP_OK;
}

void gsn_leaf_hash_close(struct gsn_leaf_hash *hash)
{
	gpusnap_digest_stream_free(hash->carried);
	hash->carried = NULL;
}

/* Bytes [begin, begin + bytes) of a leaf of leaf_bytes. */
static void feed_leaf(struct gsn_leaf_hash *hash, uint64_t leaf_bytes, uint64_t begin,
	const uint8_t *data, uint64_t bytes, gpusnap_digest *ret_digest)
{
	if (bytes == leaf_bytes) {
		*ret_digest = gpusnap_digest_of(data, (size_t)bytes);
		return;
	}
	if (begin == 0)
		gpusnap_digest_stream_restart(hash->carried);
	gpusnap_digest_stream_update(hash->carried, data, (size_t)bytes);
	if (begin + bytes == leaf_bytes)
		*ret_digest = gpusnap_digest_stream_finish(hash->carried);
}

void gsn_leaf_hash_feed(struct gsn_leaf_hash *hash, const struct gsn_piece *piece,
	const uint8_t *data, gpusnap_digest *leaves)
{
	const struct gsn_segment *segment = piece->segment;
	uint64_t at = piece->offset;
	uint64_t end = piece->offset + piece->bytes;

	while (at < end) {
		uint64_t leaf = at / GPUSNAP_LEAF_BYTES;
		uint64_t leaf_begin = leaf * GPUSNAP_LEAF_BYTES;
		uint64_t leaf_bytes = gsn_min(GPUSNAP_LEAF_BYTES, segment->bytes - leaf_begin);
		uint64_t bytes = gsn_min(end, leaf_begin + leaf_bytes) - at;

		feed_leaf(hash, leaf_bytes, at - leaf_begin, data, bytes,
			&leaves[segment->first_leaf + leaf]);
		at += bytes;
		data += bytes;
	}
}
