/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/output.h"

#include <stdio.h>
#include <string.h>

char *format_size(uint64_t bytes, char text[SIZE_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit < sizeof units / sizeof units[0] - 1) {
		value /= 1024;
		unit++;
	}
	(void)snprintf(text, SIZE_TEXT, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
	return text;
}

char *format_rate(uint64_t bytes, double seconds, char text[SIZE_TEXT])
{
	if (seconds <= 0) {
		(void)snprintf(text, SIZE_TEXT, "-");
		return text;
	}
	(void)format_size((uint64_t)((double)bytes / seconds), text);
	(void)strncat(text, "/s", SIZE_TEXT - strlen(text) - 1);
	return text;
}

void output_name(const char *name, size_t width)
{
	size_t printed = 0;

	for (const char *c = name; *c; c++) {
		bool control = (unsigned char)*c < 0x20 || *c == 0x7f;

		(void)printf(control ? "\\x%02x" : "%c", (unsigned char)*c);
		printed += control ? 4 : 1;
	}
	if (printed < width)
		(void)printf("%*s", (int)(width - printed), "");
}

int output_flush(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	(void)fputs("gpusnap: standard output could not be written\n", stderr);
	return 3;
}

/* The members of `result` behind "schema": 1. NULL: no memory. */
static gpusnap_json *with_schema(gpusnap_json *result)
{
	gpusnap_json *object = gpusnap_json_pack("{s:i}", "schema", 1);
	void *at = gpusnap_json_first(result);

	for (; object && at; at = gpusnap_json_next(result, at))
		if (gpusnap_json_set(object, gpusnap_json_key(at),
			    gpusnap_json_ref(gpusnap_json_value(at)))) {
			gpusnap_json_free(object);
			object = NULL;
		}
	return object;
}

int output_json(gpusnap_json *result, int exit_status)
{
	gpusnap_json *object = result ? with_schema(result) : NULL;
	char *text = object ? gpusnap_json_dump(object) : NULL;
	int flushed;

	gpusnap_json_free(object);
	gpusnap_json_free(result);
	if (!text) {
		(void)fputs("gpusnap: out of memory\n", stderr);
		return gpusnap_status_exit(GPUSNAP_E_NOMEM);
	}
	(void)puts(text);
	gpusnap_text_free(text);
	flushed = output_flush();
	return flushed ? flushed : exit_status;
}

int output_error(const char *command, bool json, const gpusnap_error *err)
{
	int status = gpusnap_status_exit(err->status);
	const char *message = err->message[0] ? err->message : gpusnap_status_text(err->status);

	(void)fprintf(stderr, "%s: %s\n", command, message);
	if (!json)
		return status;
	return output_json(
		gpusnap_json_pack("{s:{s:s,s:s,s:i}}", "error", "status",
			gpusnap_status_name(err->status), "message", message, "code", status),
		status);
}

void output_io(const gpusnap_io_report *report)
{
	char size[SIZE_TEXT];

	(void)fprintf(stderr, "engine %s, %s, %u requests of %s in flight: %s\n", report->engine,
		report->direct ? "O_DIRECT" : "page cache", report->depth,
		format_size(report->block_bytes, size), report->reason);
}

void output_note(const char *command, const char *text)
{
	if (text)
		(void)fprintf(stderr, "%s: note: %s\n", command, text);
}
