/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "formats/base/utf8.h"

/* C0, DEL, and the C1 controls, which UTF-8 spells C2 80 to C2 9F: terminals obey them. */
static bool is_plain(const uint8_t *p, size_t length)
{
	if (length == 1)
		return *p >= 0x20 && *p != 0x7f && *p != '\'' && *p != '\\';
	return length > 1 && (*p != 0xc2 || p[1] >= 0xa0);
}

static void put_hex(char *out, uint8_t byte)
{
	static const char digits[] = "0123456789abcdef";

	out[0] = '\\';
	out[1] = 'x';
	out[2] = digits[byte >> 4];
	out[3] = digits[byte & 15];
}

/* One character, or one byte of what is no UTF-8; at most 8 bytes of output. */
static size_t put_character(char *out, const uint8_t *p, size_t left, size_t *ret_taken)
{
	size_t length = gsn_utf8_length(p, left);

	*ret_taken = length ? length : 1;
	if (is_plain(p, length)) {
		memcpy(out, p, length);
		return length;
	}
	for (size_t i = 0; i < *ret_taken; i++)
		put_hex(out + 4 * i, p[i]);
	return 4 * *ret_taken;
}

const char *gsn_quote(const char *bytes, size_t length, char text[GSN_QUOTE_BYTES])
{
	const uint8_t *p = (const uint8_t *)bytes;
	size_t used = 0;
	size_t taken;
	char piece[16];

	for (size_t i = 0; i < length; i += taken) {
		size_t size = put_character(piece, p + i, length - i, &taken);

		if (used + size + sizeof "..." > GSN_QUOTE_BYTES) {
			memcpy(text + used, "...", 3);
			used += 3;
			break;
		}
		memcpy(text + used, piece, size);
		used += size;
	}
	text[used] = '\0';
	return text;
}

int gsn_hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}
