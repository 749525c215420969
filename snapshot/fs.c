/* SPDX-License-Identifier: Apache-2.0 */
/* The real file system behind struct gsn_fs: one system call each, and its known refusals. */
#include "snapshot/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { FD_PATH_BYTES = 32, ALLOCATE_TRIES = 16 };

static int answer(int result)
{
	return result < 0 ? -errno : result;
}

/* linkat() by descriptor needs a privilege; through /proc it needs none. */
static void fd_path(int fd, char path[FD_PATH_BYTES])
{
	(void)snprintf(path, FD_PATH_BYTES, "/proc/self/fd/%d", fd);
}

static int posix_open_directory(const struct gsn_fs *fs, const char *path)
{
	(void)fs;
	return answer(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int posix_open_unnamed(const struct gsn_fs *fs, int directory, mode_t mode)
{
	int fd = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
	char path[FD_PATH_BYTES];

	/* Kernels and file systems without O_TMPFILE say one of the other two. */
	if (fd < 0)
		return errno == EISDIR || errno == EINVAL ? -EOPNOTSUPP : -errno;
	fd_path(fd, path);
	if (faccessat(AT_FDCWD, path, F_OK, 0) == 0)
		return fd;
	(void)close(fd);
	(void)fs;
	return -EOPNOTSUPP;
}

static int posix_open_again(const struct gsn_fs *fs, int fd)
{
	char path[FD_PATH_BYTES];

	(void)fs;
	fd_path(fd, path);
	return answer(open(path, O_RDONLY | O_CLOEXEC));
}

static int posix_drop_cache(const struct gsn_fs *fs, int fd)
{
	(void)fs;
	return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int posix_create(const struct gsn_fs *fs, int directory, const char *name, mode_t mode)
{
	(void)fs;
	return answer(
		openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

static int posix_open_existing(const struct gsn_fs *fs, int directory, const char *name)
{
	(void)fs;
	return answer(openat(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

static void posix_close(const struct gsn_fs *fs, int fd)
{
	(void)fs;
	(void)close(fd);
}

static int posix_lock(const struct gsn_fs *fs, int fd)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int result = answer(fcntl(fd, F_OFD_SETLK, &whole));

	(void)fs;
	return result == -EACCES ? -EAGAIN : result;
}

static int posix_status(const struct gsn_fs *fs, int fd, struct stat *ret_status)
{
	(void)fs;
	return answer(fstat(fd, ret_status));
}

static int posix_status_at(
	const struct gsn_fs *fs, int directory, const char *name, struct stat *ret_status)
{
	(void)fs;
	return answer(fstatat(directory, name, ret_status, AT_SYMLINK_NOFOLLOW));
}

static int posix_allocate(const struct gsn_fs *fs, int fd, uint64_t bytes)
{
	int result = -EINTR;

	(void)fs;
	/* A large one starts anew after each signal, so that a fast timer might starve it. */
	for (int tries = 0; tries < ALLOCATE_TRIES && result == -EINTR; tries++)
		result = answer(fallocate(fd, 0, 0, (off_t)bytes));
	return result;
}

static gpusnap_status posix_choose_direct(const struct gsn_fs *fs, int fd, const char *name,
	gpusnap_io_direct wanted, struct gsn_direct_choice *ret_choice, gpusnap_error *err)
{
	(void)fs;
	return gsn_direct_choose(fd, name, wanted, ret_choice, err);
}

static int posix_truncate(const struct gsn_fs *fs, int fd, uint64_t bytes)
{
	(void)fs;
	return answer(ftruncate(fd, (off_t)bytes));
}

static int posix_set_mode(const struct gsn_fs *fs, int fd, mode_t mode)
{
	(void)fs;
	return answer(fchmod(fd, mode));
}

static int posix_fsync(const struct gsn_fs *fs, int fd)
{
	(void)fs;
	return answer(fsync(fd));
}

static int posix_link_unnamed(const struct gsn_fs *fs, int fd, int directory, const char *name)
{
	char path[FD_PATH_BYTES];

	(void)fs;
	fd_path(fd, path);
	return answer(linkat(AT_FDCWD, path, directory, name, AT_SYMLINK_FOLLOW));
}

static int posix_rename_noreplace(
	const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	int result = answer(renameat2(directory, from, directory, to, RENAME_NOREPLACE));

	(void)fs;
	if (result != -EINVAL && result != -ENOSYS)
		return result;
	result = answer(linkat(directory, from, directory, to, 0));
	if (!result)
		(void)unlinkat(directory, from, 0);
	return result;
}

static int posix_rename(const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	(void)fs;
	return answer(renameat(directory, from, directory, to));
}

static int posix_unlink(const struct gsn_fs *fs, int directory, const char *name)
{
	(void)fs;
	return answer(unlinkat(directory, name, 0));
}

static int posix_list(const struct gsn_fs *fs, int directory,
	void (*visit)(void *user, const char *name), void *user)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;
	DIR *stream;

	(void)fs;
	if (fd < 0)
		return -errno;
	stream = fdopendir(fd);
	if (!stream) {
		int os_errno = errno;

		(void)close(fd);
		return -os_errno;
	}
	while ((entry = readdir(stream)))
		visit(user, entry->d_name);
	(void)closedir(stream);
	return 0;
}

const struct gsn_fs gsn_fs_posix = {
	.open_directory = posix_open_directory,
	.open_unnamed = posix_open_unnamed,
	.open_again = posix_open_again,
	.drop_cache = posix_drop_cache,
	.create = posix_create,
	.open_existing = posix_open_existing,
	.close = posix_close,
	.lock = posix_lock,
	.status = posix_status,
	.status_at = posix_status_at,
	.allocate = posix_allocate,
	.choose_direct = posix_choose_direct,
	.truncate = posix_truncate,
	.set_mode = posix_set_mode,
	.fsync = posix_fsync,
	.fsync_directory = posix_fsync,
	.link_unnamed = posix_link_unnamed,
	.rename_noreplace = posix_rename_noreplace,
	.rename = posix_rename,
	.unlink = posix_unlink,
	.list = posix_list,
};
