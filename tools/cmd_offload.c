/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap offload, resume: give device memory back and take it again. */
#include <stdio.h>
#include <string.h>

#include "tools/command.h"
#include "tools/output.h"
#include "tools/remote.h"

enum { KEY_BACKING = 0x200, TAGS_MAX = 64 };

struct offload_arguments {
	struct live_options live;
	gpusnap_io_options io; /* of resume */
	const char *backing;
	const char *tags[TAGS_MAX];
	size_t tag_count;
};

static error_t parse_tags(int key, char *arg, struct argp_state *state)
{
	struct offload_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->live.target;
		state->child_inputs[1] = &a->live.common;
		state->child_inputs[2] = &a->io;
		return 0;
	case KEY_BACKING:
		if (strcmp(arg, "auto") != 0 && strcmp(arg, "arena") != 0 &&
			strcmp(arg, "snapshot") != 0)
			argp_error(state, "--backing: '%s' is none of auto, arena, snapshot", arg);
		a->backing = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (a->tag_count == TAGS_MAX)
			argp_error(state, "more than %d tags", TAGS_MAX);
		a->tags[a->tag_count++] = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static gpusnap_json *request(const struct offload_arguments *a)
{
	gpusnap_json *args = gpusnap_json_pack("{}");
	gpusnap_json *tags = a->tag_count ? gpusnap_json_pack("[]") : NULL;
	gpusnap_status s = args ? GPUSNAP_OK : GPUSNAP_E_NOMEM;

	for (size_t i = 0; !s && i < a->tag_count; i++)
		s = gpusnap_json_append(tags, gpusnap_json_pack("s", a->tags[i]));
	if (!s && tags) {
		s = gpusnap_json_set(args, "tags", tags);
		tags = NULL;
	}
	if (!s && a->backing)
		s = gpusnap_json_set(args, "backing", gpusnap_json_pack("s", a->backing));
	if (!s)
		s = io_request(args, &a->io);
	if (!s)
		return args;
	gpusnap_json_free(args);
	gpusnap_json_free(tags);
	return NULL;
}

static int print_offloaded(const gpusnap_json *result, bool verbose)
{
	char size[SIZE_TEXT];
	char freed[SIZE_TEXT];
	char copied[SIZE_TEXT];

	(void)printf("offloaded %llu regions, %s in %.3f s; freed %s, measured\nbacking: %s\n",
		(unsigned long long)field_u64(result, "regions"),
		format_size(field_u64(result, "bytes"), size), field_seconds(result),
		format_size(field_u64(result, "freed_bytes"), freed),
		field_text(result, "backing"));
	if (verbose)
		(void)fprintf(stderr, "copied %s; leaves that had not changed were not\n",
			format_size(field_u64(result, "copied_bytes"), copied));
	return 0;
}

static int print_resumed(const gpusnap_json *result, bool verbose)
{
	char size[SIZE_TEXT];
	char rate[SIZE_TEXT];

	(void)printf("resumed and verified %llu regions, %s in %.3f s, %s\n",
		(unsigned long long)field_u64(result, "regions"),
		format_size(field_u64(result, "bytes"), size), field_seconds(result),
		format_rate(field_u64(result, "bytes"), field_seconds(result), rate));
	if (verbose && gpusnap_json_get(result, "engine")) {
		gpusnap_io_report io = field_io(result);

		output_io(&io);
	}
	return 0;
}

int cmd_offload(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&target_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0}, {0}};
	static const struct argp_option options[] = {
		{"backing", KEY_BACKING, "WHERE", 0,
			"Where kept bytes stay: arena (host memory), snapshot (the last saved or "
			"restored "
			"file, when the state still equals it) or auto [auto]",
			1},
		{0},
	};
	static const struct argp argp = {options, parse_tags, "[TAG...]",
		"Give the device memory of regions with these tags back (all without a TAG). Their "
		"addresses stay reserved; resume or restore puts the bytes back.",
		children, NULL, NULL};
	struct offload_arguments a = {0};

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	return live_run(argv[0], &a.live, "offload", request(&a), print_offloaded, NULL);
}

int cmd_resume(int argc, char **argv)
{
	static const struct argp_child children[] = {{&target_argp, 0, NULL, 0},
		{&common_argp, 0, NULL, 0}, {&io_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {NULL, parse_tags, "[TAG...]",
		"Map offloaded regions at the same addresses and put their bytes back, verified on "
		"the device: all of them, or none when memory is short.",
		children, NULL, NULL};
	struct offload_arguments a = {.io = GPUSNAP_IO_OPTIONS_INIT};

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	return live_run(argv[0], &a.live, "resume", request(&a), print_resumed, NULL);
}
