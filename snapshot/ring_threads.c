/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine that works everywhere: one worker thread per request in flight, pread and pwrite. It
 * is also the fastest through a warm page cache, where a request is a memory copy.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "snapshot/ring_state.h"

/* More workers than this do not copy faster; further requests wait in the queue. */
#define WORKERS_MAX 32u

#define PROBE_BYTES 4096

struct job {
	struct gsn_ring_slot *slot;
	int64_t result;
};

/* First in, first out; never holds more than `depth` jobs. */
struct queue {
	struct job *jobs;
	uint32_t first, count, capacity;
	pthread_cond_t filled;
};

struct threads_state {
	pthread_mutex_t lock; /* guards both queues and `stop` */
	struct queue todo, done;
	bool stop;
	uint32_t worker_count;
	pthread_t workers[WORKERS_MAX];
};

static void push(struct queue *queue, struct job job)
{
	queue->jobs[(queue->first + queue->count) % queue->capacity] = job;
	queue->count++;
	(void)pthread_cond_signal(&queue->filled);
}

static struct job pop(struct queue *queue)
{
	struct job job = queue->jobs[queue->first];

	queue->first = (queue->first + 1) % queue->capacity;
	queue->count--;
	return job;
}

static int64_t transfer(const struct gsn_ring_part *part)
{
	ssize_t moved = part->op == GSN_RING_READ
				? pread(part->fd, part->memory, part->length, (off_t)part->offset)
				: pwrite(part->fd, part->memory, part->length, (off_t)part->offset);

	return moved < 0 ? -errno : moved;
}

static void *work(void *argument)
{
	struct threads_state *state = argument;

	(void)pthread_mutex_lock(&state->lock);
	for (;;) {
		struct gsn_ring_part part;
		struct job job;

		while (!state->todo.count && !state->stop)
			(void)pthread_cond_wait(&state->todo.filled, &state->lock);
		if (!state->todo.count)
			break;
		job = pop(&state->todo);
		part = gsn_ring_part(job.slot);
		(void)pthread_mutex_unlock(&state->lock);
		job.result = transfer(&part);
		(void)pthread_mutex_lock(&state->lock);
		push(&state->done, job);
	}
	(void)pthread_mutex_unlock(&state->lock);
	return NULL;
}

/* Workers take no signals: the application's handlers run in the application's threads. */
static int start_workers(struct threads_state *state, uint32_t wanted)
{
	sigset_t all, before;
	int result = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	while (state->worker_count < wanted && !result) {
		result = pthread_create(&state->workers[state->worker_count], NULL, work, state);
		if (!result)
			state->worker_count++;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return state->worker_count ? 0 : result;
}

/* The workers do what is in the queue before they end. */
static bool threads_close(struct gsn_ring *ring)
{
	struct threads_state *state = ring->state;

	(void)pthread_mutex_lock(&state->lock);
	state->stop = true;
	(void)pthread_cond_broadcast(&state->todo.filled);
	(void)pthread_mutex_unlock(&state->lock);
	for (uint32_t i = 0; i < state->worker_count; i++)
		(void)pthread_join(state->workers[i], NULL);
	(void)pthread_cond_destroy(&state->todo.filled);
	(void)pthread_cond_destroy(&state->done.filled);
	(void)pthread_mutex_destroy(&state->lock);
	gsn_free(state->todo.jobs);
	gsn_free(state->done.jobs);
	gsn_free(state);
	ring->state = NULL;
	return true;
}

static gpusnap_status probe(int probe_fd, gpusnap_error *err)
{
	alignas(PROBE_BYTES) uint8_t memory[PROBE_BYTES];
	ssize_t got;

	do
		got = pread(probe_fd, memory, sizeof memory, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return gsn_fail_os(err, GPUSNAP_E_UNSUPPORTED, errno,
			"I/O workers: pread was refused: %s", strerror(errno));
	return GPUSNAP_OK;
}

static gpusnap_status threads_open(struct gsn_ring *ring, int probe_fd, gpusnap_error *err)
{
	uint32_t workers = (uint32_t)gsn_min(ring->depth, WORKERS_MAX);
	struct threads_state *state;
	gpusnap_status status = probe(probe_fd, err);
	int result;

	if (status)
		return status;
	state = gsn_alloc(1, sizeof *state);
	if (!state)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "I/O workers: out of memory");
	(void)pthread_mutex_init(&state->lock, NULL);
	(void)pthread_cond_init(&state->todo.filled, NULL);
	(void)pthread_cond_init(&state->done.filled, NULL);
	ring->state = state;
	state->todo.capacity = state->done.capacity = ring->depth;
	state->todo.jobs = gsn_alloc(ring->depth, sizeof *state->todo.jobs);
	state->done.jobs = gsn_alloc(ring->depth, sizeof *state->done.jobs);
	result = state->todo.jobs && state->done.jobs ? start_workers(state, workers) : ENOMEM;
	if (!result)
		return GPUSNAP_OK;
	(void)threads_close(ring);
	return gsn_fail_os(err, result == ENOMEM ? GPUSNAP_E_NOMEM : GPUSNAP_E_LIMIT, result,
		"I/O workers: cannot start one: %s", strerror(result));
}

static bool threads_register(struct gsn_ring *ring, void *memory, uint64_t bytes)
{
	(void)ring;
	(void)memory;
	(void)bytes;
	return false; /* nothing to register with pread and pwrite */
}

static gpusnap_status threads_submit(
	struct gsn_ring *ring, struct gsn_ring_slot *slot, gpusnap_error *err)
{
	struct threads_state *state = ring->state;

	(void)err; /* the queues hold as many jobs as the ring has slots */
	(void)pthread_mutex_lock(&state->lock);
	push(&state->todo, (struct job){.slot = slot});
	(void)pthread_mutex_unlock(&state->lock);
	return GPUSNAP_OK;
}

static gpusnap_status threads_reap(struct gsn_ring *ring, struct gsn_ring_slot **ret_slot,
	int64_t *ret_result, gpusnap_error *err)
{
	struct threads_state *state = ring->state;
	struct job job;

	(void)err;
	(void)pthread_mutex_lock(&state->lock);
	while (!state->done.count)
		(void)pthread_cond_wait(&state->done.filled, &state->lock);
	job = pop(&state->done);
	(void)pthread_mutex_unlock(&state->lock);
	*ret_slot = job.slot;
	*ret_result = job.result;
	return GPUSNAP_OK;
}

const struct gsn_ring_engine gsn_ring_threads = {
	.name = "threads",
	.open = threads_open,
	.close = threads_close,
	.register_memory = threads_register,
	.submit = threads_submit,
	.reap = threads_reap,
};
