/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_WRITER_H
#define GSN_WRITER_H
/*
 * The writer: device bytes through the staging ring into a file, block by block. Copies of the
 * blocks ahead, the digest of one, and the writes of those behind run at the same time. What is
 * digested is the staged block, the very bytes that are written.
 */
#include <gpusnap/io.h>

#include "snapshot/fs.h"
#include "snapshot/layout.h"
#include "snapshot/staging.h"

struct gsn_write_job {
	gpusnap_device *device;
	struct gsn_staging_source *staging; /* of the same device */
	const struct gsn_fs *fs;
	int fd;
	struct gsn_layout *layout; /* its leaves are filled */
	const gpusnap_io_options *io;
};

/*
 * Write header, segments, leaf table and seal, and wait for all. The last block is padded to
 * GSN_DIRECT_ALIGN: cut the file to layout->file_bytes afterwards. On success the seal as written,
 * and engine, registered, depth, block_bytes and reason of the report are set.
 */
gpusnap_status gsn_write_file(const struct gsn_write_job *job, gpusnap_seal *ret_seal,
	gpusnap_io_report *ret_report, gpusnap_error *err);

#endif
