/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTPUT_H
#define OUTPUT_H
/* What the command prints: results on stdout, errors on stderr, sizes in binary units. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/io.h>
#include <gpusnap/json.h>
#include <gpusnap/status.h>

enum { SIZE_TEXT = 32 };

/* "1.25 GiB"; exact below 1 KiB. Returns `text`. */
char *format_size(uint64_t bytes, char text[SIZE_TEXT]);
/* "1.25 GiB/s"; "-" when no time passed. */
char *format_rate(uint64_t bytes, double seconds, char text[SIZE_TEXT]);

/* One object on stdout with "schema": 1 first; consumes `result`. Answers the exit status. */
int output_json(gpusnap_json *result, int exit_status);
/* "gpusnap COMMAND: MESSAGE" on stderr and, with json, an error object on stdout. */
int output_error(const char *command, bool json, const gpusnap_error *err);
/* How files were read or written, and why so: one line on stderr, for -v. */
void output_io(const gpusnap_io_report *report);
/* "COMMAND: note: TEXT" on stderr; nothing for NULL. */
void output_note(const char *command, const char *text);
/*
 * A name out of a file on stdout, padded to `width` bytes: control characters as \xNN, so that no
 * file can speak to the terminal.
 */
void output_name(const char *name, size_t width);
/* Flush stdout; 3 when what was printed could not be written, else 0. */
int output_flush(void);

#endif
