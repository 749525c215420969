/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap save, restore: a live process and a snapshot file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/command.h"
#include "tools/output.h"
#include "tools/remote.h"

enum { KEY_REPLACE = 0x200, KEY_READ_BACK, KEY_PARENT };

struct save_arguments {
	struct live_options live;
	gpusnap_io_options io;
	struct parent_options parents;
	const char *parent;
	bool replace;
	bool read_back;
	const char *file;
};

static error_t parse_file_argument(int key, char *arg, struct argp_state *state)
{
	struct save_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->live.target;
		state->child_inputs[1] = &a->io;
		state->child_inputs[2] = &a->parents;
		state->child_inputs[3] = &a->live.common;
		return 0;
	case KEY_REPLACE:
		a->replace = true;
		return 0;
	case KEY_READ_BACK:
		a->read_back = true;
		return 0;
	case KEY_PARENT:
		a->parent = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (a->file)
			argp_error(state, "one FILE, not more: '%s'", arg);
		a->file = arg;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "FILE is missing");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int print_transfer(const gpusnap_json *result, bool verbose, const char *done)
{
	char size[SIZE_TEXT];
	char rate[SIZE_TEXT];

	(void)printf("%s %s in %.3f s, %s\nroot %s\n", done,
		format_size(field_u64(result, "bytes"), size), field_seconds(result),
		format_rate(field_u64(result, "bytes"), field_seconds(result), rate),
		field_text(result, "root"));
	if (verbose) {
		gpusnap_io_report io = field_io(result);

		output_io(&io);
	}
	return 0;
}

static int print_saved(const gpusnap_json *result, bool verbose)
{
	const char *read_back = field_text(result, "read_back");

	(void)print_transfer(result, verbose, "saved");
	if (field_u64(result, "depth"))
		(void)printf("delta %llu of %s, %llu of %llu leaves\n",
			(unsigned long long)field_u64(result, "depth"),
			field_text(result, "parent"),
			(unsigned long long)field_u64(result, "leaves_written"),
			(unsigned long long)field_u64(result, "leaves"));
	if (gpusnap_json_get(result, "read_back"))
		(void)printf("read back equal: %s\n", read_back);
	return 0;
}

static int print_restored(const gpusnap_json *result, bool verbose)
{
	return print_transfer(result, verbose, "restored and verified");
}

/* NULL when memory was short: `args` is consumed then. */
static gpusnap_json *with_flag(gpusnap_json *args, const char *key, bool flag)
{
	if (!args || !flag || gpusnap_json_set(args, key, gpusnap_json_pack("b", 1)) == GPUSNAP_OK)
		return args;
	gpusnap_json_free(args);
	return NULL;
}

/* NULL when memory was short: `args` is consumed then. */
static gpusnap_json *with_path(gpusnap_json *args, const char *key, const char *path)
{
	if (!args || !path ||
		gpusnap_json_set(args, key, gpusnap_json_pack("s", path)) == GPUSNAP_OK)
		return args;
	gpusnap_json_free(args);
	return NULL;
}

static gpusnap_status request(
	const struct save_arguments *a, gpusnap_json **ret_args, gpusnap_error *err)
{
	char *path = NULL, *parent = NULL;
	gpusnap_json *args = NULL;
	gpusnap_status s = absolute_path(a->file, &path, err);

	if (!s && a->parent)
		s = absolute_path(a->parent, &parent, err);
	if (!s)
		args = with_path(gpusnap_json_pack("{s:s}", "path", path), "parent", parent);
	if (args && io_request(args, &a->io)) {
		gpusnap_json_free(args);
		args = NULL;
	}
	args = with_flag(args, "replace", a->replace);
	args = with_flag(args, "read_back", a->read_back);
	if (args)
		s = parent_request(args, &a->parents, err);
	free(path);
	free(parent);
	*ret_args = args;
	return s;
}

static int transfer(const char *program, const struct save_arguments *a, const char *command,
	live_printer print)
{
	gpusnap_error err = {0};
	gpusnap_json *args;

	if (request(a, &args, &err)) {
		gpusnap_json_free(args);
		return output_error(program, a->live.common.json, &err);
	}
	return live_run(program, &a->live, command, args, print, NULL);
}

int cmd_save(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"replace", KEY_REPLACE, NULL, 0, "Replace FILE when it exists", 1},
		{"read-back", KEY_READ_BACK, NULL, 0,
			"Read it back from the disk and compare before it appears", 1},
		{"parent", KEY_PARENT, "SNAPSHOT", 0,
			"Write a delta: only leaves that differ from this snapshot", 1},
		{0},
	};
	static const struct argp_child children[] = {{&target_argp, 0, NULL, 0},
		{&io_argp, 0, NULL, 0}, {&parent_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0},
		{0}};
	static const struct argp argp = {options, parse_file_argument, "FILE",
		"Write every kept byte of a process's regions, hashed, to a snapshot. FILE appears "
		"only when it is whole and on disk.",
		children, NULL, NULL};
	struct save_arguments a = {.io = GPUSNAP_IO_OPTIONS_INIT};

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	return transfer(argv[0], &a, "save", print_saved);
}

int cmd_restore(int argc, char **argv)
{
	static const struct argp_child children[] = {{&target_argp, 0, NULL, 0},
		{&io_argp, 0, NULL, 0}, {&parent_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0},
		{0}};
	static const struct argp argp = {NULL, parse_file_argument, "FILE",
		"Put a snapshot's bytes back at the same addresses and verify them on the device.",
		children, NULL, NULL};
	struct save_arguments a = {.io = GPUSNAP_IO_OPTIONS_INIT};

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	return transfer(argv[0], &a, "restore", print_restored);
}
