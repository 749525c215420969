/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap ps, show: which processes hold state, and what one of them holds. */
#include <stdio.h>
#include <string.h>

#include <gpusnap/agent.h>

#include "tools/command.h"
#include "tools/endpoint.h"
#include "tools/output.h"
#include "tools/remote.h"

static error_t parse_plain(int key, char *arg, struct argp_state *state)
{
	struct live_options *o = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &o->common;
		if (state->root_argp->children[1].argp)
			state->child_inputs[1] = &o->target;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "no arguments are taken: '%s'", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_region(const gpusnap_json *r)
{
	char size[SIZE_TEXT];
	char resident[SIZE_TEXT];
	const char *backing = gpusnap_json_text(gpusnap_json_get(r, "backing"));

	(void)printf("  %-3llu ", (unsigned long long)field_u64(r, "id"));
	output_name(field_text(r, "tag"), 12);
	(void)printf(" %-9s %-9s %12s %12s  0x%llx%s", field_text(r, "policy"),
		field_text(r, "state"), format_size(field_u64(r, "bytes"), size),
		format_size(field_u64(r, "resident_bytes"), resident),
		(unsigned long long)field_u64(r, "address"), backing ? "  in " : "");
	output_name(backing ? backing : "", 0);
	(void)printf("\n");
}

static void format_shape(const gpusnap_json *shape, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < gpusnap_json_size(shape) && used < size - 1; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "",
			(long long)gpusnap_json_integer(gpusnap_json_at(shape, i), 0));
}

static void print_buffer(const gpusnap_json *b)
{
	char shape[64];
	const char *digest = gpusnap_json_text(gpusnap_json_get(b, "digest"));

	format_shape(gpusnap_json_get(b, "shape"), shape, sizeof shape);
	(void)printf("  ");
	output_name(field_text(b, "name"), 52);
	(void)printf(" %-11s %-8s [%s]  %.12s\n", field_text(b, "role"), field_text(b, "dtype"),
		shape, digest ? digest : "not resident");
}

static int print_state(const gpusnap_json *result, bool verbose)
{
	const gpusnap_json *regions = gpusnap_json_get(result, "regions");
	const gpusnap_json *buffers = gpusnap_json_get(result, "buffers");
	char size[SIZE_TEXT];

	(void)verbose;
	(void)printf("device %s\nregions: id, tag, policy, state, bytes, resident, address\n",
		field_text(result, "device"));
	for (size_t i = 0; i < gpusnap_json_size(regions); i++)
		print_region(gpusnap_json_at(regions, i));
	(void)printf("buffers: name, role, dtype, shape, digest\n");
	for (size_t i = 0; i < gpusnap_json_size(buffers); i++)
		print_buffer(gpusnap_json_at(buffers, i));
	(void)printf("unclaimed bytes (no buffer names them): %s\n",
		format_size(field_u64(result, "unclaimed_bytes"), size));
	return 0;
}

int cmd_show(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&common_argp, 0, NULL, 0}, {&target_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {NULL, parse_plain, "",
		"Regions, buffers with their digests, and unclaimed bytes of a live process.",
		children, NULL, NULL};
	struct live_options o = {0};

	if (argp_parse(&argp, argc, argv, 0, NULL, &o))
		return 2;
	return live_run(argv[0], &o, "show", gpusnap_json_pack("{}"), print_state, NULL);
}

/* One process: its totals, or why its agent does not answer. */
static gpusnap_json *describe(const struct endpoint *e)
{
	gpusnap_error err = {0};
	gpusnap_json *state = NULL;
	gpusnap_json *regions;
	gpusnap_json *row;
	uint64_t bytes = 0;
	uint64_t resident = 0;

	if (gpusnap_agent_call(
		    e->path, "show", gpusnap_json_pack("{s:b}", "digests", 0), &state, &err))
		return gpusnap_json_pack("{s:I,s:s,s:s}", "pid", (long long)e->pid, "socket",
			e->path, "error", err.message);
	regions = gpusnap_json_get(state, "regions");
	for (size_t i = 0; i < gpusnap_json_size(regions); i++) {
		bytes += field_u64(gpusnap_json_at(regions, i), "bytes");
		resident += field_u64(gpusnap_json_at(regions, i), "resident_bytes");
	}
	row = gpusnap_json_pack("{s:I,s:s,s:s,s:I,s:I}", "pid", (long long)e->pid, "socket",
		e->path, "device", field_text(state, "device"), "bytes", (long long)bytes,
		"resident_bytes", (long long)resident);
	gpusnap_json_free(state);
	return row;
}

static void print_process(const gpusnap_json *p)
{
	char size[SIZE_TEXT];
	char resident[SIZE_TEXT];
	const char *error = gpusnap_json_text(gpusnap_json_get(p, "error"));

	if (error)
		(void)printf(
			"%-8llu no answer: %s\n", (unsigned long long)field_u64(p, "pid"), error);
	else
		(void)printf("%-8llu %-8s %12s %12s  %s\n", (unsigned long long)field_u64(p, "pid"),
			field_text(p, "device"), format_size(field_u64(p, "bytes"), size),
			format_size(field_u64(p, "resident_bytes"), resident),
			field_text(p, "socket"));
}

int cmd_ps(int argc, char **argv)
{
	static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {NULL, parse_plain, "",
		"Processes of this user that have a gpusnap agent: pid, device, bytes, resident.",
		children, NULL, NULL};
	struct live_options o = {0};
	struct endpoint_list list = {0};
	gpusnap_error err = {0};
	gpusnap_json *processes = gpusnap_json_pack("[]");
	gpusnap_status s = GPUSNAP_OK;

	if (argp_parse(&argp, argc, argv, 0, NULL, &o))
		return 2;
	if (endpoint_find_all(&list, &err)) {
		gpusnap_json_free(processes);
		return output_error(argv[0], o.common.json, &err);
	}
	for (size_t i = 0; !s && i < list.count; i++)
		s = gpusnap_json_append(processes, describe(&list.items[i]));
	endpoint_list_free(&list);
	if (o.common.json)
		return output_json(gpusnap_json_pack("{s:o}", "processes", processes), 0);
	for (size_t i = 0; i < gpusnap_json_size(processes); i++)
		print_process(gpusnap_json_at(processes, i));
	gpusnap_json_free(processes);
	return output_flush();
}
