/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOAD_NOTES_H
#define LOAD_NOTES_H
/* What a load did that its user may not expect: notes on stderr, members of a JSON result. */
#include <gpusnap/json.h>
#include <gpusnap/loader.h>

void load_notes_print(const char *command, const gpusnap_loaded *loaded);
/* Adds "note", "predictions", "padding" and "unexpected" to `result`, which it returns; NULL: no
 * memory, and `result` is freed. */
gpusnap_json *load_notes_add(gpusnap_json *result, const gpusnap_loaded *loaded);

#endif
