/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/copy_args.h"

#include <inttypes.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"

gpusnap_status gsn_span_check(
	const char *kind, const char *what, uint64_t address, uint64_t bytes, gpusnap_error *err)
{
	uint64_t end;

	if (!address || gsn_add_overflow(address, bytes, &end))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: %s of %" PRIu64 " bytes at 0x%" PRIx64
			": no such address range",
			kind, what, bytes, address);
	return GPUSNAP_OK;
}

/* Where the bytes of a copy lie: both spans valid, and apart from each other. */
static gpusnap_status check_spans(const char *kind, const struct gsn_strided_copy *copy,
	uint64_t dst_bytes, uint64_t src_bytes, gpusnap_error *err)
{
	gpusnap_status status = gsn_span_check(kind, "write", copy->dst, dst_bytes, err);

	if (!status)
		status = gsn_span_check(kind, "read", copy->src, src_bytes, err);
	if (!status && copy->dst < copy->src + src_bytes && copy->src < copy->dst + dst_bytes)
		status = gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: copy: source 0x%" PRIx64 " + %" PRIu64
			" and destination 0x%" PRIx64 " + %" PRIu64 " overlap",
			kind, copy->src, src_bytes, copy->dst, dst_bytes);
	return status;
}

gpusnap_status gsn_copy_check(
	const char *kind, uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err)
{
	const struct gsn_strided_copy copy = {.dst = dst, .src = src};

	return check_spans(kind, &copy, bytes, bytes, err);
}

/* Bytes from the first row's first byte to the last row's last; E_INVALID when it overflows. */
static gpusnap_status span_of_rows(const char *kind, const char *what,
	const struct gsn_strided_copy *copy, uint64_t stride, uint64_t *ret_bytes,
	gpusnap_error *err)
{
	uint64_t span;

	if (stride < copy->row_bytes)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: strided copy: %s stride %" PRIu64
			" is less than a row, %" PRIu64 " bytes",
			kind, what, stride, copy->row_bytes);
	if (gsn_mul_overflow(copy->rows - 1, stride, &span) ||
		gsn_add_overflow(span, copy->row_bytes, ret_bytes))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: strided copy: %" PRIu64 " rows, %s stride %" PRIu64
			": larger than the address space",
			kind, copy->rows, what, stride);
	return GPUSNAP_OK;
}

gpusnap_status gsn_strided_copy_check(
	const char *kind, const struct gsn_strided_copy *copy, gpusnap_error *err)
{
	uint64_t dst_bytes;
	uint64_t src_bytes;
	gpusnap_status status =
		span_of_rows(kind, "destination", copy, copy->dst_stride, &dst_bytes, err);

	if (!status)
		status = span_of_rows(kind, "source", copy, copy->src_stride, &src_bytes, err);
	if (!status)
		status = check_spans(kind, copy, dst_bytes, src_bytes, err);
	return status;
}

gpusnap_status gsn_leaf_range_check(
	const char *kind, const struct gsn_leaf_range *range, size_t i, gpusnap_error *err)
{
	uint64_t end;

	if (range->bytes && (!range->address || !range->out ||
				    gsn_add_overflow(range->address, range->bytes, &end)))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s device: digest: range %zu, %" PRIu64 " bytes at 0x%" PRIx64
			"%s: no such address range",
			kind, i, range->bytes, range->address,
			range->out ? "" : " to a NULL output");
	return GPUSNAP_OK;
}
