/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCRATCH_DIRECTORY_H
#define SCRATCH_DIRECTORY_H
/* Work that leaves no files behind, however it ends. */
#include <gpusnap/status.h>

/* Works in `directory`; answers the exit status. */
typedef int (*scratch_directory_fn)(void *argument, const char *directory);

/*
 * Run `function` in a process of its own, with a new folder PREFIX-XXXXXX in `parent`. When it has
 * ended, by itself or by a signal, the folder and the files in it are removed. SIGINT, SIGTERM,
 * SIGHUP and SIGQUIT go on to it. `ret_status`: its exit status, or 128 + the signal.
 */
gpusnap_status scratch_directory_run(const char *parent, const char *prefix,
	scratch_directory_fn function, void *argument, int *ret_status, gpusnap_error *err);

#endif
