/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_COPY_ARGS_H
#define GSN_COPY_ARGS_H
/*
 * Checks of the arguments of copies, fills and digests that hold for every device, made when the
 * work is given: no address, a range past the last address, source and destination that overlap, a
 * stride shorter than its row. All answer E_INVALID; `kind` names the device in the message.
 */
#include <gpusnap/status.h>

#include "kernels/device_ops.h"

/* A range of `bytes` > 0. */
gpusnap_status gsn_span_check(
	const char *kind, const char *what, uint64_t address, uint64_t bytes, gpusnap_error *err);
/* A copy of bytes > 0. */
gpusnap_status gsn_copy_check(
	const char *kind, uint64_t dst, uint64_t src, uint64_t bytes, gpusnap_error *err);
/* A strided copy of at least two rows that are not empty. */
gpusnap_status gsn_strided_copy_check(
	const char *kind, const struct gsn_strided_copy *copy, gpusnap_error *err);
/* Range `i` of a digest; an empty one is right whatever it names. */
gpusnap_status gsn_leaf_range_check(
	const char *kind, const struct gsn_leaf_range *range, size_t i, gpusnap_error *err);

#endif
