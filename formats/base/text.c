/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* C0, DEL, and the C1 controls, which UTF-8 spells C2 80 to C2 9F: terminals obey them. */
static bool needs_escape(const uint8_t *p, size_t left)
{
	if (*p < 0x20 || *p == 0x7f || *p == '\'' || *p == '\\')
		return true;
	return *p == 0xc2 && left > 1 && p[1] >= 0x80 && p[1] < 0xa0;
}

/* Bytes of one UTF-8 sequence as its first byte says, at most `left`. */
static size_t sequence_length(uint8_t first, size_t left)
{
	size_t length = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

	return length < left ? length : left;
}

static void put_hex(char *out, uint8_t byte)
{
	static const char digits[] = "0123456789abcdef";

	out[0] = '\\';
	out[1] = 'x';
	out[2] = digits[byte >> 4];
	out[3] = digits[byte & 15];
}

const char *gsn_quote(const char *bytes, size_t length, char text[GSN_QUOTE_BYTES])
{
	const uint8_t *p = (const uint8_t *)bytes;
	size_t used = 0;

	for (size_t i = 0; i < length;) {
		bool escape = needs_escape(p + i, length - i);
		size_t taken = sequence_length(p[i], length - i);

		if (used + (escape ? 4 * taken : taken) + sizeof "..." > GSN_QUOTE_BYTES) {
			memcpy(text + used, "...", 3);
			used += 3;
			break;
		}
		for (size_t end = i + taken; i < end; i++) {
			if (escape)
				put_hex(text + used, p[i]);
			else
				text[used] = (char)p[i];
			used += escape ? 4 : 1;
		}
	}
	text[used] = '\0';
	return text;
}
