/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the machine from /proc/meminfo and /proc/zoneinfo, cut down to the limits of this
 * process's memory control group and of the groups above it (version 2 and version 1 of the
 * interface). Source: Linux Documentation/filesystems/proc.rst, admin-guide/cgroup-v2.rst and
 * admin-guide/cgroup-v1/memory.rst.
 */
#include "kernels/host_meminfo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"

enum { TEXT_BYTES = 16384 }; /* memory.stat, the longest, is below 6 KiB on Linux 6.18 */

static const struct hierarchy {
	const char *mount;
	const char *limit;
	const char *usage;
	const char *cache; /* key in memory.stat: file pages that are given up first */
} version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	"total_inactive_file"},
  version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

/* The file's text, cut off at the buffer's end. False, with errno, when it cannot be read. */
static bool read_text(const char *path, char text[TEXT_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got;
	int failure;

	if (fd < 0)
		return false;
	do {
		got = read(fd, text + length, TEXT_BYTES - 1 - length);
		length += got > 0 ? (size_t)got : 0;
	} while (got > 0 || (got < 0 && errno == EINTR));
	failure = errno;
	text[length] = '\0';
	(void)close(fd);
	errno = failure;
	return got == 0;
}

static bool read_text_in(const char *directory, const char *name, char text[TEXT_BYTES])
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s/%s", directory, name);

	return length > 0 && (size_t)length < sizeof path && read_text(path, text);
}

static bool parse_number(const char *text, uint64_t *ret_value)
{
	char *end;

	errno = 0;
	*ret_value = strtoull(text, &end, 10);
	return end != text && errno == 0 && text[0] != '-';
}

/* The number after `key`, which stands alone at the beginning of a line. */
static bool number_of(const char *text, const char *key, uint64_t *ret_value)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, length) == 0 && line[length] == ' ')
			return parse_number(line + length, ret_value);
	}
	return false;
}

/* Cut `info` down to the limit of one group. One without a limit, or without files, has no say. */
static void apply_group(
	const struct hierarchy *hierarchy, const char *directory, struct gsn_host_meminfo *info)
{
	char text[TEXT_BYTES];
	uint64_t limit;
	uint64_t usage;
	uint64_t cache;

	if (!read_text_in(directory, hierarchy->limit, text) || !parse_number(text, &limit))
		return;
	info->total_bytes = gsn_min(info->total_bytes, limit);
	if (!read_text_in(directory, hierarchy->usage, text) || !parse_number(text, &usage))
		return;
	if (!read_text_in(directory, "memory.stat", text) ||
		!number_of(text, hierarchy->cache, &cache))
		cache = 0;
	usage -= gsn_min(usage, cache);
	info->available_bytes = gsn_min(info->available_bytes, limit - gsn_min(limit, usage));
}

/* The group at `path` and those above it, up to the mount. */
static void apply_hierarchy(const char *root, const struct hierarchy *hierarchy, const char *path,
	struct gsn_host_meminfo *info)
{
	char directory[PATH_MAX];
	size_t mount_length = strlen(root) + strlen(hierarchy->mount);
	int length = snprintf(directory, sizeof directory, "%s%s%s", root, hierarchy->mount, path);

	if (length <= 0 || (size_t)length >= sizeof directory)
		return;
	for (;;) {
		char *slash;

		apply_group(hierarchy, directory, info);
		slash = strrchr(directory + mount_length, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* One line of /proc/self/cgroup is "number:controllers:path"; version 2 has number 0. */
static void apply_line(const char *root, char *line, struct gsn_host_meminfo *info)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return;
	*controllers++ = '\0';
	*path++ = '\0';
	if (strcmp(line, "0") == 0 && controllers[0] == '\0')
		apply_hierarchy(root, &version_2, path, info);
	else if (strcmp(controllers, "memory") == 0)
		apply_hierarchy(root, &version_1, path, info);
}

static void apply_groups(const char *root, struct gsn_host_meminfo *info)
{
	char text[TEXT_BYTES];
	char *rest = NULL;

	if (!read_text_in(root, "proc/self/cgroup", text))
		return;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		apply_line(root, line, info);
}

/*
 * Pages in the per-CPU free lists: hundreds of MiB after a large unmap, and counted neither in
 * MemFree nor in MemAvailable. Without them a measurement of freed memory is off by half.
 */
static uint64_t per_cpu_free_bytes(const char *root)
{
	char line[256];
	uint64_t pages = 0;
	uint64_t count;
	FILE *zones;

	if (snprintf(line, sizeof line, "%s/proc/zoneinfo", root) >= (int)sizeof line)
		return 0;
	zones = fopen(line, "re");
	while (zones && fgets(line, sizeof line, zones)) {
		const char *word = line + strspn(line, " ");

		if (strncmp(word, "count:", 6) == 0 && parse_number(word + 6, &count))
			pages += count;
	}
	if (zones)
		(void)fclose(zones);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

gpusnap_status gsn_host_meminfo_read(
	const char *root, struct gsn_host_meminfo *ret_info, gpusnap_error *err)
{
	struct gsn_host_meminfo info;
	char text[TEXT_BYTES];
	uint64_t total;
	uint64_t available;

	if (!read_text_in(root, "proc/meminfo", text))
		return gsn_fail_os(err, GPUSNAP_E_IO, errno,
			"host device: cannot read '%s/proc/meminfo': %s", root, strerror(errno));
	if (!number_of(text, "MemTotal:", &total) || !number_of(text, "MemAvailable:", &available))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"host device: '%s/proc/meminfo' gives no MemTotal and MemAvailable", root);
	info.total_bytes = total * 1024;
	info.available_bytes =
		gsn_min(info.total_bytes, available * 1024 + per_cpu_free_bytes(root));
	apply_groups(root, &info);
	*ret_info = info;
	return GPUSNAP_OK;
}
