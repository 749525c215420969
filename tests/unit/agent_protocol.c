/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as its users see it: commands, answers, errors, and its socket's place. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gpusnap/snapshot.h>

#include "formats/base/fail.h"
#include "snapshot/agent_socket.h"
#include "tests/support/agent_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Call with arguments as JSON text; NULL for none. */
static gpusnap_status call(struct agent_fixture *f, const char *command, const char *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	gpusnap_json *json = NULL;

	if (args)
		ck_assert_int_eq(
			gpusnap_json_parse(args, strlen(args), "args", &json, err), GPUSNAP_OK);
	return gpusnap_agent_call(f->path, command, json, ret_result, err);
}

static int64_t number(gpusnap_json *object, const char *key)
{
	gpusnap_json *value = gpusnap_json_get(object, key);

	ck_assert_msg(gpusnap_json_kind_of(value) == GPUSNAP_JSON_INTEGER, "no integer '%s'", key);
	return gpusnap_json_integer(value, 0);
}

static const char *text(gpusnap_json *object, const char *key)
{
	const char *value = gpusnap_json_text(gpusnap_json_get(object, key));

	ck_assert_msg(value != NULL, "no string '%s'", key);
	return value;
}

/* ---- commands ---- */

START_TEST(ping_names_process_and_version)
{
	struct agent_fixture f;
	gpusnap_json *result;
	gpusnap_error err;

	agent_open(&f, NULL);
	ck_ok(call(&f, "ping", NULL, &result, &err));
	ck_assert_int_eq(number(result, "pid"), getpid());
	ck_assert_str_eq(text(result, "version"), GPUSNAP_VERSION);
	gpusnap_json_free(result);
	agent_close(&f);
}
END_TEST

static void expect_region(gpusnap_json *region, const char *state, const char *backing)
{
	ck_assert_int_eq(number(region, "id"), 1);
	ck_assert_str_eq(text(region, "tag"), "weights");
	ck_assert_str_eq(text(region, "policy"), "keep");
	ck_assert_str_eq(text(region, "unclaimed_policy"), "keep");
	ck_assert_str_eq(text(region, "state"), state);
	ck_assert_int_eq(gpusnap_json_boolean(gpusnap_json_get(region, "managed"), -1), 1);
	ck_assert_int_eq(number(region, "unclaimed_bytes"), number(region, "bytes") - 8);
	ck_assert_int_gt(number(region, "address"), 0);
	if (backing)
		ck_assert_str_eq(text(region, "backing"), backing);
	else
		ck_assert_int_eq(gpusnap_json_kind_of(gpusnap_json_get(region, "backing")),
			GPUSNAP_JSON_NULL);
	ck_assert_int_eq(number(region, "resident_bytes"), backing ? 0 : number(region, "bytes"));
}

START_TEST(show_lists_what_the_registry_holds)
{
	struct agent_fixture f;
	static const uint64_t shape[] = {2, 2};
	static const int64_t strides[] = {1, -2};
	gpusnap_view_options view = GPUSNAP_VIEW_OPTIONS_INIT;
	gpusnap_json *result, *item, *record = gpusnap_json_pack("{s:i}", "layers", 1);
	char digest[GPUSNAP_DIGEST_TEXT];
	gpusnap_digest leaf = gpusnap_digest_of("content", 8);
	gpusnap_error err;

	agent_open(&f, NULL);
	view.name = "v";
	view.buffer = "w";
	view.dtype = GPUSNAP_U8;
	view.offset = 3;
	view.rank = 2;
	view.shape = shape;
	view.strides = strides;
	ck_ok(gpusnap_view_register(f.registry, &view, &err));
	ck_ok(gpusnap_record_set(f.registry, "model", record, &err));
	gpusnap_json_free(record);
	ck_ok(call(&f, "show", NULL, &result, &err));
	ck_assert_str_eq(text(result, "device"), "host");
	ck_assert_uint_eq(gpusnap_json_size(gpusnap_json_get(result, "regions")), 1);
	item = gpusnap_json_at(gpusnap_json_get(result, "regions"), 0);
	expect_region(item, "resident", NULL);
	ck_assert_int_eq(number(result, "unclaimed_bytes"), number(item, "unclaimed_bytes"));
	item = gpusnap_json_at(gpusnap_json_get(result, "buffers"), 0);
	ck_assert_str_eq(text(item, "name"), "w");
	ck_assert_str_eq(text(item, "role"), "other");
	ck_assert_str_eq(text(item, "dtype"), "U8");
	ck_assert_int_eq(number(item, "bytes"), 8);
	ck_assert_int_eq(
		gpusnap_json_integer(gpusnap_json_at(gpusnap_json_get(item, "shape"), 0), 0), 8);
	ck_assert_str_eq(text(item, "digest"),
		gpusnap_digest_format(gpusnap_digest_of_buffer(8, &leaf), digest));
	item = gpusnap_json_at(gpusnap_json_get(result, "views"), 0);
	ck_assert_str_eq(text(item, "buffer"), "w");
	ck_assert_int_eq(number(item, "offset"), 3);
	ck_assert_int_eq(
		gpusnap_json_integer(gpusnap_json_at(gpusnap_json_get(item, "strides"), 1), 0), -2);
	ck_assert_str_eq(gpusnap_json_text(gpusnap_json_at(gpusnap_json_get(result, "records"), 0)),
		"model");
	gpusnap_json_free(result);
	agent_close(&f);
}
END_TEST

