/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to the members of a request, and to nothing that is not asked for. */
#include "snapshot/agent_args.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

static const struct kind {
	gpusnap_json_kind json;
	const char *text;
} kinds[] = {
	[GSN_ARG_TEXT] = {GPUSNAP_JSON_STRING, "a string"},
	[GSN_ARG_PATH] = {GPUSNAP_JSON_STRING, "an absolute path"},
	[GSN_ARG_BOOLEAN] = {GPUSNAP_JSON_BOOLEAN, "true or false"},
	[GSN_ARG_NUMBER] = {GPUSNAP_JSON_INTEGER, "a whole number, 0 or more"},
	[GSN_ARG_TEXTS] = {GPUSNAP_JSON_ARRAY, "an array of strings"},
	[GSN_ARG_PATHS] = {GPUSNAP_JSON_ARRAY, "an array of absolute paths"},
	[GSN_ARG_OBJECT] = {GPUSNAP_JSON_OBJECT, "an object"},
};

static bool is_of_kind(const gpusnap_json *value, enum gsn_arg_kind kind)
{
	if (gpusnap_json_kind_of(value) != kinds[kind].json)
		return false;
	if (kind == GSN_ARG_PATH)
		return gpusnap_json_text(value)[0] == '/';
	if (kind == GSN_ARG_NUMBER)
		return gpusnap_json_integer(value, -1) >= 0;
	if (kind != GSN_ARG_TEXTS && kind != GSN_ARG_PATHS)
		return true;
	for (size_t i = 0; i < gpusnap_json_size(value); i++) {
		const char *text = gpusnap_json_text(gpusnap_json_at(value, i));

		if (!text || (kind == GSN_ARG_PATHS && text[0] != '/'))
			return false;
	}
	return true;
}

static void store(gpusnap_json *value, const struct gsn_arg *arg)
{
	switch (arg->kind) {
	case GSN_ARG_TEXT:
	case GSN_ARG_PATH:
		*(const char **)arg->out = gpusnap_json_text(value);
		break;
	case GSN_ARG_BOOLEAN:
		*(bool *)arg->out = gpusnap_json_boolean(value, 0);
		break;
	case GSN_ARG_NUMBER:
		*(uint64_t *)arg->out = (uint64_t)gpusnap_json_integer(value, 0);
		break;
	case GSN_ARG_TEXTS:
	case GSN_ARG_PATHS:
	case GSN_ARG_OBJECT:
		*(gpusnap_json **)arg->out = value;
		break;
	}
}

static const struct gsn_arg *find_arg(const struct gsn_arg *args, size_t count, const char *key)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(args[i].key, key) == 0)
			return &args[i];
	return NULL;
}

static gpusnap_status take_members(gpusnap_json *object, const char *what,
	const struct gsn_arg *args, size_t count, gpusnap_error *err)
{
	for (void *at = gpusnap_json_first(object); at; at = gpusnap_json_next(object, at)) {
		const char *key = gpusnap_json_key(at);
		const struct gsn_arg *arg = find_arg(args, count, key);

		if (!arg)
			return gsn_fail(err, GPUSNAP_E_INVALID, "%s: unknown key '%s'", what, key);
		if (!is_of_kind(gpusnap_json_value(at), arg->kind))
			return gsn_fail(err, GPUSNAP_E_INVALID, "%s: '%s' must be %s", what, key,
				kinds[arg->kind].text);
		store(gpusnap_json_value(at), arg);
	}
	return GPUSNAP_OK;
}

gpusnap_status gsn_args_parse(gpusnap_json *object, const char *what, const struct gsn_arg *args,
	size_t count, gpusnap_error *err)
{
	if (object && gpusnap_json_kind_of(object) != GPUSNAP_JSON_OBJECT)
		return gsn_fail(err, GPUSNAP_E_INVALID, "%s must be an object", what);
	for (size_t i = 0; i < count; i++)
		if (args[i].required && !(object && gpusnap_json_get(object, args[i].key)))
			return gsn_fail(
				err, GPUSNAP_E_INVALID, "%s: '%s' is missing", what, args[i].key);
	return object ? take_members(object, what, args, count, err) : GPUSNAP_OK;
}

gpusnap_status gsn_args_list(
	gpusnap_json *texts, const char ***ret_list, size_t *ret_count, gpusnap_error *err)
{
	size_t count = gpusnap_json_size(texts);
	const char **list;

	if (!texts) {
		*ret_list = NULL;
		*ret_count = 0;
		return GPUSNAP_OK;
	}
	list = gsn_alloc(count, sizeof *list);
	if (!list)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu texts", count);
	for (size_t i = 0; i < count; i++)
		list[i] = gpusnap_json_text(gpusnap_json_at(texts, i));
	*ret_list = list;
	*ret_count = count;
	return GPUSNAP_OK;
}

gpusnap_status gsn_args_open(
	const char *path, gpusnap_json *parent_dirs, gpusnap_snapshot **out, gpusnap_error *err)
{
	gpusnap_snapshot_open_options options = GPUSNAP_SNAPSHOT_OPEN_OPTIONS_INIT;
	const char **list;
	gpusnap_status status = gsn_args_list(parent_dirs, &list, &options.parent_dir_count, err);

	if (status)
		return status;
	options.parent_dirs = list;
	status = gpusnap_snapshot_open_with(path, &options, out, err);
	gsn_free(list);
	return status;
}
