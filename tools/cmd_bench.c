/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap bench: what this machine reaches of its own ceilings. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "tools/arguments.h"
#include "tools/bench_rows.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/scratch_directory.h"

enum { KEY_DEVICE = 0x300, KEY_SIZE, KEY_REPEAT, KEY_ONLY, REPEATS = 3, ROWS_MAX = 32 };

#define UNIT_BYTES    ((uint64_t)64 << 20)
#define DEFAULT_BYTES ((uint64_t)1 << 30)

struct bench_arguments {
	struct common_options common;
	gpusnap_io_options io;
	const char *device;
	const char *directory;
	uint64_t bytes;
	uint32_t repeats;
	const struct bench_row *rows[ROWS_MAX];
	size_t row_count;
};

static void add_rows(struct bench_arguments *a, char *names, struct argp_state *state)
{
	char *rest = names, *name;

	while ((name = strtok_r(rest, ",", &rest)) != NULL) {
		const struct bench_row *row = bench_row_find(name);

		if (!row)
			argp_error(state, "no row is called '%s'; --help lists them", name);
		if (a->row_count == ROWS_MAX)
			argp_error(state, "--only: more than %d rows", ROWS_MAX);
		a->rows[a->row_count++] = row;
	}
}

static error_t parse_bench(int key, char *arg, struct argp_state *state)
{
	struct bench_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->io;
		state->child_inputs[1] = &a->common;
		return 0;
	case KEY_DEVICE:
		a->device = arg;
		return 0;
	case KEY_SIZE:
		a->bytes = parse_size(state, "--size", arg);
		if (a->bytes == 0 || a->bytes % UNIT_BYTES)
			argp_error(state, "--size: a multiple of 64M, not '%s'", arg);
		return 0;
	case KEY_REPEAT:
		a->repeats = (uint32_t)parse_number(state, "--repeat", arg, BENCH_REPEATS_MAX);
		if (a->repeats == 0)
			argp_error(state, "--repeat: at least 1");
		return 0;
	case KEY_ONLY:
		add_rows(a, arg, state);
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num)
			argp_error(state, "one DIR, not more: '%s'", arg);
		a->directory = arg;
		return 0;
	case ARGP_KEY_END:
		if (a->row_count == 0)
			for (const struct bench_row *row = bench_rows; row->name; row++)
				a->rows[a->row_count++] = row;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- results ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
	qsort(values, count, sizeof *values, by_value);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

struct bench_result {
	double figure, ceiling;	       /* medians */
	double ratio, lowest, highest; /* of the pairs */
	double goal;
	bool met;
};

static struct bench_result summarise(
	const struct bench_session *session, const struct bench_row *row, struct bench_pair *pairs)
{
	double figures[BENCH_REPEATS_MAX], ceilings[BENCH_REPEATS_MAX], ratios[BENCH_REPEATS_MAX];
	struct bench_result r = {
		.goal = strcmp(session->device_name, "host") == 0 ? row->host_goal : row->goal};

	for (uint32_t i = 0; i < session->repeats; i++) {
		figures[i] = pairs[i].figure;
		ceilings[i] = pairs[i].ceiling;
		ratios[i] = pairs[i].figure / pairs[i].ceiling;
	}
	r.figure = median(figures, session->repeats);
	r.ceiling = median(ceilings, session->repeats);
	r.ratio = median(ratios, session->repeats);
	r.lowest = ratios[0];
	r.highest = ratios[session->repeats - 1];
	r.met = row->at_most ? r.ratio <= r.goal : r.ratio >= r.goal;
	return r;
}

static void print_result(const struct bench_row *row, const struct bench_result *r)
{
	double unit = row->at_most ? 0x1p20 : 1e9;

	(void)printf("%-18s %9.2f %9.2f %s %6.3f (%.3f .. %.3f) %s %.2f %s  %s / %s\n", row->name,
		r->figure / unit, r->ceiling / unit, row->at_most ? "MiB " : "GB/s", r->ratio,
		r->lowest, r->highest, row->at_most ? "<=" : ">=", r->goal, r->met ? "yes" : "no ",
		row->what, row->ceiling);
	(void)fflush(stdout);
}

static gpusnap_json *result_json(
	const struct bench_row *row, const struct bench_result *r, uint32_t repeats)
{
	return gpusnap_json_pack("{s:s,s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:b,s:I}", "row",
		row->name, "what", row->what, "ceiling_is", row->ceiling, "unit",
		row->at_most ? "bytes" : "bytes/s", "figure", r->figure, "ceiling", r->ceiling,
		"ratio", r->ratio, "ratio_lowest", r->lowest, "ratio_highest", r->highest, "goal",
		r->goal, "met", r->met, "repeats", (long long)repeats);
}

/* ---- the run ---- */

static gpusnap_status measure_row(struct bench_session *session, const struct bench_row *row,
	struct bench_result *ret_result, gpusnap_error *err)
{
	struct bench_pair pairs[BENCH_REPEATS_MAX];
	gpusnap_status s = GPUSNAP_OK;

