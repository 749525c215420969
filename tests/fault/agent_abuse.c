/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that break the rules: each is dropped or told so, and the agent serves the next one. */
#include <dirent.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "formats/base/alloc.h"
#include "tests/support/agent_fixture.h"
#include "tests/support/tempdir.h"

#define PING "{\"schema\":1,\"command\":\"ping\"}\n"

enum { LIMIT = 1 << 20 };

static const struct gsn_agent_limits impatient = {.line_bytes = LIMIT, .stall_seconds = 0.05};

static int open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(directory);
	while (readdir(directory))
		count++;
	(void)closedir(directory);
	return count;
}

START_TEST(garbage_is_answered_and_survived)
{
	struct agent_fixture f;
	uint32_t random = 99;
	char bytes[4096];
	int fd;

	agent_open(&f, NULL);
	fd = raw_connect(f.path);
	for (int round = 0; round < 50; round++) {
		for (size_t i = 0; i < sizeof bytes; i++) {
			random = random * 1664525u + 1013904223u;
			bytes[i] = (char)(random >> 24);
			if (bytes[i] == '\n')
				bytes[i] = '{';
		}
		bytes[sizeof bytes - 1] = '\n';
		ck_assert(raw_send(fd, bytes, sizeof bytes));
		raw_expect(fd, GPUSNAP_E_FORMAT, "");
	}
	ck_assert(raw_say(fd, PING));
	raw_expect(fd, GPUSNAP_OK, "");
	(void)close(fd);
	agent_close(&f);
}
END_TEST

/* A ping whose line has `length` bytes, newline not counted; gsn_free(). */
static char *padded_ping(size_t length)
{
	char *line = gsn_alloc(length + 2, 1);

	ck_assert_ptr_nonnull(line);
	memset(line, ' ', length);
	for (size_t i = 0; i + 2 < sizeof PING; i++)
		line[i] = PING[i];
	line[length] = '\n';
	return line;
}

START_TEST(line_of_the_limit_is_served_and_one_byte_more_is_not)
{
	struct agent_fixture f;
	char *line = padded_ping(LIMIT);
	char *longer = padded_ping(LIMIT + 1);
	int fd;

	agent_open(&f, NULL);
	fd = raw_connect(f.path);
	ck_assert(raw_send(fd, line, LIMIT + 1));
	raw_expect(fd, GPUSNAP_OK, "");
	ck_assert(raw_send(fd, longer, LIMIT + 2));
	raw_expect(fd, GPUSNAP_E_LIMIT, "longer than 1048576 bytes");
	raw_expect_end(fd);
	(void)close(fd);
	agent_expect_alive(&f);
	agent_close(&f);
	gsn_free(line);
	gsn_free(longer);
}
END_TEST

START_TEST(line_without_an_end_is_cut_off)
{
	struct agent_fixture f;
	static char block[65536];
	int fd;
	int sent = 0;

	agent_open(&f, NULL);
	memset(block, 'x', sizeof block);
	fd = raw_connect(f.path);
	while (sent < 1000 && raw_send(fd, block, sizeof block))
		sent++;
	ck_assert_int_lt(sent, 1000);
	raw_expect(fd, GPUSNAP_E_LIMIT, "longer than");
	raw_expect_end(fd);
	(void)close(fd);
	agent_expect_alive(&f);
	agent_close(&f);
}
END_TEST

START_TEST(requests_in_pieces_and_in_heaps_are_served)
{
	enum { PINGS = 1000 };
	struct agent_fixture f;
	static char heap[PINGS * (sizeof PING - 1)];
	int fd;

	agent_open(&f, NULL);
	fd = raw_connect(f.path);
	for (const char *p = PING; *p; p++)
		ck_assert(raw_send(fd, p, 1));
	raw_expect(fd, GPUSNAP_OK, "");
	for (size_t i = 0; i < sizeof heap; i++)
		heap[i] = PING[i % (sizeof PING - 1)];
	ck_assert(raw_send(fd, heap, sizeof heap));
	for (int i = 0; i < PINGS; i++)
		raw_expect(fd, GPUSNAP_OK, "");
	/* The last request may come with the end of the stream. */
	ck_assert(raw_say(fd, PING));
	ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
	raw_expect(fd, GPUSNAP_OK, "");
	raw_expect_end(fd);
	(void)close(fd);
	agent_close(&f);
}
END_TEST

START_TEST(half_a_request_is_forgotten_with_its_client)
{
	struct agent_fixture f;

	agent_open(&f, NULL);
	for (int i = 0; i < 3 * GSN_AGENT_PEERS; i++) {
		int fd = raw_connect(f.path);

		ck_assert(raw_say(fd, "{\"schema\":1,\"command\":\"save\""));
		(void)close(fd);
	}
	agent_expect_alive(&f);
	agent_close(&f);
}
END_TEST

/* ---- clients that do not read ---- */

