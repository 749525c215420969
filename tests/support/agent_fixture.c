/* SPDX-License-Identifier: Apache-2.0 */
/* Agents and raw connections for tests. */
#include "tests/support/agent_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/tempdir.h"

static char root[PATH_MAX];

int agent_run_suite(const char *name, const TTest *const *tests, size_t count)
{
	int status;

	tempdir_make(root, "/tmp");	/* not $TMPDIR: the path of a socket must be short */
	assert(chmod(root, 0711) == 0); /* one test connects as another user */
	status = run_suite(name, tests, count);
	tempdir_remove(root);
	return status;
}

static void open_registry(struct agent_fixture *f)
{
	gpusnap_region_options region = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
	uint64_t size = 8;
	gpusnap_error err;

	ck_ok(gpusnap_device_open("host", &f->device, &err));
	ck_ok(gpusnap_registry_create(f->device, NULL, &f->registry, &err));
	region.tag = "weights";
	ck_ok(gpusnap_region_reserve(f->registry, 1, &region, &buffer.region, &err));
	buffer.name = "w";
	buffer.dtype = GPUSNAP_U8;
	buffer.rank = 1;
	buffer.shape = &size;
	ck_ok(gpusnap_buffer_register(f->registry, &buffer, &err));
	ck_ok(gpusnap_buffer_write(f->registry, "w", 0, "content", 8, &err));
}

void agent_open(struct agent_fixture *f, const struct gsn_agent_limits *limits)
{
	gpusnap_error err;

	memset(f, 0, sizeof *f);
	tempdir_make(f->folder, root);
	ck_assert_int_lt(
		snprintf(f->path, sizeof f->path, "%s/socket", f->folder), (int)sizeof f->path);
	open_registry(f);
	if (limits)
		ck_ok(gsn_agent_start(f->registry, f->path, limits, &f->agent, &err));
	else
		ck_ok(gpusnap_agent_start(f->registry, f->path, &f->agent, &err));
}

void agent_close(struct agent_fixture *f)
{
	gpusnap_agent_stop(f->agent);
	gpusnap_registry_free(f->registry);
	gpusnap_device_close(f->device);
	ck_assert_msg(rmdir(f->folder) == 0, "%s: %s", f->folder, strerror(errno));
}

int raw_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct timeval patience = {.tv_sec = 20};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

bool raw_send(int fd, const void *bytes, size_t length)
{
	const char *at = bytes;

	while (length > 0) {
		ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);

		if (sent < 0)
			return false;
		at += sent;
		length -= (size_t)sent;
	}
	return true;
}

bool raw_say(int fd, const char *text)
{
	return raw_send(fd, text, strlen(text));
}

/* Take what is there, but nothing behind the end of the line; 0 at the end of the stream. */
static size_t take_piece(int fd, char *at, size_t room)
{
	ssize_t got = recv(fd, at, room, MSG_PEEK);
	const char *end;

	ck_assert_msg(got >= 0 || errno == ECONNRESET, "no answer: %s", strerror(errno));
	if (got <= 0)
		return 0;
	end = memchr(at, '\n', (size_t)got);
	if (end)
		got = end + 1 - at;
	ck_assert_int_eq(recv(fd, at, (size_t)got, 0), got);
	return (size_t)got;
}

const char *raw_line(int fd)
{
	static char line[1 << 20];
	size_t length = 0;

	while (length < sizeof line) {
		size_t got = take_piece(fd, line + length, sizeof line - length);

		if (got == 0) {
			ck_assert_uint_eq(length, 0);
			return NULL;
		}
		length += got;
		if (line[length - 1] == '\n') {
			line[length - 1] = '\0';
			return line;
		}
	}
	ck_abort_msg("a line of over %zu bytes", sizeof line);
	return NULL;
}

void raw_expect(int fd, gpusnap_status status, const char *text)
{
	const char *line = raw_line(fd);
	gpusnap_json *answer, *error;
	gpusnap_error err;

	ck_assert_msg(line != NULL, "hung up instead of %s", gpusnap_status_name(status));
	ck_ok(gpusnap_json_parse(line, strlen(line), "answer", &answer, &err));
	error = gpusnap_json_get(answer, "error");
	ck_assert_int_eq(gpusnap_json_integer(gpusnap_json_get(answer, "schema"), 0), 1);
	ck_assert_msg(gpusnap_json_boolean(gpusnap_json_get(answer, "ok"), -1) == (status == 0),
		"%s", line);
	if (status) {
		const char *name = gpusnap_json_text(gpusnap_json_get(error, "status"));
		const char *message = gpusnap_json_text(gpusnap_json_get(error, "message"));

		ck_assert_str_eq(name, gpusnap_status_name(status));
		ck_assert_msg(strstr(message, text) != NULL, "'%s' lacks '%s'", message, text);
	}
	gpusnap_json_free(answer);
}

void raw_expect_end(int fd)
{
	const char *line = raw_line(fd);

	ck_assert_msg(line == NULL, "unexpected line %s", line);
}

void agent_expect_alive(const struct agent_fixture *f)
{
	gpusnap_json *result;
	gpusnap_error err;

	ck_ok(gpusnap_agent_call(f->path, "ping", NULL, &result, &err));
	gpusnap_json_free(result);
}
