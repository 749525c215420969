/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_AGENT_H
#define GPUSNAP_AGENT_H
/*
 * The agent: a thread that serves a registry over a Unix socket, mode 0600, same user or root by
 * peer credentials. One JSON object a line, one answer a request, in order:
 *
 *   {"schema":1,"command":"save","args":{...}}
 *   {"schema":1,"ok":true,"result":{...}}
 *   {"schema":1,"ok":false,"error":{"status":"E_STATE","message":"...","offset":0,"os_errno":0}}
 *
 * Requests are limited to 1 MiB a line; commands run one at a time, for at most 16 connections; a
 * client that takes none of its answers for 30 seconds is dropped. Built in: ping, show, save,
 * offload, resume, restore, verify. Others are added by dispatch ("validate") or the program.
 * Paths in arguments are absolute; wrong and unknown arguments are E_INVALID by name.
 */
#include <gpusnap/json.h>
#include <gpusnap/registry.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpusnap_agent gpusnap_agent;

/** Run a command. *ret_result is consumed by the agent; set it only on success. */
typedef gpusnap_status (*gpusnap_agent_command)(gpusnap_registry *registry, void *user,
	gpusnap_json *args, gpusnap_json **ret_result, gpusnap_error *err);

/**
 * Listen at `socket_path` (its directory must exist, belong to the user and have mode 0700; a stale
 * socket of a dead process is replaced, a live one is E_BUSY) and answer in a thread of its own.
 * @param registry  borrowed; must outlive the agent.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_agent_start(gpusnap_registry *registry,
	const char *socket_path, gpusnap_agent **out, gpusnap_error *err);
/** Add or replace a command. `name` is copied. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_agent_add(gpusnap_agent *agent,
	const char *name, gpusnap_agent_command command, void *user, gpusnap_error *err);
/** Finish the running command, close all connections, remove the socket. NULL is a no-op. */
GPUSNAP_API void gpusnap_agent_stop(gpusnap_agent *agent);

/**
 * Client: one request to the agent at `socket_path`. A failure that the agent reports comes back
 * as its own status and message. E_IO when nobody listens, E_FORMAT when the answer is not ours.
 * @param args  consumed; NULL for none.
 * @param ret_result  owned by the caller.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_agent_call(const char *socket_path,
	const char *command, gpusnap_json *args, gpusnap_json **ret_result, gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
