/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H
/* What `gpusnap bench` measures, one row of a table each. */
#include "tools/bench_session.h"

/* A figure and its ceiling, measured one after the other: bytes per second, or bytes. */
struct bench_pair {
	double figure, ceiling;
};

struct bench_row {
	const char *name;
	const char *what;
	const char *ceiling;
	double goal;	     /* of figure / ceiling, on a GPU */
	double host_goal;    /* the same on the host */
	bool at_most;	     /* bytes: the ratio is to be no more than the goal */
	bool needs_files;    /* three times the state in the folder */
	gpusnap_dtype dtype; /* of a decode */
	uint32_t batch;
	gpusnap_status (*measure)(struct bench_session *session, const struct bench_row *row,
		uint32_t repeat, struct bench_pair *ret_pair, gpusnap_error *err);
};

/* NULL-named row at the end. In the order in which they share the memory best. */
extern const struct bench_row bench_rows[];

const struct bench_row *bench_row_find(const char *name);

#endif
