/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRESS_H
#define PROGRESS_H
/* A progress line on stderr: only on a terminal, after half a second, a few times a second. */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/io.h>

struct progress {
	const char *what;
	double started; /* seconds; 0 before the first call */
	double shown;
	bool visible;
};
#define PROGRESS_INIT(what)                                                                        \
	{                                                                                          \
		(what), 0, 0, false                                                                \
	}

/* Let the job report to `progress`, when stderr is a terminal. */
void progress_attach(struct progress *progress, gpusnap_io_options *io);
/* Wipe the line. */
void progress_end(struct progress *progress);

#endif
