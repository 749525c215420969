/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tools/output.h"

static const double first_after = 0.5; /* seconds */
static const double redraw_after = 0.2;

static double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int report(void *user, uint64_t done, uint64_t total)
{
	struct progress *p = user;
	double t = now();
	double elapsed;
	char size[SIZE_TEXT];
	char rate[SIZE_TEXT];

	if (p->started == 0)
		p->started = t;
	elapsed = t - p->started;
	if (elapsed < first_after || t - p->shown < redraw_after || total == 0 || done == 0)
		return 0;
	p->shown = t;
	p->visible = true;
	(void)fprintf(stderr, "\r\033[K%s %3.0f %% of %s, %s, %.0f s left", p->what,
		100.0 * (double)done / (double)total, format_size(total, size),
		format_rate(done, elapsed, rate), elapsed * (double)(total - done) / (double)done);
	(void)fflush(stderr);
	return 0;
}

void progress_attach(struct progress *progress, gpusnap_io_options *io)
{
	if (!isatty(STDERR_FILENO))
		return;
	io->progress = report;
	io->user = progress;
}

void progress_end(struct progress *progress)
{
	if (progress->visible)
		(void)fputs("\r\033[K", stderr);
	progress->visible = false;
}
