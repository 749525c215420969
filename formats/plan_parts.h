/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PLAN_PARTS_H
#define GSN_PLAN_PARTS_H
/* What the files of the plan share. */
#include <gpusnap/plan.h>

enum { GSN_PLAN_FORMAT = 1 }; /* version of the plan's JSON */

/*
 * Hold a plan, whose fields are each in range, against itself and against the header: all that
 * gpusnap_plan_decode() promises beyond syntax.
 */
gpusnap_status gsn_plan_check(
	const gpusnap_plan *plan, const gpusnap_header *header, gpusnap_error *err);

/* True when all elements of the view lie in its buffer's bytes. */
bool gsn_view_inside(const gpusnap_plan_view *view, uint64_t buffer_bytes);

/*
 * What a delta says of itself: changed leaves exist and are in order, and the tensors hold just
 * those. Names and sizes of the entries are held against the plan by gsn_plan_check().
 */
gpusnap_status gsn_delta_check(
	const gpusnap_plan_delta *delta, const gpusnap_header *header, gpusnap_error *err);

/* The plan's member "delta". Encoding: NULL is no memory. Decoding sets *ret_delta to what there is
 * also on failure. */
gpusnap_json *gsn_delta_encode(const gpusnap_plan_delta *delta);
gpusnap_status gsn_delta_decode(
	const gpusnap_json *json, gpusnap_plan_delta **ret_delta, gpusnap_error *err);
void gsn_delta_free(gpusnap_plan_delta *delta);

/* Decimal digits as printf writes them: no sign, no leading zero. False on overflow. */
bool gsn_parse_decimal(const char **at, uint64_t max, uint64_t *ret_value);

#endif
