/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_AGENT_STATE_H
#define GSN_AGENT_STATE_H
/* What the agent's files share: limits, the table of commands, answering one line. */
#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>

#include <gpusnap/agent.h>

#include "snapshot/agent_peer.h"

enum { GSN_AGENT_PEERS = 16 };

struct gsn_agent_limits {
	size_t line_bytes;    /* of a request, without its newline */
	double stall_seconds; /* a client that takes nothing of its answers for so long is dropped
			       */
};

struct gsn_agent_entry {
	char *name;
	gpusnap_agent_command run;
	void *user;
};

struct gpusnap_agent {
	gpusnap_registry *registry;
	struct gsn_agent_limits limits;
	char *path;
	struct stat identity;
	int listener;
	int wake; /* eventfd: stop */
	pthread_t thread;
	struct gsn_peer peers[GSN_AGENT_PEERS]; /* the thread's own */
	pthread_mutex_t lock;			/* guards the commands */
	size_t command_count;
	struct gsn_agent_entry *commands;
};

/* gpusnap_agent_start() with other limits than the documented ones. */
gpusnap_status gsn_agent_start(gpusnap_registry *registry, const char *socket_path,
	const struct gsn_agent_limits *limits, gpusnap_agent **out, gpusnap_error *err);
/* Run one request; the answer's text for gpusnap_text_free(). NULL: no memory. */
char *gsn_agent_answer(gpusnap_agent *agent, const char *line, size_t length);
/* The answer that reports this error. NULL: no memory. */
char *gsn_agent_refusal(const gpusnap_error *err);

/* Built-in commands; NULL name past the end. */
struct gsn_agent_builtin {
	const char *name;
	gpusnap_agent_command run;
};
extern const struct gsn_agent_builtin gsn_agent_builtins[];
/* The show command, in agent_show.c. */
gpusnap_status gsn_agent_show(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err);
/* Hand a built value out; NULL is E_NOMEM. */
gpusnap_status gsn_agent_result(gpusnap_json *value, gpusnap_json **ret_result, gpusnap_error *err);

#endif
