/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap verify: bytes against their digests, of a file or of a live process. */
#include <stdio.h>
#include <stdlib.h>

#include <gpusnap/snapshot.h>

#include "tools/command.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/remote.h"

struct verify_arguments {
	struct live_options live;
	gpusnap_io_options io;
	struct parent_options parents;
	const char *file;
};

static error_t parse_verify(int key, char *arg, struct argp_state *state)
{
	struct verify_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->live.target;
		state->child_inputs[1] = &a->io;
		state->child_inputs[2] = &a->parents;
		state->child_inputs[3] = &a->live.common;
		return 0;
	case ARGP_KEY_ARG:
		if (a->file)
			argp_error(state, "one FILE, not more: '%s'", arg);
		a->file = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int verdict(const gpusnap_json *result)
{
	return field_true(result, "ok") ? 0 : 1;
}

static int print_verdict(const gpusnap_json *result, bool verbose)
{
	const gpusnap_json *damage = gpusnap_json_get(result, "damage");
	char size[SIZE_TEXT];

	(void)verbose;
	for (size_t i = 0; i < gpusnap_json_size(damage); i++) {
		const gpusnap_json *d = gpusnap_json_at(damage, i);

		(void)printf("differs: ");
		output_name(field_text(d, "buffer"), 0);
		(void)printf(", first at leaf %llu (file offset %llu",
			(unsigned long long)field_u64(d, "leaf"),
			(unsigned long long)field_u64(d, "file_offset"));
		if (gpusnap_json_text(gpusnap_json_get(d, "file"))) {
			(void)printf(" of ");
			output_name(field_text(d, "file"), 0);
		}
		(void)printf("), %llu leaves\n", (unsigned long long)field_u64(d, "leaf_count"));
	}
	(void)printf("%s: %llu buffers, %s, root %s\n",
		field_true(result, "ok") ? "verified" : "NOT verified",
		(unsigned long long)field_u64(result, "buffers"),
		format_size(field_u64(result, "bytes"), size), field_text(result, "root"));
	return verdict(result);
}

static gpusnap_json *damage_list(const gpusnap_damage *damage)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (size_t i = 0; i < damage->count; i++) {
		const gpusnap_damage_item *d = &damage->items[i];

		if (gpusnap_json_append(list,
			    gpusnap_json_pack("{s:s,s:I,s:I,s:I,s:s?}", "buffer", d->buffer, "leaf",
				    (long long)d->leaf, "leaf_count", (long long)d->leaf_count,
				    "file_offset", (long long)d->file_offset, "file", d->file))) {
			gpusnap_json_free(list);
			return NULL;
		}
	}
	return list;
}

static gpusnap_json *verify_result(const gpusnap_snapshot *snapshot, const gpusnap_damage *damage,
	const gpusnap_io_report *report)
{
	char root[GPUSNAP_DIGEST_TEXT];

	return gpusnap_json_pack("{s:b,s:s,s:I,s:I,s:f,s:s,s:b,s:o}", "ok", damage->count == 0,
		"root", gpusnap_digest_format(gpusnap_snapshot_seal(snapshot)->root, root),
		"buffers", (long long)damage->buffers, "bytes", (long long)damage->bytes, "seconds",
		report->seconds, "engine", report->engine, "direct", report->direct, "damage",
		damage_list(damage));
}

static int verify_file(const char *program, struct verify_arguments *a)
{
	struct progress progress = PROGRESS_INIT("verify");
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_damage damage = {0};
	gpusnap_io_report report;
	gpusnap_error err = {0};
	gpusnap_json *result;
	gpusnap_status s;
	int status;

	s = open_snapshot(a->file, &a->parents, &snapshot, &err);
	if (!s) {
		progress_attach(&progress, &a->io);
		s = gpusnap_snapshot_verify(snapshot, &a->io, &damage, &report, &err);
		progress_end(&progress);
	}
	if (s) {
		gpusnap_snapshot_close(snapshot);
		return output_error(program, a->live.common.json, &err);
	}
	if (a->live.common.verbose)
		output_io(&report);
	result = verify_result(snapshot, &damage, &report);
	status = damage.count ? 1 : 0;
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	if (a->live.common.json)
		return output_json(result, status);
	(void)print_verdict(result, a->live.common.verbose);
	gpusnap_json_free(result);
	return output_flush() ? 3 : status;
}

static int verify_live(const char *program, const struct verify_arguments *a)
{
	gpusnap_error err = {0};
	gpusnap_json *args;
	char *path = NULL;

	if (a->file && absolute_path(a->file, &path, &err))
		return output_error(program, a->live.common.json, &err);
	args = path ? gpusnap_json_pack("{s:s}", "file", path) : gpusnap_json_pack("{}");
	free(path);
	if (args && a->file && parent_request(args, &a->parents, &err)) {
		gpusnap_json_free(args);
		return output_error(program, a->live.common.json, &err);
	}
	return live_run(program, &a->live, "verify", args, print_verdict, verdict);
}

int cmd_verify(int argc, char **argv)
{
	static const struct argp_child children[] = {{&target_argp, 0, NULL, 0},
		{&io_argp, 0, NULL, 0}, {&parent_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0},
		{0}};
	static const struct argp argp = {NULL, parse_verify, "[FILE]",
		"Without FILE: digest a live process's bytes on the device and compare them with "
		"the "
		"snapshot last saved or restored (or the last validate --record). With FILE: read "
		"the file and check every byte of it. With FILE and --pid or --socket: compare "
		"that "
		"process with FILE.",
		children, NULL, NULL};
	struct verify_arguments a = {.io = GPUSNAP_IO_OPTIONS_INIT};

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	if (a.file && !a.live.target.pid && !a.live.target.socket)
		return verify_file(argv[0], &a);
	return verify_live(argv[0], &a);
}
