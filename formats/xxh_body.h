/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Body of one build of XXH3-128: the including file defines GSN_XXH_TABLE, and GSN_XXH_COPY of the
 * build of xxh_copy_body.h that goes with it, and its compiler options say which vector unit
 * xxhash.h uses. No include guard: it is compiled more than once.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/xxh.h"

_Static_assert(sizeof(XXH3_state_t) <= GSN_XXH_STATE_BYTES, "raise GSN_XXH_STATE_BYTES");

static void put_canonical(XXH128_hash_t hash, uint8_t ret[16])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, hash);
	memcpy(ret, canonical.digest, sizeof canonical.digest);
}

static void hash_once(const void *data, size_t length, uint8_t ret[16])
{
	put_canonical(XXH3_128bits(length ? data : "", length), ret);
}

static void reset(void *state)
{
	(void)XXH3_128bits_reset(state);
}

static void update(void *state, const void *data, size_t length)
{
	if (length)
		(void)XXH3_128bits_update(state, data, length);
}

static void finish(const void *state, uint8_t ret[16])
{
	put_canonical(XXH3_128bits_digest(state), ret);
}

const struct gsn_xxh GSN_XXH_TABLE = {
	.hash = hash_once,
	.copy = GSN_XXH_COPY,
	.reset = reset,
	.update = update,
	.finish = finish,
};