static gpusnap_status answer_much(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	static char text[256 << 10];
	unsigned *count = user;

	(void)registry;
	(void)args;
	(void)err;
	memset(text, 'a', sizeof text - 1);
	*ret_result = gpusnap_json_pack("{s:i, s:s}", "count", (int)++*count, "text", text);
	return GPUSNAP_OK;
}

#define MUCH "{\"schema\":1,\"command\":\"much\"}\n"

START_TEST(client_that_never_reads_is_dropped)
{
	struct agent_fixture f;
	unsigned count = 0;
	gpusnap_error err;
	int fd;

	agent_open(&f, &impatient);
	ck_ok(gpusnap_agent_add(f.agent, "much", answer_much, &count, &err));
	fd = raw_connect(f.path);
	for (int i = 0; i < 1000; i++)
		if (!raw_say(fd, MUCH))
			break;
	/* The send that fails is the sign; others are served meanwhile and after. */
	agent_expect_alive(&f);
	while (raw_say(fd, MUCH))
		agent_expect_alive(&f);
	ck_assert(errno == EPIPE || errno == ECONNRESET);
	(void)close(fd);
	agent_expect_alive(&f);
	gpusnap_agent_stop(f.agent);
	f.agent = NULL;
	/* The answers that were made fit into the backlog and the socket's own buffer. */
	ck_assert_uint_ge(count, 1);
	ck_assert_uint_lt(count, 40);
	agent_close(&f);
}
END_TEST

START_TEST(client_that_reads_late_gets_all_in_order)
{
	enum { REQUESTS = 60 };
	struct agent_fixture f;
	unsigned count = 0;
	gpusnap_error err;
	int fd;

	agent_open(&f, NULL);
	ck_ok(gpusnap_agent_add(f.agent, "much", answer_much, &count, &err));
	fd = raw_connect(f.path);
	for (int i = 0; i < REQUESTS; i++)
		ck_assert(raw_say(fd, MUCH));
	agent_expect_alive(&f);
	for (int i = 0; i < REQUESTS; i++) {
		char expected[32];

		(void)snprintf(expected, sizeof expected, "\"count\":%d,", i + 1);
		ck_assert_ptr_nonnull(strstr(raw_line(fd), expected));
	}
	(void)close(fd);
	agent_close(&f);
}
END_TEST

/* ---- clients that come and go ---- */

struct gate {
	sem_t entered, leave;
};

static gpusnap_status wait_at_gate(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	struct gate *gate = user;

	(void)registry;
	(void)args;
	(void)err;
	(void)sem_post(&gate->entered);
	while (sem_wait(&gate->leave) < 0)
		;
	*ret_result = gpusnap_json_pack("{}");
	return GPUSNAP_OK;
}

static void open_gate(struct agent_fixture *f, struct gate *gate)
{
	gpusnap_error err;

	ck_assert_int_eq(sem_init(&gate->entered, 0, 0), 0);
	ck_assert_int_eq(sem_init(&gate->leave, 0, 0), 0);
	ck_ok(gpusnap_agent_add(f->agent, "wait", wait_at_gate, gate, &err));
}

#define WAIT "{\"schema\":1,\"command\":\"wait\"}\n"

START_TEST(client_that_leaves_during_its_command_is_no_loss)
{
	struct agent_fixture f;
	struct gate gate;
	int fd;

	agent_open(&f, NULL);
	open_gate(&f, &gate);
	fd = raw_connect(f.path);
	ck_assert(raw_say(fd, WAIT PING));
	ck_assert_int_eq(sem_wait(&gate.entered), 0);
	(void)close(fd);
	(void)sem_post(&gate.leave);
	agent_expect_alive(&f);
	agent_close(&f);
}
END_TEST

/* Ask for a save and hang up at once, again and again. */
static void ask_and_leave(const struct agent_fixture *f, const char *file)
{
	char line[PATH_MAX + 128];

	(void)snprintf(line, sizeof line,
		"{\"schema\":1,\"command\":\"save\",\"args\":{\"path\":\"%s\","
		"\"replace\":true}}\n",
		file);
	for (int i = 0; i < 20; i++) {
		int fd = raw_connect(f->path);

		ck_assert(raw_say(fd, line));
		(void)close(fd);
		agent_expect_alive(f);
	}
}

START_TEST(client_that_leaves_during_its_save_leaves_a_whole_file)
{
	struct agent_fixture f;
	gpusnap_snapshot *snapshot;
	gpusnap_damage damage;
	char file[PATH_MAX];
	gpusnap_error err;

	agent_open(&f, NULL);
	tempdir_join(file, f.folder, "left.gsnap");
	ask_and_leave(&f, file);
	gpusnap_agent_stop(f.agent);
	f.agent = NULL;
	ck_ok(gpusnap_snapshot_open(file, &snapshot, &err));
	ck_ok(gpusnap_snapshot_verify(snapshot, NULL, &damage, NULL, &err));
	ck_assert_uint_eq(damage.count, 0);
	gpusnap_damage_release(&damage);
	gpusnap_snapshot_close(snapshot);
	ck_assert_int_eq(tempdir_count(f.folder), 1);
	ck_assert_int_eq(unlink(file), 0);
	agent_close(&f);
}
END_TEST

