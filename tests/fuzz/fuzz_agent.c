/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is what a client sends to an agent: requests, one a line, answered one after the other
 * by the real commands over a small registry, as the agent's thread does it behind the socket.
 * Every answer must be well formed, and what is usable afterwards must hold what it held. Paths
 * lead into a folder of our own, whatever the requests say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef NDEBUG
#undef NDEBUG
#endif
#include <assert.h>

#include "snapshot/agent_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PATH_BYTES = 64, REGION_BYTES = 1000, LINES_MAX = 32 };

static char folder[PATH_BYTES / 2];
static const char *const file_names[] = {"a", "b", "c"};
enum { FILE_COUNT = sizeof file_names / sizeof file_names[0] };

/* ---- a place where requests may write ---- */

static void path_of(char path[PATH_BYTES], size_t file)
{
	(void)snprintf(path, PATH_BYTES, "%s/%s", folder, file_names[file]);
}

static void remove_files(void)
{
	char path[PATH_BYTES];

	for (size_t i = 0; i < FILE_COUNT; i++) {
		path_of(path, i);
		(void)unlink(path);
	}
}

static void remove_folder(void)
{
	remove_files();
	(void)rmdir(folder);
}

static void make_folder(void)
{
	if (folder[0])
		return;
	(void)strcpy(folder, "/dev/shm/gpusnap-fuzz-XXXXXX");
	if (!mkdtemp(folder)) {
		(void)strcpy(folder, "/tmp/gpusnap-fuzz-XXXXXX");
		assert(mkdtemp(folder));
	}
	assert(atexit(remove_folder) == 0);
}

static bool is_path(const gpusnap_json *value)
{
	const char *text = gpusnap_json_text(value);

	return text && text[0] == '/';
}

/* The path or the list of paths that stands for this one; NULL where it is neither. */
static gpusnap_json *fence(const gpusnap_json *value)
{
	char path[PATH_BYTES];
	const char *text = gpusnap_json_text(value);

	if (gpusnap_json_size(value) && is_path(gpusnap_json_at(value, 0)))
		return gpusnap_json_pack("[s]", folder);
	if (!is_path(value))
		return NULL;
	path_of(path, (unsigned char)text[strlen(text) - 1] % FILE_COUNT);
	return gpusnap_json_pack("s", path);
}

/* Runs the built-in command `user` with every path led into the folder. */
static gpusnap_status run_fenced(gpusnap_registry *registry, void *user, gpusnap_json *args,
	gpusnap_json **ret_result, gpusnap_error *err)
{
	const struct gsn_agent_builtin *builtin = user;

	for (void *at = gpusnap_json_first(args); at; at = gpusnap_json_next(args, at)) {
		gpusnap_json *fenced = fence(gpusnap_json_value(at));

		if (fenced)
			assert(gpusnap_json_set(args, gpusnap_json_key(at), fenced) == GPUSNAP_OK);
	}
	return builtin->run(registry, NULL, args, ret_result, err);
}

/* ---- the agent, without its thread and socket ---- */

static gpusnap_agent agent = {.lock = PTHREAD_MUTEX_INITIALIZER};
static gpusnap_device *device;

static void make_agent(void)
{
	static struct gsn_agent_builtin builtins[32];
	gpusnap_error err;

	if (device)
		return;
	assert(gpusnap_device_open("host", &device, &err) == GPUSNAP_OK);
	for (size_t i = 0; gsn_agent_builtins[i].name; i++) {
		assert(i < sizeof builtins / sizeof builtins[0]);
		builtins[i] = gsn_agent_builtins[i];
		assert(gpusnap_agent_add(&agent, builtins[i].name, run_fenced, &builtins[i],
			       &err) == GPUSNAP_OK);
	}
}

static gpusnap_registry *make_state(void)
{
	gpusnap_region_options region = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_registry *registry;
	uint64_t size = 8;
	gpusnap_error err;

	assert(gpusnap_registry_create(device, NULL, &registry, &err) == GPUSNAP_OK);
	region.tag = "weights";
	assert(gpusnap_region_reserve(registry, REGION_BYTES, &region, &buffer.region, &err) ==
		GPUSNAP_OK);
	buffer.name = "w";
	buffer.dtype = GPUSNAP_U8;
	buffer.rank = 1;
	buffer.shape = &size;
	assert(gpusnap_buffer_register(registry, &buffer, &err) == GPUSNAP_OK);
	assert(gpusnap_buffer_write(registry, "w", 0, "content", 8, &err) == GPUSNAP_OK);
	return registry;
}

/* ---- what must hold ---- */

static void check_answer(const char *text)
{
	gpusnap_json *answer, *error;
	gpusnap_error err;

	assert(text && !strchr(text, '\n'));
	assert(gpusnap_json_parse(text, strlen(text), "answer", &answer, &err) == GPUSNAP_OK);
	assert(gpusnap_json_integer(gpusnap_json_get(answer, "schema"), 0) == 1);
	error = gpusnap_json_get(answer, "error");
	if (gpusnap_json_boolean(gpusnap_json_get(answer, "ok"), -1)) {
		assert(gpusnap_json_get(answer, "result") && !error);
	} else {
		assert(strncmp(gpusnap_json_text(gpusnap_json_get(error, "status")), "E_", 2) == 0);
		assert(gpusnap_json_text(gpusnap_json_get(error, "message"))[0]);
	}
	gpusnap_json_free(answer);
}

static void check_state(gpusnap_registry *registry)
{
	gpusnap_error err;
	char content[8];

	if (gpusnap_buffer_read(registry, "w", 0, content, sizeof content, &err))
		assert(err.status == GPUSNAP_E_STATE);
	else
		assert(memcmp(content, "content", sizeof content) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data, *end = at + size;

	make_folder();
	make_agent();
	agent.registry = make_state();
	for (int i = 0; i < LINES_MAX && at < end; i++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *line_end = newline ? newline : end;
		char *answer = gsn_agent_answer(&agent, at, (size_t)(line_end - at));

		check_answer(answer);
		gpusnap_text_free(answer);
		check_state(agent.registry);
		at = line_end + 1;
	}
	gpusnap_registry_free(agent.registry);
	remove_files();
	return 0;
}
