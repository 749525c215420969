/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENDPOINT_H
#define ENDPOINT_H
/*
 * Where agents listen: $XDG_RUNTIME_DIR/gpusnap/PID.sock, else /tmp/gpusnap-UID/PID.sock, in a
 * directory of mode 0700 that belongs to the user.
 */
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/status.h>

#include "tools/arguments.h"

enum { ENDPOINT_PATH_MAX = 108 }; /* sun_path */

struct endpoint {
	int64_t pid;
	char path[ENDPOINT_PATH_MAX];
};

struct endpoint_list {
	size_t count;
	struct endpoint *items;
};

/* Agents of this user that a process stands behind, by pid; endpoint_list_free(). */
gpusnap_status endpoint_find_all(struct endpoint_list *ret_list, gpusnap_error *err);
void endpoint_list_free(struct endpoint_list *list);

/* The agent that the options mean. E_INVALID with the list when there is none or several. */
gpusnap_status endpoint_select(
	const struct target_options *target, char path[ENDPOINT_PATH_MAX], gpusnap_error *err);

/* May an agent of this user listen at `path`: its directory is there and closed to others. */
gpusnap_status endpoint_check(const char *path, gpusnap_error *err);

/* Path for an agent of this process; makes the directory. */
gpusnap_status endpoint_prepare(char path[ENDPOINT_PATH_MAX], gpusnap_error *err);

#endif
