/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying rows. Measured on an EPYC core, source and destination larger than the caches:
 *
 *   rows of 1..16 bytes    a loop with a constant length is 2 to 10 times as fast as memcpy() calls
 *   rows of 16 KiB and up  non-temporal stores, which need not read what they overwrite, give 1.0
 *                          to 1.2 times memcpy() at 16 KiB and 1.2 to 2.5 times from 64 KiB on
 *   in between             memcpy() is best; prefetching rows ahead gains nothing
 */
#include "kernels/host_rows.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "formats/base/bytes.h"

#define STREAMED_ROW_BYTES ((uint64_t)16 << 10)

static char *pointer(uint64_t address)
{
	return (char *)(uintptr_t)address;
}

#define FIXED_ROWS(length)                                                                         \
	static void copy_rows_##length(const struct gsn_strided_copy *copy)                        \
	{                                                                                          \
		char *dst = pointer(copy->dst);                                                    \
		const char *src = pointer(copy->src);                                              \
                                                                                                   \
		for (uint64_t row = 0; row < copy->rows; row++) {                                  \
			memcpy(dst, src, length);                                                  \
			dst += copy->dst_stride;                                                   \
			src += copy->src_stride;                                                   \
		}                                                                                  \
	}
FIXED_ROWS(1)
FIXED_ROWS(2)
FIXED_ROWS(4)
FIXED_ROWS(8)
FIXED_ROWS(16)
FIXED_ROWS(32)
FIXED_ROWS(64)
#undef FIXED_ROWS

static void copy_rows_any(const struct gsn_strided_copy *copy)
{
	for (uint64_t row = 0; row < copy->rows; row++)
		memcpy(pointer(copy->dst + row * copy->dst_stride),
			pointer(copy->src + row * copy->src_stride), (size_t)copy->row_bytes);
}

#ifdef __SSE2__
/* Whole cache lines past the caches; the ends that share a line with a neighbour through them. */
static void stream_row(char *dst, const char *src, uint64_t bytes)
{
	uint64_t head = gsn_min(bytes, -(uint64_t)(uintptr_t)dst % 64);
	uint64_t i = head;

	memcpy(dst, src, (size_t)head);
	for (; bytes - i >= 64; i += 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 48));

		_mm_stream_si128((__m128i *)(void *)(dst + i), a);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 16), b);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 32), c);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 48), d);
	}
	memcpy(dst + i, src + i, (size_t)(bytes - i));
}

static void stream_rows(const struct gsn_strided_copy *copy)
{
	for (uint64_t row = 0; row < copy->rows; row++)
		stream_row(pointer(copy->dst + row * copy->dst_stride),
			pointer(copy->src + row * copy->src_stride), copy->row_bytes);
	_mm_sfence();
}
#else
static void stream_rows(const struct gsn_strided_copy *copy)
{
	copy_rows_any(copy);
}
#endif

void gsn_host_rows_copy(const struct gsn_strided_copy *copy, enum gsn_host_store store)
{
	switch (copy->row_bytes) {
	case 1:
		copy_rows_1(copy);
		return;
	case 2:
		copy_rows_2(copy);
		return;
	case 4:
		copy_rows_4(copy);
		return;
	case 8:
		copy_rows_8(copy);
		return;
	case 16:
		copy_rows_16(copy);
		return;
	case 32:
		copy_rows_32(copy);
		return;
	case 64:
		copy_rows_64(copy);
		return;
	default:
		break;
	}
	if (store == GSN_HOST_STORE_STREAMED && copy->row_bytes >= STREAMED_ROW_BYTES)
		stream_rows(copy);
	else
		copy_rows_any(copy);
}
