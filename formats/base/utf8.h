/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_UTF8_H
#define GSN_UTF8_H
/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing over U+10FFFF. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the sequence at `p`, 1 to 4; 0 when it is malformed or longer than `left`. */
size_t gsn_utf8_length(const uint8_t *p, size_t left);
bool gsn_utf8_valid(const char *text, size_t length);
/* Write a code point (no surrogate, at most U+10FFFF); bytes written, 1 to 4. */
size_t gsn_utf8_put(char *out, uint32_t code);

#endif
