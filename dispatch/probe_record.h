/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PROBE_RECORD_H
#define GSN_PROBE_RECORD_H
/* Limits of a probe, so that a record from a file cannot ask for any amount of memory or time. */
#include <stdint.h>

#include <gpusnap/status.h>

/* E_INVALID, with `what` in front, unless both are within the limits. */
gpusnap_status gsn_probe_limits(
	const char *what, uint32_t tokens, uint32_t steps, gpusnap_error *err);

#endif
