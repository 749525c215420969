/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SNAPSHOT_FILE_H
#define GSN_SNAPSHOT_FILE_H
/*
 * An open snapshot, for the jobs that read its data. The data of a delta lies in several files: the
 * links of its chain. A *place* names a byte in any of them with one number: the offset in the file
 * behind that file's base. In the first file, so in a full snapshot, place and offset are equal.
 */
#include <sys/types.h>

#include <gpusnap/snapshot.h>

#include "snapshot/direct.h"
#include "snapshot/segment.h"

/* Links: the snapshot itself, its parent, and so on to the full one. */
enum { GSN_LINKS_MAX = GPUSNAP_DELTA_DEPTH_MAX + 1 };

/* Consecutive leaves of one entry that lie in one file. */
struct gsn_part {
	uint32_t link;
	uint32_t entry;
	uint64_t first_leaf; /* of the entry */
	uint64_t leaf_count;
	uint64_t file_offset; /* in the link's file */
};

struct gpusnap_snapshot {
	char *path;
	int fd;
	dev_t device; /* with inode: which file it is, under whatever name */
	ino_t inode;
	uint64_t file_bytes;
	gpusnap_seal seal;
	uint8_t *header_bytes; /* the file up to the data section, until it is parsed */
	gpusnap_header *header;
	gpusnap_plan *plan;
	gpusnap_digest *leaves;
	size_t entry_count;
	gpusnap_snapshot_entry *entries; /* order of the leaf table; names are header's or plan's */
	uint32_t *by_name;		 /* indices of entries */
	/* Set once the chain is open. Links but the first have let go of header, plan and leaves.
	 */
	gpusnap_snapshot *links[GSN_LINKS_MAX]; /* the first is the snapshot itself */
	uint64_t bases[GSN_LINKS_MAX];
	uint32_t link_count;
	struct gsn_part *parts; /* by entry, then by leaf; one for an empty entry */
	size_t part_count;
	size_t *first_part; /* of each entry, and one more for the end */
};

/* One file alone: seal, header, plan and leaf table; no parents and no parts. */
gpusnap_status gsn_snapshot_open_link(const char *path, gpusnap_snapshot **out, gpusnap_error *err);
/* The seal alone, of whatever file this may be. */
gpusnap_status gsn_snapshot_peek_seal(const char *path, gpusnap_seal *ret_seal);
/* Let go of what only the first link of a chain needs. */
void gsn_snapshot_drop_leaves(gpusnap_snapshot *snapshot);
void gsn_snapshot_drop_plan(gpusnap_snapshot *snapshot);

/* Where a part lies, by places; no live address. */
struct gsn_segment gsn_snapshot_segment(const gpusnap_snapshot *snapshot, size_t index);
/* Segments of all parts, ordered by place. */
gpusnap_status gsn_snapshot_segments(const gpusnap_snapshot *snapshot,
	struct gsn_segment **ret_segments, size_t *ret_count, gpusnap_error *err);
int gsn_compare_places(const void *a, const void *b); /* of segments, for qsort() */

/* Which link's file a place lies in. */
uint32_t gsn_snapshot_link_of(const gpusnap_snapshot *snapshot, uint64_t place);

struct gsn_location {
	const char *path;
	uint64_t offset;
};
struct gsn_location gsn_snapshot_locate(const gpusnap_snapshot *snapshot, uint64_t place);
/* Of a leaf of an entry. */
uint64_t gsn_snapshot_leaf_place(
	const gpusnap_snapshot *snapshot, const gpusnap_snapshot_entry *entry, uint64_t leaf);

/*
 * A second descriptor of this file, not of its chain, whose flags are the job's own, made direct or
 * cached as wanted; the caller closes it.
 */
gpusnap_status gsn_snapshot_reopen(const gpusnap_snapshot *snapshot, gpusnap_io_direct wanted,
	int *ret_fd, struct gsn_direct_choice *ret_choice, gpusnap_error *err);
/* Which links' files segments lie in. */
void gsn_snapshot_mark_links(const gpusnap_snapshot *snapshot, const struct gsn_segment *segments,
	size_t count, bool ret_needed[GSN_LINKS_MAX]);
/* Read a piece of one link's file through the page cache. Any number of threads may. */
gpusnap_status gsn_snapshot_read(const gpusnap_snapshot *snapshot, uint64_t place, void *memory,
	uint64_t bytes, gpusnap_error *err);
/* Read a piece again, around what an earlier read left in the page cache where possible. */
gpusnap_status gsn_snapshot_reread(const gpusnap_snapshot *snapshot, uint64_t place, void *memory,
	uint64_t bytes, gpusnap_error *err);

#endif
