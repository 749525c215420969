/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/arguments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gpusnap/json.h>

#include "formats/base/fail.h"
#include "tools/remote.h"

enum {
	KEY_JSON = 0x100,
	KEY_SOCKET,
	KEY_IO,
	KEY_DIRECT,
	KEY_DEPTH,
	KEY_BLOCK_SIZE,
	KEY_TP_SIZE,
	KEY_TP_RANK,
	KEY_EP_SIZE,
	KEY_EP_RANK,
	KEY_MASK,
	KEY_COMPACT,
	KEY_EXPERT_MAPS,
	KEY_UNREGISTERED_MASKS,
	KEY_FORGET_UNCLAIMED,
	KEY_STRICT,
};

uint64_t parse_number(struct argp_state *state, const char *option, const char *text, uint64_t max)
{
	char *end = NULL;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || value > max)
		argp_error(state, "%s: '%s' is not a number from 0 to %llu", option, text,
			(unsigned long long)max);
	return value;
}

uint64_t parse_size(struct argp_state *state, const char *option, const char *text)
{
	static const char suffixes[] = "KMGT";
	char *end = NULL;
	const char *suffix;
	unsigned long long value;
	unsigned shift = 0;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (!errno && end != text && text[0] != '-' && *end) {
		suffix = strchr(suffixes, *end);
		if (suffix) {
			shift = 10 * (unsigned)(suffix - suffixes + 1);
			end++;
		}
	}
	if (errno || end == text || *end || text[0] == '-' ||
		value > (unsigned long long)INT64_MAX >> shift)
		argp_error(state, "%s: '%s' is not a size, such as 4M (K, M, G, T are 1024s)",
			option, text);
	return value << shift;
}

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
	struct common_options *o = state->input;

	(void)arg;
	switch (key) {
	case KEY_JSON:
		o->json = true;
		return 0;
	case 'v':
		o->verbose = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option common_option_table[] = {
	{"json", KEY_JSON, NULL, 0, "Print one JSON object (\"schema\": 1)", 90},
	{"verbose", 'v', NULL, 0, "Say how things were done", 90},
	{0},
};
const struct argp common_argp = {common_option_table, parse_common, NULL, NULL, NULL, NULL, NULL};

static error_t parse_target(int key, char *arg, struct argp_state *state)
{
	struct target_options *o = state->input;

	switch (key) {
	case 'p':
		o->pid = (int64_t)parse_number(state, "--pid", arg, INT32_MAX);
		if (!o->pid)
			argp_error(state, "--pid: no process has number 0");
		return 0;
	case KEY_SOCKET:
		o->socket = arg;
		return 0;
	case ARGP_KEY_END:
		if (o->pid && o->socket)
			argp_error(state, "give --pid or --socket, not both");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option target_option_table[] = {
	{"pid", 'p', "PID", 0, "Process to talk to [the only one with an agent]", 80},
	{"socket", KEY_SOCKET, "PATH", 0, "Its agent's socket", 80},
	{0},
};
const struct argp target_argp = {target_option_table, parse_target, NULL, NULL, NULL, NULL, NULL};

static error_t parse_parent(int key, char *arg, struct argp_state *state)
{
	struct parent_options *o = state->input;

	if (key != 'P')
		return ARGP_ERR_UNKNOWN;
	if (o->count == PARENT_DIRS_MAX)
		argp_error(state, "--parent-dir: %d directories at most", PARENT_DIRS_MAX);
	o->dirs[o->count++] = arg;
	return 0;
}

static const struct argp_option parent_option_table[] = {
	{"parent-dir", 'P', "DIR", 0, "Look there too for the parents of a delta", 60},
	{0},
};
const struct argp parent_argp = {parent_option_table, parse_parent, NULL, NULL, NULL, NULL, NULL};

static error_t parse_io(int key, char *arg, struct argp_state *state)
{
	gpusnap_io_options *o = state->input;
	gpusnap_error err = {0};

	switch (key) {
	case KEY_IO:
		if (gpusnap_io_engine_parse(arg, &o->engine, &err))
			argp_error(state, "--io: %s", err.message);
		return 0;
	case KEY_DIRECT:
		if (gpusnap_io_direct_parse(arg, &o->direct, &err))
			argp_error(state, "--direct: %s", err.message);
		return 0;
	case KEY_DEPTH:
		o->depth = (uint32_t)parse_number(state, "--depth", arg, 1024);
		return 0;
	case KEY_BLOCK_SIZE:
		o->block_bytes = parse_size(state, "--block-size", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option io_option_table[] = {
	{"io", KEY_IO, "ENGINE", 0,
		"auto, uring, aio (direct I/O only), threads or, to load, mmap [auto]", 70},
	{"direct", KEY_DIRECT, "WHEN", 0, "Bypass the page cache: auto, on or off [auto]", 70},
	{"depth", KEY_DEPTH, "N", 0, "Requests in flight [8]", 70},
	{"block-size", KEY_BLOCK_SIZE, "SIZE", 0, "Bytes of one request [4M]", 70},
	{0},
};
const struct argp io_argp = {io_option_table, parse_io, NULL, NULL, NULL, NULL, NULL};

static void parse_rank(int key, char *arg, struct argp_state *state)
{
	gpusnap_load_options *o = state->input;
	static const char *const names[] = {"--tp-size", "--tp-rank", "--ep-size", "--ep-rank"};
	uint32_t *fields[] = {&o->tp_size, &o->tp_rank, &o->ep_size, &o->ep_rank};
	int index = key - KEY_TP_SIZE;

	*fields[index] = (uint32_t)parse_number(state, names[index], arg, 65536);
}

static void check_ranks(struct argp_state *state)
{
	const gpusnap_load_options *o = state->input;

	if (o->tp_rank >= (o->tp_size ? o->tp_size : 1))
		argp_error(state, "--tp-rank %u is not below --tp-size %u", o->tp_rank,
			o->tp_size ? o->tp_size : 1);
	if (o->ep_rank >= (o->ep_size ? o->ep_size : 1))
		argp_error(state, "--ep-rank %u is not below --ep-size %u", o->ep_rank,
			o->ep_size ? o->ep_size : 1);
}

static error_t parse_load(int key, char *arg, struct argp_state *state)
{
	gpusnap_load_options *o = state->input;
	gpusnap_error err = {0};

	switch (key) {
	case KEY_TP_SIZE:
	case KEY_TP_RANK:
	case KEY_EP_SIZE:
	case KEY_EP_RANK:
		parse_rank(key, arg, state);
		return 0;
	case KEY_MASK:
		if (gpusnap_mask_kind_parse(arg, &o->mask, &err))
			argp_error(state, "--mask: %s", err.message);
		return 0;
	case KEY_COMPACT:
		if (gpusnap_compact_parse(arg, &o->compact, &err))
			argp_error(state, "--compact: %s", err.message);
		return 0;
	case KEY_EXPERT_MAPS:
		o->expert_maps = true;
		return 0;
	case KEY_UNREGISTERED_MASKS:
		o->unregistered_masks = true;
		return 0;
	case KEY_FORGET_UNCLAIMED:
		o->forget_unclaimed = true;
		return 0;
	case KEY_STRICT:
		o->strict = true;
		return 0;
	case ARGP_KEY_END:
		check_ranks(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option load_option_table[] = {
	{"tp-size", KEY_TP_SIZE, "N", 0, "Tensor-parallel ranks [1]", 10},
	{"tp-rank", KEY_TP_RANK, "R", 0, "This one, 0 first [0]", 10},
	{"ep-size", KEY_EP_SIZE, "N", 0, "Expert-parallel ranks [1]", 10},
	{"ep-rank", KEY_EP_RANK, "R", 0, "This one, 0 first [0]", 10},
	{"mask", KEY_MASK, "KIND", 0,
		"Expert mask: standard, mori, deepep or vllm_aiter [standard]", 10},
	{"expert-maps", KEY_EXPERT_MAPS, NULL, 0, "Hold an expert index map beside each mask", 10},
	{"compact", KEY_COMPACT, "WHEN", 0, "Compact views: auto, always or never [auto]", 10},
	{"strict", KEY_STRICT, NULL, 0, "Refuse tensors that the model's family has no name for",
		10},
	{"unregistered-masks", KEY_UNREGISTERED_MASKS, NULL, 0,
		"Hold the masks as engines do: in the region, under no name", 20},
	{"forget-unclaimed", KEY_FORGET_UNCLAIMED, NULL, 0,
		"Do not save bytes without a name: with the above, loses the masks", 20},
	{0},
};
const struct argp load_argp = {load_option_table, parse_load, NULL, NULL, NULL, NULL, NULL};

gpusnap_status io_request(gpusnap_json *args, const gpusnap_io_options *io)
{
	gpusnap_status s = GPUSNAP_OK;

	if (io->engine)
		s = gpusnap_json_set(
			args, "engine", gpusnap_json_pack("s", gpusnap_io_engine_name(io->engine)));
	if (!s && io->direct)
		s = gpusnap_json_set(
			args, "direct", gpusnap_json_pack("s", gpusnap_io_direct_name(io->direct)));
	if (!s && io->depth)
		s = gpusnap_json_set(args, "depth", gpusnap_json_pack("I", (long long)io->depth));
	if (!s && io->block_bytes)
		s = gpusnap_json_set(
			args, "block_bytes", gpusnap_json_pack("I", (long long)io->block_bytes));
	return s;
}

gpusnap_status parent_request(
	gpusnap_json *args, const struct parent_options *parents, gpusnap_error *err)
{
	gpusnap_json *list = parents->count ? gpusnap_json_pack("[]") : NULL;
	gpusnap_status s = GPUSNAP_OK;

	for (size_t i = 0; !s && i < parents->count; i++) {
		char *path = NULL;

		s = absolute_path(parents->dirs[i], &path, err);
		if (!s && gpusnap_json_append(list, gpusnap_json_pack("s", path)))
			s = gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
		free(path);
	}
	if (s) {
		gpusnap_json_free(list);
		return s;
	}
	if (parents->count && gpusnap_json_set(args, "parent_dirs", list))
		return gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
	return GPUSNAP_OK;
}

gpusnap_status open_snapshot(const char *path, const struct parent_options *parents,
	gpusnap_snapshot **out, gpusnap_error *err)
{
	gpusnap_snapshot_open_options options = GPUSNAP_SNAPSHOT_OPEN_OPTIONS_INIT;

	options.parent_dirs = parents->dirs;
	options.parent_dir_count = parents->count;
	return gpusnap_snapshot_open_with(path, &options, out, err);
}
