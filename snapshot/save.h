/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SAVE_H
#define GSN_SAVE_H
/* gpusnap_save() on a given file system, so that a model of a crashing disk can be put below it. */
#include <gpusnap/snapshot.h>

#include "snapshot/fs.h"

gpusnap_status gsn_save_on(const struct gsn_fs *fs, gpusnap_registry *registry, const char *path,
	const gpusnap_save_options *options, gpusnap_save_report *ret_report, gpusnap_error *err);

#endif
