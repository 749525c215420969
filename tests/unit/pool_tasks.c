/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "tests/support/suite.h"

enum { TASKS = 1000, RUNS = 300, CALLERS = 4 };

struct tally {
	atomic_uint *runs;   /* of each task */
	atomic_uint *others; /* running tasks of each caller */
	unsigned caller;
	atomic_uint mixed;
};

static void count_task(void *argument, uint64_t task)
{
	struct tally *tally = argument;

	atomic_fetch_add(&tally->runs[task], 1);
}

START_TEST(every_task_runs_exactly_once)
{
	for (uint32_t threads = 1; threads <= 4; threads++) {
		struct gsn_pool *pool;
		gpusnap_error err;

		ck_ok(gsn_pool_create(threads, &pool, &err));
		ck_assert_uint_eq(gsn_pool_threads(pool), threads);
		for (uint64_t count = 0; count <= TASKS; count = count * 3 + 1) {
			atomic_uint runs[TASKS] = {0};
			struct tally tally = {.runs = runs};

			gsn_pool_run(pool, count_task, &tally, count);
			for (uint64_t i = 0; i < TASKS; i++)
				ck_assert_uint_eq(runs[i], i < count);
		}
		gsn_pool_destroy(pool);
	}
}
END_TEST

static void square_task(void *argument, uint64_t task)
{
	uint64_t *out = argument;

	out[task] = task * task + out[task];
}

/* Plain stores of a run are read by the next one, by other threads: tsan proves the order. */
START_TEST(what_tasks_wrote_is_visible_after_the_run)
{
	uint64_t out[64] = {0};
	struct gsn_pool *pool;
	gpusnap_error err;

	ck_ok(gsn_pool_create(3, &pool, &err));
	for (uint64_t run = 1; run <= RUNS; run++) {
		gsn_pool_run(pool, square_task, out, 64);
		for (uint64_t i = 0; i < 64; i++)
			ck_assert_uint_eq(out[i], run * i * i);
	}
	gsn_pool_destroy(pool);
}
END_TEST

static void watch_task(void *argument, uint64_t task)
{
	struct tally *tally = argument;

	atomic_fetch_add(&tally->others[tally->caller], 1);
	for (unsigned i = 0; i < CALLERS; i++)
		if (i != tally->caller && atomic_load(&tally->others[i]) > 0)
			atomic_store(&tally->mixed, 1);
	sched_yield(); /* let another caller come in, if it can */
	atomic_fetch_add(&tally->runs[task], 1);
	atomic_fetch_sub(&tally->others[tally->caller], 1);
}

struct caller {
	struct gsn_pool *pool;
	struct tally tally;
	atomic_uint runs[16];
};

static void *call_often(void *argument)
{
	struct caller *caller = argument;

	for (int i = 0; i < RUNS; i++)
		gsn_pool_run(caller->pool, watch_task, &caller->tally, 16);
	return NULL;
}

START_TEST(runs_of_several_callers_do_not_mix)
{
	struct caller callers[CALLERS];
	pthread_t threads[CALLERS];
	struct gsn_pool *pool;
	atomic_uint running[CALLERS] = {0};
	gpusnap_error err;

	memset(callers, 0, sizeof callers);
	ck_ok(gsn_pool_create(2, &pool, &err));
	for (unsigned i = 0; i < CALLERS; i++) {
		callers[i].pool = pool;
		callers[i].tally.runs = callers[i].runs;
		callers[i].tally.others = running;
		callers[i].tally.caller = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
	}
	for (unsigned i = 0; i < CALLERS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		for (int task = 0; task < 16; task++)
			ck_assert_uint_eq(callers[i].runs[task], RUNS);
	}
	gsn_pool_destroy(pool);
	for (unsigned i = 0; i < CALLERS; i++)
		ck_assert_uint_eq(callers[i].tally.mixed, 0);
}
END_TEST

static void slow_task(void *argument, uint64_t task)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	bool *done = argument;

	(void)nanosleep(&pause, NULL);
	done[task] = true;
}

START_TEST(a_run_waits_for_tasks_on_other_threads)
{
	struct gsn_pool *pool;
	gpusnap_error err;

	ck_ok(gsn_pool_create(4, &pool, &err));
	for (int run = 0; run < 20; run++) {
		bool done[7] = {false};

		gsn_pool_run(pool, slow_task, done, 7);
		for (int i = 0; i < 7; i++)
			ck_assert(done[i]);
	}
	gsn_pool_destroy(pool);
}
END_TEST

/* A worker that wakes up when its job is over must not take tasks of the next one. */
START_TEST(late_workers_leave_the_next_job_alone)
{
	struct gsn_pool *pool;
	gpusnap_error err;

	ck_ok(gsn_pool_create(4, &pool, &err));
	for (int run = 0; run < 5000; run++) {
		static atomic_uint runs[2][3]; /* of odd and even runs */
		struct tally tally[2] = {{.runs = runs[0]}, {.runs = runs[1]}};

		gsn_pool_run(pool, count_task, &tally[run % 2], 3);
		for (int i = 0; i < 3; i++)
			ck_assert_uint_eq(runs[run % 2][i], 1 + run / 2);
	}
	gsn_pool_destroy(pool);
}
END_TEST

static void note_thread(void *argument, uint64_t task)
{
	pthread_t *threads = argument;

	threads[task] = pthread_self();
}

START_TEST(a_pool_of_one_runs_on_the_caller)
{
	pthread_t threads[8];
	struct gsn_pool *pool;
	gpusnap_error err;

	ck_ok(gsn_pool_create(1, &pool, &err));
	gsn_pool_run(pool, note_thread, threads, 8);
	for (int i = 0; i < 8; i++)
		ck_assert(pthread_equal(threads[i], pthread_self()));
	gsn_pool_destroy(pool);
}
END_TEST

START_TEST(create_and_destroy_leave_nothing_behind)
{
	struct gsn_pool *pool;
	gpusnap_error err;

	for (int i = 0; i < 50; i++) {
		ck_ok(gsn_pool_create(4, &pool, &err));
		gsn_pool_destroy(pool);
	}
	ck_ok(gsn_pool_create(0, &pool, &err));
	ck_assert_uint_ge(gsn_pool_threads(pool), 1);
	gsn_pool_destroy(pool);
	gsn_pool_destroy(NULL);
}
END_TEST

START_TEST(too_many_threads_are_refused)
{
	struct gsn_pool *pool;
	gpusnap_error err;

	ck_fails(gsn_pool_create(1025, &pool, &err), GPUSNAP_E_INVALID, "1025 threads");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_task_runs_exactly_once,
		what_tasks_wrote_is_visible_after_the_run,
		runs_of_several_callers_do_not_mix,
		a_run_waits_for_tasks_on_other_threads,
		late_workers_leave_the_next_job_alone,
		a_pool_of_one_runs_on_the_caller,
		create_and_destroy_leave_nothing_behind,
		too_many_threads_are_refused,
	};

	return RUN_SUITE("pool", tests);
}
