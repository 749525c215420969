/* SPDX-License-Identifier: Apache-2.0 */
/* The other side of the agent's socket: one request, one answer, blocking. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <gpusnap/agent.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/agent_socket.h"
#include "snapshot/registry_state.h"

#define ANSWER_BYTES_MAX ((size_t)256 << 20)

static gpusnap_status fail_peer(const char *path, const char *what, gpusnap_error *err)
{
	int code = errno;

	return gsn_fail_os(
		err, GPUSNAP_E_IO, code, "agent at '%s': %s: %s", path, what, strerror(code));
}

static gpusnap_status connect_agent(const char *path, int *ret_fd, gpusnap_error *err)
{
	struct sockaddr_un address;
	gpusnap_status s = gsn_socket_address(path, &address, err);
	int fd;

	if (s)
		return s;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail_peer(path, "socket", err);
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
		int code = errno;

		(void)close(fd);
		return gsn_fail_os(err, GPUSNAP_E_IO, code, "no agent listens at '%s': %s", path,
			strerror(code));
	}
	*ret_fd = fd;
	return GPUSNAP_OK;
}

static gpusnap_status send_all(int fd, const char *path, const char *text, gpusnap_error *err)
{
	size_t left = strlen(text);

	while (left > 0) {
		ssize_t sent = send(fd, text, left, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		/* An agent that refuses us answers before it reads: look at the answer first. */
		if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
			return GPUSNAP_OK;
		if (sent < 0)
			return fail_peer(path, "send", err);
		text += sent;
		left -= (size_t)sent;
	}
	return GPUSNAP_OK;
}

struct answer {
	char *text;
	size_t length, capacity;
};

static gpusnap_status make_room(struct answer *answer, const char *path, gpusnap_error *err)
{
	size_t capacity = answer->capacity ? 2 * answer->capacity : 64 << 10;
	char *grown;

	if (answer->length < answer->capacity)
		return GPUSNAP_OK;
	if (answer->length >= ANSWER_BYTES_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "agent at '%s': answer over %zu bytes", path,
			ANSWER_BYTES_MAX);
	grown = gsn_grow(answer->text, answer->capacity, capacity, 1);
	if (!grown)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for an answer of %zu bytes", capacity);
	answer->text = grown;
	answer->capacity = capacity;
	return GPUSNAP_OK;
}

/* Read up to the first newline, which is left out of the length. */
static gpusnap_status receive_line(
	int fd, const char *path, struct answer *answer, gpusnap_error *err)
{
	for (;;) {
		const char *end;
		ssize_t got;
		gpusnap_status s = make_room(answer, path, err);

		if (s)
			return s;
		got = recv(fd, answer->text + answer->length, answer->capacity - answer->length, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return fail_peer(path, "receive", err);
		if (got == 0)
			return gsn_fail(err, GPUSNAP_E_IO,
				"agent at '%s' hung up before it answered", path);
		end = memchr(answer->text + answer->length, '\n', (size_t)got);
		answer->length += (size_t)got;
		if (end) {
			answer->length = (size_t)(end - answer->text);
			return GPUSNAP_OK;
		}
	}
}

static gpusnap_status fail_not_ours(const char *path, const char *what, gpusnap_error *err)
{
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"agent at '%s': its answer %s; is another program listening there?", path, what);
}

/* A failure that the agent reports becomes our own. */
static gpusnap_status relay_error(const char *path, gpusnap_json *error, gpusnap_error *err)
{
	const char *name = gpusnap_json_text(gpusnap_json_get(error, "status"));
	const char *message = gpusnap_json_text(gpusnap_json_get(error, "message"));
	gpusnap_status status;

	if (!name || !message)
		return fail_not_ours(path, "reports an error without status or message", err);
	status = gpusnap_status_from_name(name);
	if (status == GPUSNAP_OK)
		return fail_not_ours(path, "reports success as an error", err);
	if (err) {
		gsn_error_set(err, status,
			(int)gpusnap_json_integer(gpusnap_json_get(error, "os_errno"), 0),
			(uint64_t)gpusnap_json_integer(gpusnap_json_get(error, "offset"), 0), "%s",
			message);
	}
	return status;
}

static gpusnap_status take_answer(const char *path, const struct answer *answer,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	gpusnap_json *json, *result;
	gpusnap_status s =
		gpusnap_json_parse(answer->text, answer->length, "agent's answer", &json, err);
	int ok;

	if (s)
		return s == GPUSNAP_E_NOMEM ? s : fail_not_ours(path, "is no JSON", err);
	ok = gpusnap_json_boolean(gpusnap_json_get(json, "ok"), -1);
	result = gpusnap_json_get(json, "result");
	if (gpusnap_json_integer(gpusnap_json_get(json, "schema"), 0) != 1 || ok < 0)
		s = fail_not_ours(path, "lacks \"schema\":1 or \"ok\"", err);
	else if (!ok)
		s = relay_error(path, gpusnap_json_get(json, "error"), err);
	else if (!result)
		s = fail_not_ours(path, "has no result", err);
	else
		*ret_result = gpusnap_json_ref(result);
	gpusnap_json_free(json);
	return s;
}

/* The request's line; gsn_free(). Consumes `args`. NULL: no memory. */
static char *write_request(const char *command, gpusnap_json *args)
{
	gpusnap_json *request;
	char *text = NULL;
	char *line = NULL;

	request = gpusnap_json_pack("{s:i, s:s, s:o}", "schema", 1, "command", command, "args",
		args ? args : gpusnap_json_pack("{}"));
	if (request)
		text = gpusnap_json_dump(request);
	if (text)
		line = gsn_printf("%s\n", text);
	gpusnap_text_free(text);
	gpusnap_json_free(request);
	return line;
}

gpusnap_status gpusnap_agent_call(const char *socket_path, const char *command, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	struct answer answer = {0};
	char *line;
	int fd = -1;
	gpusnap_status s = gsn_name_check("command", command, err);

	if (s) {
		gpusnap_json_free(args);
		return s;
	}
	line = write_request(command, args);
	if (!line)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for agent request '%s'", command);
	s = connect_agent(socket_path, &fd, err);
	if (!s)
		s = send_all(fd, socket_path, line, err);
	if (!s)
		s = receive_line(fd, socket_path, &answer, err);
	if (!s)
		s = take_answer(socket_path, &answer, ret_result, err);
	if (fd >= 0)
		(void)close(fd);
	gsn_free(answer.text);
	gsn_free(line);
	return s;
}
