/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_SAFETENSORS_H
#define GPUSNAP_SAFETENSORS_H
/*
 * The safetensors header, read strictly and written: u64 little-endian length N, N bytes of JSON,
 * data. Pure bytes-to-structs: whoever reads the file passes its length, so that nothing is
 * allocated for lengths that the file does not have.
 *
 * Stricter than the official reader, on purpose: duplicate tensor names and metadata keys, a
 * tensor given as an array and rank over 64 are refused. Fields of a tensor other than dtype,
 * shape and data_offsets are checked as JSON and ignored. Names may be empty or hold any character,
 * NUL included: never use one as a path, or as a C string without comparing name_length.
 */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/dtype.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSNAP_HEADER_JSON_MAX 100000000u /* bytes; the official readers' limit */
#define GPUSNAP_RANK_MAX	64u

typedef struct gpusnap_tensor {
	const char *name; /* UTF-8, NUL-terminated for convenience */
	size_t name_length;
	gpusnap_dtype dtype;
	uint32_t rank;
	const uint64_t *shape; /* rank dimensions, row-major, logical (F4 counts elements) */
	uint64_t begin;	       /* bytes from the start of the data section */
	uint64_t end;
} gpusnap_tensor;

typedef struct gpusnap_header gpusnap_header;

/**
 * First step: how long is the JSON. Says what the file really is when it is a Git-LFS pointer,
 * HTML, gzip, zip, GGUF or a pickle.
 * @param prefix      the first `prefix_bytes` bytes of the file (16 or more help the diagnosis).
 * @param file_bytes  length of the file.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_header_measure(const uint8_t *prefix,
	size_t prefix_bytes, uint64_t file_bytes, uint64_t *ret_json_bytes, gpusnap_error *err);

/**
 * Second step: parse the JSON. Tensors must tile the data section exactly: sorted by (begin,
 * end) there is no hole, no overlap, and the last ends at the end of the file.
 * @param out  owned by the caller; gpusnap_header_free().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_header_parse(const char *json,
	uint64_t json_bytes, uint64_t file_bytes, gpusnap_header **out, gpusnap_error *err);

GPUSNAP_API uint64_t gpusnap_header_data_offset(const gpusnap_header *header); /* 8 + N */
GPUSNAP_API size_t gpusnap_header_tensor_count(const gpusnap_header *header);
/** Tensor by position in the file (sorted by begin, then end, then name). Borrowed. */
GPUSNAP_API const gpusnap_tensor *gpusnap_header_tensor(const gpusnap_header *header, size_t index);
/** Tensor by its whole name (one that holds NUL is never found), in O(log n). NULL: absent. */
GPUSNAP_API const gpusnap_tensor *gpusnap_header_find(
	const gpusnap_header *header, const char *name);
/**
 * Value of a `__metadata__` key, in O(log n); NULL when absent. Borrowed. A value that holds a NUL
 * character ends there.
 */
GPUSNAP_API const char *gpusnap_header_metadata(const gpusnap_header *header, const char *key);
GPUSNAP_API size_t gpusnap_header_metadata_count(const gpusnap_header *header);
/** Pair by position, sorted by key. Borrowed. */
GPUSNAP_API const struct gpusnap_metadata *gpusnap_header_metadata_at(
	const gpusnap_header *header, size_t index);
/** NULL is a no-op. */
GPUSNAP_API void gpusnap_header_free(gpusnap_header *header);

typedef struct gpusnap_metadata {
	const char *key;
	const char *value;
} gpusnap_metadata;

/**
 * Write a header: length, JSON, and spaces so that data begins at a multiple of `alignment`, a
 * power of two. Tensors must already tile from 0 in the order given, under distinct names in
 * UTF-8. Deterministic: same input, same bytes. E_FORMAT when they would make no valid file,
 * E_LIMIT when the JSON would exceed GPUSNAP_HEADER_JSON_MAX.
 * @param ret_bytes  allocated; gpusnap_header_bytes_free().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_header_build(const gpusnap_tensor *tensors,
	size_t tensor_count, const gpusnap_metadata *metadata, size_t metadata_count,
	uint32_t alignment, uint8_t **ret_bytes, uint64_t *ret_length, gpusnap_error *err);
GPUSNAP_API void gpusnap_header_bytes_free(uint8_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
