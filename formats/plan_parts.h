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

#endif
