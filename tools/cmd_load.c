/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap load: a checkpoint becomes a snapshot of one rank, or is planned only. */
#include <errno.h>
#include <stdio.h>

#include <gpusnap/snapshot.h>

#include "formats/base/fail.h"
#include "tools/arguments.h"
#include "tools/command.h"
#include "tools/load_notes.h"
#include "tools/load_table.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/server.h"

enum { KEY_REPLACE = 0x200, KEY_RECORD, KEY_PLAN };

struct load_arguments {
	struct common_options common;
	gpusnap_load_options load;
	bool replace;
	bool record;
	bool plan;
	const char *directory;
	const char *file;
};

static error_t parse_load_command(int key, char *arg, struct argp_state *state)
{
	struct load_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->load;
		state->child_inputs[1] = &a->load.io;
		state->child_inputs[2] = &a->common;
		return 0;
	case KEY_REPLACE:
		a->replace = true;
		return 0;
	case KEY_RECORD:
		a->record = true;
		return 0;
	case KEY_PLAN:
		a->plan = true;
		return 0;
	case ARGP_KEY_ARG:
		if (a->file)
			argp_error(state, "DIR and FILE, not more: '%s'", arg);
		*(a->directory ? &a->file : &a->directory) = arg;
		return 0;
	case ARGP_KEY_END:
		if (a->plan && (a->file || a->record || a->replace))
			argp_error(state, "--plan writes no FILE and records nothing");
		if (!a->directory || (!a->plan && !a->file))
			argp_error(state, "DIR and FILE are needed, or --plan DIR");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static gpusnap_status record_probe(struct server *server, gpusnap_error *err)
{
	gpusnap_probe *probe = NULL;
	gpusnap_json *json;
	gpusnap_status s;

	if (!server->dispatch)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"--record needs a model with MoE layers, this one has none");
	s = gpusnap_probe_record(server->dispatch, NULL, &probe, err);
	if (s)
		return s;
	json = gpusnap_probe_encode(probe);
	gpusnap_probe_free(probe);
	s = json ? gpusnap_record_set(server->registry, "probe", json, err)
		 : gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
	gpusnap_json_free(json);
	return s;
}

static gpusnap_status load_and_save(struct server *server, struct load_arguments *a,
	gpusnap_save_report *ret_saved, gpusnap_error *err)
{
	gpusnap_save_options save = GPUSNAP_SAVE_OPTIONS_INIT;
	struct progress loading = PROGRESS_INIT("load");
	struct progress saving = PROGRESS_INIT("save");
	gpusnap_status s;

	save.replace = a->replace;
	save.io = a->load.io;
	progress_attach(&loading, &a->load.io);
	s = server_load(server, "host", a->directory, &a->load, err);
	progress_end(&loading);
	if (!s && a->record)
		s = record_probe(server, err);
	if (s)
		return s;
	progress_attach(&saving, &save.io);
	s = gpusnap_save(server->registry, a->file, &save, ret_saved, err);
	progress_end(&saving);
	return s;
}

static int print_plan(const char *command, const struct load_arguments *a)
{
	gpusnap_json *plan = NULL;
	gpusnap_error err = {0};
	int status;

	if (gpusnap_load_describe(a->directory, &a->load, a->common.verbose, &plan, &err))
		return output_error(command, a->common.json, &err);
	if (a->common.json)
		return output_json(plan, 0);
	status = load_table_print(plan);
	gpusnap_json_free(plan);
	return status;
}

static int report(const struct load_arguments *a, const gpusnap_loaded *loaded,
	const gpusnap_save_report *saved)
{
	const gpusnap_load_report *load = &loaded->report;
	char root[GPUSNAP_DIGEST_TEXT];
	char size[SIZE_TEXT];
	char read[SIZE_TEXT];
	char needed[SIZE_TEXT];
	char file[SIZE_TEXT];

	if (a->common.verbose) {
		output_io(&load->io);
		output_io(&saved->io);
	}
	(void)gpusnap_digest_format(saved->root, root);
	if (a->common.json)
		return output_json(
			load_notes_add(
				gpusnap_json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:s,s:b,s:{"
						  "s:I,s:f,s:s}}",
					"tensors", (long long)load->tensors, "views",
					(long long)load->views, "compacted",
					(long long)load->compacted, "runs", (long long)load->runs,
					"copies", (long long)load->copies, "bytes",
					(long long)load->bytes, "bytes_needed",
					(long long)load->bytes_needed, "bytes_read",
					(long long)load->bytes_read, "seconds", load->seconds,
					"engine", load->io.engine, "direct", load->io.direct,
					"snapshot", "bytes", (long long)saved->io.bytes, "seconds",
					saved->io.seconds, "root", root),
				loaded),
			0);
	(void)printf("loaded %llu tensors, %s: %llu views in %llu copies, %s read of %s "
		     "needed, %.3f s\n"
		     "saved %s in %.3f s\nroot %s\n",
		(unsigned long long)load->tensors, format_size(load->bytes, size),
		(unsigned long long)load->views, (unsigned long long)load->copies,
		format_size(load->bytes_read, read), format_size(load->bytes_needed, needed),
		load->seconds, format_size(saved->io.bytes, file), saved->io.seconds, root);
	return output_flush();
}

int cmd_load(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"replace", KEY_REPLACE, NULL, 0, "Replace FILE when it exists", 1},
		{"plan", KEY_PLAN, NULL, 0,
			"Print what would be read and copied, and load nothing; -v --json lists "
			"each view and run",
			1},
		{"record", KEY_RECORD, NULL, 0, "Run the probe and store its record for validate",
			1},
		{0},
	};
	static const struct argp_child children[] = {
		{&load_argp, 0, NULL, 0}, {&io_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {options, parse_load_command, "DIR FILE\n--plan DIR",
		"Load a checkpoint (a directory, a model in a Hugging Face cache, or one "
		"safetensors file) as one rank holds it, experts fused, and write it to a "
		"snapshot. A snapshot is taken as it is, and proved.",
		children, NULL, NULL};
	struct load_arguments a = {.load = GPUSNAP_LOAD_OPTIONS_INIT};
	struct server server = SERVER_INIT;
	gpusnap_save_report saved;
	gpusnap_error err = {0};
	gpusnap_status s;
	int status;

	a.load.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	if (a.plan)
		return print_plan(argv[0], &a);
	s = load_and_save(&server, &a, &saved, &err);
	load_notes_print(argv[0], &server.loaded);
	status =
		s ? output_error(argv[0], a.common.json, &err) : report(&a, &server.loaded, &saved);
	server_close(&server);
	return status;
}
