/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the host device. Tasks of a stream are numbered from 1; an event is a
 * stream and the number of its last task at the time of the record. So a record costs nothing, may
 * be repeated, and can be waited for by any thread. Events and waiting tasks hold a reference to
 * the stream that they name; a destroyed stream keeps its counters until the last one is gone.
 */
#include "kernels/host_stream.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

struct task {
	gsn_host_task_fn run;
	void *owned;
	struct gsn_stream *awaited; /* instead of `run`: wait for this stream's task `ticket` */
	uint64_t ticket;
	alignas(16) unsigned char args[GSN_HOST_TASK_BYTES];
};

struct gsn_stream {
	struct gsn_host *host;
	pthread_t thread;
	atomic_uint references;	  /* the owner, events, waiting tasks */
	pthread_mutex_t lock;	  /* guards all below */
	pthread_cond_t submitted; /* to the thread: a task, or stop */
	pthread_cond_t finished;  /* to everybody else: a task is done */
	uint64_t last;		  /* number of the last task submitted */
	uint64_t done;		  /* number of the last task finished */
	bool stop;
	uint64_t failed;       /* number of the task that failed first, 0 for none */
	gpusnap_error failure; /* what it answered */
	struct task tasks[GSN_HOST_QUEUE_TASKS];
};

struct gsn_event {
	pthread_mutex_t lock;	   /* guards both below */
	struct gsn_stream *stream; /* of the last record; NULL before the first */
	uint64_t ticket;
};

static struct gsn_stream *reference(struct gsn_stream *stream)
{
	atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
	return stream;
}

static void drop(struct gsn_stream *stream)
{
	if (!stream || atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) != 1)
		return;
	(void)pthread_cond_destroy(&stream->finished);
	(void)pthread_cond_destroy(&stream->submitted);
	(void)pthread_mutex_destroy(&stream->lock);
	gsn_free(stream);
}

/* Wait for a task of the stream; its failure, or that of one before it, is the answer. */
static gpusnap_status await(struct gsn_stream *stream, uint64_t ticket, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	(void)pthread_mutex_lock(&stream->lock);
	while (stream->done < ticket)
		(void)pthread_cond_wait(&stream->finished, &stream->lock);
	if (stream->failed && stream->failed <= ticket) {
		status = stream->failure.status;
		if (err)
			*err = stream->failure;
	}
	(void)pthread_mutex_unlock(&stream->lock);
	return status;
}

static gpusnap_status run_task(
	struct gsn_host *host, struct task *task, bool skip, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	if (!skip)
		status = task->awaited ? await(task->awaited, task->ticket, err)
				       : task->run(host, task->args, err);
	drop(task->awaited);
	gsn_free(task->owned);
	return status;
}

static void *stream_main(void *argument)
{
	struct gsn_stream *stream = argument;
	gpusnap_error failure;

	(void)pthread_mutex_lock(&stream->lock);
	for (;;) {
		struct task *task = &stream->tasks[stream->done % GSN_HOST_QUEUE_TASKS];
		bool skip = stream->failed != 0;
		gpusnap_status status;

		if (stream->done == stream->last) {
			if (stream->stop)
				break;
			(void)pthread_cond_wait(&stream->submitted, &stream->lock);
			continue;
		}
		(void)pthread_mutex_unlock(&stream->lock);
		status = run_task(stream->host, task, skip, &failure);
		(void)pthread_mutex_lock(&stream->lock);
		stream->done++;
		if (status) {
			stream->failed = stream->done;
			stream->failure = failure;
		}
		(void)pthread_cond_broadcast(&stream->finished);
	}
	(void)pthread_mutex_unlock(&stream->lock);
	return NULL;
}

/* Signals are the program's business: its handlers must not run on our thread. */
static int start_thread(struct gsn_stream *stream)
{
	sigset_t all;
	sigset_t before;
	int failed;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&stream->thread, NULL, stream_main, stream);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failed;
}

gpusnap_status gsn_host_stream_create(void *context, struct gsn_stream **ret, gpusnap_error *err)
{
	struct gsn_stream *stream = gsn_alloc(1, sizeof *stream);
	int failed;

	if (!stream)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "host device: stream: no memory");
	stream->host = context;
	atomic_init(&stream->references, 1);
	(void)pthread_mutex_init(&stream->lock, NULL);
	(void)pthread_cond_init(&stream->submitted, NULL);
	(void)pthread_cond_init(&stream->finished, NULL);
	failed = start_thread(stream);
	if (failed) {
		drop(stream);
		return gsn_fail_os(err, GPUSNAP_E_LIMIT, failed,
			"host device: cannot start a stream's thread: %s", strerror(failed));
	}
	(void)pthread_setname_np(stream->thread, "gpusnap-stream");
	*ret = stream;
	return GPUSNAP_OK;
}

