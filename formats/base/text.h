/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_TEXT_H
#define GSN_TEXT_H
/* Foreign text in messages: names come from files and may hold anything. */
#include <stddef.h>

#define GSN_QUOTE_BYTES 128u

/**
 * Printable UTF-8 copy of `length` bytes: control characters, quotes, backslashes and malformed
 * bytes as \xNN, cut with "..." where it does not fit. Returns `text`.
 */
const char *gsn_quote(const char *bytes, size_t length, char text[GSN_QUOTE_BYTES]);

/* Value of a hexadecimal digit of either case, -1 for another character. */
int gsn_hex_value(char c);

#endif
