/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_H
#define SERVER_H
/* A process that holds a model: what `gpusnap serve` and `gpusnap load` build. */
#include <stdbool.h>

#include <gpusnap/agent.h>
#include <gpusnap/dispatch.h>
#include <gpusnap/loader.h>
#include <gpusnap/registry.h>
#include <gpusnap/status.h>

struct server {
	gpusnap_device *device;
	gpusnap_registry *registry;
	gpusnap_dispatch *dispatch; /* NULL: the state describes no MoE layer */
	gpusnap_agent *agent;
	gpusnap_loaded loaded; /* by server_load */
};

/* Valid to close from birth, in any state. */
#define SERVER_INIT                                                                                \
	{                                                                                          \
		.device = NULL                                                                     \
	}

/* The checkpoint at `path`, or a snapshot there as it was saved. */
gpusnap_status server_load(struct server *server, const char *device, const char *path,
	const gpusnap_load_options *options, gpusnap_error *err);
gpusnap_status server_from_snapshot(struct server *server, const char *device,
	gpusnap_snapshot *snapshot, const gpusnap_io_options *io, gpusnap_error *err);
/* Answer on `socket`: the built-in commands, validate, reference and, if allowed, inject. */
gpusnap_status server_listen(
	struct server *server, const char *socket, bool allow_inject, gpusnap_error *err);
void server_close(struct server *server);

/* Agent commands of this program; `user` is the struct server. */
gpusnap_status reference_command(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err);
gpusnap_status inject_command(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err);

#endif