void gsn_host_stream_destroy(struct gsn_stream *stream)
{
	if (!stream)
		return;
	(void)pthread_mutex_lock(&stream->lock);
	stream->stop = true;
	(void)pthread_cond_signal(&stream->submitted);
	(void)pthread_mutex_unlock(&stream->lock);
	(void)pthread_join(stream->thread, NULL);
	drop(stream);
}

gpusnap_status gsn_host_stream_sync(struct gsn_stream *stream, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;
	uint64_t last;

	(void)pthread_mutex_lock(&stream->lock);
	last = stream->last;
	while (stream->done < last)
		(void)pthread_cond_wait(&stream->finished, &stream->lock);
	if (stream->failed) {
		status = stream->failure.status;
		if (err)
			*err = stream->failure;
		stream->failed = 0;
	}
	(void)pthread_mutex_unlock(&stream->lock);
	return status;
}

/* Copy a task into the queue, once there is room. */
static void submit(struct gsn_stream *stream, const struct task *task)
{
	assert(!pthread_equal(stream->thread, pthread_self()));
	(void)pthread_mutex_lock(&stream->lock);
	while (stream->last - stream->done == GSN_HOST_QUEUE_TASKS)
		(void)pthread_cond_wait(&stream->finished, &stream->lock);
	stream->tasks[stream->last % GSN_HOST_QUEUE_TASKS] = *task;
	stream->last++;
	(void)pthread_cond_signal(&stream->submitted);
	(void)pthread_mutex_unlock(&stream->lock);
}

void gsn_host_stream_submit(struct gsn_stream *stream, gsn_host_task_fn run, const void *args,
	size_t args_bytes, void *owned)
{
	struct task task = {.run = run, .owned = owned};

	assert(args_bytes <= sizeof task.args);
	memcpy(task.args, args, args_bytes);
	submit(stream, &task);
}

gpusnap_status gsn_host_event_create(void *context, struct gsn_event **ret, gpusnap_error *err)
{
	struct gsn_event *event = gsn_alloc(1, sizeof *event);

	(void)context;
	if (!event)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "host device: event: no memory");
	(void)pthread_mutex_init(&event->lock, NULL);
	*ret = event;
	return GPUSNAP_OK;
}

void gsn_host_event_destroy(struct gsn_event *event)
{
	if (!event)
		return;
	drop(event->stream);
	(void)pthread_mutex_destroy(&event->lock);
	gsn_free(event);
}

gpusnap_status gsn_host_event_record(
	struct gsn_event *event, struct gsn_stream *stream, gpusnap_error *err)
{
	struct gsn_stream *before;
	uint64_t last;

	(void)err;
	(void)pthread_mutex_lock(&stream->lock);
	last = stream->last;
	(void)pthread_mutex_unlock(&stream->lock);
	(void)pthread_mutex_lock(&event->lock);
	before = event->stream;
	event->stream = reference(stream);
	event->ticket = last;
	(void)pthread_mutex_unlock(&event->lock);
	drop(before);
	return GPUSNAP_OK;
}

/* The record, with a reference to its stream for the caller; NULL when there is none. */
static struct gsn_stream *take_record(struct gsn_event *event, uint64_t *ret_ticket)
{
	struct gsn_stream *stream = NULL;

	(void)pthread_mutex_lock(&event->lock);
	if (event->stream)
		stream = reference(event->stream);
	*ret_ticket = event->ticket;
	(void)pthread_mutex_unlock(&event->lock);
	return stream;
}

gpusnap_status gsn_host_event_sync(struct gsn_event *event, gpusnap_error *err)
{
	uint64_t ticket;
	struct gsn_stream *stream = take_record(event, &ticket);
	gpusnap_status status = stream ? await(stream, ticket, err) : GPUSNAP_OK;

	drop(stream);
	return status;
}

gpusnap_status gsn_host_stream_wait(
	struct gsn_stream *stream, struct gsn_event *event, gpusnap_error *err)
{
	struct task task = {.run = NULL};

	(void)err;
	task.awaited = take_record(event, &task.ticket);
	if (task.awaited)
		submit(stream, &task);
	return GPUSNAP_OK;
}
