/* SPDX-License-Identifier: Apache-2.0 */
/* The recording file system: a folder of memfds and the journal of what was done to them. */
#include "tests/support/crash_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/suite.h"

/* No descriptor of anything; nothing but this file system is ever asked about it. */
enum { FOLDER_FD = 1 << 29 };

static struct crash_fs *of(const struct gsn_fs *fs)
{
	return (struct crash_fs *)(uintptr_t)fs;
}

/* ---- names ---- */

static struct crash_name *slot_of(struct crash_folder *folder, const char *name)
{
	for (unsigned i = 0; i < CRASH_INODES; i++)
		if (strcmp(folder->names[i].name, name) == 0)
			return &folder->names[i];
	return NULL;
}

int crash_find(const struct crash_folder *folder, const char *name)
{
	const struct crash_name *slot = slot_of((struct crash_folder *)(uintptr_t)folder, name);

	return slot && *name ? (int)slot->inode : -1;
}

unsigned crash_name_count(const struct crash_folder *folder)
{
	unsigned count = 0;

	for (unsigned i = 0; i < CRASH_INODES; i++)
		count += folder->names[i].name[0] != '\0';
	return count;
}

void crash_set(struct crash_folder *folder, const char *name, unsigned inode)
{
	struct crash_name *slot = slot_of(folder, name);

	if (!slot)
		slot = slot_of(folder, "");
	assert(slot && *name && strlen(name) < sizeof slot->name);
	memcpy(slot->name, name, strlen(name) + 1);
	slot->inode = inode;
}

void crash_unset(struct crash_folder *folder, const char *name)
{
	struct crash_name *slot = *name ? slot_of(folder, name) : NULL;

	if (slot)
		*slot = (struct crash_name){.name = ""};
}

static struct crash_op name_op(
	enum crash_kind kind, unsigned inode, const char *from, const char *to)
{
	struct crash_op op = {.kind = kind, .inode = inode};

	assert(strlen(from) < sizeof op.from && strlen(to) < sizeof op.to);
	memcpy(op.from, from, strlen(from) + 1);
	memcpy(op.to, to, strlen(to) + 1);
	return op;
}

/* ---- the journal ---- */

void crash_note(struct crash_fs *fs, struct crash_op op)
{
	assert(fs->op_count < CRASH_OPS);
	if (op.data) {
		uint8_t *copy = malloc((size_t)op.bytes);

		assert(copy);
		memcpy(copy, op.data, (size_t)op.bytes);
		op.data = copy;
	}
	fs->ops[fs->op_count++] = op;
}

/* ---- files ---- */

static unsigned new_inode(struct crash_fs *fs)
{
	int fd = memfd_create("crash_fs", MFD_CLOEXEC);

	assert(fd >= 0 && fs->inode_count < CRASH_INODES);
	fs->inodes[fs->inode_count] = fd;
	return fs->inode_count++;
}

static int new_handle(struct crash_fs *fs, unsigned inode)
{
	for (unsigned i = 0; i < CRASH_HANDLES; i++) {
		if (fs->handles[i].fd >= 0)
			continue;
		fs->handles[i].fd = fcntl(fs->inodes[inode], F_DUPFD_CLOEXEC, 0);
		assert(fs->handles[i].fd >= 0);
		fs->handles[i].inode = inode;
		return fs->handles[i].fd;
	}
	return -EMFILE;
}

unsigned crash_inode(const struct crash_fs *fs, int fd)
{
	for (unsigned i = 0; i < CRASH_HANDLES; i++)
		if (fs->handles[i].fd == fd)
			return fs->handles[i].inode;
	assert(!"a descriptor of this file system");
	return 0;
}

void crash_add(struct crash_fs *fs, const char *name, const uint8_t *bytes, uint64_t length)
{
	unsigned inode = new_inode(fs);

	assert(pwrite(fs->inodes[inode], bytes, (size_t)length, 0) == (ssize_t)length);
	fs->durable[inode] = length;
	crash_set(&fs->before, name, inode);
	crash_set(&fs->now, name, inode);
}

uint8_t *crash_content(const struct crash_fs *fs, unsigned inode, uint64_t *ret_length)
{
	struct stat file;
	uint8_t *bytes;

	assert(fstat(fs->inodes[inode], &file) == 0);
	bytes = malloc((size_t)file.st_size + 1);
	assert(bytes);
	assert(pread(fs->inodes[inode], bytes, (size_t)file.st_size, 0) == file.st_size);
	*ret_length = (uint64_t)file.st_size;
	return bytes;
}

/* ---- operations ---- */

static int crash_open_directory(const struct gsn_fs *fs, const char *path)
{
	(void)fs;
	(void)path;
	return FOLDER_FD;
}

static int crash_open_unnamed(const struct gsn_fs *fs, int directory, mode_t mode)
{
	(void)directory;
	(void)mode;
	return of(fs)->named ? -EOPNOTSUPP : new_handle(of(fs), new_inode(of(fs)));
}

static int crash_open_again(const struct gsn_fs *fs, int fd)
{
	return new_handle(of(fs), crash_inode(of(fs), fd));
}

