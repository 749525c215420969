/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_JSON_H
#define GPUSNAP_JSON_H
/*
 * JSON values, for the plan, the agent's messages and `--json`. A thin face over Jansson, so that
 * no other module includes it: pack and unpack take Jansson's format strings
 * (https://jansson.readthedocs.io/en/latest/apiref.html#building-values), where "o" steals the
 * value that it is given and "I"/"i" take `long long`/`int`.
 */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct json_t gpusnap_json;

#define GPUSNAP_JSON_DEPTH_MAX 128u

/**
 * Parse exactly one document: any value. Refused are duplicate keys, trailing text, invalid UTF-8,
 * nesting over GPUSNAP_JSON_DEPTH_MAX, integers outside [-2^63, 2^63), the integer -0 (it would
 * read as 0), and NUL characters in strings and keys (results are C strings, which it would cut).
 * @param what  names the text in messages ("agent request").
 * @param out   owned by the caller; gpusnap_json_free().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_json_parse(
	const char *text, size_t length, const char *what, gpusnap_json **out, gpusnap_error *err);

/** Text of a value on one line; the caller frees it with gpusnap_text_free(). NULL: no memory. */
GPUSNAP_API char *gpusnap_json_dump(const gpusnap_json *value);
/** The same over several lines, indented by two spaces, for people. */
GPUSNAP_API char *gpusnap_json_dump_pretty(const gpusnap_json *value);
GPUSNAP_API void gpusnap_text_free(char *text);

/** Release a value; NULL is a no-op. */
GPUSNAP_API void gpusnap_json_free(gpusnap_json *value);
/** A second reference to the same value, to be freed too. */
GPUSNAP_API gpusnap_json *gpusnap_json_ref(gpusnap_json *value);

/** Build a value. NULL when memory is short or a stolen value was NULL; "o" values are consumed. */
GPUSNAP_API gpusnap_json *gpusnap_json_pack(const char *format, ...);
/** Take a value apart; E_FORMAT says which key is missing or of the wrong type. Borrowed results.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_json_unpack(
	gpusnap_json *value, const char *what, gpusnap_error *err, const char *format, ...);

/** Append, consuming `item` even on failure. E_NOMEM when either is NULL or memory is short. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_json_append(
	gpusnap_json *array, gpusnap_json *item);
/** Set a key, consuming `item` even on failure. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_json_set(
	gpusnap_json *object, const char *key, gpusnap_json *item);
/** Remove a key; no-op when it is absent. */
GPUSNAP_API void gpusnap_json_remove(gpusnap_json *object, const char *key);

typedef enum gpusnap_json_kind {
	GPUSNAP_JSON_NULL, /* also of a NULL pointer: an absent value */
	GPUSNAP_JSON_BOOLEAN,
	GPUSNAP_JSON_INTEGER,
	GPUSNAP_JSON_REAL,
	GPUSNAP_JSON_STRING,
	GPUSNAP_JSON_ARRAY,
	GPUSNAP_JSON_OBJECT,
} gpusnap_json_kind;
GPUSNAP_API gpusnap_json_kind gpusnap_json_kind_of(const gpusnap_json *value);

/* Borrowed access; NULL, 0 or the fallback when absent or of another type. */
GPUSNAP_API gpusnap_json *gpusnap_json_get(const gpusnap_json *object, const char *key);
GPUSNAP_API size_t gpusnap_json_size(const gpusnap_json *array_or_object);
GPUSNAP_API gpusnap_json *gpusnap_json_at(const gpusnap_json *array, size_t index);
/** Name of the index-th key, in insertion order; takes linear time. */
GPUSNAP_API const char *gpusnap_json_key_at(const gpusnap_json *object, size_t index);
GPUSNAP_API const char *gpusnap_json_text(const gpusnap_json *string);
GPUSNAP_API int64_t gpusnap_json_integer(const gpusnap_json *integer, int64_t fallback);
/** An integer counts as a real. */
GPUSNAP_API double gpusnap_json_real(const gpusnap_json *number, double fallback);
GPUSNAP_API int gpusnap_json_boolean(const gpusnap_json *boolean, int fallback);

/*
 * Walk an object's members in the order of its text; the object must not change meanwhile:
 *   for (void *at = gpusnap_json_first(object); at; at = gpusnap_json_next(object, at))
 */
GPUSNAP_API void *gpusnap_json_first(gpusnap_json *object); /* NULL: empty, or no object */
GPUSNAP_API void *gpusnap_json_next(gpusnap_json *object, void *at);
GPUSNAP_API const char *gpusnap_json_key(void *at);
GPUSNAP_API gpusnap_json *gpusnap_json_value(void *at);

#ifdef __cplusplus
}
#endif
#endif
