/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's thread: one poll loop over the listening socket, a wake-up for stop, and at most
 * GSN_AGENT_PEERS connections. Each turn answers at most one request of each connection.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "snapshot/agent_socket.h"
#include "snapshot/agent_state.h"

static const struct gsn_agent_limits default_limits = {
	.line_bytes = 1 << 20,
	.stall_seconds = 30,
};

/* ---- connections ---- */

/* Tell why, once, without waiting, and hang up. */
static void refuse(int fd, const gpusnap_error *err)
{
	struct gsn_peer peer;
	char *text = gsn_agent_refusal(err);

	gsn_peer_open(&peer, fd);
	if (text && gsn_peer_put(&peer, text))
		(void)gsn_peer_flush(&peer);
	gpusnap_text_free(text);
	gsn_peer_close(&peer);
}

static struct gsn_peer *free_peer(gpusnap_agent *agent)
{
	for (size_t i = 0; i < GSN_AGENT_PEERS; i++)
		if (agent->peers[i].fd < 0)
			return &agent->peers[i];
	return NULL;
}

static void accept_peer(gpusnap_agent *agent)
{
	int fd = accept4(agent->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct gsn_peer *peer = free_peer(agent);
	gpusnap_error err;

	if (fd < 0)
		return;
	if (gsn_socket_check_peer(fd, &err)) {
		refuse(fd, &err);
	} else if (!peer) {
		(void)gsn_fail(&err, GPUSNAP_E_BUSY,
			"this agent serves %d clients already; try again when one has left",
			GSN_AGENT_PEERS);
		refuse(fd, &err);
	} else {
		gsn_peer_open(peer, fd);
	}
}

/* Answer the line at the front. False: no memory, not even for saying so. */
static bool serve_line(gpusnap_agent *agent, struct gsn_peer *peer)
{
	char *text = gsn_agent_answer(agent, peer->in, peer->line_bytes - 1);
	bool put = text && gsn_peer_put(peer, text);

	gpusnap_text_free(text);
	gsn_peer_next(peer);
	return put;
}

static bool refuse_long_line(gpusnap_agent *agent, struct gsn_peer *peer)
{
	gpusnap_error err;
	char *text;
	bool put;

	(void)gsn_fail(&err, GPUSNAP_E_LIMIT, "a request is longer than %zu bytes",
		agent->limits.line_bytes);
	text = gsn_agent_refusal(&err);
	put = text && gsn_peer_put(peer, text);
	gpusnap_text_free(text);
	peer->ended = true;
	peer->in_bytes = 0;
	peer->line_bytes = 0;
	return put;
}

static bool has_work(const gpusnap_agent *agent, const struct gsn_peer *peer)
{
	if (gsn_peer_backlog(peer) > GSN_PEER_BACKLOG_BYTES)
		return false;
	return peer->line_bytes > 0 || gsn_peer_is_over_long(peer, agent->limits.line_bytes);
}

static short wanted_events(const gpusnap_agent *agent, const struct gsn_peer *peer)
{
	short events = gsn_peer_backlog(peer) > 0 ? POLLOUT : 0;

	if (!peer->ended && peer->line_bytes == 0 && !has_work(agent, peer) &&
		gsn_peer_backlog(peer) <= GSN_PEER_BACKLOG_BYTES)
		events |= POLLIN;
	return events;
}

/* One turn of a connection. False: it is over. */
static bool serve_peer(gpusnap_agent *agent, struct gsn_peer *peer, short events)
{
	size_t line_max = agent->limits.line_bytes;
	double now;

	if ((events & POLLIN) && !gsn_peer_receive(peer, line_max))
		return false;
	if (has_work(agent, peer)) {
		bool served = gsn_peer_is_over_long(peer, line_max) ? refuse_long_line(agent, peer)
								    : serve_line(agent, peer);

		if (!served)
			return false;
	}
	if (!gsn_peer_flush(peer))
		return false;
	now = gsn_clock_seconds();
	if (gsn_peer_backlog(peer) > 0)
		return now - peer->moved_at < agent->limits.stall_seconds;
	return !peer->ended || peer->line_bytes > 0;
}

/* ---- the loop ---- */

/* Milliseconds until something must be looked at although nothing has happened; -1: never. */
static int next_timeout(const gpusnap_agent *agent)
{
	double now = gsn_clock_seconds();
	double least = -1;

	for (size_t i = 0; i < GSN_AGENT_PEERS; i++) {
		const struct gsn_peer *peer = &agent->peers[i];
		double left;

		if (peer->fd < 0)
			continue;
		if (has_work(agent, peer))
			return 0;
		if (gsn_peer_backlog(peer) == 0)
			continue;
		left = peer->moved_at + agent->limits.stall_seconds - now;
		if (least < 0 || left < least)
			least = left > 0 ? left : 0;
	}
	return least < 0 ? -1 : (int)(least * 1000) + 1;
}

/* What one turn waits for: the wake-up, the listening socket, and one entry a connection. */
struct watch {
	struct pollfd set[2 + GSN_AGENT_PEERS];
	struct gsn_peer *peers[GSN_AGENT_PEERS]; /* of the entries from the third on */
	nfds_t peer_count;
};

/* Only connections that are there: poll() takes no more entries than the process may have files. */
static void watch_fill(struct watch *watch, gpusnap_agent *agent)
{
	watch->set[0] = (struct pollfd){.fd = agent->wake, .events = POLLIN};
	watch->set[1] = (struct pollfd){.fd = agent->listener, .events = POLLIN};
	watch->peer_count = 0;
	for (size_t i = 0; i < GSN_AGENT_PEERS; i++) {
		struct gsn_peer *peer = &agent->peers[i];

		if (peer->fd < 0)
			continue;
		watch->set[2 + watch->peer_count] =
			(struct pollfd){.fd = peer->fd, .events = wanted_events(agent, peer)};
		watch->peers[watch->peer_count++] = peer;
	}
}

static void *serve(void *argument)
{
	gpusnap_agent *agent = argument;
	struct watch watch;

	for (;;) {
		watch_fill(&watch, agent);
		if (poll(watch.set, 2 + watch.peer_count, next_timeout(agent)) < 0)
			continue; /* EINTR, or no kernel memory just now */
		if (watch.set[0].revents)
			return NULL;
		for (nfds_t i = 0; i < watch.peer_count; i++)
			if (!serve_peer(agent, watch.peers[i], watch.set[2 + i].revents))
				gsn_peer_close(watch.peers[i]);
		if (watch.set[1].revents & POLLIN)
			accept_peer(agent);
	}
}

/* ---- start and stop ---- */

static void free_agent(gpusnap_agent *agent)
{
	for (size_t i = 0; i < GSN_AGENT_PEERS; i++)
		gsn_peer_close(&agent->peers[i]);
	if (agent->listener >= 0) {
		gsn_socket_remove(agent->path, &agent->identity);
		(void)close(agent->listener);
	}
	if (agent->wake >= 0)
		(void)close(agent->wake);
	for (size_t i = 0; i < agent->command_count; i++)
		gsn_free(agent->commands[i].name);
	gsn_free(agent->commands);
	gsn_free(agent->path);
	(void)pthread_mutex_destroy(&agent->lock);
	gsn_free(agent);
}

static gpusnap_agent *new_agent(gpusnap_registry *registry)
{
	gpusnap_agent *agent = gsn_alloc(1, sizeof *agent);

	if (!agent)
		return NULL;
	agent->registry = registry;
	agent->listener = -1;
	agent->wake = -1;
	for (size_t i = 0; i < GSN_AGENT_PEERS; i++)
		agent->peers[i].fd = -1;
	(void)pthread_mutex_init(&agent->lock, NULL); /* default attributes: cannot fail on Linux */
	return agent;
}

/* The program's signal handlers run in its own threads, not in this one. */
static gpusnap_status start_thread(gpusnap_agent *agent, gpusnap_error *err)
{
	sigset_t all, old;
	int code;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	code = pthread_create(&agent->thread, NULL, serve, agent);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (code)
		return gsn_fail_os(err, gsn_status_from_errno(code), code,
			"agent at '%s': no thread: %s", agent->path, strerror(code));
	return GPUSNAP_OK;
}

static gpusnap_status prepare(gpusnap_agent *agent, const char *path, gpusnap_error *err)
{
	agent->path = gsn_strdup(path);
	if (!agent->path)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for an agent at '%s'", path);
	agent->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (agent->wake < 0)
		return gsn_fail_os(err, gsn_status_from_errno(errno), errno,
			"agent at '%s': eventfd: %s", path, strerror(errno));
	for (const struct gsn_agent_builtin *b = gsn_agent_builtins; b->name; b++) {
		gpusnap_status s = gpusnap_agent_add(agent, b->name, b->run, NULL, err);

		if (s)
			return s;
	}
	return gsn_socket_listen(path, &agent->listener, &agent->identity, err);
}

gpusnap_status gsn_agent_start(gpusnap_registry *registry, const char *socket_path,
	const struct gsn_agent_limits *limits, gpusnap_agent **out, gpusnap_error *err)
{
	gpusnap_agent *agent = new_agent(registry);
	gpusnap_status s;

	if (!agent)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for an agent at '%s'", socket_path);
	agent->limits = *limits;
	s = prepare(agent, socket_path, err);
	if (!s)
		s = start_thread(agent, err);
	if (s) {
		free_agent(agent);
		return s;
	}
	*out = agent;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_agent_start(gpusnap_registry *registry, const char *socket_path,
	gpusnap_agent **out, gpusnap_error *err)
{
	return gsn_agent_start(registry, socket_path, &default_limits, out, err);
}

static gpusnap_status add_entry(gpusnap_agent *agent, const char *name,
	gpusnap_agent_command command, void *user, gpusnap_error *err)
{
	struct gsn_agent_entry *grown;
	char *copy;

	for (size_t i = 0; i < agent->command_count; i++) {
		if (strcmp(agent->commands[i].name, name) != 0)
			continue;
		agent->commands[i].run = command;
		agent->commands[i].user = user;
		return GPUSNAP_OK;
	}
	copy = gsn_strdup(name);
	grown = gsn_grow(agent->commands, agent->command_count, agent->command_count + 1,
		sizeof *agent->commands);
	if (grown)
		agent->commands = grown;
	if (!copy || !grown) {
		gsn_free(copy);
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for agent command '%s'", name);
	}
	grown[agent->command_count++] =
		(struct gsn_agent_entry){.name = copy, .run = command, .user = user};
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_agent_add(gpusnap_agent *agent, const char *name,
	gpusnap_agent_command command, void *user, gpusnap_error *err)
{
	gpusnap_status s;

	(void)pthread_mutex_lock(&agent->lock);
	s = add_entry(agent, name, command, user, err);
	(void)pthread_mutex_unlock(&agent->lock);
	return s;
}

void gpusnap_agent_stop(gpusnap_agent *agent)
{
	if (!agent)
		return;
	(void)eventfd_write(agent->wake, 1);
	(void)pthread_join(agent->thread, NULL);
	free_agent(agent);
}
