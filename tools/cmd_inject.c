/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap inject: damage live state on purpose, where `serve --allow-inject` permits it. */
#include <errno.h>
#include <stdio.h>

#include "tools/command.h"
#include "tools/output.h"
#include "tools/remote.h"

enum { KEY_OFFSET = 0x200, KEY_LENGTH, KEY_VALUE, KEY_FROM, KEY_SOURCE, KEY_ROWS };

struct inject_arguments {
	struct live_options live;
	const char *kind;
	const char *buffer;
	int64_t offset; /* -1: chosen by the kind */
	int64_t length;
	int64_t value, from, rows; /* -1: not given */
	const char *source;
};

static error_t parse_inject(int key, char *arg, struct argp_state *state)
{
	struct inject_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->live.target;
		state->child_inputs[1] = &a->live.common;
		return 0;
	case KEY_OFFSET:
		a->offset = (int64_t)parse_size(state, "--offset", arg);
		return 0;
	case KEY_LENGTH:
		a->length = (int64_t)parse_size(state, "--length", arg);
		return 0;
	case KEY_VALUE:
		a->value = (int64_t)parse_number(state, "--value", arg, INT64_MAX);
		return 0;
	case KEY_FROM:
		a->from = (int64_t)parse_size(state, "--from", arg);
		return 0;
	case KEY_SOURCE:
		a->source = arg;
		return 0;
	case KEY_ROWS:
		a->rows = (int64_t)parse_number(state, "--rows", arg, INT64_MAX);
		return 0;
	case ARGP_KEY_ARG:
		if (a->buffer)
			argp_error(state, "KIND and BUFFER, not more: '%s'", arg);
		*(a->kind ? &a->buffer : &a->kind) = arg;
		return 0;
	case ARGP_KEY_END:
		if (!a->buffer)
			argp_error(state, "KIND and BUFFER are needed");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int print_injected(const gpusnap_json *result, bool verbose)
{
	(void)verbose;
	(void)printf("injected: %s, %llu bytes of %s changed from offset %llu\n",
		field_text(result, "kind"), (unsigned long long)field_u64(result, "bytes_changed"),
		field_text(result, "buffer"), (unsigned long long)field_u64(result, "offset"));
	return 0;
}

int cmd_inject(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"offset", KEY_OFFSET, "BYTES", 0,
			"Where in the buffer [zero, shift: 0; flip: the middle]", 1},
		{"length", KEY_LENGTH, "BYTES", 0, "How much [the rest; flip: one bit]", 1},
		{"value", KEY_VALUE, "N", 0, "set, add: bits of an element, as an integer", 2},
		{"from", KEY_FROM, "BYTES", 0, "swap, copy: where the other range begins", 2},
		{"source", KEY_SOURCE, "BUFFER", 0, "copy: buffer that the bytes come from", 2},
		{"rows", KEY_ROWS, "N", 0, "transpose: rows of the matrix in the range", 2},
		{0},
	};
	static const struct argp_child children[] = {
		{&target_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {options, parse_inject, "KIND BUFFER",
		"Damage a buffer of a process that was started with serve --allow-inject, then "
		"watch verify and validate find it. KIND is what happens to the range: zero its "
		"bytes, flip one bit, shift its elements by one, set each element or add to it, "
		"swap with another range, copy another buffer's bytes, swap the nibbles of each "
		"byte, transpose it as a matrix.",
		children, NULL, NULL};
	struct inject_arguments a = {
		.offset = -1, .length = -1, .value = -1, .from = -1, .rows = -1};
	gpusnap_json *args;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	args = gpusnap_json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:s*}", "kind", a.kind, "buffer",
		a.buffer, "offset", (long long)a.offset, "length", (long long)a.length, "value",
		(long long)a.value, "from", (long long)a.from, "rows", (long long)a.rows, "source",
		a.source);
	return live_run(argv[0], &a.live, "inject", args, print_injected, NULL);
}
