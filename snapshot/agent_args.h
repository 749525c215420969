/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_AGENT_ARGS_H
#define GSN_AGENT_ARGS_H
/* Taking a request's objects apart by a table: wrong and unknown keys are refused by name. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/json.h>
#include <gpusnap/snapshot.h>

enum gsn_arg_kind {
	GSN_ARG_TEXT,	 /* const char *, borrowed */
	GSN_ARG_PATH,	 /* const char *, borrowed; absolute */
	GSN_ARG_BOOLEAN, /* bool */
	GSN_ARG_NUMBER,	 /* uint64_t, not negative */
	GSN_ARG_TEXTS,	 /* gpusnap_json *, borrowed: an array of strings */
	GSN_ARG_PATHS,	 /* the same, each absolute */
	GSN_ARG_OBJECT,	 /* gpusnap_json *, borrowed */
};

struct gsn_arg {
	const char *key;
	void *out; /* of the kind's type; left alone when the key is absent */
	enum gsn_arg_kind kind;
	bool required;
};

/* `what` names the object in messages. NULL `object` is an empty one. E_INVALID names the key. */
gpusnap_status gsn_args_parse(gpusnap_json *object, const char *what, const struct gsn_arg *args,
	size_t count, gpusnap_error *err);

/*
 * The strings of an array, borrowed, as a list that the caller frees with gsn_free(); NULL for no
 * array.
 */
gpusnap_status gsn_args_list(
	gpusnap_json *texts, const char ***ret_list, size_t *ret_count, gpusnap_error *err);
/* A snapshot whose parents may be in these directories (GSN_ARG_PATHS); NULL: none given. */
gpusnap_status gsn_args_open(
	const char *path, gpusnap_json *parent_dirs, gpusnap_snapshot **out, gpusnap_error *err);

#endif
