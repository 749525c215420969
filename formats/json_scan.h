/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_JSON_SCAN_H
#define GSN_JSON_SCAN_H
/*
 * A strict pull reader of JSON text (RFC 8259) for safetensors headers. Jansson cannot read those:
 * it refuses NUL in keys and integers over 2^63, and it would keep a hash table for each of
 * 250,000 tensors. Works in place, allocates nothing, does not recurse, and knows where it is.
 *
 *   enter('{'); while (next(&more), more) { key(...); enter, string, u64 or skip }
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/status.h>

/* Containers inside each other; the official reader (serde_json) refuses the 128th. */
enum { GSN_SCAN_DEPTH_MAX = 127 };

struct gsn_scan {
	const char *text;
	size_t length;
	size_t at;
	uint64_t base; /* file offset of text[0], for messages */
	unsigned depth;
	bool fresh;			   /* the innermost container has no element yet */
	char open[GSN_SCAN_DEPTH_MAX + 1]; /* '{' or '[' by depth, from 1 */
	gpusnap_error *err;
};

void gsn_scan_init(
	struct gsn_scan *scan, const char *text, size_t length, uint64_t base, gpusnap_error *err);

/* Next character that is no white space; '\0' at the end (a NUL in the text fits nowhere). */
char gsn_scan_peek(struct gsn_scan *scan);
/* File offset of the next character. */
uint64_t gsn_scan_offset(const struct gsn_scan *scan);

/* Begin an object or an array; `what` names it in messages. */
gpusnap_status gsn_scan_enter(struct gsn_scan *scan, char open, const char *what);
/* Is there another element? Takes the comma before it, or the end of the container. */
gpusnap_status gsn_scan_next(struct gsn_scan *scan, bool *more);

/**
 * Decode a string. `out` has room for the rest of the text and gets a final NUL; NULL only checks.
 */
gpusnap_status gsn_scan_string(
	struct gsn_scan *scan, const char *what, char *out, size_t *ret_length);
/* A string and the colon after it. */
gpusnap_status gsn_scan_key(struct gsn_scan *scan, char *out, size_t *ret_length);
/* A number without sign, point, exponent or leading zero. */
gpusnap_status gsn_scan_u64(struct gsn_scan *scan, const char *what, uint64_t *ret_value);
/* True, and taken, if `null` comes next. */
bool gsn_scan_null(struct gsn_scan *scan);
/* Check any value and drop it. Its objects may repeat keys: they mean nothing. */
gpusnap_status gsn_scan_skip(struct gsn_scan *scan);
/* Nothing but white space may follow. */
gpusnap_status gsn_scan_end(struct gsn_scan *scan);

/* Records "expected WHAT at byte N, found 'TOKEN'". */
void gsn_scan_record(const struct gsn_scan *scan, const char *what);
/* A macro like gsn_fail(), so that analysers see that the value is not GPUSNAP_OK. */
#define gsn_scan_expected(scan, what) (gsn_scan_record((scan), (what)), GPUSNAP_E_FORMAT)

#endif
