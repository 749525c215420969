/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_FS_H
#define GSN_FS_H
/*
 * The file system as the commit protocol sees it: one table of operations, so that a model of a
 * crashing disk can stand in for the real one under the same writer. Every operation answers 0 (or
 * a descriptor) or a negative errno; a directory is named by its descriptor.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <gpusnap/io.h>

#include "snapshot/direct.h"
#include "snapshot/ring.h"

struct gsn_fs {
	/* Engine that data must go through; NULL: the first that passes its probe. */
	const struct gsn_ring_engine *engine;

	int (*open_directory)(const struct gsn_fs *fs, const char *path);
	/* A file without a name, to be linked later; -EOPNOTSUPP where that cannot be. */
	int (*open_unnamed)(const struct gsn_fs *fs, int directory, mode_t mode);
	/* A second descriptor of an open file, for reading, with flags of its own. */
	int (*open_again)(const struct gsn_fs *fs, int fd);
	/* Let go of its clean pages in the page cache, as far as the kernel is willing. */
	int (*drop_cache)(const struct gsn_fs *fs, int fd);
	int (*create)(const struct gsn_fs *fs, int directory, const char *name, mode_t mode);
	int (*open_existing)(const struct gsn_fs *fs, int directory, const char *name);
	void (*close)(const struct gsn_fs *fs, int fd);
	/* Hold the file exclusively as long as the descriptor is open; -EAGAIN: held by another. */
	int (*lock)(const struct gsn_fs *fs, int fd);
	int (*status)(const struct gsn_fs *fs, int fd, struct stat *ret_status);
	/* Of the name itself, a symbolic link included. */
	int (*status_at)(
		const struct gsn_fs *fs, int directory, const char *name, struct stat *ret_status);
	int (*allocate)(const struct gsn_fs *fs, int fd, uint64_t bytes);
	gpusnap_status (*choose_direct)(const struct gsn_fs *fs, int fd, const char *name,
		gpusnap_io_direct wanted, struct gsn_direct_choice *ret_choice, gpusnap_error *err);
	int (*truncate)(const struct gsn_fs *fs, int fd, uint64_t bytes);
	int (*set_mode)(const struct gsn_fs *fs, int fd, mode_t mode);
	int (*fsync)(const struct gsn_fs *fs, int fd);
	int (*fsync_directory)(const struct gsn_fs *fs, int directory);
	/* Give an unnamed file its name; -EEXIST leaves what is there. */
	int (*link_unnamed)(const struct gsn_fs *fs, int fd, int directory, const char *name);
	int (*rename_noreplace)(
		const struct gsn_fs *fs, int directory, const char *from, const char *to);
	int (*rename)(const struct gsn_fs *fs, int directory, const char *from, const char *to);
	int (*unlink)(const struct gsn_fs *fs, int directory, const char *name);
	/* Call `visit` with every name in the directory. */
	int (*list)(const struct gsn_fs *fs, int directory,
		void (*visit)(void *user, const char *name), void *user);
};

extern const struct gsn_fs gsn_fs_posix;

#endif
