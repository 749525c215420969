/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/base/utf8.h"

static bool is_tail(uint8_t byte)
{
	return (byte & 0xc0) == 0x80;
}

/* The second byte narrows the range where a first byte alone allows too much (RFC 3629, 4). */
static bool second_fits(uint8_t first, uint8_t second)
{
	switch (first) {
	case 0xe0:
		return second >= 0xa0;
	case 0xed:
		return second < 0xa0;
	case 0xf0:
		return second >= 0x90;
	case 0xf4:
		return second < 0x90;
	default:
		return true;
	}
}

size_t gsn_utf8_length(const uint8_t *p, size_t left)
{
	size_t length;

	if (left == 0)
		return 0;
	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	length = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (left < length || !second_fits(p[0], p[1]))
		return 0;
	for (size_t i = 1; i < length; i++)
		if (!is_tail(p[i]))
			return 0;
	return length;
}

bool gsn_utf8_valid(const char *text, size_t length)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t step;

	for (size_t i = 0; i < length; i += step) {
		step = p[i] < 0x80 ? 1 : gsn_utf8_length(p + i, length - i);
		if (!step)
			return false;
	}
	return true;
}

size_t gsn_utf8_put(char *out, uint32_t code)
{
	size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	static const uint8_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};

	for (size_t i = length - 1; i > 0; i--) {
		out[i] = (char)(0x80 | (code & 0x3f));
		code >>= 6;
	}
	out[0] = (char)(marks[length] | code);
	return length;
}
