/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_MEMINFO_H
#define GSN_HOST_MEMINFO_H
/* How much memory this process may have: the machine's, or less where a control group limits it. */
#include <stdint.h>

#include <gpusnap/status.h>

struct gsn_host_meminfo {
	uint64_t total_bytes;
	uint64_t available_bytes; /* without swapping; page cache that can be dropped counts */
};

/* `root` is put in front of /proc and /sys: "" for this machine. */
gpusnap_status gsn_host_meminfo_read(
	const char *root, struct gsn_host_meminfo *ret_info, gpusnap_error *err);

#endif
