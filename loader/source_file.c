/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, reading and re-checking the files of a checkpoint directory. */
#include "loader/source_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

gpusnap_status gsn_source_directory_check(const char *directory, gpusnap_error *err)
{
	struct stat st;

	if (stat(directory, &st))
		return gsn_fail_os(err, GPUSNAP_E_IO, errno, "no checkpoint directory %s: %s",
			directory, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return gsn_fail(err, GPUSNAP_E_IO,
			"%s is not a directory; give the one that holds config.json", directory);
	return GPUSNAP_OK;
}

static gpusnap_status open_path(const char *path, int *ret_fd, gpusnap_error *err)
{
	/* O_NONBLOCK: a FIFO must be refused, not waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return gsn_fail_os(err, gsn_status_from_errno(errno), errno, "cannot open %s: %s",
			path, strerror(errno));
	*ret_fd = fd;
	return GPUSNAP_OK;
}

static gpusnap_status remember(struct gsn_source_file *file, gpusnap_error *err)
{
	struct stat st;

	if (fstat(file->fd, &st))
		return gsn_fail_os(err, GPUSNAP_E_IO, errno, "cannot stat %s: %s", file->path,
			strerror(errno));
	if (!S_ISREG(st.st_mode))
		return gsn_fail(err, GPUSNAP_E_IO, "%s is not a regular file", file->path);
	file->bytes = (uint64_t)st.st_size;
	file->device = st.st_dev;
	file->inode = st.st_ino;
	file->modified = st.st_mtim;
	return GPUSNAP_OK;
}

gpusnap_status gsn_source_file_open(const char *directory, const char *name,
	struct gsn_source_file *ret_file, gpusnap_error *err)
{
	struct gsn_source_file file = {.path = gsn_printf("%s/%s", directory, name), .fd = -1};
	gpusnap_status st;

	if (!file.path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to open %s", name);
	st = open_path(file.path, &file.fd, err);
	if (!st)
		st = remember(&file, err);
	if (st)
		gsn_source_file_close(&file);
	else
		*ret_file = file;
	return st;
}

void gsn_source_file_close(struct gsn_source_file *file)
{
	if (file->map)
		(void)munmap((void *)(uintptr_t)file->map, file->bytes);
	file->map = NULL;
	if (file->fd >= 0)
		(void)close(file->fd);
	gsn_free(file->path);
	file->fd = -1;
	file->path = NULL;
}

static gpusnap_status fail_read(
	const struct gsn_source_file *file, uint64_t offset, int os_errno, gpusnap_error *err)
{
	return gsn_fail_os(err, GPUSNAP_E_IO, os_errno, "cannot read %s at %llu: %s", file->path,
		(unsigned long long)offset, strerror(os_errno));
}

static gpusnap_status fail_end(
	const struct gsn_source_file *file, uint64_t offset, gpusnap_error *err)
{
	return gsn_fail_at(err, GPUSNAP_E_IO, offset,
		"%s ends at %llu, it had %llu bytes when the load began; load again", file->path,
		(unsigned long long)offset, (unsigned long long)file->bytes);
}

gpusnap_status gsn_source_file_read(const struct gsn_source_file *file, void *bytes,
	uint64_t length, uint64_t offset, gpusnap_error *err)
{
	uint64_t done = 0;

	while (done < length) {
		ssize_t n = pread(
			file->fd, (uint8_t *)bytes + done, length - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_read(file, offset + done, errno, err);
		if (n == 0)
			return fail_end(file, offset + done, err);
		done += (uint64_t)n;
	}
	return GPUSNAP_OK;
}

/* ---- the mapping ---- */

gpusnap_status gsn_source_file_map(struct gsn_source_file *file, gpusnap_error *err)
{
	void *map;

	if (file->map || file->bytes == 0)
		return GPUSNAP_OK;
	map = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
	if (map == MAP_FAILED)
		return gsn_fail_os(err, GPUSNAP_E_IO, errno,
			"cannot map %s: %s; use another engine than mmap", file->path,
			strerror(errno));
	file->map = map;
	return GPUSNAP_OK;
}

/* Have the kernel read ahead what is wanted next; that it may not is no failure. */
static void advise(const struct gsn_source_file *file, uint64_t length, uint64_t offset)
{
	uint64_t begin = gsn_align_down(offset, (uint64_t)sysconf(_SC_PAGESIZE));

	(void)madvise(
		(void *)(uintptr_t)(file->map + begin), offset + length - begin, MADV_WILLNEED);
}

static gpusnap_status fail_mapped(
	const struct gsn_source_file *file, uint64_t offset, int os_errno, gpusnap_error *err)
{
	struct stat st;

	if (os_errno == EPERM || os_errno == ENOSYS)
		return gsn_fail_os(err, GPUSNAP_E_UNSUPPORTED, os_errno,
			"cannot copy out of a mapping: %s; use another engine than mmap",
			strerror(os_errno));
	if (fstat(file->fd, &st) == 0 && (uint64_t)st.st_size < file->bytes)
		return fail_end(file, (uint64_t)st.st_size, err);
	return fail_read(file, offset, os_errno == EFAULT ? EIO : os_errno, err);
}

/* The last page of a mapping reads as zeros beyond the file's end. */
static gpusnap_status check_end(
	const struct gsn_source_file *file, uint64_t end, gpusnap_error *err)
{
	struct stat st;

	if (fstat(file->fd, &st))
		return fail_read(file, end, errno, err);
	return (uint64_t)st.st_size < end ? fail_end(file, (uint64_t)st.st_size, err) : GPUSNAP_OK;
}

gpusnap_status gsn_source_file_read_mapped(const struct gsn_source_file *file, void *bytes,
	uint64_t length, uint64_t offset, gpusnap_error *err)
{
	uint64_t done = 0;

	advise(file, length, offset);
	while (done < length) {
		struct iovec to = {(uint8_t *)bytes + done, length - done};
		struct iovec from = {(void *)(uintptr_t)(file->map + offset + done), to.iov_len};
		ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail_mapped(file, offset + done, n < 0 ? errno : EIO, err);
		done += (uint64_t)n;
	}
	return check_end(file, offset + length, err);
}

/* ---- what became of the file ---- */

gpusnap_status gsn_source_file_unchanged(const struct gsn_source_file *file, gpusnap_error *err)
{
	struct stat st;

	if (stat(file->path, &st))
		return gsn_fail_os(err, GPUSNAP_E_IO, errno,
			"%s vanished during the load: %s; load again", file->path, strerror(errno));
	if (st.st_dev != file->device || st.st_ino != file->inode)
		return gsn_fail(err, GPUSNAP_E_IO,
			"%s was replaced by another file during the load; load again", file->path);
	if ((uint64_t)st.st_size != file->bytes)
		return gsn_fail(err, GPUSNAP_E_IO,
			"%s has %llu bytes now, %llu when the load began; load again", file->path,
			(unsigned long long)st.st_size, (unsigned long long)file->bytes);
	if (st.st_mtim.tv_sec != file->modified.tv_sec ||
		st.st_mtim.tv_nsec != file->modified.tv_nsec)
		return gsn_fail(err, GPUSNAP_E_IO, "%s was written to during the load; load again",
			file->path);
	return GPUSNAP_OK;
}

/* A clone without git-lfs leaves pointers where the files should be. */
static gpusnap_status refuse_lfs_pointer(
	const char *text, uint64_t length, const char *path, gpusnap_error *err)
{
	static const char pointer[] = "version https://git-lfs";

	if (length < sizeof pointer - 1 || memcmp(text, pointer, sizeof pointer - 1) != 0)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"%s is a Git-LFS pointer, not the file itself; run 'git lfs pull' there", path);
}

static gpusnap_status read_text(
	const struct gsn_source_file *file, uint64_t limit, char **ret_text, gpusnap_error *err)
{
	char *text;
	gpusnap_status st;

	if (file->bytes > limit)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "%s has %llu bytes, the limit is %llu",
			file->path, (unsigned long long)file->bytes, (unsigned long long)limit);
	text = gsn_alloc(file->bytes, 1);
	if (!text)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to read %s", file->path);
	st = gsn_source_file_read(file, text, file->bytes, 0, err);
	if (!st)
		st = refuse_lfs_pointer(text, file->bytes, file->path, err);
	if (st)
		gsn_free(text);
	else
		*ret_text = text;
	return st;
}

gpusnap_status gsn_text_file_read(const char *directory, const char *name, uint64_t limit,
	char **ret_text, size_t *ret_bytes, gpusnap_error *err)
{
	struct gsn_source_file file = {.fd = -1};
	gpusnap_status st;

	st = gsn_source_file_open(directory, name, &file, err);
	if (st)
		return st;
	st = read_text(&file, limit, ret_text, err);
	if (!st)
		*ret_bytes = file.bytes;
	gsn_source_file_close(&file);
	return st;
}

gpusnap_status gsn_json_file_read(const char *directory, const char *name, uint64_t limit,
	gpusnap_json **ret_json, gpusnap_error *err)
{
	char *path = gsn_printf("%s/%s", directory, name);
	char *text = NULL;
	size_t bytes;
	gpusnap_status st;

	if (!path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to read %s", name);
	st = gsn_text_file_read(directory, name, limit, &text, &bytes, err);
	if (!st)
		st = gpusnap_json_parse(text, bytes, path, ret_json, err);
	gsn_free(text);
	gsn_free(path);
	return st;
}
