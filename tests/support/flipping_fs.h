/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_FLIPPING_FS_H
#define GPUSNAP_TEST_FLIPPING_FS_H
/*
 * The real file system, except that one bit of a file is another by the time fsync has made it
 * durable, as a bad cable or a bad disk would have it; and a journal of what was asked for.
 */
#include "snapshot/fs.h"

enum { FLIPPING_JOURNAL = 16 };

struct flipping_fs {
	struct gsn_fs table; /* first, so that the operations find the rest */
	bool flips;
	uint64_t offset;
	unsigned bit;
	/* s: fsync, c: drop_cache, o: open_again, l: link or rename, d: fsync of the directory */
	char *journal; /* of FLIPPING_JOURNAL bytes, the caller's; NULL: none is kept */
};

struct flipping_fs flipping_fs_make(void);

#endif
