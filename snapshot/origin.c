/* SPDX-License-Identifier: Apache-2.0 */
/* The file that live state stands on. */
#include "snapshot/origin.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/paths.h"

/* The part of an absolute path before its last slash. */
static char *directory_of(const char *path)
{
	char *absolute = gsn_absolute_path(path);
	char *slash = absolute ? strrchr(absolute, '/') : NULL;

	if (slash)
		slash[slash == absolute ? 1 : 0] = '\0';
	return absolute;
}

gpusnap_status gsn_origin_set(struct gsn_origin *origin, const char *path,
	const gpusnap_snapshot *chain, size_t first, gpusnap_error *err)
{
	size_t links = chain ? gpusnap_snapshot_link_count(chain) : 0;
	bool failed;

	origin->path = gsn_absolute_path(path);
	failed = !origin->path;
	for (size_t i = first; !failed && i < links; i++) {
		char *directory = directory_of(gpusnap_snapshot_link_path(chain, i));

		failed = !directory;
		if (!failed)
			origin->dirs[origin->dir_count++] = directory;
	}
	return failed ? gsn_fail(err, GPUSNAP_E_NOMEM, "'%s': no memory for its path", path)
		      : GPUSNAP_OK;
}

void gsn_origin_release(struct gsn_origin *origin)
{
	gsn_free(origin->path);
	for (size_t i = 0; i < origin->dir_count; i++)
		gsn_free(origin->dirs[i]);
	*origin = (struct gsn_origin){NULL};
}

gpusnap_status gsn_origin_open(
	const struct gsn_origin *origin, gpusnap_snapshot **out, gpusnap_error *err)
{
	gpusnap_snapshot_open_options options = GPUSNAP_SNAPSHOT_OPEN_OPTIONS_INIT;

	options.parent_dirs = (const char *const *)origin->dirs;
	options.parent_dir_count = origin->dir_count;
	return gpusnap_snapshot_open_with(origin->path, &options, out, err);
}
