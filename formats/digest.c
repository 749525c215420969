/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of bytes, buffers and files, their text form, and streams. */
#include <gpusnap/digest.h>

#include <assert.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/xxh.h"

struct gpusnap_digest_stream {
	const struct gsn_xxh *xxh;
	void *state; /* the aligned part of room */
	uint8_t room[GSN_XXH_STATE_BYTES + GSN_XXH_STATE_ALIGN];
};

static void init_stream(struct gpusnap_digest_stream *stream)
{
	uintptr_t room = (uintptr_t)stream->room;

	stream->xxh = gsn_xxh();
	stream->state = (void *)(uintptr_t)gsn_align_up(room, GSN_XXH_STATE_ALIGN);
	stream->xxh->reset(stream->state);
}

gpusnap_digest gpusnap_digest_of(const void *data, size_t length)
{
	gpusnap_digest digest;

	assert(data || length == 0);
	gsn_xxh()->hash(data, length, digest.bytes);
	return digest;
}

uint64_t gpusnap_leaf_count(uint64_t buffer_bytes)
{
	return gsn_ceil_div(buffer_bytes, GPUSNAP_LEAF_BYTES);
}

gpusnap_digest gpusnap_digest_of_buffer(uint64_t buffer_bytes, const gpusnap_digest *leaves)
{
	gpusnap_digest_stream stream;
	uint8_t size[8];

	init_stream(&stream);
	gsn_put_le64(size, buffer_bytes);
	gpusnap_digest_stream_update(&stream, size, sizeof size);
	gpusnap_digest_stream_update(
		&stream, leaves, (size_t)gpusnap_leaf_count(buffer_bytes) * sizeof *leaves);
	return gpusnap_digest_stream_finish(&stream);
}

gpusnap_digest gpusnap_digest_root(uint32_t version, gpusnap_digest header, gpusnap_digest leaves,
	uint64_t file_bytes, gpusnap_digest parent_root)
{
	uint8_t bytes[4 + 8 + 3 * GPUSNAP_DIGEST_BYTES];
	uint8_t *p = bytes;

	gsn_put_le32(p, version);
	p += 4;
	memcpy(p, header.bytes, GPUSNAP_DIGEST_BYTES);
	p += GPUSNAP_DIGEST_BYTES;
	memcpy(p, leaves.bytes, GPUSNAP_DIGEST_BYTES);
	p += GPUSNAP_DIGEST_BYTES;
	gsn_put_le64(p, file_bytes);
	p += 8;
	memcpy(p, parent_root.bytes, GPUSNAP_DIGEST_BYTES);
	return gpusnap_digest_of(bytes, sizeof bytes);
}

bool gpusnap_digest_equal(gpusnap_digest a, gpusnap_digest b)
{
	return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

bool gpusnap_digest_is_zero(gpusnap_digest digest)
{
	return gpusnap_digest_equal(digest, (gpusnap_digest){{0}});
}

char *gpusnap_digest_format(gpusnap_digest digest, char text[GPUSNAP_DIGEST_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < sizeof digest.bytes; i++) {
		text[2 * i] = digits[digest.bytes[i] >> 4];
		text[2 * i + 1] = digits[digest.bytes[i] & 15];
	}
	text[GPUSNAP_DIGEST_TEXT - 1] = '\0';
	return text;
}

gpusnap_status gpusnap_digest_parse(
	const char *text, gpusnap_digest *ret_digest, gpusnap_error *err)
{
	gpusnap_digest digest = {{0}};
	size_t length = strlen(text);
	char quoted[GSN_QUOTE_BYTES];

	if (length != GPUSNAP_DIGEST_TEXT - 1)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"digest '%s' has %zu characters, 32 hexadecimal digits are needed",
			gsn_quote(text, length, quoted), length);
	for (size_t i = 0; i < length; i++) {
		int value = gsn_hex_value(text[i]);

		if (value < 0)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"digest '%s' has no hexadecimal digit at position %zu",
				gsn_quote(text, length, quoted), i);
		digest.bytes[i / 2] = (uint8_t)(digest.bytes[i / 2] << 4 | value);
	}
	*ret_digest = digest;
	return GPUSNAP_OK;
}

gpusnap_digest_stream *gpusnap_digest_stream_new(void)
{
	gpusnap_digest_stream *stream = gsn_alloc(1, sizeof *stream);

	if (stream)
		init_stream(stream);
	return stream;
}

void gpusnap_digest_stream_restart(gpusnap_digest_stream *stream)
{
	stream->xxh->reset(stream->state);
}

void gpusnap_digest_stream_update(gpusnap_digest_stream *stream, const void *data, size_t length)
{
	assert(data || length == 0);
	stream->xxh->update(stream->state, data, length);
}

gpusnap_digest gpusnap_digest_stream_finish(const gpusnap_digest_stream *stream)
{
	gpusnap_digest digest;

	stream->xxh->finish(stream->state, digest.bytes);
	return digest;
}

void gpusnap_digest_stream_free(gpusnap_digest_stream *stream)
{
	gsn_free(stream);
}
