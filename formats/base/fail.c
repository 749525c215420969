/* SPDX-License-Identifier: Apache-2.0 */
/* Status names and the recording of errors. */
#include "formats/base/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct status_row {
	gpusnap_status status;
	int exit_status;
	const char *name;
	const char *text;
} status_rows[] = {
#define STATUS_ROW(name, number, exit_status, text) {GPUSNAP_##name, exit_status, #name, text},
	GPUSNAP_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

enum { STATUS_COUNT = sizeof status_rows / sizeof status_rows[0] };

static const struct status_row *find_row(gpusnap_status status)
{
	for (int i = 0; i < STATUS_COUNT; i++)
		if (status_rows[i].status == status)
			return &status_rows[i];
	return NULL;
}

const char *gpusnap_status_name(gpusnap_status status)
{
	const struct status_row *row = find_row(status);

	return row ? row->name : "E_UNKNOWN";
}

const char *gpusnap_status_text(gpusnap_status status)
{
	const struct status_row *row = find_row(status);

	return row ? row->text : "unknown status";
}

int gpusnap_status_exit(gpusnap_status status)
{
	const struct status_row *row = find_row(status);

	return row ? row->exit_status : 2;
}

gpusnap_status gpusnap_status_from_name(const char *name)
{
	for (int i = 0; i < STATUS_COUNT; i++)
		if (strcmp(status_rows[i].name, name) == 0)
			return status_rows[i].status;
	return GPUSNAP_E_INVALID;
}

void gsn_error_set(gpusnap_error *err, gpusnap_status status, int os_errno, uint64_t offset,
	const char *format, ...)
{
	va_list args;

	if (!err)
		return;
	memset(err, 0, sizeof *err);
	err->status = status;
	err->os_errno = os_errno;
	err->offset = offset;
	va_start(args, format);
	(void)vsnprintf(err->message, sizeof err->message, format, args);
	va_end(args);
}

void gsn_error_prefix(gpusnap_error *err, const char *format, ...)
{
	char prefix[256];
	char rest[sizeof err->message];
	va_list args;

	if (!err)
		return;
	va_start(args, format);
	(void)vsnprintf(prefix, sizeof prefix, format, args);
	va_end(args);
	memcpy(rest, err->message, sizeof rest);
	(void)snprintf(err->message, sizeof err->message, "%s: %.*s", prefix,
		(int)(sizeof err->message - strlen(prefix) - 3), rest);
}

gpusnap_status gsn_status_from_errno(int os_errno)
{
	switch (os_errno) {
	case ENOMEM:
		return GPUSNAP_E_NOMEM;
	case EMFILE:
	case ENFILE:
		return GPUSNAP_E_LIMIT;
	case EBUSY:
	case EAGAIN:
		return GPUSNAP_E_BUSY;
	default:
		return GPUSNAP_E_IO;
	}
}