START_TEST(digests_are_null_when_not_wanted_or_not_resident)
{
	struct agent_fixture f;
	gpusnap_json *result, *item;
	gpusnap_error err;

	agent_open(&f, NULL);
	ck_ok(call(&f, "show", "{\"digests\": false}", &result, &err));
	item = gpusnap_json_at(gpusnap_json_get(result, "buffers"), 0);
	ck_assert_int_eq(gpusnap_json_kind_of(gpusnap_json_get(item, "digest")), GPUSNAP_JSON_NULL);
	gpusnap_json_free(result);
	ck_ok(call(
		&f, "offload", "{\"tags\": [\"weights\"], \"backing\": \"arena\"}", &result, &err));
	ck_assert_int_eq(number(result, "regions"), 1);
	ck_assert_int_eq(number(result, "copied_bytes"), number(result, "bytes"));
	ck_assert_int_ge(number(result, "freed_bytes"), 0);
	ck_assert_str_eq(text(result, "backing"), "arena");
	gpusnap_json_free(result);
	ck_ok(call(&f, "show", NULL, &result, &err));
	expect_region(
		gpusnap_json_at(gpusnap_json_get(result, "regions"), 0), "offloaded", "arena");
	item = gpusnap_json_at(gpusnap_json_get(result, "buffers"), 0);
	ck_assert_int_eq(gpusnap_json_kind_of(gpusnap_json_get(item, "digest")), GPUSNAP_JSON_NULL);
	gpusnap_json_free(result);
	ck_ok(call(&f, "resume", "{}", &result, &err));
	ck_assert_int_eq(number(result, "regions"), 1);
	gpusnap_json_free(result);
	agent_close(&f);
}
END_TEST

START_TEST(state_is_saved_verified_and_restored)
{
	struct agent_fixture f;
	char file[PATH_MAX + 8], args[2 * PATH_MAX];
	gpusnap_json *result, *damage;
	gpusnap_error err;
	char byte;

	agent_open(&f, NULL);
	(void)snprintf(file, sizeof file, "%s/s.gsnap", f.folder);
	(void)snprintf(args, sizeof args, "{\"path\": \"%s\", \"engine\": \"threads\"}", file);
	ck_ok(call(&f, "save", args, &result, &err));
	ck_assert_str_eq(text(result, "path"), file);
	ck_assert_str_eq(text(result, "engine"), "threads");
	ck_assert_uint_eq(strlen(text(result, "root")), 32);
	ck_assert_uint_eq(strlen(text(result, "uuid")), 36);
	ck_assert_int_gt(number(result, "bytes"), number(result, "state_bytes"));
	ck_assert_int_eq(number(result, "unclaimed_bytes"), number(result, "state_bytes") - 8);
	gpusnap_json_free(result);
	ck_fails(call(&f, "save", args, &result, &err), GPUSNAP_E_IO, "exists");

	ck_ok(gpusnap_buffer_write(f.registry, "w", 0, "C", 1, &err));
	ck_ok(call(&f, "verify", NULL, &result, &err));
	ck_assert_int_eq(gpusnap_json_boolean(gpusnap_json_get(result, "ok"), -1), 0);
	damage = gpusnap_json_get(result, "damage");
	ck_assert_uint_eq(gpusnap_json_size(damage), 1);
	ck_assert_str_eq(text(gpusnap_json_at(damage, 0), "buffer"), "w");
	ck_assert_int_eq(number(gpusnap_json_at(damage, 0), "leaf"), 0);
	ck_assert_int_eq(number(gpusnap_json_at(damage, 0), "leaf_count"), 1);
	gpusnap_json_free(result);

	ck_ok(call(&f, "restore", args, &result, &err));
	ck_assert_int_gt(number(result, "state_bytes"), 8);
	gpusnap_json_free(result);
	ck_ok(gpusnap_buffer_read(f.registry, "w", 0, &byte, 1, &err));
	ck_assert_int_eq(byte, 'c');
	(void)snprintf(args, sizeof args, "{\"file\": \"%s\"}", file);
	ck_ok(call(&f, "verify", args, &result, &err));
	ck_assert_int_eq(gpusnap_json_boolean(gpusnap_json_get(result, "ok"), -1), 1);
	ck_assert_int_eq(number(result, "buffers"), 2); /* the unclaimed range counts */
	ck_assert_uint_eq(gpusnap_json_size(gpusnap_json_get(result, "damage")), 0);
	gpusnap_json_free(result);
	ck_assert_int_eq(unlink(file), 0);
	agent_close(&f);
}
END_TEST

