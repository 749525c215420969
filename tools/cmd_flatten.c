/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap flatten: a delta and its parents as one full snapshot. */
#include <stdio.h>

#include "tools/arguments.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/progress.h"

enum { KEY_REPLACE = 0x200 };

struct flatten_arguments {
	struct common_options common;
	struct parent_options parents;
	gpusnap_flatten_options options;
	const char *file;
	const char *output;
};

static error_t parse_flatten(int key, char *arg, struct argp_state *state)
{
	struct flatten_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->options.io;
		state->child_inputs[1] = &a->parents;
		state->child_inputs[2] = &a->common;
		return 0;
	case KEY_REPLACE:
		a->options.replace = true;
		return 0;
	case ARGP_KEY_ARG:
		if (a->output)
			argp_error(state, "FILE and OUT, not more: '%s'", arg);
		*(a->file ? &a->output : &a->file) = arg;
		return 0;
	case ARGP_KEY_END:
		if (!a->output)
			argp_error(state, "%s is missing", a->file ? "OUT" : "FILE");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int report_flattened(const struct flatten_arguments *a, const gpusnap_flatten_report *report)
{
	char root[GPUSNAP_DIGEST_TEXT];
	char size[SIZE_TEXT];

	if (a->common.verbose)
		output_io(&report->io);
	(void)gpusnap_digest_format(report->root, root);
	if (a->common.json)
		return output_json(gpusnap_json_pack("{s:s,s:I,s:s,s:f,s:s,s:b}", "path", a->output,
					   "bytes", (long long)report->io.bytes, "root", root,
					   "seconds", report->io.seconds, "engine",
					   report->io.engine, "direct", (int)report->io.direct),
			0);
	(void)printf("flattened and verified %s in %.3f s\nroot %s\n",
		format_size(report->io.bytes, size), report->io.seconds, root);
	return output_flush();
}

int cmd_flatten(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"replace", KEY_REPLACE, NULL, 0, "Replace OUT when it exists", 1},
		{0},
	};
	static const struct argp_child children[] = {{&io_argp, 0, NULL, 0},
		{&parent_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {options, parse_flatten, "FILE OUT",
		"Write the state that delta FILE and its parents stand for as one full snapshot, "
		"every leaf verified. OUT appears only when it is whole and on disk.",
		children, NULL, NULL};
	struct flatten_arguments a = {.options = GPUSNAP_FLATTEN_OPTIONS_INIT};
	struct progress progress = PROGRESS_INIT("flatten");
	gpusnap_flatten_report report;
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_error err = {0};
	gpusnap_status s;

	a.options.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	s = open_snapshot(a.file, &a.parents, &snapshot, &err);
	if (!s) {
		progress_attach(&progress, &a.options.io);
		s = gpusnap_snapshot_flatten(snapshot, a.output, &a.options, &report, &err);
		progress_end(&progress);
	}
	gpusnap_snapshot_close(snapshot);
	return s ? output_error(argv[0], a.common.json, &err) : report_flattened(&a, &report);
}
