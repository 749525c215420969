/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap doctor: what this machine can do, what it lacks, and what to do about it. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <gpusnap/device.h>
#include <gpusnap/io.h>

#include "tools/arguments.h"
#include "tools/command.h"
#include "tools/output.h"

enum { DIRECTORIES_MAX = 16 };

struct doctor_arguments {
	struct common_options common;
	const char *directories[DIRECTORIES_MAX];
	size_t count;
};

static error_t parse_doctor(int key, char *arg, struct argp_state *state)
{
	struct doctor_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->common;
		return 0;
	case ARGP_KEY_ARG:
		if (a->count == DIRECTORIES_MAX)
			argp_error(state, "more than %d directories", DIRECTORIES_MAX);
		a->directories[a->count++] = arg;
		return 0;
	case ARGP_KEY_NO_ARGS:
		a->directories[a->count++] = ".";
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* One row: verdict "ok", "warn", "absent" or "fail". Consumed by the list. */
static gpusnap_json *row(const char *check, const char *verdict, const char *finding)
{
	return gpusnap_json_pack(
		"{s:s,s:s,s:s}", "check", check, "verdict", verdict, "finding", finding);
}

static gpusnap_json *device_row(const char *name)
{
	gpusnap_device *device = NULL;
	gpusnap_device_properties p;
	gpusnap_error err = {0};
	gpusnap_json *result;
	char finding[400];
	char total[SIZE_TEXT];
	char available[SIZE_TEXT];
	char granule[SIZE_TEXT];
	gpusnap_status s = gpusnap_device_open(name, &device, &err);

	if (!s)
		s = gpusnap_device_query(device, &p, &err);
	if (s) {
		result = row(name, s == GPUSNAP_E_NODEV ? "absent" : "fail", err.message);
	} else {
		(void)snprintf(finding, sizeof finding, "%s; %s free of %s, mapped by %s",
			p.description, format_size(p.free_bytes, available),
			format_size(p.memory_bytes, total), format_size(p.granule_bytes, granule));
		result = row(name, "ok", finding);
	}
	gpusnap_device_close(device);
	return result;
}

static gpusnap_json *memlock_row(void)
{
	struct rlimit limit;
	char finding[200];
	char size[SIZE_TEXT];

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return row("locked memory", "fail", strerror(errno));
	if (limit.rlim_cur == RLIM_INFINITY)
		return row("locked memory", "ok", "unlimited");
	(void)snprintf(finding, sizeof finding,
		"limit %s: I/O buffers over it are not registered with the kernel, which costs "
		"little; raise it with ulimit -l",
		format_size(limit.rlim_cur, size));
	return row("locked memory", limit.rlim_cur >= 64u << 20 ? "ok" : "warn", finding);
}

static gpusnap_json *files_row(void)
{
	struct rlimit limit;
	char finding[120];

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return row("open files", "fail", strerror(errno));
	(void)snprintf(finding, sizeof finding, "limit %llu%s", (unsigned long long)limit.rlim_cur,
		limit.rlim_cur < 64 ? ": too few for checkpoints of many shards, see ulimit -n"
				    : "");
	return row("open files", limit.rlim_cur < 64 ? "warn" : "ok", finding);
}

/* For programs: what the finding says in words. Consumed and replaced; NULL: no memory. */
static gpusnap_json *with_report(gpusnap_json *result, const gpusnap_io_report *report)
{
	gpusnap_json *io = gpusnap_json_pack("{s:s,s:s,s:b,s:b,s:I,s:s}", "file_system",
		report->file_system, "engine", report->engine, "direct", report->direct,
		"registered", report->registered, "alignment", (long long)report->alignment,
		"alignment_source", report->alignment_source);

	if (result && gpusnap_json_set(result, "io", io) == GPUSNAP_OK)
		return result;
	gpusnap_json_free(result);
	return NULL;
}

static gpusnap_json *directory_row(const char *directory)
{
	gpusnap_io_report report;
	gpusnap_error err = {0};
	char check[300];
	char finding[600];

	(void)snprintf(check, sizeof check, "files in %s", directory);
	if (gpusnap_io_probe(directory, NULL, &report, &err))
		return row(check, "fail", err.message);
	(void)snprintf(finding, sizeof finding, "%s: %s, %s%s: %s", report.file_system,
		report.engine, report.direct ? "O_DIRECT" : "page cache",
		report.registered ? ", buffers registered" : "", report.reason);
	return with_report(row(check, "ok", finding), &report);
}

static gpusnap_status examine(const struct doctor_arguments *a, gpusnap_json *rows)
{
	static const char *const devices[] = {"host", "cuda:0", "hip:0"};
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < sizeof devices / sizeof devices[0]; i++)
		s = gpusnap_json_append(rows, device_row(devices[i]));
	if (!s)
		s = gpusnap_json_append(rows, memlock_row());
	if (!s)
		s = gpusnap_json_append(rows, files_row());
	for (size_t i = 0; !s && i < a->count; i++)
		s = gpusnap_json_append(rows, directory_row(a->directories[i]));
	return s;
}

static int worst(const gpusnap_json *rows)
{
	for (size_t i = 0; i < gpusnap_json_size(rows); i++) {
		const char *verdict =
			gpusnap_json_text(gpusnap_json_get(gpusnap_json_at(rows, i), "verdict"));

		if (verdict && strcmp(verdict, "fail") == 0)
			return 1;
	}
	return 0;
}

int cmd_doctor(int argc, char **argv)
{
	static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {NULL, parse_doctor, "[DIR...]",
		"Devices, limits, and how files in each DIR [.] would be read and written. Exit "
		"status 1 when something is broken; a device that is absent is not.",
		children, NULL, NULL};
	struct doctor_arguments a = {0};
	gpusnap_json *rows = gpusnap_json_pack("[]");
	int status;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	if (examine(&a, rows)) {
		gpusnap_json_free(rows);
		(void)fprintf(stderr, "%s: out of memory\n", argv[0]);
		return gpusnap_status_exit(GPUSNAP_E_NOMEM);
	}
	status = worst(rows);
	if (a.common.json)
		return output_json(
			gpusnap_json_pack("{s:b,s:o}", "ok", status == 0, "checks", rows), status);
	for (size_t i = 0; i < gpusnap_json_size(rows); i++) {
		const gpusnap_json *r = gpusnap_json_at(rows, i);

		(void)printf("%-7s %-20s %s\n", gpusnap_json_text(gpusnap_json_get(r, "verdict")),
			gpusnap_json_text(gpusnap_json_get(r, "check")),
			gpusnap_json_text(gpusnap_json_get(r, "finding")));
	}
	gpusnap_json_free(rows);
	return output_flush() ? 3 : status;
}