static int crash_drop_cache(const struct gsn_fs *fs, int fd)
{
	(void)fs;
	(void)fd;
	return 0;
}

static int crash_create(const struct gsn_fs *fs, int directory, const char *name, mode_t mode)
{
	unsigned inode;

	(void)directory;
	(void)mode;
	if (crash_find(&of(fs)->now, name) >= 0)
		return -EEXIST;
	inode = new_inode(of(fs));
	crash_set(&of(fs)->now, name, inode);
	crash_note(of(fs), name_op(CRASH_LINK, inode, "", name));
	return new_handle(of(fs), inode);
}

static int crash_open_existing(const struct gsn_fs *fs, int directory, const char *name)
{
	int inode = crash_find(&of(fs)->now, name);

	(void)directory;
	return inode < 0 ? -ENOENT : new_handle(of(fs), (unsigned)inode);
}

static void crash_close_handle(const struct gsn_fs *fs, int fd)
{
	if (fd == FOLDER_FD)
		return;
	for (unsigned i = 0; i < CRASH_HANDLES; i++)
		if (of(fs)->handles[i].fd == fd)
			of(fs)->handles[i].fd = -1;
	(void)close(fd);
}

/* A crash takes all locks away, and there is one writer. */
static int crash_lock(const struct gsn_fs *fs, int fd)
{
	(void)fs;
	(void)fd;
	return 0;
}

static int status_of(struct crash_fs *fs, unsigned inode, struct stat *ret_status)
{
	if (fstat(fs->inodes[inode], ret_status))
		return -errno;
	ret_status->st_nlink = 0;
	for (unsigned i = 0; i < CRASH_INODES; i++)
		if (fs->now.names[i].name[0] && fs->now.names[i].inode == inode)
			ret_status->st_nlink++;
	return 0;
}

static int crash_status(const struct gsn_fs *fs, int fd, struct stat *ret_status)
{
	return status_of(of(fs), crash_inode(of(fs), fd), ret_status);
}

static int crash_status_at(
	const struct gsn_fs *fs, int directory, const char *name, struct stat *ret_status)
{
	int inode = crash_find(&of(fs)->now, name);

	(void)directory;
	return inode < 0 ? -ENOENT : status_of(of(fs), (unsigned)inode, ret_status);
}

static int resize(struct crash_fs *fs, int fd, uint64_t bytes)
{
	unsigned inode = crash_inode(fs, fd);

	crash_note(fs, (struct crash_op){.kind = CRASH_RESIZE, .inode = inode, .bytes = bytes});
	return ftruncate(fs->inodes[inode], (off_t)bytes) ? -errno : 0;
}

static int crash_allocate(const struct gsn_fs *fs, int fd, uint64_t bytes)
{
	return resize(of(fs), fd, bytes);
}

static gpusnap_status crash_choose_direct(const struct gsn_fs *fs, int fd, const char *name,
	gpusnap_io_direct wanted, struct gsn_direct_choice *ret_choice, gpusnap_error *err)
{
	(void)fs;
	(void)fd;
	(void)name;
	(void)wanted;
	(void)err;
	*ret_choice = (struct gsn_direct_choice){.why = "a model"};
	return GPUSNAP_OK;
}

static int crash_truncate(const struct gsn_fs *fs, int fd, uint64_t bytes)
{
	return resize(of(fs), fd, bytes);
}

static int crash_set_mode(const struct gsn_fs *fs, int fd, mode_t mode)
{
	(void)fs;
	(void)fd;
	(void)mode;
	return 0;
}

static int crash_fsync(const struct gsn_fs *fs, int fd)
{
	unsigned inode = crash_inode(of(fs), fd);

	crash_note(of(fs), (struct crash_op){.kind = CRASH_SYNC, .inode = inode});
	return 0;
}

static int crash_fsync_directory(const struct gsn_fs *fs, int directory)
{
	(void)directory;
	crash_note(of(fs), (struct crash_op){.kind = CRASH_SYNC_FOLDER});
	return 0;
}

static int crash_link_unnamed(const struct gsn_fs *fs, int fd, int directory, const char *name)
{
	unsigned inode = crash_inode(of(fs), fd);

	(void)directory;
	if (crash_find(&of(fs)->now, name) >= 0)
		return -EEXIST;
	crash_set(&of(fs)->now, name, inode);
	crash_note(of(fs), name_op(CRASH_LINK, inode, "", name));
	return 0;
}

static int crash_rename(const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	int inode = crash_find(&of(fs)->now, from);

	(void)directory;
	if (inode < 0)
		return -ENOENT;
	crash_unset(&of(fs)->now, from);
	crash_set(&of(fs)->now, to, (unsigned)inode);
	crash_note(of(fs), name_op(CRASH_RENAME, (unsigned)inode, from, to));
	return 0;
}

static int crash_rename_noreplace(
	const struct gsn_fs *fs, int directory, const char *from, const char *to)
{
	if (crash_find(&of(fs)->now, to) >= 0)
		return -EEXIST;
	return crash_rename(fs, directory, from, to);
}

