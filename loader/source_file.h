/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SOURCE_FILE_H
#define GSN_SOURCE_FILE_H
/*
 * One file of a checkpoint directory, held open: regular files only, links followed (the Hugging
 * Face cache is made of them). What it was when it was opened is remembered, so that a file that
 * is truncated, rewritten or replaced meanwhile is an error and not a mixture.
 */
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <gpusnap/json.h>
#include <gpusnap/status.h>

struct gsn_source_file {
	char *path;
	int fd; /* -1: not open */
	uint64_t bytes;
	dev_t device;
	ino_t inode;
	struct timespec modified;
	const uint8_t *map; /* read-only; NULL: not mapped */
};

/* E_IO: missing, or not a directory. */
gpusnap_status gsn_source_directory_check(const char *directory, gpusnap_error *err);

/* E_IO: missing, not readable, not a regular file. */
gpusnap_status gsn_source_file_open(const char *directory, const char *name,
	struct gsn_source_file *ret_file, gpusnap_error *err);
void gsn_source_file_close(struct gsn_source_file *file);
/* Exactly `length` bytes, or E_IO that names the file and the offset. */
gpusnap_status gsn_source_file_read(const struct gsn_source_file *file, void *bytes,
	uint64_t length, uint64_t offset, gpusnap_error *err);
/* Map the file, once. E_IO when the file system has no mappings. */
gpusnap_status gsn_source_file_map(struct gsn_source_file *file, gpusnap_error *err);
/*
 * gsn_source_file_read() out of the mapping. The kernel does the copying: where a page cannot be
 * had, because the file was truncated or the disk failed, it answers an error. No thread of ours
 * ever touches the mapping, which would raise SIGBUS. E_UNSUPPORTED where the system does not let
 * a process be copied from.
 */
gpusnap_status gsn_source_file_read_mapped(const struct gsn_source_file *file, void *bytes,
	uint64_t length, uint64_t offset, gpusnap_error *err);
/* E_IO when the path no longer leads to the file as it was opened. */
gpusnap_status gsn_source_file_unchanged(const struct gsn_source_file *file, gpusnap_error *err);

/*
 * The whole of a text file; gsn_free(). E_LIMIT over `limit` bytes, E_FORMAT when it is a Git-LFS
 * pointer.
 */
gpusnap_status gsn_text_file_read(const char *directory, const char *name, uint64_t limit,
	char **ret_text, size_t *ret_bytes, gpusnap_error *err);
/* The JSON document in a small file: E_LIMIT over `limit` bytes, E_FORMAT when malformed. */
gpusnap_status gsn_json_file_read(const char *directory, const char *name, uint64_t limit,
	gpusnap_json **ret_json, gpusnap_error *err);

#endif