START_TEST(flood_from_all_other_clients_leaves_one_served)
{
	enum { FLOODERS = GSN_AGENT_PEERS - 1, LINES = 200 };
	struct agent_fixture f;
	int fds[FLOODERS];

	agent_open(&f, NULL);
	for (int i = 0; i < FLOODERS; i++)
		fds[i] = raw_connect(f.path);
	for (int line = 0; line < LINES; line++)
		for (int i = 0; i < FLOODERS; i++)
			ck_assert(raw_say(fds[i], line % 2 ? PING : "{\"schema\":[[[\n"));
	agent_expect_alive(&f);
	for (int i = 0; i < FLOODERS; i++)
		(void)close(fds[i]);
	agent_expect_alive(&f);
	agent_close(&f);
}
END_TEST

static void *stop_agent(void *argument)
{
	gpusnap_agent_stop(argument);
	return NULL;
}

START_TEST(stop_waits_for_the_running_command_only)
{
	struct agent_fixture f;
	struct gate gate;
	pthread_t thread;
	int busy, idle;

	agent_open(&f, NULL);
	open_gate(&f, &gate);
	idle = raw_connect(f.path);
	ck_assert(raw_say(idle, PING));
	raw_expect(idle, GPUSNAP_OK, "");
	busy = raw_connect(f.path);
	ck_assert(raw_say(busy, WAIT));
	ck_assert_int_eq(sem_wait(&gate.entered), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, stop_agent, f.agent), 0);
	f.agent = NULL;
	(void)sem_post(&gate.leave);
	raw_expect(busy, GPUSNAP_OK, "");
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	raw_expect_end(busy);
	raw_expect_end(idle);
	(void)close(busy);
	(void)close(idle);
	agent_close(&f);
}
END_TEST

START_TEST(client_beyond_the_last_place_is_told_and_a_place_becomes_free)
{
	struct agent_fixture f;
	int fds[GSN_AGENT_PEERS];
	int extra;

	agent_open(&f, NULL);
	for (int i = 0; i < GSN_AGENT_PEERS; i++) {
		fds[i] = raw_connect(f.path);
		ck_assert(raw_say(fds[i], PING));
		raw_expect(fds[i], GPUSNAP_OK, "");
	}
	extra = raw_connect(f.path);
	raw_expect(extra, GPUSNAP_E_BUSY, "serves 16 clients already");
	raw_expect_end(extra);
	(void)close(extra);
	/* The agent answers the request and then sees the end: the place is free by then. */
	ck_assert_int_eq(shutdown(fds[3], SHUT_WR), 0);
	raw_expect_end(fds[3]);
	agent_expect_alive(&f);
	for (int i = 0; i < GSN_AGENT_PEERS; i++)
		(void)close(fds[i]);
	agent_close(&f);
}
END_TEST

START_TEST(no_descriptor_is_left_behind)
{
	struct agent_fixture f;
	int before;

	agent_open(&f, NULL);
	agent_close(&f);
	before = open_descriptors();
	agent_open(&f, NULL);
	for (int i = 0; i < 100; i++) {
		int fd = raw_connect(f.path);

		ck_assert_int_ge(fd, 0);
		if (i % 2)
			ck_assert(raw_say(fd, PING));
		(void)close(fd);
	}
	agent_expect_alive(&f);
	agent_close(&f);
	ck_assert_int_eq(open_descriptors(), before);
}
END_TEST

START_TEST(another_user_is_refused_even_when_the_socket_is_open_to_all)
{
	struct agent_fixture f;
	int status;
	pid_t child;

	if (geteuid() != 0)
		return; /* only root can become somebody else to try it */
	agent_open(&f, NULL);
	ck_assert_int_eq(chmod(f.folder, 0755), 0);
	ck_assert_int_eq(chmod(f.path, 0666), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		const char *line = NULL;
		int fd;

		if (setuid(65534) < 0)
			_exit(3);
		fd = raw_connect(f.path);
		if (fd < 0)
			_exit(4);
		line = raw_line(fd);
		_exit(line && strstr(line, "user 65534 may not command this agent") ? 0 : 5);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	agent_expect_alive(&f);
	agent_close(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		garbage_is_answered_and_survived,
		line_of_the_limit_is_served_and_one_byte_more_is_not,
		line_without_an_end_is_cut_off,
		requests_in_pieces_and_in_heaps_are_served,
		half_a_request_is_forgotten_with_its_client,
		client_that_never_reads_is_dropped,
		client_that_reads_late_gets_all_in_order,
		client_that_leaves_during_its_command_is_no_loss,
		client_that_leaves_during_its_save_leaves_a_whole_file,
		flood_from_all_other_clients_leaves_one_served,
		stop_waits_for_the_running_command_only,
		client_beyond_the_last_place_is_told_and_a_place_becomes_free,
		no_descriptor_is_left_behind,
		another_user_is_refused_even_when_the_socket_is_open_to_all,
	};

	return AGENT_SUITE("agent_abuse", tests);
}
