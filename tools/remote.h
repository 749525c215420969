/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REMOTE_H
#define REMOTE_H
/* What all commands on a live process share: ask its agent, print the answer. */
#include <gpusnap/io.h>
#include <gpusnap/json.h>
#include <gpusnap/status.h>

#include "tools/arguments.h"

struct live_options {
	struct common_options common;
	struct target_options target;
};

/* Prints a result for people; answers the exit status. */
typedef int (*live_printer)(const gpusnap_json *result, bool verbose);

/*
 * Send `command` with `args` (consumed; NULL fails as out of memory) and print the answer, as
 * JSON or by `print`. `verdict` (may be NULL) turns a result into the exit status for --json.
 */
int live_run(const char *program, const struct live_options *options, const char *command,
	gpusnap_json *args, live_printer print, int (*verdict)(const gpusnap_json *result));

/* Absolute form of a path, for the agent, whose working directory is another; free(). */
gpusnap_status absolute_path(const char *path, char **ret_path, gpusnap_error *err);

/* Fields of a result, for printers. */
uint64_t field_u64(const gpusnap_json *object, const char *key);
double field_seconds(const gpusnap_json *object);
const char *field_text(const gpusnap_json *object, const char *key);
bool field_true(const gpusnap_json *object, const char *key);
/* What output_io() prints; the engine's name is borrowed. */
gpusnap_io_report field_io(const gpusnap_json *object);

#endif
