/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DIRECT_H
#define GSN_DIRECT_H
/*
 * O_DIRECT or page cache: which of the two serves an open file, found out on the file itself.
 * Memory, offsets and lengths that are multiples of GSN_DIRECT_ALIGN are right for every file that
 * is made direct here.
 */
#include <stdbool.h>

#include <gpusnap/io.h>

#define GSN_DIRECT_ALIGN 4096u

struct gsn_direct_choice {
	bool direct;
	uint32_t alignment; /* that the file system wants, no more than ours; 0 when cached */
	const char *alignment_source; /* "statx" or "probe"; "" when cached */
	char file_system[16];	      /* its name, or its magic number where it has none here */
	char why[96];
};

/*
 * Set or clear O_DIRECT on `fd` as wanted; `name` is for messages. A file open for writing must
 * hold nothing of value in its first block: the probe overwrites it. With AUTO, a file for reading
 * that is mostly in the page cache stays cached. E_UNSUPPORTED when ON cannot be had.
 */
gpusnap_status gsn_direct_choose(int fd, const char *name, gpusnap_io_direct wanted,
	struct gsn_direct_choice *ret_choice, gpusnap_error *err);

/* A file with at least this share of its pages in memory is read faster from there. */
enum { GSN_MOSTLY_CACHED_PERCENT = 75 };

/*
 * How much of the file a read copies from memory, in percent; -1 when it cannot be told. The file
 * is left as it is; fills file_system and why.
 */
int gsn_direct_resident(int fd, struct gsn_direct_choice *ret_choice);

/* Share of the file's pages that are in memory, 0 to 100; -1 when it cannot be told. */
int gsn_cached_percent(int fd);

#endif
