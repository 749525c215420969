/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap serve: a process that holds a model and answers the live commands. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/arguments.h"
#include "tools/command.h"
#include "tools/endpoint.h"
#include "tools/load_notes.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/server.h"

enum { KEY_DEVICE = 0x200, KEY_FROM, KEY_SOCKET, KEY_ALLOW_INJECT };

struct serve_arguments {
	gpusnap_load_options load;
	struct parent_options parents;
	const char *device;
	const char *directory;
	const char *from;
	const char *socket;
	bool allow_inject;
};

static error_t parse_serve(int key, char *arg, struct argp_state *state)
{
	struct serve_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->load;
		state->child_inputs[1] = &a->load.io;
		state->child_inputs[2] = &a->parents;
		return 0;
	case KEY_DEVICE:
		a->device = arg;
		return 0;
	case KEY_FROM:
		a->from = arg;
		return 0;
	case KEY_SOCKET:
		a->socket = arg;
		return 0;
	case KEY_ALLOW_INJECT:
		a->allow_inject = true;
		return 0;
	case ARGP_KEY_ARG:
		if (a->directory)
			argp_error(state, "one DIR, not more: '%s'", arg);
		a->directory = arg;
		return 0;
	case ARGP_KEY_END:
		if (!a->directory == !a->from)
			argp_error(state, "give a checkpoint DIR or --from FILE, one of them");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static gpusnap_status hold_snapshot(
	struct server *server, const struct serve_arguments *a, gpusnap_error *err)
{
	gpusnap_snapshot *snapshot = NULL;
	gpusnap_status s = open_snapshot(a->from, &a->parents, &snapshot, err);

	if (!s)
		s = server_from_snapshot(server, a->device, snapshot, &a->load.io, err);
	gpusnap_snapshot_close(snapshot);
	return s;
}

static gpusnap_status hold_state(
	struct server *server, struct serve_arguments *a, gpusnap_error *err)
{
	struct progress progress = PROGRESS_INIT(a->from ? "restore" : "load");
	gpusnap_status s;

	progress_attach(&progress, &a->load.io);
	s = a->from ? hold_snapshot(server, a, err)
		    : server_load(server, a->device, a->directory, &a->load, err);
	progress_end(&progress);
	return s;
}

static gpusnap_status start(struct server *server, struct serve_arguments *a,
	char socket[ENDPOINT_PATH_MAX], gpusnap_error *err)
{
	struct target_options target = {0, a->socket};
	gpusnap_status s =
		a->socket ? endpoint_select(&target, socket, err) : endpoint_prepare(socket, err);

	/* Before the load, which may take minutes, it is known that one may listen there. */
	if (!s)
		s = endpoint_check(socket, err);
	if (!s)
		s = hold_state(server, a, err);
	return s ? s : server_listen(server, socket, a->allow_inject, err);
}

/* Blocked before any thread starts, so that only sigwait sees them. */
static void block_ends(sigset_t *ends)
{
	(void)sigemptyset(ends);
	(void)sigaddset(ends, SIGTERM);
	(void)sigaddset(ends, SIGINT);
	(void)sigaddset(ends, SIGHUP);
	(void)pthread_sigmask(SIG_BLOCK, ends, NULL);
}

static const struct argp_option serve_option_table[] = {
	{"device", KEY_DEVICE, "NAME", 0, "host, cuda:N or hip:N [host]", 1},
	{"from", KEY_FROM, "FILE", 0, "Hold the state of a snapshot instead", 1},
	{"socket", KEY_SOCKET, "PATH", 0, "Listen there [a private directory of the user]", 1},
	{"allow-inject", KEY_ALLOW_INJECT, NULL, 0, "Permit gpusnap inject to damage the state",
		20},
	{0},
};

int cmd_serve(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&load_argp, 0, NULL, 0}, {&io_argp, 0, NULL, 0}, {&parent_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {serve_option_table, parse_serve, "[DIR]",
		"Hold the model of checkpoint directory DIR (or of a snapshot) in device memory "
		"and "
		"answer gpusnap commands until SIGTERM. Prints one line when the model is "
		"resident: "
		"ready pid=N socket=PATH",
		children, NULL, NULL};
	struct serve_arguments a = {.load = GPUSNAP_LOAD_OPTIONS_INIT, .device = "host"};
	struct server server = SERVER_INIT;
	char socket[ENDPOINT_PATH_MAX];
	gpusnap_error err = {0};
	sigset_t ends;
	int received;
	int status = 0;

	a.load.io = (gpusnap_io_options)GPUSNAP_IO_OPTIONS_INIT;
	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	block_ends(&ends);
	if (start(&server, &a, socket, &err)) {
		status = output_error(argv[0], false, &err);
	} else {
		load_notes_print(argv[0], &server.loaded);
		(void)printf("ready pid=%d socket=%s\n", (int)getpid(), socket);
		status = output_flush();
		if (!status)
			(void)sigwait(&ends, &received);
	}
	server_close(&server);
	return status;
}
