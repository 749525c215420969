/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_READER_H
#define GSN_READER_H
/*
 * The reader: the parts of a snapshot that some segments cover, in their order, block by block,
 * reads ahead of whoever takes the blocks. A block's memory stays until it is released. Of a delta
 * the blocks come from several files; offsets are places (snapshot_file.h).
 */
#include <gpusnap/io.h>

#include "snapshot/ring.h"
#include "snapshot/segment.h"
#include "snapshot/snapshot_file.h"
#include "snapshot/staging.h"

struct gsn_block {
	uint64_t begin; /* places */
	uint64_t end;
	const uint8_t *memory; /* of `begin` */
	uint32_t slot;
};

struct gsn_read_slot;

/* What is read; borrowed. */
struct gsn_reader_file {
	const char *path; /* for messages */
	int fd;
	const struct gsn_direct_choice *choice; /* for the report */
	const struct gsn_ring_engine *engine;	/* NULL: the first that passes its probe */
};

/* One of the files that blocks come from. */
struct gsn_reader_source {
	const char *path;
	uint64_t base; /* place of its first byte */
	int fd;	       /* -1: no segment lies in it */
};

struct gsn_reader {
	gpusnap_io_options io;
	gpusnap_io_report report;
	struct gsn_reader_source sources[GSN_LINKS_MAX]; /* ascending by base */
	uint32_t source_count;
	bool borrowed; /* the one file is the caller's */
	struct gsn_staging staging;
	struct gsn_ring *ring;
	struct gsn_cursor planning;  /* of what has not been asked for yet */
	struct gsn_read_slot *slots; /* one per staging slot */
	uint32_t *order;	     /* slots asked for and not yet given out, oldest first */
	uint32_t order_first, order_count;
	uint64_t bytes_total, bytes_done;
};
#define GSN_READER_INIT                                                                            \
	{                                                                                          \
		.staging = GSN_STAGING_INIT                                                        \
	}

/*
 * @param source    of pinned memory; NULL: it need not be pinned.
 * @param segments  borrowed. In any order, each with a block of its own where it is not next in the
 *                  file; in the order of places nothing is read twice.
 * @param held      blocks that the caller keeps while it asks for the next.
 */
gpusnap_status gsn_reader_open(struct gsn_reader *reader, const gpusnap_snapshot *snapshot,
	struct gsn_staging_source *source, const struct gsn_segment *segments, size_t count,
	uint32_t held, const gpusnap_io_options *io, gpusnap_error *err);
/* The same of a file that is no snapshot yet. */
gpusnap_status gsn_reader_open_file(struct gsn_reader *reader, const struct gsn_reader_file *file,
	struct gsn_staging_source *source, const struct gsn_segment *segments, size_t count,
	uint32_t held, const gpusnap_io_options *io, gpusnap_error *err);
/* Waits for reads under way. A no-op on GSN_READER_INIT. */
void gsn_reader_close(struct gsn_reader *reader);
/* The next block; false in *ret_more after the last one. */
gpusnap_status gsn_reader_next(
	struct gsn_reader *reader, struct gsn_block *ret_block, bool *ret_more, gpusnap_error *err);
void gsn_reader_release(struct gsn_reader *reader, uint32_t slot);

#endif
