/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is a chain of two files: u32 length of the parent, the parent, the delta. Both are
 * opened as they are, by their chain; what opens must have each leaf at one place, and is read in
 * all the ways there are.
 *
 * The mutator changes the header's text, a leaf table, a seal or some bytes of one of them, then
 * makes the digests of both right again and the delta a child of the parent, so that what lies
 * behind those checks is reached.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "snapshot/snapshot_file.h"

enum { LENGTH_BYTES = 4, ROOT_AT = 80, PARENT_AT = 96, FD_PATH_BYTES = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
/* libFuzzer's; absent where the target is only replayed. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

struct file {
	uint8_t *bytes;
	size_t length;
};

static bool split(uint8_t *data, size_t size, struct file *parent, struct file *delta)
{
	size_t length;

	if (size < LENGTH_BYTES || gsn_le32(data) > size - LENGTH_BYTES)
		return false;
	length = gsn_le32(data);
	*parent = (struct file){data + LENGTH_BYTES, length};
	*delta = (struct file){data + LENGTH_BYTES + length, size - LENGTH_BYTES - length};
	return true;
}

/* ---- the mutator ---- */

static uint8_t *seal_of(const struct file *file)
{
	return file->bytes + file->length - GPUSNAP_SEAL_BYTES;
}

static bool has_parts(const struct file *file)
{
	return file->length >= 2 * (size_t)GPUSNAP_SEAL_BYTES;
}

static size_t header_bytes(const struct file *file)
{
	uint64_t json = gsn_le64(file->bytes);

	return json < file->length - GPUSNAP_SEAL_BYTES - 8 ? (size_t)json + 8 : 4096;
}

static size_t leaves_bytes(const struct file *file)
{
	uint64_t room = file->length - GPUSNAP_SEAL_BYTES - header_bytes(file);
	uint64_t count = gsn_le64(seal_of(file) + 128);

	return count <= room / GPUSNAP_DIGEST_BYTES ? (size_t)count * GPUSNAP_DIGEST_BYTES : 0;
}

static void put_digest(uint8_t *at, gpusnap_digest digest)
{
	memcpy(at, digest.bytes, sizeof digest.bytes);
}

static void repair(const struct file *file, const uint8_t *parent_root)
{
	uint8_t *seal = seal_of(file);
	size_t leaves = leaves_bytes(file);
	gpusnap_digest header, table, parent;

	if (parent_root)
		memcpy(seal + PARENT_AT, parent_root, sizeof parent.bytes);
	header = gpusnap_digest_of(file->bytes, header_bytes(file));
	table = gpusnap_digest_of(seal - leaves, leaves);
	memcpy(parent.bytes, seal + PARENT_AT, sizeof parent.bytes);
	put_digest(seal + 48, header);
	put_digest(seal + 64, table);
	gsn_put_le64(seal + 112, file->length);
	gsn_put_le64(seal + 120, header_bytes(file));
	put_digest(seal + ROOT_AT,
		gpusnap_digest_root(gsn_le32(seal + 8), header, table, file->length, parent));
	put_digest(
		seal + GPUSNAP_SEAL_BYTES - 16, gpusnap_digest_of(seal, GPUSNAP_SEAL_BYTES - 16));
}

/* The text may grow into the spaces behind it. */
static void mutate_text(const struct file *file)
{
	char *text = (char *)file->bytes + 8;
	size_t room = header_bytes(file) - 8, length = room;

	while (length && text[length - 1] == ' ')
		length--;
	length = LLVMFuzzerMutate((uint8_t *)text, length, room);
	memset(text + length, ' ', room - length);
}

static void mutate_file(const struct file *file, unsigned seed)
{
	uint8_t *seal = seal_of(file);
	size_t leaves = leaves_bytes(file);

	if (seed % 8 < 5)
		mutate_text(file);
	else if (seed % 8 == 5 && leaves)
		(void)LLVMFuzzerMutate(seal - leaves, leaves, leaves);
	else if (seed % 8 == 6)
		(void)LLVMFuzzerMutate(seal, 140, 140);
	else
		(void)LLVMFuzzerMutate(file->bytes, file->length, file->length);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	struct file parent, delta;

	if (!split(data, size, &parent, &delta) || !has_parts(&parent) || !has_parts(&delta))
		return LLVMFuzzerMutate(data, size, max_size);
	mutate_file(seed % 3 ? &delta : &parent, seed / 3);
	/* Now and then as it is: the checks of the digests are code as well. */
	if (seed % 16 == 0)
		return size;
	repair(&parent, NULL);
	repair(&delta, seal_of(&parent) + ROOT_AT);
	return size;
}

/* ---- the target ---- */

static int put_file(const struct file *file, char path[FD_PATH_BYTES])
{
	int fd = memfd_create("chain", MFD_CLOEXEC);

	if (fd < 0 || write(fd, file->bytes, file->length) != (ssize_t)file->length)
		abort();
	(void)snprintf(path, FD_PATH_BYTES, "/proc/self/fd/%d", fd);
	return fd;
}

/* The parts of an entry cover its leaves once, in order, inside the files. */
static void check_parts(const gpusnap_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->entry_count; i++) {
		uint64_t at = 0;

		for (size_t k = snapshot->first_part[i]; k < snapshot->first_part[i + 1]; k++) {
			const struct gsn_part *part = &snapshot->parts[k];
			struct gsn_segment segment = gsn_snapshot_segment(snapshot, k);

			if (part->entry != i || part->first_leaf != at ||
				part->link >= snapshot->link_count ||
				part->file_offset + segment.bytes >
					snapshot->links[part->link]->file_bytes)
				abort();
			at += part->leaf_count;
		}
		if (at != snapshot->entries[i].leaf_count)
			abort();
	}
}

