/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit protocol on one file. It knows names, durability and litter, and nothing of what the
 * file holds.
 */
#include "snapshot/commit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

/* Of the target's name, this much goes into a temporary one, so that it stays under NAME_MAX. */
enum { NAME_PART_MAX = 180, CREATE_TRIES = 16, FILE_MODE = 0666, MODE_BITS = 0777 };

static gpusnap_status fail_path(
	const struct gsn_commit *commit, const char *what, int result, gpusnap_error *err)
{
	return gsn_fail_os(err, gsn_status_from_errno(-result), -result, "'%s': %s: %s",
		commit->path, what, strerror(-result));
}

static gpusnap_status fail_exists(const struct gsn_commit *commit, gpusnap_error *err)
{
	return gsn_fail_os(err, GPUSNAP_E_IO, EEXIST, "'%s' exists; ask to replace it (--replace)",
		commit->path);
}

static gpusnap_status split_path(struct gsn_commit *commit, const char *path, gpusnap_error *err)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	commit->path = gsn_strdup(path);
	commit->name = gsn_strdup(name);
	if (!slash)
		commit->directory = gsn_strdup(".");
	else
		commit->directory = gsn_strndup(path, slash == path ? 1 : (size_t)(slash - path));
	if (!commit->path || !commit->name || !commit->directory)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "'%s': out of memory", path);
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID, "'%s' names no file", path);
	return GPUSNAP_OK;
}

static gpusnap_status open_directory(struct gsn_commit *commit, gpusnap_error *err)
{
	int fd = commit->fs->open_directory(commit->fs, commit->directory);

	if (fd < 0)
		return gsn_fail_os(err, gsn_status_from_errno(-fd), -fd,
			"'%s': cannot open its directory '%s': %s", commit->path, commit->directory,
			strerror(-fd));
	commit->directory_fd = fd;
	return GPUSNAP_OK;
}

/* What is at the target's name; the mode to keep, or -1. */
static gpusnap_status look_at_target(struct gsn_commit *commit, int *ret_mode, gpusnap_error *err)
{
	struct stat target;
	int result = commit->fs->status_at(commit->fs, commit->directory_fd, commit->name, &target);

	*ret_mode = -1;
	if (result == -ENOENT)
		return GPUSNAP_OK;
	if (result)
		return fail_path(commit, "cannot look at it", result, err);
	if (S_ISLNK(target.st_mode))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"'%s' is a symbolic link; give the path that it leads to", commit->path);
	if (!S_ISREG(target.st_mode))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"'%s' is there and is not a regular file; choose another path",
			commit->path);
	if (!commit->replace)
		return fail_exists(commit, err);
	*ret_mode = (int)(target.st_mode & MODE_BITS);
	return GPUSNAP_OK;
}

static int name_prefix(const struct gsn_commit *commit, char *prefix, size_t bytes)
{
	return snprintf(prefix, bytes, ".%.*s.gpusnap-", NAME_PART_MAX, commit->name);
}

static gpusnap_status choose_temporary(struct gsn_commit *commit, gpusnap_error *err)
{
	uint64_t random;
	char prefix[256];

	if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
		return gsn_fail_os(err, GPUSNAP_E_IO, errno, "'%s': no random bytes: %s",
			commit->path, strerror(errno));
	(void)name_prefix(commit, prefix, sizeof prefix);
	gsn_free(commit->temporary);
	commit->temporary = gsn_printf("%s%ld-%016" PRIx64 ".tmp", prefix, (long)getpid(), random);
	if (!commit->temporary)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "'%s': out of memory", commit->path);
	return GPUSNAP_OK;
}

static bool is_temporary_of(const struct gsn_commit *commit, const char *name)
{
	char prefix[256];
	int prefix_length = name_prefix(commit, prefix, sizeof prefix);
	size_t length = strlen(name);

	return length > (size_t)prefix_length + 4 &&
	       memcmp(name, prefix, (size_t)prefix_length) == 0 &&
	       strcmp(name + length - 4, ".tmp") == 0;
}

/* Remove a temporary file whose writer is dead: its lock is free. Whatever fails, it may stay. */
static void sweep_one(void *user, const char *name)
{
	const struct gsn_commit *commit = user;
	struct stat file;
	int fd;

	if (!is_temporary_of(commit, name))
		return;
	fd = commit->fs->open_existing(commit->fs, commit->directory_fd, name);
	if (fd < 0)
		return;
	if (!commit->fs->status(commit->fs, fd, &file) && S_ISREG(file.st_mode) &&
		!commit->fs->lock(commit->fs, fd))
		(void)commit->fs->unlink(commit->fs, commit->directory_fd, name);
	commit->fs->close(commit->fs, fd);
}

/*
 * Between creation and lock another writer's sweep may take the file for litter; it then holds the
 * lock, or the name is gone.
 */
static bool still_ours(struct gsn_commit *commit)
{
	struct stat file;
	int locked = commit->fs->lock(commit->fs, commit->fd);

	if (locked == -EAGAIN)
		return false;
	return !commit->fs->status(commit->fs, commit->fd, &file) && file.st_nlink > 0;
}

