/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/gather_crew.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

struct gsn_crew {
	gsn_crew_fn function;
	void *argument;
	uint32_t room;
	uint32_t jobs;	      /* of the owner alone: given and not taken */
	pthread_mutex_t lock; /* guards what follows, up to the threads */
	pthread_cond_t work, done;
	bool stop;
	uint32_t first, waiting; /* of `queue`, a ring */
	uint32_t finished;	 /* of `ready`, a stack */
	void **queue, **ready;
	uint32_t started;
	pthread_t threads[];
};

static void work_on(struct gsn_crew *crew, void *job)
{
	(void)pthread_mutex_unlock(&crew->lock);
	crew->function(crew->argument, job);
	(void)pthread_mutex_lock(&crew->lock);
	crew->ready[crew->finished++] = job;
	(void)pthread_cond_signal(&crew->done);
}

static void *crew_main(void *argument)
{
	struct gsn_crew *crew = argument;

	(void)pthread_mutex_lock(&crew->lock);
	while (!crew->stop) {
		void *job;

		if (crew->waiting == 0) {
			(void)pthread_cond_wait(&crew->work, &crew->lock);
			continue;
		}
		job = crew->queue[crew->first];
		crew->first = (crew->first + 1) % crew->room;
		crew->waiting--;
		work_on(crew, job);
	}
	(void)pthread_mutex_unlock(&crew->lock);
	return NULL;
}

/* Signals are the application's: its own threads shall handle them. */
static int start_threads(struct gsn_crew *crew, uint32_t threads)
{
	sigset_t all, before;
	int error = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!error && crew->started < threads) {
		error = pthread_create(&crew->threads[crew->started], NULL, crew_main, crew);
		if (!error)
			crew->started++;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

gpusnap_status gsn_crew_open(uint32_t threads, uint32_t room, gsn_crew_fn function, void *argument,
	struct gsn_crew **ret_crew, gpusnap_error *err)
{
	struct gsn_crew *crew = gsn_alloc(1, sizeof *crew + threads * sizeof crew->threads[0]);
	gpusnap_status st;
	int error;

	if (!crew)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u threads", threads);
	crew->function = function;
	crew->argument = argument;
	crew->room = room;
	(void)pthread_mutex_init(&crew->lock, NULL); /* none of the three can fail on Linux */
	(void)pthread_cond_init(&crew->work, NULL);
	(void)pthread_cond_init(&crew->done, NULL);
	crew->queue = gsn_alloc(room, sizeof(void *));
	crew->ready = gsn_alloc(room, sizeof(void *));
	if (!crew->queue || !crew->ready) {
		st = gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u jobs", room);
		goto fail;
	}
	error = start_threads(crew, threads);
	if (error) {
		st = gsn_fail_os(err, GPUSNAP_E_LIMIT, error,
			"thread %u of %u did not start: %s; raise the limit on processes",
			crew->started + 1, threads, strerror(error));
		goto fail;
	}
	*ret_crew = crew;
	return GPUSNAP_OK;
fail:
	gsn_crew_close(crew);
	return st;
}

void gsn_crew_close(struct gsn_crew *crew)
{
	if (!crew)
		return;
	(void)pthread_mutex_lock(&crew->lock);
	crew->stop = true;
	(void)pthread_cond_broadcast(&crew->work);
	(void)pthread_mutex_unlock(&crew->lock);
	for (uint32_t i = 0; i < crew->started; i++)
		(void)pthread_join(crew->threads[i], NULL);
	(void)pthread_cond_destroy(&crew->done);
	(void)pthread_cond_destroy(&crew->work);
	(void)pthread_mutex_destroy(&crew->lock);
	gsn_free((void *)crew->queue);
	gsn_free((void *)crew->ready);
	gsn_free(crew);
}

void gsn_crew_give(struct gsn_crew *crew, void *job)
{
	crew->jobs++;
	(void)pthread_mutex_lock(&crew->lock);
	crew->queue[(crew->first + crew->waiting++) % crew->room] = job;
	(void)pthread_cond_signal(&crew->work);
	(void)pthread_mutex_unlock(&crew->lock);
}

void *gsn_crew_take(struct gsn_crew *crew, bool wait)
{
	void *job = NULL;

	if (crew->jobs == 0)
		return NULL;
	(void)pthread_mutex_lock(&crew->lock);
	while (wait && crew->finished == 0)
		(void)pthread_cond_wait(&crew->done, &crew->lock);
	if (crew->finished)
		job = crew->ready[--crew->finished];
	(void)pthread_mutex_unlock(&crew->lock);
	crew->jobs -= job != NULL;
	return job;
}

uint32_t gsn_crew_jobs(const struct gsn_crew *crew)
{
	return crew->jobs;
}
