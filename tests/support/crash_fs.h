/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_CRASH_FS_H
#define GPUSNAP_TEST_CRASH_FS_H
/*
 * A file system of one folder in memory, under the real writer: it keeps a journal of everything
 * that was asked of the disk, so that crash_states.h can say afterwards what a power cut after any
 * step would have left. What a running process sees is always up to date; what is durable is only
 * what fsync has covered. Files are memfds, so that whoever asks about a descriptor gets an answer.
 */
#include "snapshot/fs.h"
#include "snapshot/ring_state.h"

enum { CRASH_INODES = 8, CRASH_HANDLES = 16, CRASH_OPS = 64, CRASH_NAME_BYTES = 96 };

enum crash_kind {
	CRASH_WRITE,  /* inode, offset, bytes, data */
	CRASH_RESIZE, /* inode, bytes */
	CRASH_SYNC,   /* inode: its writes and resizes so far are durable */
	CRASH_LOSE,   /* inode: what was not durable never will be; fsync has failed */
	CRASH_LINK,   /* inode comes to the name `to` */
	CRASH_RENAME, /* from, to */
	CRASH_UNLINK, /* from */
	CRASH_SYNC_FOLDER,
};

struct crash_op {
	enum crash_kind kind;
	unsigned inode;
	uint64_t offset, bytes;
	uint8_t *data;
	char from[CRASH_NAME_BYTES], to[CRASH_NAME_BYTES];
};

/* A name of the folder; free when it is empty. */
struct crash_name {
	char name[CRASH_NAME_BYTES];
	unsigned inode;
};

struct crash_folder {
	struct crash_name names[CRASH_INODES];
};

struct crash_fs {
	struct gsn_fs table; /* first, so that the operations find the rest */
	struct gsn_ring_engine engine;
	/* One part of a request; a test puts its own here to write wrongly. */
	int64_t (*transfer)(struct crash_fs *fs, const struct gsn_ring_part *part);
	bool named; /* files without a name are not supported */

	unsigned inode_count;
	int inodes[CRASH_INODES];	/* memfds */
	uint64_t durable[CRASH_INODES]; /* bytes that were there before the journal began */
	struct crash_folder before, now;
	unsigned op_count;
	struct crash_op ops[CRASH_OPS];
	struct {
		int fd; /* -1: free */
		unsigned inode;
	} handles[CRASH_HANDLES];
	struct gsn_ring_slot *waiting[CRASH_HANDLES]; /* parts that were not reaped yet */
	int64_t results[CRASH_HANDLES];
	unsigned waiting_count;
	/* For a test's own operations. */
	struct crash_op kept;
};

/* What crash_open() puts into the table, for operations that stand in front of one. */
extern const struct gsn_fs crash_operations;

/* An empty folder. In place, since the ring finds the rest by the engine's address. */
void crash_open(struct crash_fs *fs, bool named);
void crash_close(struct crash_fs *fs);
/* Add a durable file. */
void crash_add(struct crash_fs *fs, const char *name, const uint8_t *bytes, uint64_t length);

/* Note one step; `data` is copied. */
void crash_note(struct crash_fs *fs, struct crash_op op);
int64_t crash_transfer(struct crash_fs *fs, const struct gsn_ring_part *part);
unsigned crash_inode(const struct crash_fs *fs, int fd);

/* The inode at a name; -1 when there is none. */
int crash_find(const struct crash_folder *folder, const char *name);
unsigned crash_name_count(const struct crash_folder *folder);
/* What running processes see of a file; free(). */
uint8_t *crash_content(const struct crash_fs *fs, unsigned inode, uint64_t *ret_length);
/* The three changes of a folder; a name that is taken gives way. */
void crash_set(struct crash_folder *folder, const char *name, unsigned inode);
void crash_unset(struct crash_folder *folder, const char *name);

#endif
