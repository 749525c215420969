/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SOURCE_PATH_H
#define GSN_SOURCE_PATH_H
/*
 * What the path of a checkpoint leads to: a directory; one safetensors file; or a model's folder
 * in a Hugging Face cache, of which the snapshot that refs/main names is meant. Links are followed
 * everywhere, since the files of such a snapshot are links to ../../blobs.
 */
#include <stdbool.h>

#include <gpusnap/status.h>

struct gsn_source_path {
	char *directory;
	char *file;	 /* its name in the directory; NULL: what the directory holds */
	bool configured; /* there is a config.json; without one a file is what its tensors are */
};

/* E_IO: nothing there, or a cache folder without that snapshot. */
gpusnap_status gsn_source_path_resolve(
	const char *path, struct gsn_source_path *ret_source, gpusnap_error *err);
void gsn_source_path_release(struct gsn_source_path *source); /* takes a zeroed one */

#endif
