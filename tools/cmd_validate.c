/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap validate: prove by a MoE decode that live state works. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpusnap/dispatch.h>

#include "tools/command.h"
#include "tools/output.h"
#include "tools/remote.h"

enum { KEY_RECORD = 0x200, KEY_REFERENCE, KEY_TOKENS, KEY_STEPS, KEY_SEED, KEY_CHECKS };

struct validate_arguments {
	struct live_options live;
	struct parent_options parents;
	bool record;
	const char *reference;
	const char *file;
	uint64_t tokens;
	uint64_t steps;
	uint64_t seed;
	gpusnap_json *checks; /* names; NULL: all */
};

/* "structure,sweep": a list of names. */
static gpusnap_json *parse_checks(struct argp_state *state, const char *list)
{
	gpusnap_json *names = gpusnap_json_pack("[]");
	gpusnap_error err;

	while (names && list) {
		char name[32];
		gpusnap_check check;
		const char *comma = strchrnul(list, ',');

		(void)snprintf(name, sizeof name, "%.*s", (int)(comma - list), list);
		if (gpusnap_check_parse(name, &check, &err))
			argp_error(state, "--checks: %s", err.message);
		if (gpusnap_json_append(names, gpusnap_json_pack("s", name)))
			argp_failure(state, 6, 0, "--checks: no memory");
		list = *comma ? comma + 1 : NULL;
	}
	return names;
}

static void check_combination(struct argp_state *state, const struct validate_arguments *a)
{
	if (a->record && a->file)
		argp_error(state, "--record makes a new record; it takes no FILE");
	if (a->reference && (a->record || a->file))
		argp_error(state, "--reference stands alone: no --record, no FILE");
	if (a->checks && (a->record || a->reference))
		argp_error(state, "--checks goes with neither --record, which makes all of them, "
				  "nor --reference");
	if (!a->record && (a->tokens || a->steps || a->seed))
		argp_error(state, "--tokens, --steps and --seed go with --record; otherwise the "
				  "record gives them");
}

