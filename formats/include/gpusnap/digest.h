/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_DIGEST_H
#define GPUSNAP_DIGEST_H
/*
 * XXH3-128 digests (https://github.com/Cyan4973/xxHash), kept in canonical (big-endian) byte
 * order everywhere. They find accidents, not attackers.
 *
 *   leaf    XXH3-128 of 64 KiB of one buffer, counted from the buffer's start; the last is shorter
 *   buffer  XXH3-128 of (u64 little-endian size, the buffer's leaves in order)
 *   root    XXH3-128 of (u32 LE format version, header digest, leaves digest, u64 LE file length,
 *           parent root or zeros)
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSNAP_LEAF_BYTES   65536u
#define GPUSNAP_DIGEST_BYTES 16u
#define GPUSNAP_DIGEST_TEXT  33u /* characters of the hexadecimal form, with the final NUL */

typedef struct gpusnap_digest {
	uint8_t bytes[GPUSNAP_DIGEST_BYTES];
} gpusnap_digest;

/** XXH3-128 of `length` bytes at `data` (any alignment; NULL only when length is 0). */
GPUSNAP_API gpusnap_digest gpusnap_digest_of(const void *data, size_t length);
/** Number of leaves of a buffer: size / 64 KiB rounded up, 0 for an empty one. */
GPUSNAP_API uint64_t gpusnap_leaf_count(uint64_t buffer_bytes);
/** Digest of a buffer from its size and its gpusnap_leaf_count(size) leaves. */
GPUSNAP_API gpusnap_digest gpusnap_digest_of_buffer(
	uint64_t buffer_bytes, const gpusnap_digest *leaves);
GPUSNAP_API gpusnap_digest gpusnap_digest_root(uint32_t version, gpusnap_digest header,
	gpusnap_digest leaves, uint64_t file_bytes, gpusnap_digest parent_root);
GPUSNAP_API bool gpusnap_digest_equal(gpusnap_digest a, gpusnap_digest b);
/** True for sixteen zero bytes, which stand for "none". */
GPUSNAP_API bool gpusnap_digest_is_zero(gpusnap_digest digest);
/** Lower-case hexadecimal. Returns `text`. */
GPUSNAP_API char *gpusnap_digest_format(gpusnap_digest digest, char text[GPUSNAP_DIGEST_TEXT]);
/** Parse 32 hexadecimal digits; E_FORMAT otherwise. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_digest_parse(
	const char *text, gpusnap_digest *ret_digest, gpusnap_error *err);

/* Streaming, for data that arrives in pieces. One stream may be restarted any number of times. */
typedef struct gpusnap_digest_stream gpusnap_digest_stream;
GPUSNAP_API gpusnap_digest_stream *gpusnap_digest_stream_new(void); /* NULL: no memory */
GPUSNAP_API void gpusnap_digest_stream_restart(gpusnap_digest_stream *stream);
GPUSNAP_API void gpusnap_digest_stream_update(
	gpusnap_digest_stream *stream, const void *data, size_t length);
GPUSNAP_API gpusnap_digest gpusnap_digest_stream_finish(const gpusnap_digest_stream *stream);
GPUSNAP_API void gpusnap_digest_stream_free(gpusnap_digest_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
