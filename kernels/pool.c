/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job at a time. Threads take runs of consecutive tasks off an atomic counter, long ones first,
 * so that neighbouring memory is mostly read by one thread and all end together. A worker joins
 * the open job under the lock; the caller closes the job when no task is left and waits for those
 * that joined, so a worker that wakes up late costs nothing.
 */
#include "kernels/pool.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"

enum {
	MAX_THREADS = 1024,
	RUNS = 4,     /* that each thread would take if they did not get shorter */
	SPINS = 1000, /* about 10 us: less than a sleep, more than from phase to phase of a layer */
};

struct gsn_pool {
	pthread_mutex_t callers; /* held for a whole run */
	pthread_mutex_t lock;	 /* what follows, up to the atomics */
	pthread_cond_t work, done;
	bool open; /* a job that workers may join */
	bool stop;
	uint32_t started;
	gsn_pool_fn function;
	void *argument;
	uint64_t task_count;
	atomic_uint_fast64_t next; /* task */
	/* Changed under the lock only; watched without it while spinning. */
	atomic_uint jobs;   /* opened so far */
	atomic_uint joined; /* workers that have not left the job yet */
	uint32_t workers;
	pthread_t threads[];
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* First of a run of tasks, a share of what is left; `*ret_end` its end, or 0 when none is left. */
static uint64_t take_run(struct gsn_pool *pool, uint64_t count, uint64_t *ret_end)
{
	uint64_t first = atomic_load_explicit(&pool->next, memory_order_relaxed);
	uint64_t length;

	do {
		if (first >= count) {
			*ret_end = 0;
			return 0;
		}
		length = gsn_max(1, (count - first) / (RUNS * ((uint64_t)pool->workers + 1)));
	} while (!atomic_compare_exchange_weak_explicit(
		&pool->next, &first, first + length, memory_order_relaxed, memory_order_relaxed));
	*ret_end = first + length;
	return first;
}

static void take_tasks(struct gsn_pool *pool, gsn_pool_fn function, void *argument, uint64_t count)
{
	uint64_t task, end;

	for (task = take_run(pool, count, &end); end; task = take_run(pool, count, &end))
		for (; task < end; task++)
			function(argument, task);
}

/* What is waited for often comes within microseconds, and a sleep costs more: look before. */
static void spin_while(const atomic_uint *word, unsigned value)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(word, memory_order_relaxed) != value)
			return;
		relax();
	}
}

static void spin_until(const atomic_uint *word, unsigned value)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(word, memory_order_relaxed) == value)
			return;
		relax();
	}
}

static void join_job(struct gsn_pool *pool)
{
	gsn_pool_fn function = pool->function;
	void *argument = pool->argument;
	uint64_t count = pool->task_count;

	atomic_fetch_add_explicit(&pool->joined, 1, memory_order_relaxed);
	pthread_mutex_unlock(&pool->lock);
	take_tasks(pool, function, argument, count);
	pthread_mutex_lock(&pool->lock);
	if (atomic_fetch_sub_explicit(&pool->joined, 1, memory_order_relaxed) == 1)
		pthread_cond_signal(&pool->done);
}

static void *worker_main(void *argument)
{
	struct gsn_pool *pool = argument;
	unsigned seen = 0;

	/* The creator's rounding and denormal modes are inherited; results must not depend on it.
	 */
	(void)fesetenv(FE_DFL_ENV);
	pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
		unsigned jobs = atomic_load_explicit(&pool->jobs, memory_order_relaxed);

		if (pool->open && jobs != seen) {
			seen = jobs;
			join_job(pool);
			pthread_mutex_unlock(&pool->lock);
			spin_while(&pool->jobs, seen);
			pthread_mutex_lock(&pool->lock);
		} else {
			pthread_cond_wait(&pool->work, &pool->lock);
		}
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

uint32_t gsn_pool_cpus(void)
{
	cpu_set_t set;
	int count = 0;

	if (sched_getaffinity(0, sizeof set, &set) == 0)
		count = CPU_COUNT(&set);
	return count > 0 ? (uint32_t)count : 1;
}

/* Signals are the application's: its own threads shall handle them. */
static int start_workers(struct gsn_pool *pool)
{
	sigset_t all, before;
	int error = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!error && pool->started < pool->workers) {
		error = pthread_create(&pool->threads[pool->started], NULL, worker_main, pool);
		if (!error)
			pool->started++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

gpusnap_status gsn_pool_create(uint32_t threads, struct gsn_pool **ret_pool, gpusnap_error *err)
{
	struct gsn_pool *pool;
	uint32_t workers;
	int error;

	if (threads > MAX_THREADS)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"thread pool: %u threads asked for, at most %d are supported", threads,
			MAX_THREADS);
	workers = (threads ? threads : (uint32_t)gsn_min(gsn_pool_cpus(), MAX_THREADS)) - 1;
	pool = gsn_alloc(1, sizeof *pool + workers * sizeof pool->threads[0]);
	if (!pool)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "thread pool: no memory for %u threads", workers + 1);
	pthread_mutex_init(&pool->callers, NULL);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->done, NULL);
	pool->workers = workers;
	error = start_workers(pool);
	if (error) {
		uint32_t started = pool->started;

		gsn_pool_destroy(pool);
		return gsn_fail_os(err, GPUSNAP_E_LIMIT, error,
			"thread pool: thread %u of %u did not start: %s; raise the limit on "
			"processes or use fewer threads",
			started + 1, workers, strerror(error));
	}
	*ret_pool = pool;
	return GPUSNAP_OK;
}

void gsn_pool_destroy(struct gsn_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->started; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	pthread_mutex_destroy(&pool->callers);
	gsn_free(pool);
}

uint32_t gsn_pool_threads(const struct gsn_pool *pool)
{
	return pool->workers + 1;
}

static void open_job(struct gsn_pool *pool, gsn_pool_fn function, void *argument, uint64_t count)
{
	pthread_mutex_lock(&pool->lock);
	pool->function = function;
	pool->argument = argument;
	pool->task_count = count;
	pool->open = true;
	atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&pool->jobs, 1, memory_order_relaxed);
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

static void close_job(struct gsn_pool *pool)
{
	spin_until(&pool->joined, 0);
	pthread_mutex_lock(&pool->lock);
	pool->open = false;
	while (atomic_load_explicit(&pool->joined, memory_order_relaxed) > 0)
		pthread_cond_wait(&pool->done, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

void gsn_pool_run(struct gsn_pool *pool, gsn_pool_fn function, void *argument, uint64_t task_count)
{
	bool shared = pool->workers > 0 && task_count > 1;

	pthread_mutex_lock(&pool->callers);
	if (shared)
		open_job(pool, function, argument, task_count);
	else
		atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
	take_tasks(pool, function, argument, task_count);
	if (shared)
		close_job(pool);
	pthread_mutex_unlock(&pool->callers);
}
