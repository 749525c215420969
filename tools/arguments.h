/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H
/* Options that several commands share, as argp children, and the parsing of values. */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/io.h>
#include <gpusnap/loader.h>
#include <gpusnap/snapshot.h>

/* --json, -v */
struct common_options {
	bool json;
	bool verbose;
};
extern const struct argp common_argp;

/* -p PID, --socket PATH */
struct target_options {
	int64_t pid; /* 0: not given */
	const char *socket;
};
extern const struct argp target_argp;

/* -P, --parent-dir DIR */
enum { PARENT_DIRS_MAX = 16 };
struct parent_options {
	const char *dirs[PARENT_DIRS_MAX];
	size_t count;
};
extern const struct argp parent_argp;

/* --io, --direct, --depth, --block-size */
extern const struct argp io_argp; /* input: gpusnap_io_options, initialised */

/* --tp-size, --tp-rank, --ep-size, --ep-rank, --mask, --compact, ... */
extern const struct argp load_argp; /* input: gpusnap_load_options, initialised */

/* Parse or leave by argp_error. Sizes take K, M, G, T (powers of 1024). */
uint64_t parse_number(struct argp_state *state, const char *option, const char *text, uint64_t max);
uint64_t parse_size(struct argp_state *state, const char *option, const char *text);

/* Add what differs from the defaults of the I/O options to an agent request. */
struct json_t;
gpusnap_status io_request(struct json_t *args, const gpusnap_io_options *io);
/* And the directories for parents, made absolute. */
gpusnap_status parent_request(
	struct json_t *args, const struct parent_options *parents, gpusnap_error *err);
/* Open a snapshot file, with its parents. */
gpusnap_status open_snapshot(const char *path, const struct parent_options *parents,
	gpusnap_snapshot **out, gpusnap_error *err);

#endif