static void read_all(gpusnap_snapshot *snapshot)
{
	gpusnap_extract_options options = GPUSNAP_EXTRACT_OPTIONS_INIT;
	gpusnap_io_options io = GPUSNAP_IO_OPTIONS_INIT;
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	gpusnap_damage damage;
	gpusnap_error err;

	io.engine = GPUSNAP_IO_THREADS;
	io.direct = GPUSNAP_DIRECT_OFF;
	io.depth = 1;
	io.block_bytes = GPUSNAP_LEAF_BYTES;
	options.io = io;
	options.raw = true;
	if (gpusnap_snapshot_verify(snapshot, &io, &damage, NULL, &err) == GPUSNAP_OK) {
		/* What verifies can be extracted. */
		for (size_t i = 0; i < snapshot->entry_count && i < 4; i++)
			if (gpusnap_snapshot_extract_fd(snapshot, snapshot->entries[i].name,
				    nowhere, &options, NULL, &err) &&
				!damage.count)
				abort();
		gpusnap_damage_release(&damage);
	}
	(void)close(nowhere);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Open descriptors are a directory of files under other names. */
	static const char *const directories[] = {"/proc/self/fd"};
	const gpusnap_snapshot_open_options options = {
		sizeof options, .parent_dirs = directories, .parent_dir_count = 1};
	char parent_path[FD_PATH_BYTES], path[FD_PATH_BYTES];
	uint8_t *copy = malloc(size ? size : 1);
	struct file parent, delta;
	gpusnap_snapshot *snapshot;
	gpusnap_error err;
	int parent_fd, fd;

	if (!copy)
		abort();
	memcpy(copy, data, size);
	if (!split(copy, size, &parent, &delta)) {
		free(copy);
		return 0;
	}
	parent_fd = put_file(&parent, parent_path);
	fd = put_file(&delta, path);
	if (gpusnap_snapshot_open_with(path, &options, &snapshot, &err) == GPUSNAP_OK) {
		check_parts(snapshot);
		read_all(snapshot);
		gpusnap_snapshot_close(snapshot);
	}
	(void)close(fd);
	(void)close(parent_fd);
	free(copy);
	return 0;
}