START_TEST(wrong_arguments_are_refused_by_name)
{
	static const struct {
		const char *command, *args;
		gpusnap_status status;
		const char *text;
	} cases[] = {
		{"nonsense", "{}", GPUSNAP_E_INVALID,
			"no command is named 'nonsense'; known are ping"},
		{"ping", "{\"a\": 1}", GPUSNAP_E_INVALID, "ping: unknown key 'a'"},
		{"show", "{\"digests\": 1}", GPUSNAP_E_INVALID, "'digests' must be true or false"},
		{"save", "{}", GPUSNAP_E_INVALID, "save: 'path' is missing"},
		{"save", "{\"path\": 3}", GPUSNAP_E_INVALID, "'path' must be an absolute path"},
		{"save", "{\"path\": \"a\"}", GPUSNAP_E_INVALID, "must be an absolute path"},
		{"save", "{\"path\": \"/a\", \"depth\": -1}", GPUSNAP_E_INVALID, "'depth' must be"},
		{"save", "{\"path\": \"/a\", \"depth\": 4294967296}", GPUSNAP_E_INVALID,
			"'depth' is"},
		{"save", "{\"path\": \"/a\", \"engine\": \"x\"}", GPUSNAP_E_INVALID, "x"},
		{"save", "{\"path\": \"/a\", \"Replace\": true}", GPUSNAP_E_INVALID, "'Replace'"},
		{"restore", "{\"path\": \"/a\", \"replace\": true}", GPUSNAP_E_INVALID,
			"'replace'"},
		{"offload", "{\"tags\": \"weights\"}", GPUSNAP_E_INVALID, "an array of strings"},
		{"offload", "{\"tags\": [1]}", GPUSNAP_E_INVALID, "an array of strings"},
		{"offload", "{\"tags\": []}", GPUSNAP_E_INVALID, "'tags' is empty"},
		{"offload", "{\"backing\": \"disk\"}", GPUSNAP_E_INVALID, "'backing' is 'disk'"},
		{"offload", "{\"tags\": [\"kv\"]}", GPUSNAP_E_STATE, "no region has tag 'kv'"},
		{"resume", "{}", GPUSNAP_E_STATE, "nothing is offloaded"},
		{"resume", "{\"backing\": \"arena\"}", GPUSNAP_E_INVALID, "'backing'"},
		{"verify", "{\"file\": null}", GPUSNAP_E_INVALID, "'file' must be"},
		{"verify", "{}", GPUSNAP_E_STATE, "nothing to verify against"},
	};
	struct agent_fixture f;
	gpusnap_json *result = NULL;
	gpusnap_error err;

	agent_open(&f, NULL);
	for (size_t i = 0; i < COUNT(cases); i++)
		ck_fails(call(&f, cases[i].command, cases[i].args, &result, &err), cases[i].status,
			cases[i].text);
	ck_assert_ptr_null(result);
	agent_close(&f);
}
END_TEST

/* ---- commands of the program ---- */

static gpusnap_status fail_with_detail(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	(void)registry;
	(void)user;
	(void)args;
	(void)ret_result;
	(void)gsn_fail_os(err, GPUSNAP_E_CORRUPT, ENOSPC, "leaf 3 differs");
	err->offset = 4096;
	return GPUSNAP_E_CORRUPT;
}

static gpusnap_status echo(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	(void)registry;
	(void)err;
	*ret_result = gpusnap_json_pack("{s:s, s:O}", "user", (const char *)user, "args", args);
	return GPUSNAP_OK;
}

