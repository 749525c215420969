/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_TEMPDIR_H
#define GPUSNAP_TEST_TEMPDIR_H
/*
 * Temporary folders. Make the root in main() before the suite runs and remove it there afterwards:
 * a failed test skips its teardown.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/suite.h"

/* A new folder under `base`, or under $TMPDIR or /tmp when that is NULL. */
static inline void tempdir_make(char path[PATH_MAX], const char *base)
{
	const char *tmpdir = getenv("TMPDIR");

	if (!base)
		base = tmpdir && *tmpdir ? tmpdir : "/tmp";
	assert(snprintf(path, PATH_MAX, "%s/gpusnap-test-XXXXXX", base) < PATH_MAX);
	assert(mkdtemp(path));
}

/* Remove a folder with all files in it, one level of folders included. */
static inline void tempdir_remove(const char *path)
{
	char child[PATH_MAX];
	DIR *stream = opendir(path);
	struct dirent *entry;

	while (stream && (entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (snprintf(child, sizeof child, "%s/%s", path, entry->d_name) >=
			(int)sizeof child)
			continue;
		if (unlink(child))
			tempdir_remove(child);
	}
	if (stream)
		(void)closedir(stream);
	(void)rmdir(path);
}

/* Names in a folder, "." and ".." not counted. */
static inline int tempdir_count(const char *path)
{
	DIR *stream = opendir(path);
	int count = -2;

	assert(stream);
	while (readdir(stream))
		count++;
	(void)closedir(stream);
	return count;
}

static inline void tempdir_join(char path[PATH_MAX], const char *folder, const char *name)
{
	assert(snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX);
}

static inline void file_write(const char *path, const void *bytes, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert(fd >= 0);
	assert(write(fd, bytes, length) == (ssize_t)length);
	assert(close(fd) == 0);
}

#endif
