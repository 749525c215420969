/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, reading and re-checking the files of a checkpoint directory. */
#include "loader/source_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/alloc.h"
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
	if (file->fd >= 0)
		(void)close(file->fd);
	gsn_free(file->path);
	file->fd = -1;
	file->path = NULL;
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
			return gsn_fail_os(err, GPUSNAP_E_IO, errno, "cannot read %s at %llu: %s",
				file->path, (unsigned long long)(offset + done), strerror(errno));
		if (n == 0)
			return gsn_fail_at(err, GPUSNAP_E_IO, offset + done,
				"%s ends at %llu, it had %llu bytes when it was opened", file->path,
				(unsigned long long)(offset + done),
				(unsigned long long)file->bytes);
		done += (uint64_t)n;
	}
	return GPUSNAP_OK;
}

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
