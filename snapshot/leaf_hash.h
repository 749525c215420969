/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LEAF_HASH_H
#define GSN_LEAF_HASH_H
/*
 * Leaf digests, on the host, of segments that pass by in pieces. A leaf that a piece cuts is
 * carried over to the next one, so pieces must come in order.
 */
#include <gpusnap/digest.h>

#include "snapshot/segment.h"

struct gsn_leaf_hash {
	gpusnap_digest_stream *carried;
};
#define GSN_LEAF_HASH_INIT                                                                         \
	{                                                                                          \
		NULL                                                                               \
	}

gpusnap_status gsn_leaf_hash_open(struct gsn_leaf_hash *hash, gpusnap_error *err);
void gsn_leaf_hash_close(struct gsn_leaf_hash *hash);
/* Digests of the leaves that this piece completes go to the file-wide table `leaves`. */
void gsn_leaf_hash_feed(struct gsn_leaf_hash *hash, const struct gsn_piece *piece,
	const uint8_t *data, gpusnap_digest *leaves);

#endif