START_TEST(added_commands_run_and_may_be_replaced)
{
	struct agent_fixture f;
	gpusnap_json *result;
	gpusnap_error err;
	char first[] = "first", second[] = "second";

	agent_open(&f, NULL);
	ck_ok(gpusnap_agent_add(f.agent, "validate", echo, first, &err));
	ck_ok(call(&f, "validate", "{\"steps\": 4}", &result, &err));
	ck_assert_str_eq(text(result, "user"), "first");
	ck_assert_int_eq(number(gpusnap_json_get(result, "args"), "steps"), 4);
	gpusnap_json_free(result);
	ck_ok(gpusnap_agent_add(f.agent, "validate", echo, second, &err));
	ck_ok(call(&f, "validate", NULL, &result, &err));
	ck_assert_str_eq(text(result, "user"), "second");
	gpusnap_json_free(result);
	agent_close(&f);
}
END_TEST

START_TEST(failures_arrive_with_all_their_detail)
{
	struct agent_fixture f;
	gpusnap_json *result;
	gpusnap_error err;

	agent_open(&f, NULL);
	ck_ok(gpusnap_agent_add(f.agent, "fail", fail_with_detail, NULL, &err));
	ck_fails(call(&f, "fail", NULL, &result, &err), GPUSNAP_E_CORRUPT, "leaf 3 differs");
	ck_assert_str_eq(err.message, "leaf 3 differs");
	ck_assert_int_eq(err.os_errno, ENOSPC);
	ck_assert_uint_eq(err.offset, 4096);
	ck_assert_int_eq(
		gpusnap_agent_call(f.path, "fail", NULL, &result, NULL), GPUSNAP_E_CORRUPT);
	agent_close(&f);
}
END_TEST

START_TEST(long_messages_are_cut_but_arrive)
{
	struct agent_fixture f;
	char name[2000];
	gpusnap_json *result;
	gpusnap_error err;

	agent_open(&f, NULL);
	/* Two-byte characters: the cut may fall into one of them. */
	for (size_t i = 0; i + 2 < sizeof name; i += 2)
		memcpy(name + i, "\xc3\xa9", 3);
	ck_fails(gpusnap_agent_call(f.path, name, NULL, &result, &err), GPUSNAP_E_INVALID,
		"no command is named");
	ck_fails(gpusnap_agent_call(f.path, name + 1, NULL, &result, &err), GPUSNAP_E_INVALID,
		"not UTF-8");
	agent_expect_alive(&f);
	agent_close(&f);
}
END_TEST

START_TEST(malformed_requests_get_an_answer_each_and_the_line_goes_on)
{
	static const struct {
		const char *line;
		gpusnap_status status;
		const char *text;
	} cases[] = {
		{"", GPUSNAP_E_FORMAT, ""},
		{"{", GPUSNAP_E_FORMAT, ""},
		{"\x01\x02", GPUSNAP_E_FORMAT, ""},
		{"[]", GPUSNAP_E_INVALID, "request must be an object"},
		{"null", GPUSNAP_E_INVALID, "request must be an object"},
		{"{}", GPUSNAP_E_INVALID, "'schema' is missing"},
		{"{\"schema\":1}", GPUSNAP_E_INVALID, "'command' is missing"},
		{"{\"schema\":2,\"command\":\"ping\"}", GPUSNAP_E_UNSUPPORTED, "schema 2"},
		{"{\"schema\":\"1\",\"command\":\"ping\"}", GPUSNAP_E_INVALID, "'schema' must be"},
		{"{\"schema\":1,\"command\":1}", GPUSNAP_E_INVALID, "'command' must be a string"},
		{"{\"schema\":1,\"command\":\"ping\",\"args\":[]}", GPUSNAP_E_INVALID, "'args'"},
		{"{\"schema\":1,\"command\":\"ping\",\"x\":0}", GPUSNAP_E_INVALID, "'x'"},
		{"{\"schema\":1,\"command\":\"ping\",\"command\":\"ping\"}", GPUSNAP_E_FORMAT, ""},
		{"{\"schema\":1,\"command\":\"ping\"}{}", GPUSNAP_E_FORMAT, ""},
		{"{\"schema\":1,\"command\":\"ping\"}\r", GPUSNAP_OK, ""},
	};
	struct agent_fixture f;
	int fd;

	agent_open(&f, NULL);
	fd = raw_connect(f.path);
	for (size_t i = 0; i < COUNT(cases); i++) {
		ck_assert(raw_say(fd, cases[i].line));
		ck_assert(raw_say(fd, "\n"));
		raw_expect(fd, cases[i].status, cases[i].text);
	}
	(void)close(fd);
	agent_close(&f);
}
END_TEST

