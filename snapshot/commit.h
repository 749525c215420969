/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_COMMIT_H
#define GSN_COMMIT_H
/*
 * The commit protocol: a file comes to its name whole and durable, or not at all.
 *
 *	begin	a temporary file in the target's directory: without a name where the file system
 *can, else ".NAME.gpusnap-PID-RANDOM.tmp", locked as long as its writer lives; space reserved
 *	(write)	the caller writes all data to commit.fd
 *	finish	cut to length, fsync once, link without clobbering (or rename, to replace), fsync
 *the directory end	removes what is temporary, unless finish succeeded
 *
 * Killed at any moment, there is the old file or the new one, whole; a temporary name that is left
 * blocks nobody and is removed by the next begin for the same target.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/status.h>

#include "snapshot/fs.h"

struct gsn_commit {
	const struct gsn_fs *fs;
	char *path;	 /* as given, for messages */
	char *directory; /* the part before the last slash */
	char *name;	 /* the part after it */
	char *temporary; /* name that the temporary file has, or will have before a rename */
	bool visible;	 /* the temporary file has that name now */
	bool replace;
	bool durable; /* cut to its length and synced */
	int directory_fd;
	int fd;
};
#define GSN_COMMIT_INIT                                                                            \
	{                                                                                          \
		.directory_fd = -1, .fd = -1                                                       \
	}

/*
 * E_IO with EEXIST when the target is there and replace is not asked for; E_INVALID when the path
 * names no file, or something other than a regular file is there.
 */
gpusnap_status gsn_commit_begin(struct gsn_commit *commit, const struct gsn_fs *fs,
	const char *path, bool replace, uint64_t bytes, gpusnap_error *err);
/* Cut to length and fsync: the first half of finish, for whoever looks at the file in between. */
gpusnap_status gsn_commit_sync(struct gsn_commit *commit, uint64_t file_bytes, gpusnap_error *err);
/* All data is written. An error here leaves the target as it was and the data worthless. */
gpusnap_status gsn_commit_finish(
	struct gsn_commit *commit, uint64_t file_bytes, gpusnap_error *err);
/* After success or failure alike; a no-op on GSN_COMMIT_INIT. */
void gsn_commit_end(struct gsn_commit *commit);

#endif