static error_t parse_validate(int key, char *arg, struct argp_state *state)
{
	struct validate_arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->live.target;
		state->child_inputs[1] = &a->parents;
		state->child_inputs[2] = &a->live.common;
		return 0;
	case KEY_RECORD:
		a->record = true;
		return 0;
	case KEY_REFERENCE:
		a->reference = arg;
		return 0;
	case KEY_TOKENS:
		a->tokens = parse_number(state, "--tokens", arg, 64);
		return 0;
	case KEY_STEPS:
		a->steps = parse_number(state, "--steps", arg, 1u << 20);
		return 0;
	case KEY_SEED:
		a->seed = parse_number(state, "--seed", arg, INT64_MAX);
		return 0;
	case KEY_CHECKS:
		gpusnap_json_free(a->checks);
		a->checks = parse_checks(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		if (a->file)
			argp_error(state, "one FILE, not more: '%s'", arg);
		a->file = arg;
		return 0;
	case ARGP_KEY_END:
		check_combination(state, a);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int verdict(const gpusnap_json *result)
{
	return field_true(result, "proved") ? 0 : 1;
}

static void print_failure(const gpusnap_json *f)
{
	const char *buffer = gpusnap_json_text(gpusnap_json_get(f, "buffer"));
	int64_t expert = gpusnap_json_integer(gpusnap_json_get(f, "expert"), -1);
	int64_t leaf = gpusnap_json_integer(gpusnap_json_get(f, "leaf"), -1);

	(void)printf("broken: layer %llu, %s", (unsigned long long)field_u64(f, "layer"),
		buffer ? buffer : "no single buffer");
	if (expert >= 0)
		(void)printf(", expert %lld", (long long)expert);
	if (leaf >= 0)
		(void)printf(", first at leaf %lld", (long long)leaf);
	(void)printf(" (%s: %s)\n", field_text(f, "kind"), field_text(f, "detail"));
}

static void print_costs(const gpusnap_json *checks)
{
	for (size_t i = 0; i < gpusnap_json_size(checks); i++) {
		const gpusnap_json *c = gpusnap_json_at(checks, i);
		char bytes[SIZE_TEXT];

		(void)printf("%-9s  %s read in %.3f s\n", field_text(c, "check"),
			format_size(field_u64(c, "bytes_read"), bytes),
			gpusnap_json_real(gpusnap_json_get(c, "seconds"), 0.0));
	}
}

static int print_validation(const gpusnap_json *result, bool verbose)
{
	const gpusnap_json *failures = gpusnap_json_get(result, "failures");
	const char *digest = gpusnap_json_text(gpusnap_json_get(result, "digest"));

	(void)verbose;
	for (size_t i = 0; i < gpusnap_json_size(failures); i++)
		print_failure(gpusnap_json_at(failures, i));
	print_costs(gpusnap_json_get(result, "checks"));
	(void)printf("%s: %llu layers, %llu experts swept, %llu decode steps%s%s\n",
		field_true(result, "recorded") ? "recorded"
		: field_true(result, "proved") ? "proved"
					       : "NOT proved",
		(unsigned long long)field_u64(result, "layers"),
		(unsigned long long)field_u64(result, "experts_swept"),
		(unsigned long long)field_u64(result, "steps"), digest ? ", digest " : "",
		digest ? digest : "");
	return verdict(result);
}

static int print_reference(const gpusnap_json *result, bool verbose)
{
	const gpusnap_json *modules = gpusnap_json_get(result, "reference");

	(void)verbose;
	for (size_t i = 0; i < gpusnap_json_size(modules); i++) {
		const gpusnap_json *m = gpusnap_json_at(modules, i);

		(void)printf("%-28s error %.3f of the bound, router ids %s, %llu near ties\n",
			field_text(m, "module"),
			gpusnap_json_real(gpusnap_json_get(m, "max_error_over_bound"), -1),
			field_true(m, "ids_equal") ? "equal" : "DIFFER",
			(unsigned long long)field_u64(m, "near_ties"));
	}
	(void)printf("%s with the reference: %zu modules\n",
		field_true(result, "proved") ? "agrees" : "DISAGREES", gpusnap_json_size(modules));
	return verdict(result);
}

static gpusnap_json *request(const struct validate_arguments *a, const char *path)
{
	gpusnap_json *args = gpusnap_json_pack("{s:b}", "record", a->record);
	gpusnap_status s = args ? GPUSNAP_OK : GPUSNAP_E_NOMEM;

	if (!s && path)
		s = gpusnap_json_set(args, "file", gpusnap_json_pack("s", path));
	if (!s && a->tokens)
		s = gpusnap_json_set(args, "tokens", gpusnap_json_pack("I", (long long)a->tokens));
	if (!s && a->steps)
		s = gpusnap_json_set(args, "steps", gpusnap_json_pack("I", (long long)a->steps));
	if (!s && a->seed)
		s = gpusnap_json_set(args, "seed", gpusnap_json_pack("I", (long long)a->seed));
	if (!s && a->checks)
		s = gpusnap_json_set(args, "checks", a->checks);
	if (!s)
		return args;
	gpusnap_json_free(args);
	return NULL;
}

int cmd_validate(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"record", KEY_RECORD, NULL, 0,
			"Write down what the probe computes now; save carries it", 1},
		{"reference", KEY_REFERENCE, "FILE", 0,
			"Compare every MoE block with values dumped from another engine", 1},
		{"checks", KEY_CHECKS, "NAME,..", 0,
			"Only these of structure, control, sweep and decode [all]", 1},
		{"tokens", KEY_TOKENS, "N", 0, "With --record: batch of a decode step [8]", 2},
		{"steps", KEY_STEPS, "N", 0, "With --record: decode steps [4]", 2},
		{"seed", KEY_SEED, "N", 0, "With --record: seed of the inputs [1]", 2},
		{0},
	};
	static const struct argp_child children[] = {{&target_argp, 0, NULL, 0},
		{&parent_argp, 0, NULL, 0}, {&common_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {options, parse_validate, "[FILE]",
		"Check masks and scales, digest control tables, sweep every local expert and "
		"decode "
		"through all MoE layers; compare with the record in FILE, or with the one that the "
		"process holds, and name what broke.",
		children, NULL, NULL};
	struct validate_arguments a = {0};
	gpusnap_error err = {0};
	char *path = NULL;
	const char *given;
	gpusnap_json *args;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a))
		return 2;
	given = a.reference ? a.reference : a.file;
	if (given && absolute_path(given, &path, &err))
		return output_error(argv[0], a.live.common.json, &err);
	args = a.reference ? gpusnap_json_pack("{s:s}", "file", path) : request(&a, path);
	free(path);
	if (args && a.file && parent_request(args, &a.parents, &err)) {
		gpusnap_json_free(args);
		return output_error(argv[0], a.live.common.json, &err);
	}
	return a.reference
		       ? live_run(argv[0], &a.live, "reference", args, print_reference, verdict)
		       : live_run(argv[0], &a.live, "validate", args, print_validation, verdict);
}