/* ---- the socket ---- */

START_TEST(socket_is_ours_alone_and_goes_with_the_agent)
{
	struct agent_fixture f;
	struct stat status;

	agent_open(&f, NULL);
	ck_assert_int_eq(lstat(f.path, &status), 0);
	ck_assert(S_ISSOCK(status.st_mode));
	ck_assert_uint_eq(status.st_mode & 07777, 0600);
	gpusnap_agent_stop(f.agent);
	f.agent = NULL;
	ck_assert_int_lt(lstat(f.path, &status), 0);
	agent_close(&f);
}
END_TEST

static gpusnap_status start_at(struct agent_fixture *f, const char *path, gpusnap_error *err)
{
	gpusnap_agent *agent;
	gpusnap_status s = gpusnap_agent_start(f->registry, path, &agent, err);

	if (!s)
		gpusnap_agent_stop(agent);
	return s;
}

START_TEST(bad_places_for_a_socket_are_refused)
{
	struct agent_fixture f;
	char path[PATH_MAX + 16], long_path[PATH_MAX + 256];
	gpusnap_error err;
	int fd;

	agent_open(&f, NULL);
	ck_fails(start_at(&f, f.path, &err), GPUSNAP_E_BUSY, "an agent listens at");
	agent_expect_alive(&f);
	ck_assert_int_eq(chmod(f.folder, 0750), 0);
	ck_fails(start_at(&f, f.path, &err), GPUSNAP_E_INVALID, "has mode 0750; it must be 0700");
	ck_assert_int_eq(chmod(f.folder, 0700), 0);
	(void)snprintf(path, sizeof path, "%s/none/socket", f.folder);
	ck_fails(start_at(&f, path, &err), GPUSNAP_E_IO, "none");
	ck_assert_int_eq(err.os_errno, ENOENT);
	(void)snprintf(path, sizeof path, "%s/file", f.folder);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	ck_fails(start_at(&f, path, &err), GPUSNAP_E_INVALID, "exists and is no socket");
	ck_assert_int_eq(unlink(path), 0);
	(void)snprintf(long_path, sizeof long_path, "%s/%0200d", f.folder, 0);
	ck_fails(start_at(&f, long_path, &err), GPUSNAP_E_INVALID, "1 to 107 are possible");
	ck_fails(start_at(&f, "", &err), GPUSNAP_E_INVALID, "0 bytes");
	agent_close(&f);
}
END_TEST

START_TEST(stale_socket_of_a_dead_agent_is_replaced)
{
	struct agent_fixture f;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	gpusnap_error err;
	int fd;

	agent_open(&f, NULL);
	gpusnap_agent_stop(f.agent);
	f.agent = NULL;
	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s", f.path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	(void)close(fd); /* as a process that was killed leaves it */
	ck_ok(gpusnap_agent_start(f.registry, f.path, &f.agent, &err));
	agent_expect_alive(&f);
	agent_close(&f);
}
END_TEST

START_TEST(stop_leaves_the_socket_of_another_alone)
{
	struct agent_fixture f;
	struct stat status;
	gpusnap_agent *second;
	gpusnap_error err;

	agent_open(&f, NULL);
	ck_assert_int_eq(unlink(f.path), 0);
	ck_ok(gpusnap_agent_start(f.registry, f.path, &second, &err));
	gpusnap_agent_stop(f.agent);
	f.agent = second;
	ck_assert_int_eq(lstat(f.path, &status), 0);
	agent_expect_alive(&f);
	agent_close(&f);
}
END_TEST

/* ---- the client ---- */

START_TEST(nobody_listening_is_said_so)
{
	struct agent_fixture f;
	gpusnap_json *result;
	gpusnap_error err;

	agent_open(&f, NULL);
	gpusnap_agent_stop(f.agent);
	f.agent = NULL;
	ck_fails(gpusnap_agent_call(f.path, "ping", NULL, &result, &err), GPUSNAP_E_IO,
		"no agent listens at '");
	ck_assert_int_eq(err.os_errno, ENOENT);
	agent_close(&f);
}
END_TEST

struct impostor {
	int listener;
	const char *answer;
};