static gpusnap_status create_named(struct gsn_commit *commit, gpusnap_error *err)
{
	for (int tries = 0; tries < CREATE_TRIES; tries++) {
		gpusnap_status status = choose_temporary(commit, err);
		int fd;

		if (status)
			return status;
		fd = commit->fs->create(
			commit->fs, commit->directory_fd, commit->temporary, FILE_MODE);
		if (fd == -EEXIST)
			continue;
		if (fd < 0)
			return fail_path(commit, "cannot create a file beside it", fd, err);
		commit->fd = fd;
		commit->visible = true;
		if (still_ours(commit))
			return GPUSNAP_OK;
		(void)commit->fs->unlink(commit->fs, commit->directory_fd, commit->temporary);
		commit->fs->close(commit->fs, fd);
		commit->fd = -1;
		commit->visible = false;
	}
	return gsn_fail(err, GPUSNAP_E_BUSY,
		"'%s': %d temporary files in a row were taken away by another writer", commit->path,
		CREATE_TRIES);
}

static gpusnap_status create_temporary(struct gsn_commit *commit, gpusnap_error *err)
{
	int fd = commit->fs->open_unnamed(commit->fs, commit->directory_fd, FILE_MODE);

	if (fd == -EOPNOTSUPP)
		return create_named(commit, err);
	if (fd < 0)
		return fail_path(commit, "cannot create a file beside it", fd, err);
	commit->fd = fd;
	/* Held from before it gets a name; where locks do not work, sweeps let it be as well. */
	(void)commit->fs->lock(commit->fs, fd);
	return choose_temporary(commit, err);
}

static gpusnap_status allocate(struct gsn_commit *commit, uint64_t bytes, gpusnap_error *err)
{
	/* fallocate() refuses to reserve nothing, which an empty buffer's bytes alone are. */
	int result = bytes ? commit->fs->allocate(commit->fs, commit->fd, bytes) : 0;

	/* Without the service, or peace for it, lack of space is found while writing. */
	if (result == -EOPNOTSUPP || result == -ENOSYS || result == -EINTR)
		return GPUSNAP_OK;
	if (result)
		return gsn_fail_os(err, gsn_status_from_errno(-result), -result,
			"'%s': cannot reserve %" PRIu64 " bytes: %s", commit->path, bytes,
			strerror(-result));
	return GPUSNAP_OK;
}

gpusnap_status gsn_commit_begin(struct gsn_commit *commit, const struct gsn_fs *fs,
	const char *path, bool replace, uint64_t bytes, gpusnap_error *err)
{
	gpusnap_status status;
	int mode = -1;

	commit->fs = fs;
	commit->replace = replace;
	status = split_path(commit, path, err);
	if (!status)
		status = open_directory(commit, err);
	if (!status)
		status = look_at_target(commit, &mode, err);
	if (status)
		return status;
	(void)fs->list(fs, commit->directory_fd, sweep_one, commit);
	status = create_temporary(commit, err);
	if (!status && mode >= 0) {
		int result = fs->set_mode(fs, commit->fd, (mode_t)mode);

		if (result)
			status = fail_path(commit, "cannot keep its mode", result, err);
	}
	return status ? status : allocate(commit, bytes, err);
}

gpusnap_status gsn_commit_sync(struct gsn_commit *commit, uint64_t file_bytes, gpusnap_error *err)
{
	int result;

	if (commit->durable)
		return GPUSNAP_OK;
	result = commit->fs->truncate(commit->fs, commit->fd, file_bytes);
	if (result)
		return fail_path(commit, "cannot cut it to its length", result, err);
	/* Never twice: after a failure the kernel may have dropped the dirty pages. */
	result = commit->fs->fsync(commit->fs, commit->fd);
	if (result)
		return fail_path(commit, "fsync", result, err);
	commit->durable = true;
	return GPUSNAP_OK;
}

static int publish_unnamed(struct gsn_commit *commit)
{
	const struct gsn_fs *fs = commit->fs;
	int result;

	if (!commit->replace)
		return fs->link_unnamed(fs, commit->fd, commit->directory_fd, commit->name);
	result = fs->link_unnamed(fs, commit->fd, commit->directory_fd, commit->temporary);
	if (result)
		return result;
	commit->visible = true;
	return fs->rename(fs, commit->directory_fd, commit->temporary, commit->name);
}

static int publish_named(const struct gsn_commit *commit)
{
	const struct gsn_fs *fs = commit->fs;

	if (commit->replace)
		return fs->rename(fs, commit->directory_fd, commit->temporary, commit->name);
	return fs->rename_noreplace(fs, commit->directory_fd, commit->temporary, commit->name);
}

gpusnap_status gsn_commit_finish(struct gsn_commit *commit, uint64_t file_bytes, gpusnap_error *err)
{
	gpusnap_status status = gsn_commit_sync(commit, file_bytes, err);
	int result;

	if (status)
		return status;
	result = commit->visible ? publish_named(commit) : publish_unnamed(commit);
	if (result == -EEXIST)
		return fail_exists(commit, err);
	if (result)
		return fail_path(commit, "cannot bring the new file to its name", result, err);
	commit->visible = false;
	result = commit->fs->fsync_directory(commit->fs, commit->directory_fd);
	if (result)
		return gsn_fail_os(err, GPUSNAP_E_IO, -result,
			"'%s' is written, but its directory cannot be synced, so that a crash may "
			"undo it: %s",
			commit->path, strerror(-result));
	return GPUSNAP_OK;
}

void gsn_commit_end(struct gsn_commit *commit)
{
	if (commit->visible)
		(void)commit->fs->unlink(commit->fs, commit->directory_fd, commit->temporary);
	if (commit->fd >= 0)
		commit->fs->close(commit->fs, commit->fd);
	if (commit->directory_fd >= 0)
		commit->fs->close(commit->fs, commit->directory_fd);
	gsn_free(commit->path);
	gsn_free(commit->directory);
	gsn_free(commit->name);
	gsn_free(commit->temporary);
	*commit = (struct gsn_commit)GSN_COMMIT_INIT;
}
