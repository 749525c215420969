/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/memory_peak.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/fail.h"

/* "VmRSS:", "VmHWM:" in KiB. */
static gpusnap_status status_bytes(const char *field, uint64_t *ret_bytes, gpusnap_error *err)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[256];
	int found = 0;

	while (file && !found && fgets(line, sizeof line, file))
		if (strncmp(line, field, strlen(field)) == 0)
			found = sscanf(line + strlen(field), "%llu", &kib);
	if (file)
		(void)fclose(file);
	if (found != 1)
		return gsn_fail(err, GPUSNAP_E_IO, "/proc/self/status has no %s", field);
	*ret_bytes = kib << 10;
	return GPUSNAP_OK;
}

gpusnap_status memory_peak_begin(struct memory_peak *peak, gpusnap_error *err)
{
	/* 5: forget the peak so far, see proc(5). */
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, "5", 1);

	if (fd >= 0)
		(void)close(fd);
	if (n != 1)
		return gsn_fail(
			err, GPUSNAP_E_IO, "/proc/self/clear_refs: the peak cannot be forgotten");
	return status_bytes("VmRSS:", &peak->before, err);
}

gpusnap_status memory_peak_end(const struct memory_peak *peak, uint64_t *most, gpusnap_error *err)
{
	uint64_t bytes;
	gpusnap_status s = status_bytes("VmHWM:", &bytes, err);

	if (!s && bytes > peak->before && bytes - peak->before > *most)
		*most = bytes - peak->before;
	return s;
}
