/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_FIELDS_H
#define GSN_FIELDS_H
/*
 * Strict reading of the members of a JSON object, for the plan and its records. E_FORMAT says
 * which member is missing, of the wrong type or out of range; E_LIMIT which list or text is too
 * long. Results are borrowed unless the function says "copy".
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/digest.h>
#include <gpusnap/json.h>
#include <gpusnap/mask.h>
#include <gpusnap/plan.h>
#include <gpusnap/status.h>

/* Integers are in [min, max]; JSON integers end at 2^63 - 1. */
gpusnap_status gsn_field_u64(const gpusnap_json *object, const char *key, uint64_t min,
	uint64_t max, uint64_t *ret_value, gpusnap_error *err);
gpusnap_status gsn_field_u32(const gpusnap_json *object, const char *key, uint32_t min,
	uint32_t max, uint32_t *ret_value, gpusnap_error *err);
gpusnap_status gsn_field_bool(
	const gpusnap_json *object, const char *key, bool *ret_value, gpusnap_error *err);
/* Not empty, at most GPUSNAP_NAME_MAX bytes. */
gpusnap_status gsn_field_text(
	const gpusnap_json *object, const char *key, const char **ret_text, gpusnap_error *err);
gpusnap_status gsn_field_copy(
	const gpusnap_json *object, const char *key, char **ret_copy, gpusnap_error *err);
gpusnap_status gsn_field_digest(const gpusnap_json *object, const char *key,
	gpusnap_digest *ret_digest, gpusnap_error *err);
gpusnap_status gsn_field_object(
	const gpusnap_json *object, const char *key, gpusnap_json **ret_value, gpusnap_error *err);
/* An array of min..max items. */
gpusnap_status gsn_field_array(const gpusnap_json *object, const char *key, size_t min, size_t max,
	gpusnap_json **ret_array, gpusnap_error *err);
/* [rank, size] with rank < size. */
gpusnap_status gsn_field_rank(const gpusnap_json *object, const char *key, uint32_t *ret_rank,
	uint32_t *ret_size, gpusnap_error *err);

/* One item of an array of integers, in [min, max]. */
gpusnap_status gsn_item_i64(const gpusnap_json *array, size_t index, int64_t min, int64_t max,
	int64_t *ret_value, gpusnap_error *err);

/* A mask type as an object. NULL: no memory. The decoded type passes gpusnap_mask_type_check(). */
gpusnap_json *gsn_mask_encode(const gpusnap_mask_type *type);
gpusnap_status gsn_mask_decode(
	const gpusnap_json *object, gpusnap_mask_type *ret_type, gpusnap_error *err);

/* Text of a digest as a JSON string. NULL: no memory. */
gpusnap_json *gsn_digest_encode(gpusnap_digest digest);
/* A JSON integer. NULL: no memory, or `value` is 2^63 or more. */
gpusnap_json *gsn_u64_encode(uint64_t value);

#endif
