/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_READ_BACK_H
#define GSN_READ_BACK_H
/*
 * Reading back a file that was just written and synced, and holding every byte of it, header, leaf
 * table and seal included, against what was meant to be written.
 */
#include <gpusnap/io.h>
#include <gpusnap/seal.h>

#include "snapshot/fs.h"
#include "snapshot/layout.h"

struct gsn_read_back_job {
	const struct gsn_fs *fs;
	int fd; /* of the writer; left alone */
	const char *path;
	const struct gsn_layout *layout;
	const gpusnap_seal *seal;
	const gpusnap_io_options *io; /* resolved */
};

struct gsn_read_back_report {
	double seconds;
	char how[224]; /* past the page cache or through it, and what of it could not be dropped */
};

/* E_CORRUPT names the first buffer, leaf and file offset that differ, and how many more. */
gpusnap_status gsn_read_back(const struct gsn_read_back_job *job,
	struct gsn_read_back_report *ret_report, gpusnap_error *err);

#endif
