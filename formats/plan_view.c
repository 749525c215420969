/* SPDX-License-Identifier: Apache-2.0 */
/* How far the elements of a view reach. */
#include "formats/base/bytes.h"
#include "formats/plan_parts.h"

/*
 * Elements below and above the first that a view reaches. Strides may be negative; an empty view
 * reaches nothing. False on overflow.
 */
static bool view_reach(const gpusnap_plan_view *view, uint64_t *ret_below, uint64_t *ret_above)
{
	uint64_t reach[2] = {0, 1}; /* below, above */
	bool overflow = false;

	for (uint32_t i = 0; i < view->rank; i++) {
		int64_t stride = view->strides[i];
		uint64_t step = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride, far;

		if (view->shape[i] == 0) {
			*ret_below = *ret_above = 0;
			return true;
		}
		overflow |= gsn_mul_overflow(view->shape[i] - 1, step, &far);
		overflow |= gsn_add_overflow(reach[stride >= 0], far, &reach[stride >= 0]);
	}
	*ret_below = reach[0];
	*ret_above = reach[1];
	return !overflow;
}

bool gsn_view_inside(const gpusnap_plan_view *view, uint64_t buffer_bytes)
{
	uint64_t bits = gpusnap_dtype_bits(view->dtype);
	uint64_t below, above, start, room;

	if (!view_reach(view, &below, &above) || gsn_mul_overflow(below, bits, &below) ||
		gsn_mul_overflow(above, bits, &above) ||
		gsn_mul_overflow(view->offset, 8, &start) ||
		gsn_mul_overflow(buffer_bytes, 8, &room))
		return false;
	return start <= room && below <= start && above <= room - start;
}