static int crash_unlink(const struct gsn_fs *fs, int directory, const char *name)
{
	(void)directory;
	if (crash_find(&of(fs)->now, name) < 0)
		return -ENOENT;
	crash_unset(&of(fs)->now, name);
	crash_note(of(fs), name_op(CRASH_UNLINK, 0, name, ""));
	return 0;
}

static int crash_list(const struct gsn_fs *fs, int directory,
	void (*visit)(void *user, const char *name), void *user)
{
	struct crash_folder seen = of(fs)->now;

	(void)directory;
	for (unsigned i = 0; i < CRASH_INODES; i++)
		if (seen.names[i].name[0])
			visit(user, seen.names[i].name);
	return 0;
}

/* ---- the engine: parts are done when they are submitted, and reaped latest first ---- */

int64_t crash_transfer(struct crash_fs *fs, const struct gsn_ring_part *part)
{
	unsigned inode = crash_inode(fs, part->fd);
	ssize_t moved;

	if (part->op == GSN_RING_READ) {
		moved = pread(part->fd, part->memory, part->length, (off_t)part->offset);
		return moved < 0 ? -errno : moved;
	}
	crash_note(fs, (struct crash_op){.kind = CRASH_WRITE,
			       .inode = inode,
			       .offset = part->offset,
			       .bytes = part->length,
			       .data = part->memory});
	moved = pwrite(part->fd, part->memory, part->length, (off_t)part->offset);
	return moved < 0 ? -errno : moved;
}

static struct crash_fs *of_ring(const struct gsn_ring *ring)
{
	return (struct crash_fs *)((uintptr_t)ring->engine - offsetof(struct crash_fs, engine));
}

static gpusnap_status engine_open(struct gsn_ring *ring, int probe_fd, gpusnap_error *err)
{
	(void)ring;
	(void)probe_fd;
	(void)err;
	return GPUSNAP_OK;
}

static bool engine_close(struct gsn_ring *ring)
{
	of_ring(ring)->waiting_count = 0;
	return true;
}

static bool engine_register(struct gsn_ring *ring, void *memory, uint64_t bytes)
{
	(void)ring;
	(void)memory;
	(void)bytes;
	return false;
}

static gpusnap_status engine_submit(
	struct gsn_ring *ring, struct gsn_ring_slot *slot, gpusnap_error *err)
{
	struct crash_fs *fs = of_ring(ring);
	struct gsn_ring_part part = gsn_ring_part(slot);

	(void)err;
	assert(fs->waiting_count < CRASH_HANDLES);
	fs->results[fs->waiting_count] = fs->transfer(fs, &part);
	fs->waiting[fs->waiting_count++] = slot;
	return GPUSNAP_OK;
}

static gpusnap_status engine_reap(struct gsn_ring *ring, struct gsn_ring_slot **ret_slot,
	int64_t *ret_result, gpusnap_error *err)
{
	struct crash_fs *fs = of_ring(ring);

	(void)err;
	assert(fs->waiting_count);
	fs->waiting_count--;
	*ret_slot = fs->waiting[fs->waiting_count];
	*ret_result = fs->results[fs->waiting_count];
	return GPUSNAP_OK;
}

const struct gsn_fs crash_operations = {
	.open_directory = crash_open_directory,
	.open_unnamed = crash_open_unnamed,
	.open_again = crash_open_again,
	.drop_cache = crash_drop_cache,
	.create = crash_create,
	.open_existing = crash_open_existing,
	.close = crash_close_handle,
	.lock = crash_lock,
	.status = crash_status,
	.status_at = crash_status_at,
	.allocate = crash_allocate,
	.choose_direct = crash_choose_direct,
	.truncate = crash_truncate,
	.set_mode = crash_set_mode,
	.fsync = crash_fsync,
	.fsync_directory = crash_fsync_directory,
	.link_unnamed = crash_link_unnamed,
	.rename_noreplace = crash_rename_noreplace,
	.rename = crash_rename,
	.unlink = crash_unlink,
	.list = crash_list,
};

void crash_open(struct crash_fs *fs, bool named)
{
	*fs = (struct crash_fs){
		.table = crash_operations,
		.engine = {.name = "model",
			.open = engine_open,
			.close = engine_close,
			.register_memory = engine_register,
			.submit = engine_submit,
			.reap = engine_reap},
		.transfer = crash_transfer,
		.named = named,
	};
	fs->table.engine = &fs->engine;
	for (unsigned i = 0; i < CRASH_HANDLES; i++)
		fs->handles[i].fd = -1;
}

void crash_close(struct crash_fs *fs)
{
	for (unsigned i = 0; i < CRASH_HANDLES; i++)
		assert(fs->handles[i].fd < 0); /* the writer closes what it opens */
	for (unsigned i = 0; i < fs->inode_count; i++)
		(void)close(fs->inodes[i]);
	for (unsigned i = 0; i < fs->op_count; i++)
		free(fs->ops[i].data);
	free(fs->kept.data);
}