	for (uint32_t i = 0; !s && i < session->repeats; i++)
		s = row->measure(session, row, i, &pairs[i], err);
	if (!s)
		*ret_result = summarise(session, row, pairs);
	return s;
}

static gpusnap_status run_rows(const struct bench_arguments *a, struct bench_session *session,
	gpusnap_json *rows, gpusnap_json *failures)
{
	gpusnap_status failed = GPUSNAP_OK;

	for (size_t i = 0; i < a->row_count; i++) {
		struct bench_result result;
		gpusnap_error err = {0};
		gpusnap_status s = measure_row(session, a->rows[i], &result, &err);

		if (s) {
			failed = s;
			(void)fprintf(stderr, "gpusnap bench: %s: not measured: %s\n",
				a->rows[i]->name, err.message);
			s = gpusnap_json_append(failures,
				gpusnap_json_pack("{s:s,s:s,s:s}", "row", a->rows[i]->name,
					"status", gpusnap_status_name(s), "message", err.message));
		} else {
			if (!a->common.json)
				print_result(a->rows[i], &result);
			s = gpusnap_json_append(
				rows, result_json(a->rows[i], &result, session->repeats));
		}
		if (s)
			return s;
	}
	return failed;
}

/* A state, a copy of it while it is saved, and the plain program's file. */
static gpusnap_status check_space(const char *directory, uint64_t bytes, gpusnap_error *err)
{
	struct statvfs fs;
	uint64_t available;

	if (statvfs(directory, &fs))
		return gsn_fail(err, GPUSNAP_E_IO, "%s: %s", directory, strerror(errno));
	available = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (available < 3 * bytes)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"%s: %llu bytes are free, three times --size are needed: %llu; give less "
			"or another DIR",
			directory, (unsigned long long)available, (unsigned long long)(3 * bytes));
	return GPUSNAP_OK;
}

static int report(const struct bench_arguments *a, const struct bench_session *session,
	gpusnap_json *rows, gpusnap_json *failures, gpusnap_status failed)
{
	int status = failed ? gpusnap_status_exit(failed) : 0;

	if (a->common.json)
		return output_json(
			gpusnap_json_pack("{s:b,s:s,s:I,s:o,s:o}", "ok", !failed, "device",
				a->device, "state_bytes", (long long)session->bytes, "rows", rows,
				"failures", failures),
			status);
	gpusnap_json_free(rows);
	gpusnap_json_free(failures);
	return output_flush() ? 3 : status;
}

static int bench_in(void *argument, const char *directory)
{
	const struct bench_arguments *a = argument;
	struct bench_session session = {0};
	gpusnap_error err = {0};
	gpusnap_json *rows, *failures;
	gpusnap_status s = GPUSNAP_OK;
	int status;

	for (size_t i = 0; !s && i < a->row_count; i++)
		if (a->rows[i]->needs_files)
			s = check_space(directory, a->bytes, &err);
	if (!s)
		s = bench_session_open(&session, a->device, &err);
	if (s) {
		bench_session_close(&session);
		return output_error("gpusnap bench", a->common.json, &err);
	}
	session.directory = directory;
	session.bytes = a->bytes;
	session.repeats = a->repeats;
	session.io = a->io;
	rows = gpusnap_json_pack("[]");
	failures = gpusnap_json_pack("[]");
	if (!a->common.json)
		(void)printf("%-18s %9s %9s %4s %6s (lowest .. highest) goal met  what / ceiling\n",
			"row", "figure", "ceiling", "", "ratio");
	s = run_rows(a, &session, rows, failures);
	status = report(a, &session, rows, failures, s);
	bench_session_close(&session);
	return status;
}

int cmd_bench(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"device", KEY_DEVICE, "NAME", 0, "host, cuda:N or hip:N [host]", 0},
		{"size", KEY_SIZE, "BYTES", 0, "of the state, a multiple of 64M [1G]", 0},
		{"repeat", KEY_REPEAT, "N", 0, "of each row, the median counts [3]", 0},
		{"only", KEY_ONLY, "ROW,...", 0,
			"offload-first, resume, offload-unchanged, save, restore-cold, "
			"restore-warm, digest, memory, decode-fp8-B, decode-bf16-B with B = 1, 8, "
			"32 [all]",
			0},
		{0}};
	static const struct argp_child children[] = {
		{&io_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {options, parse_bench, "[DIR]",
		"Each row is a figure, the machine's own ceiling for it measured beside, their "
		"ratio and the goal. Files are made in a folder in DIR [.] and removed. Exit "
		"status 0 whatever the ratios are.",
		children, NULL, NULL};
	struct bench_arguments a = {.io = GPUSNAP_IO_OPTIONS_INIT,
		.device = "host",
		.directory = ".",
		.bytes = DEFAULT_BYTES,
		.repeats = REPEATS};
	gpusnap_error err = {0};
	int status;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	if (scratch_directory_run(a.directory, "gpusnap-bench", bench_in, &a, &status, &err))
		return output_error(argv[0], a.common.json, &err);
	return status;
}
