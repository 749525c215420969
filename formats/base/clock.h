/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_CLOCK_H
#define GSN_CLOCK_H
/* The clock that reports measure with. */
#include <time.h>

/* Seconds of the monotonic clock; only differences mean anything. */
static inline double gsn_clock_seconds(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
