/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap extract: one buffer of a snapshot as a file of its own. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "tools/arguments.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/progress.h"

enum { KEY_RAW = 0x200, KEY_REPLACE };

struct extract_arguments {
	struct common_options common;
	struct parent_options parents;
	gpusnap_extract_options options;
	const char *file;
	const char *name;
	const char *output; /* NULL: standard output */
};

static void check_arguments(const struct extract_arguments *a, struct argp_state *state)
{
	if (!a->name)
		argp_error(state, "%s is missing", a->file ? "NAME" : "FILE");
	if (a->output)
		return;
	if (a->common.json)
		argp_error(state, "--json needs standard output for itself; give -o OUT");
	if (a->options.replace)
		argp_error(state, "--replace is for files; give -o OUT");
	if (isatty(STDOUT_FILENO))
		argp_error(state, "standard output is a terminal; give -o OUT or redirect it");
}

static error_t parse_extract(int key, char *arg, struct argp_state *state)
{
	struct extract_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->options.io;
		state->child_inputs[1] = &a->parents;
		state->child_inputs[2] = &a->common;
		return 0;
	case 'o':
		a->output = strcmp(arg, "-") == 0 ? NULL : arg;
		return 0;
	case KEY_RAW:
		a->options.raw = true;
		return 0;
	case KEY_REPLACE:
		a->options.replace = true;
		return 0;
	case ARGP_KEY_ARG:
		if (a->name)
			argp_error(state, "FILE and NAME, not more: '%s'", arg);
		*(a->file ? &a->name : &a->file) = arg;
		return 0;
	case ARGP_KEY_END:
		check_arguments(a, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static gpusnap_status extract(const struct extract_arguments *a, gpusnap_snapshot *snapshot,
	gpusnap_extract_report *ret_report, gpusnap_error *err)
{
	if (a->output)
		return gpusnap_snapshot_extract(
			snapshot, a->name, a->output, &a->options, ret_report, err);
	return gpusnap_snapshot_extract_fd(
		snapshot, a->name, STDOUT_FILENO, &a->options, ret_report, err);
}

static int report_extracted(const struct extract_arguments *a, const gpusnap_extract_report *report)
{
	char digest[GPUSNAP_DIGEST_TEXT];
	char size[SIZE_TEXT];

	if (a->common.verbose)
		output_io(&report->io);
	(void)gpusnap_digest_format(report->digest, digest);
	if (a->common.json)
		return output_json(
			gpusnap_json_pack("{s:s,s:s,s:I,s:I,s:s,s:f,s:s,s:b}", "name", a->name,
				"path", a->output, "bytes", (long long)report->io.bytes,
				"file_bytes", (long long)report->file_bytes, "digest", digest,
				"seconds", report->io.seconds, "engine", report->io.engine,
				"direct", report->io.direct),
			0);
	if (a->output)
		(void)printf("extracted and verified %s, digest %s\n",
			format_size(report->io.bytes, size), digest);
	return output_flush();
}

int cmd_extract(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"output", 'o', "OUT", 0, "File to make; - is standard output [-]", 1},
		{"raw", KEY_RAW, NULL, 0, "The bytes alone, without a safetensors header", 1},
		{"replace", KEY_REPLACE, NULL, 0, "Replace OUT when it exists", 1},
		{0},
	};
	static const struct argp_child children[] = {{&io_argp, 0, NULL, 0},
		{&parent_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {options, parse_extract, "FILE NAME",
		"Write one buffer of a snapshot, or one range of unclaimed bytes, as a safetensors "
		"file. No byte is written before its leaf is verified.",
		children, NULL, NULL};
	struct extract_arguments a = {.options = GPUSNAP_EXTRACT_OPTIONS_INIT};
	struct progress progress = PROGRESS_INIT("extract");
	gpusnap_extract_report report;
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_error err = {0};
	gpusnap_status s;

	a.options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	s = open_snapshot(a.file, &a.parents, &snapshot, &err);
	if (!s) {
		progress_attach(&progress, &a.options.io);
		s = extract(&a, snapshot, &report, &err);
		progress_end(&progress);
	}
	gpusnap_snapshot_close(snapshot);
	return s ? output_error(argv[0], a.common.json, &err) : report_extracted(&a, &report);
}
