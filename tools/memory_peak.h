/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MEMORY_PEAK_H
#define MEMORY_PEAK_H
/* How much memory this process takes at most while something runs, from /proc/self. */
#include <stdint.h>

#include <gpusnap/status.h>

struct memory_peak {
	uint64_t before; /* resident bytes */
};

gpusnap_status memory_peak_begin(struct memory_peak *peak, gpusnap_error *err);
/* `most` becomes what was resident at most since the begin, less what was then, if that is more. */
gpusnap_status memory_peak_end(const struct memory_peak *peak, uint64_t *most, gpusnap_error *err);

#endif
