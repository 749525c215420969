/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gpusnap/agent.h>

#include "formats/base/fail.h"
#include "tools/endpoint.h"
#include "tools/output.h"

int live_run(const char *program, const struct live_options *options, const char *command,
	gpusnap_json *args, live_printer print, int (*verdict)(const gpusnap_json *result))
{
	char socket[ENDPOINT_PATH_MAX];
	gpusnap_error err = {0};
	gpusnap_json *result = NULL;
	gpusnap_status s = args ? GPUSNAP_OK : gsn_fail(&err, GPUSNAP_E_NOMEM, "out of memory");
	int status;

	if (!s)
		s = endpoint_select(&options->target, socket, &err);
	if (s) {
		gpusnap_json_free(args);
		return output_error(program, options->common.json, &err);
	}
	s = gpusnap_agent_call(socket, command, args, &result, &err);
	if (s)
		return output_error(program, options->common.json, &err);
	if (options->common.json)
		return output_json(result, verdict ? verdict(result) : 0);
	status = print(result, options->common.verbose);
	gpusnap_json_free(result);
	return output_flush() ? 3 : status;
}

gpusnap_status absolute_path(const char *path, char **ret_path, gpusnap_error *err)
{
	char *directory;
	char *joined;

	if (path[0] == '/') {
		joined = strdup(path);
		if (!joined)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
		*ret_path = joined;
		return GPUSNAP_OK;
	}
	directory = getcwd(NULL, 0);
	if (!directory)
		return gsn_fail_os(
			err, GPUSNAP_E_IO, errno, "the working directory: %s", strerror(errno));
	joined = malloc(strlen(directory) + strlen(path) + 2);
	if (joined) {
		(void)stpcpy(stpcpy(stpcpy(joined, directory), "/"), path);
		*ret_path = joined;
	}
	free(directory);
	return joined ? GPUSNAP_OK : gsn_fail(err, GPUSNAP_E_NOMEM, "out of memory");
}

uint64_t field_u64(const gpusnap_json *object, const char *key)
{
	return (uint64_t)gpusnap_json_integer(gpusnap_json_get(object, key), 0);
}

double field_seconds(const gpusnap_json *object)
{
	return gpusnap_json_real(gpusnap_json_get(object, "seconds"), 0);
}

const char *field_text(const gpusnap_json *object, const char *key)
{
	const char *text = gpusnap_json_text(gpusnap_json_get(object, key));

	return text ? text : "-";
}

bool field_true(const gpusnap_json *object, const char *key)
{
	return gpusnap_json_boolean(gpusnap_json_get(object, key), 0) != 0;
}

gpusnap_io_report field_io(const gpusnap_json *object)
{
	gpusnap_io_report report = {
		.engine = field_text(object, "engine"),
		.direct = field_true(object, "direct"),
		.depth = (uint32_t)field_u64(object, "depth"),
		.block_bytes = field_u64(object, "block_bytes"),
	};

	(void)snprintf(report.reason, sizeof report.reason, "%s", field_text(object, "reason"));
	return report;
}
