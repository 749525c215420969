/* SPDX-License-Identifier: Apache-2.0 */
/* What a save would use in a directory, found out by beginning one and giving it up. */
#include <gpusnap/io.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/commit.h"
#include "snapshot/io_options.h"
#include "snapshot/ring.h"
#include "snapshot/staging.h"

#define PROBE_FILE_BYTES (UINT64_C(1) << 20)

/* As much memory as a large save would register with the kernel. */
#define PROBE_STATE_BYTES (UINT64_C(1) << 40)
enum { PROBE_EXTRA_SLOTS = 3 };

static gpusnap_status probe_ring(const struct gsn_commit *commit, gpusnap_io_options *options,
	gpusnap_io_report *ret_report, gpusnap_error *err)
{
	struct gsn_staging staging = GSN_STAGING_INIT;
	struct gsn_ring *ring = NULL;
	gpusnap_status status = gsn_staging_open(
		&staging, NULL, options, PROBE_EXTRA_SLOTS, PROBE_STATE_BYTES, err);

	if (!status)
		status = gsn_ring_open(options, commit->fd, staging.memory,
			gsn_staging_bytes(&staging), &ring, ret_report, err);
	(void)gsn_ring_close(ring); /* nothing was asked of it */
	gsn_staging_close(&staging);
	return status;
}

static gpusnap_status probe_file(const struct gsn_commit *commit, gpusnap_io_options *options,
	gpusnap_io_report *ret_report, gpusnap_error *err)
{
	struct gsn_direct_choice choice;
	gpusnap_io_report report = {0};
	gpusnap_status status = commit->fs->choose_direct(
		commit->fs, commit->fd, commit->directory, options->direct, &choice, err);

	if (!status)
		status = probe_ring(commit, options, &report, err);
	if (status)
		return status;
	gsn_io_report_add(&report, &choice);
	*ret_report = report;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_io_probe(const char *directory, const gpusnap_io_options *options,
	gpusnap_io_report *ret_report, gpusnap_error *err)
{
	struct gsn_commit commit = GSN_COMMIT_INIT;
	gpusnap_io_options resolved;
	char *path = gsn_printf("%s/gpusnap-probe", directory);
	gpusnap_status status;

	if (!path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "'%s': out of memory", directory);
	status = gsn_io_options_resolve(options, &resolved, err);
	if (!status)
		status =
			gsn_commit_begin(&commit, &gsn_fs_posix, path, true, PROBE_FILE_BYTES, err);
	if (!status)
		status = probe_file(&commit, &resolved, ret_report, err);
	gsn_commit_end(&commit);
	gsn_free(path);
	return status;
}
