/* SPDX-License-Identifier: Apache-2.0 */
/* One request in, one answer out: the text of a line to a command and back. */
#include <stdio.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "snapshot/agent_args.h"
#include "snapshot/agent_state.h"

enum { SCHEMA = 1 };

static gpusnap_json *pack_error(const gpusnap_error *err)
{
	return gpusnap_json_pack("{s:i, s:b, s:{s:s, s:s, s:I, s:i}}", "schema", SCHEMA, "ok", 0,
		"error", "status", gpusnap_status_name(err->status), "message", err->message,
		"offset", (long long)err->offset, "os_errno", err->os_errno);
}

char *gsn_agent_refusal(const gpusnap_error *err)
{
	gpusnap_json *answer = pack_error(err);
	char *text;

	if (!answer) {
		/* A message may be cut inside a character; JSON takes only whole ones. */
		gpusnap_error plain = *err;

		for (char *p = plain.message; *p; p++)
			if ((unsigned char)*p >= 0x80)
				*p = '?';
		answer = pack_error(&plain);
	}
	text = answer ? gpusnap_json_dump(answer) : NULL;
	gpusnap_json_free(answer);
	return text;
}

/* What there is, for whoever asked for something else. */
static gpusnap_status fail_unknown(gpusnap_agent *agent, const char *name, gpusnap_error *err)
{
	char known[256] = "";
	size_t used = 0;

	for (size_t i = 0; i < agent->command_count; i++) {
		int length = snprintf(known + used, sizeof known - used, "%s%s",
			used > 0 ? ", " : "", agent->commands[i].name);

		if (length < 0 || (size_t)length >= sizeof known - used)
			break;
		used += (size_t)length;
	}
	return gsn_fail(
		err, GPUSNAP_E_INVALID, "no command is named '%.64s'; known are %s", name, known);
}

static gpusnap_status find_command(gpusnap_agent *agent, const char *name,
	struct gsn_agent_entry *ret_entry, gpusnap_error *err)
{
	gpusnap_status s = GPUSNAP_OK;
	size_t i = 0;

	(void)pthread_mutex_lock(&agent->lock);
	while (i < agent->command_count && strcmp(agent->commands[i].name, name) != 0)
		i++;
	if (i < agent->command_count)
		*ret_entry = agent->commands[i];
	else
		s = fail_unknown(agent, name, err);
	(void)pthread_mutex_unlock(&agent->lock);
	return s;
}

static gpusnap_status run_request(
	gpusnap_agent *agent, gpusnap_json *request, gpusnap_json **ret_result, gpusnap_error *err)
{
	uint64_t schema = 0;
	const char *name = NULL;
	gpusnap_json *args = NULL;
	const struct gsn_arg members[] = {
		{"schema", &schema, GSN_ARG_NUMBER, true},
		{"command", &name, GSN_ARG_TEXT, true},
		{"args", &args, GSN_ARG_OBJECT, false},
	};
	struct gsn_agent_entry entry;
	gpusnap_status s = gsn_args_parse(
		request, "request", members, sizeof members / sizeof members[0], err);

	if (!s && schema != SCHEMA)
		s = gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"request has schema %llu, this agent speaks %d", (unsigned long long)schema,
			SCHEMA);
	if (!s)
		s = find_command(agent, name, &entry, err);
	if (!s)
		s = entry.run(agent->registry, entry.user, args, ret_result, err);
	return s;
}

char *gsn_agent_answer(gpusnap_agent *agent, const char *line, size_t length)
{
	gpusnap_json *request = NULL;
	gpusnap_json *answer = NULL;
	gpusnap_json *result = NULL;
	gpusnap_error err;
	char *text;
	gpusnap_status s = gpusnap_json_parse(line, length, "agent request", &request, &err);

	if (!s)
		s = run_request(agent, request, &result, &err);
	gpusnap_json_free(request);
	if (s)
		return gsn_agent_refusal(&err);
	answer = gpusnap_json_pack("{s:i, s:b, s:o}", "schema", SCHEMA, "ok", 1, "result",
		result ? result : gpusnap_json_pack("{}"));
	text = answer ? gpusnap_json_dump(answer) : NULL;
	gpusnap_json_free(answer);
	if (text)
		return text;
	(void)gsn_fail(&err, GPUSNAP_E_NOMEM, "no memory for the answer");
	return gsn_agent_refusal(&err);
}

gpusnap_status gsn_agent_result(gpusnap_json *value, gpusnap_json **ret_result, gpusnap_error *err)
{
	if (!value)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the result");
	*ret_result = value;
	return GPUSNAP_OK;
}