static void *answer_once(void *argument)
{
	struct impostor *impostor = argument;
	int fd = accept(impostor->listener, NULL, NULL);
	char byte = 0;

	while (recv(fd, &byte, 1, 0) == 1 && byte != '\n')
		;
	(void)send(fd, impostor->answer, strlen(impostor->answer), MSG_NOSIGNAL);
	(void)close(fd);
	return NULL;
}

START_TEST(answers_that_are_not_ours_are_told_apart)
{
	static const struct {
		const char *answer;
		gpusnap_status status;
		const char *text;
	} cases[] = {
		{"HTTP/1.1 400 Bad Request\r\n", GPUSNAP_E_FORMAT, "is no JSON"},
		{"{}\n", GPUSNAP_E_FORMAT, "lacks \"schema\":1"},
		{"{\"schema\":2,\"ok\":true}\n", GPUSNAP_E_FORMAT, "lacks \"schema\":1"},
		{"{\"schema\":1,\"ok\":1}\n", GPUSNAP_E_FORMAT, "lacks"},
		{"{\"schema\":1,\"ok\":true}\n", GPUSNAP_E_FORMAT, "has no result"},
		{"{\"schema\":1,\"ok\":false}\n", GPUSNAP_E_FORMAT, "without status"},
		{"{\"schema\":1,\"ok\":false,\"error\":{\"status\":\"OK\",\"message\":\"\"}}\n",
			GPUSNAP_E_FORMAT, "reports success as an error"},
		{"{\"schema\":1,\"ok\":false,\"error\":{\"status\":\"E_NEW\",\"message\":\"m\"}}\n",
			GPUSNAP_E_INVALID, "m"},
		{"{\"schema\":1,\"ok\":true", GPUSNAP_E_IO, "hung up before it answered"},
		{"", GPUSNAP_E_IO, "hung up before it answered"},
	};
	struct agent_fixture f;
	struct impostor impostor;
	struct stat identity;
	gpusnap_error err;

	agent_open(&f, NULL);
	gpusnap_agent_stop(f.agent);
	f.agent = NULL;
	ck_ok(gsn_socket_listen(f.path, &impostor.listener, &identity, &err));
	ck_assert_int_eq(fcntl(impostor.listener, F_SETFL, 0), 0);
	for (size_t i = 0; i < COUNT(cases); i++) {
		gpusnap_json *result;
		pthread_t thread;

		impostor.answer = cases[i].answer;
		ck_assert_int_eq(pthread_create(&thread, NULL, answer_once, &impostor), 0);
		ck_fails(gpusnap_agent_call(f.path, "ping", NULL, &result, &err), cases[i].status,
			cases[i].text);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
	gsn_socket_remove(f.path, &identity);
	(void)close(impostor.listener);
	agent_close(&f);
}
END_TEST

static void *ping_often(void *argument)
{
	struct agent_fixture *f = argument;
	uintptr_t failures = 0;

	for (int i = 0; i < 200; i++) {
		gpusnap_json *result = NULL;

		failures += gpusnap_agent_call(f->path, "show", NULL, &result, NULL) != GPUSNAP_OK;
		gpusnap_json_free(result);
	}
	return (void *)failures;
}

START_TEST(two_clients_are_served_side_by_side)
{
	struct agent_fixture f;
	pthread_t threads[2];

	agent_open(&f, NULL);
	for (size_t i = 0; i < COUNT(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, ping_often, &f), 0);
	for (size_t i = 0; i < COUNT(threads); i++) {
		void *failures;

		ck_assert_int_eq(pthread_join(threads[i], &failures), 0);
		ck_assert_uint_eq((uintptr_t)failures, 0);
	}
	agent_close(&f);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		ping_names_process_and_version,
		show_lists_what_the_registry_holds,
		digests_are_null_when_not_wanted_or_not_resident,
		state_is_saved_verified_and_restored,
		wrong_arguments_are_refused_by_name,
		added_commands_run_and_may_be_replaced,
		failures_arrive_with_all_their_detail,
		long_messages_are_cut_but_arrive,
		malformed_requests_get_an_answer_each_and_the_line_goes_on,
		socket_is_ours_alone_and_goes_with_the_agent,
		bad_places_for_a_socket_are_refused,
		stale_socket_of_a_dead_agent_is_replaced,
		stop_leaves_the_socket_of_another_alone,
		nobody_listening_is_said_so,
		answers_that_are_not_ours_are_told_apart,
		two_clients_are_served_side_by_side,
	};

	return AGENT_SUITE("agent_protocol", tests);
}
