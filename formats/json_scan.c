/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/json_scan.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "formats/base/utf8.h"

void gsn_scan_init(
	struct gsn_scan *scan, const char *text, size_t length, uint64_t base, gpusnap_error *err)
{
	memset(scan, 0, sizeof *scan);
	scan->text = text;
	scan->length = length;
	scan->base = base;
	scan->err = err;
}

/* Character at the position, '\0' at the end. */
static char current(const struct gsn_scan *scan)
{
	return scan->at < scan->length ? scan->text[scan->at] : '\0';
}

char gsn_scan_peek(struct gsn_scan *scan)
{
	char c = current(scan);

	while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
		scan->at++;
		c = current(scan);
	}
	return c;
}

uint64_t gsn_scan_offset(const struct gsn_scan *scan)
{
	return scan->base + scan->at;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Of words and numbers, well-formed or not. */
static bool is_word(uint8_t c)
{
	return isalnum(c) || c == '+' || c == '-' || c == '.' || c == '_';
}

/* Length of what stands at the position, for messages: a word or number, or one character. */
static size_t token_length(const struct gsn_scan *scan)
{
	const uint8_t *p = (const uint8_t *)scan->text + scan->at;
	size_t left = scan->length - scan->at;
	size_t length = 0;

	while (length < left && length < GSN_QUOTE_BYTES && is_word(p[length]))
		length++;
	if (length == 0)
		length = gsn_utf8_length(p, left);
	return length ? length : 1;
}

void gsn_scan_record(const struct gsn_scan *scan, const char *what)
{
	uint64_t offset = gsn_scan_offset(scan);
	char quoted[GSN_QUOTE_BYTES];

	if (scan->at >= scan->length) {
		gsn_error_set(scan->err, GPUSNAP_E_FORMAT, 0, offset,
			"expected %s at byte %" PRIu64 ", found the end of the text", what, offset);
		return;
	}
	gsn_quote(scan->text + scan->at, token_length(scan), quoted);
	gsn_error_set(scan->err, GPUSNAP_E_FORMAT, 0, offset,
		"expected %s at byte %" PRIu64 ", found '%s'", what, offset, quoted);
}

gpusnap_status gsn_scan_enter(struct gsn_scan *scan, char open, const char *what)
{
	if (gsn_scan_peek(scan) != open)
		return gsn_scan_expected(scan, what);
	if (scan->depth == GSN_SCAN_DEPTH_MAX)
		return gsn_fail_at(scan->err, GPUSNAP_E_FORMAT, gsn_scan_offset(scan),
			"nested deeper than %d levels at byte %" PRIu64, GSN_SCAN_DEPTH_MAX,
			gsn_scan_offset(scan));
	scan->at++;
	scan->open[++scan->depth] = open;
	scan->fresh = true;
	return GPUSNAP_OK;
}

gpusnap_status gsn_scan_next(struct gsn_scan *scan, bool *more)
{
	bool object = scan->open[scan->depth] == '{';
	char c = gsn_scan_peek(scan);

	assert(scan->depth > 0);
	*more = c != (object ? '}' : ']');
	if (!*more) {
		scan->at++;
		scan->depth--;
		scan->fresh = false;
		return GPUSNAP_OK;
	}
	if (!scan->fresh) {
		if (c != ',')
			return gsn_scan_expected(scan, object ? "',' or '}'" : "',' or ']'");
		scan->at++;
	}
	scan->fresh = false;
	return GPUSNAP_OK;
}

static int hex_digit(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The four digits after "\u". */
static gpusnap_status take_hex(struct gsn_scan *scan, uint32_t *ret_code)
{
	uint32_t code = 0;

	for (int i = 0; i < 4; i++, scan->at++) {
		int digit = hex_digit(current(scan));

		if (digit < 0)
			return gsn_scan_expected(scan, "four hexadecimal digits after \\u");
		code = code << 4 | (uint32_t)digit;
	}
	*ret_code = code;
	return GPUSNAP_OK;
}

static gpusnap_status take_code_point(struct gsn_scan *scan, uint32_t *ret_code)
{
	uint32_t low;
	gpusnap_status status = take_hex(scan, ret_code);

	if (status || *ret_code < 0xd800 || *ret_code > 0xdfff)
		return status;
	if (*ret_code > 0xdbff || scan->length - scan->at < 6 ||
		memcmp(scan->text + scan->at, "\\u", 2) != 0)
		return gsn_scan_expected(scan, "the other half of a surrogate pair");
	scan->at += 2;
	status = take_hex(scan, &low);
	if (status)
		return status;
	if (low < 0xdc00 || low > 0xdfff)
		return gsn_scan_expected(scan, "the low half of a surrogate pair before this");
	*ret_code = 0x10000 + ((*ret_code - 0xd800) << 10) + (low - 0xdc00);
	return GPUSNAP_OK;
}

static gpusnap_status take_escape(struct gsn_scan *scan, uint32_t *ret_code)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char values[] = "\"\\/\b\f\n\r\t";
	const char *letter;
	char c;

	scan->at++;
	c = current(scan);
	if (c == 'u') {
		scan->at++;
		return take_code_point(scan, ret_code);
	}
	letter = c ? strchr(letters, c) : NULL;
	if (!letter)
		return gsn_scan_expected(scan, "an escape of JSON after '\\'");
	scan->at++;
	*ret_code = (uint8_t)values[letter - letters];
	return GPUSNAP_OK;
}

/* Eight characters at once: is none of them a quote, a backslash, below 0x20 or over 0x7e. */
static bool are_plain(const char *text)
{
	const uint64_t ones = UINT64_MAX / 0xff, high = ones * 0x80;
	uint64_t word, quote, backslash;

	memcpy(&word, text, sizeof word);
	quote = word ^ ones * '"';
	backslash = word ^ ones * '\\';
	/* With no high bit set, x - n borrows exactly where a byte is below n, or later ones. */
	return !((word | (word + ones) | (word - ones * 0x20) | (quote - ones) |
			 (backslash - ones)) &
		 high);
}

/* Most characters stand for themselves: printable ASCII without quote and backslash. */
static size_t plain_length(const struct gsn_scan *scan)
{
	size_t at = scan->at;

	while (scan->length - at >= sizeof(uint64_t) && are_plain(scan->text + at))
		at += sizeof(uint64_t);
	while (at < scan->length && scan->text[at] >= 0x20 && scan->text[at] < 0x7f &&
		scan->text[at] != '"' && scan->text[at] != '\\')
		at++;
	return at - scan->at;
}

/* One character of a string, decoded into `out` (4 bytes of room). */
static gpusnap_status take_character(struct gsn_scan *scan, char *out, size_t *ret_length)
{
	const uint8_t *p = (const uint8_t *)scan->text + scan->at;
	size_t length;
	uint32_t code;

	if (*p == '\\') {
		gpusnap_status status = take_escape(scan, &code);

		*ret_length = status ? 0 : gsn_utf8_put(out, code);
		return status;
	}
	if (*p < 0x20)
		return gsn_scan_expected(scan, "an escaped control character");
	length = gsn_utf8_length(p, scan->length - scan->at);
	if (!length)
		return gsn_scan_expected(scan, "UTF-8");
	memcpy(out, p, length);
	scan->at += length;
	*ret_length = length;
	return GPUSNAP_OK;
}

gpusnap_status gsn_scan_string(
	struct gsn_scan *scan, const char *what, char *out, size_t *ret_length)
{
	gpusnap_status status;
	size_t total = 0;
	char small[4];
	size_t length;

	if (gsn_scan_peek(scan) != '"')
		return gsn_scan_expected(scan, what);
	scan->at++;
	for (;;) {
		length = plain_length(scan);
		if (out)
			memcpy(out + total, scan->text + scan->at, length);
		scan->at += length;
		total += length;
		if (scan->at >= scan->length || scan->text[scan->at] == '"')
			break;
		status = take_character(scan, out ? out + total : small, &length);
		if (status)
			return status;
		total += length;
	}
	if (scan->at >= scan->length)
		return gsn_scan_expected(scan, "the end of a string");
	scan->at++;
	if (out)
		out[total] = '\0';
	if (ret_length)
		*ret_length = total;
	return GPUSNAP_OK;
}

gpusnap_status gsn_scan_key(struct gsn_scan *scan, char *out, size_t *ret_length)
{
	gpusnap_status status = gsn_scan_string(scan, "a key in quotes", out, ret_length);

	if (status)
		return status;
	if (gsn_scan_peek(scan) != ':')
		return gsn_scan_expected(scan, "':'");
	scan->at++;
	return GPUSNAP_OK;
}

static size_t skip_digits(struct gsn_scan *scan)
{
	size_t begin = scan->at;

	while (is_digit(current(scan)))
		scan->at++;
	return scan->at - begin;
}

gpusnap_status gsn_scan_u64(struct gsn_scan *scan, const char *what, uint64_t *ret_value)
{
	uint64_t value = 0;
	size_t begin;
	bool good;

	(void)gsn_scan_peek(scan);
	begin = scan->at;
	good = skip_digits(scan) > 0;
	for (size_t i = begin; good && i < scan->at; i++)
		good = !gsn_mul_overflow(value, 10, &value) &&
		       !gsn_add_overflow(value, (uint64_t)(scan->text[i] - '0'), &value);
	if (scan->at - begin > 1 && scan->text[begin] == '0')
		good = false;
	if (strchr(".eE", current(scan) ? current(scan) : ' '))
		good = false;
	if (!good) {
		scan->at = begin;
		return gsn_scan_expected(scan, what);
	}
	*ret_value = value;
	return GPUSNAP_OK;
}

/* Digits after 'e' or 'E' and a sign, held at 10^6: more is out of range either way. */
static bool take_exponent(struct gsn_scan *scan, long *ret_exponent)
{
	bool minus;
	size_t begin;

	scan->at++;
	minus = current(scan) == '-';
	if (minus || current(scan) == '+')
		scan->at++;
	begin = scan->at;
	if (!skip_digits(scan))
		return false;
	for (size_t i = begin; i < scan->at; i++)
		if (*ret_exponent < 1000000)
			*ret_exponent = *ret_exponent * 10 + (scan->text[i] - '0');
	if (minus)
		*ret_exponent = -*ret_exponent;
	return true;
}

/*
 * Does the number at [begin, at) overflow a double? The official reader parses even numbers that
 * it ignores, and refuses the file then. Exact but for the numbers between 1.7976931348623158e308
 * and 1.797693134862315807...e308, which round to DBL_MAX and are refused too.
 */
static bool overflows_double(const struct gsn_scan *scan, size_t begin, long exponent)
{
	static const char limit[] = "17976931348623158";
	size_t first = begin;
	size_t point = begin;
	size_t matched = 0;
	long magnitude;

	while (point < scan->at && (is_digit(scan->text[point]) || scan->text[point] == '-'))
		point++;
	while (first < scan->at && strchr("-0.", scan->text[first]))
		first++;
	if (first == scan->at || !is_digit(scan->text[first]))
		return false;
	magnitude =
		exponent + (first < point ? (long)(point - first) - 1 : (long)point - (long)first);
	if (magnitude != 308)
		return magnitude > 308;
	for (size_t i = first; i < scan->at && limit[matched]; i++) {
		if (scan->text[i] == '.')
			continue;
		if (scan->text[i] != limit[matched])
			return is_digit(scan->text[i]) && scan->text[i] > limit[matched];
		matched++;
	}
	return limit[matched] == '\0';
}

static gpusnap_status skip_number(struct gsn_scan *scan)
{
	size_t begin = scan->at;
	long exponent = 0;
	bool good;

	if (current(scan) == '-')
		scan->at++;
	if (current(scan) == '0')
		good = skip_digits(scan) == 1;
	else
		good = skip_digits(scan) > 0;
	if (good && current(scan) == '.') {
		scan->at++;
		good = skip_digits(scan) > 0;
	}
	if (good && (current(scan) == 'e' || current(scan) == 'E'))
		good = take_exponent(scan, &exponent);
	if (good && !overflows_double(scan, begin, exponent))
		return GPUSNAP_OK;
	scan->at = begin;
	return gsn_scan_expected(scan, good ? "a number in the range of a double" : "a value");
}

static bool take_word(struct gsn_scan *scan, const char *word)
{
	size_t length = strlen(word);

	if (scan->length - scan->at < length || memcmp(scan->text + scan->at, word, length) != 0)
		return false;
	scan->at += length;
	return true;
}

bool gsn_scan_null(struct gsn_scan *scan)
{
	(void)gsn_scan_peek(scan);
	return take_word(scan, "null");
}

/* A scalar, or the beginning of a container. */
static gpusnap_status skip_one(struct gsn_scan *scan)
{
	char c = gsn_scan_peek(scan);

	if (c == '{' || c == '[')
		return gsn_scan_enter(scan, c, "a value");
	if (c == '"')
		return gsn_scan_string(scan, "a value", NULL, NULL);
	if (take_word(scan, "true") || take_word(scan, "false") || take_word(scan, "null"))
		return GPUSNAP_OK;
	if (c == '-' || is_digit(c))
		return skip_number(scan);
	return gsn_scan_expected(scan, "a value");
}

/* Leave what is complete down to `depth`, and stop before the next value. */
static gpusnap_status skip_to_value(struct gsn_scan *scan, unsigned depth)
{
	gpusnap_status status = GPUSNAP_OK;
	bool more = false;

	while (!status && !more && scan->depth > depth)
		status = gsn_scan_next(scan, &more);
	if (!status && more && scan->open[scan->depth] == '{')
		status = gsn_scan_key(scan, NULL, NULL);
	return status;
}

gpusnap_status gsn_scan_skip(struct gsn_scan *scan)
{
	unsigned depth = scan->depth;
	gpusnap_status status;

	do {
		status = skip_one(scan);
		if (!status)
			status = skip_to_value(scan, depth);
	} while (!status && scan->depth > depth);
	return status;
}

gpusnap_status gsn_scan_end(struct gsn_scan *scan)
{
	(void)gsn_scan_peek(scan);
	if (scan->at < scan->length)
		return gsn_scan_expected(scan, "nothing but white space at the end");
	return GPUSNAP_OK;
}
