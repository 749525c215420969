/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in's streams and events, and the work they do. A stream is a thread that takes its work
 * in order. Work that fails makes the stream skip what is behind it, until a wait has answered it.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/fake_state.h"

enum { WORK_BYTES = 256 };

struct work {
	struct work *next;
	fake_work_fn run;
	bool always;
	_Alignas(16) unsigned char args[WORK_BYTES];
};

/* What gpuStream_t points to. */
struct stream {
	pthread_t thread;
	struct work *first, **last;
	uint64_t given, done;
	gpuError_t failure;
	bool closing;
};

/* What gpuEvent_t points to. */
struct event {
	uint64_t wanted, reached; /* records */
	unsigned users;		  /* work that names it, and its owner */
	gpuError_t failure;
};

/* Of the stream whose work this thread is doing. */
static _Thread_local gpuError_t running_failure;

static struct stream *stream_of(gpuStream_t handle)
{
	return (struct stream *)(void *)handle;
}

static struct event *event_of(gpuEvent_t handle)
{
	return (struct event *)(void *)handle;
}

static bool is_to_break(const struct work *work)
{
	return !work->always && fake.knobs.break_in && --fake.knobs.break_in == 0;
}

/* One piece of work, without the lock while it runs. */
static void do_work(struct stream *stream, struct work *work)
{
	uint32_t delay = fake.knobs.delay_us;
	gpuError_t code = is_to_break(work) ? (gpuError_t)fakeErrorIllegalAddress : stream->failure;

	fake_unlock();
	if (delay)
		(void)usleep(delay);
	running_failure = code;
	if (!code || work->always)
		code = work->run(work->args);
	fake_lock();
	if (!stream->failure)
		stream->failure = code;
	stream->done++;
	free(work);
	(void)pthread_cond_broadcast(&fake.changed);
}

static void *run_stream(void *argument)
{
	struct stream *stream = argument;

	fake_lock();
	while (stream->first || !stream->closing) {
		struct work *work = stream->first;

		if (!work) {
			(void)pthread_cond_wait(&fake.changed, &fake.lock);
			continue;
		}
		stream->first = work->next;
		if (!stream->first)
			stream->last = &stream->first;
		do_work(stream, work);
	}
	fake_unlock();
	return NULL;
}

static gpuError_t submit(
	gpuStream_t handle, fake_work_fn run, const void *args, size_t bytes, bool always)
{
	struct stream *stream = stream_of(handle);
	struct work *work;

	if (!stream)
		return (gpuError_t)gpuErrorInvalidValue;
	work = calloc(1, sizeof *work);
	if (!work || bytes > WORK_BYTES)
		abort();
	work->always = always;
	work->run = run;
	memcpy(work->args, args, bytes);
	*stream->last = work;
	stream->last = &work->next;
	stream->given++;
	(void)pthread_cond_broadcast(&fake.changed);
	return (gpuError_t)gpuSuccess;
}

gpuError_t fake_submit(gpuStream_t handle, fake_work_fn run, const void *args, size_t bytes)
{
	return submit(handle, run, args, bytes, false);
}

gpuError_t fake_submit_always(gpuStream_t handle, fake_work_fn run, const void *args, size_t bytes)
{
	return submit(handle, run, args, bytes, true);
}

gpuError_t gpuStreamCreate(gpuStream_t *ret, unsigned flags)
{
	gpuError_t code = fake_enter("gpuStreamCreate");
	struct stream *stream;

	if (code)
		return fake_leave(code);
	stream = calloc(1, sizeof *stream);
	if (!stream || flags != gpuStreamNonBlocking)
		abort();
	stream->last = &stream->first;
	if (pthread_create(&stream->thread, NULL, run_stream, stream))
		abort();
	fake.counts.streams++;
	*ret = (gpuStream_t)(void *)stream;
	return fake_leave(code);
}

/* Also when it is made to fail, the stream is gone: nobody can do more than ask. */
gpuError_t gpuStreamDestroy(gpuStream_t handle)
{
	gpuError_t code = fake_enter("gpuStreamDestroy");
	struct stream *stream = stream_of(handle);

	stream->closing = true;
	(void)pthread_cond_broadcast(&fake.changed);
	fake_unlock();
	(void)pthread_join(stream->thread, NULL);
	free(stream);
	fake_lock();
	fake.counts.streams--;
	return fake_leave(code);
}

/* Also a wait that is made to fail has waited: see gsn_device_ops. */
gpuError_t gpuStreamSynchronize(gpuStream_t handle)
{
	gpuError_t code = fake_enter("gpuStreamSynchronize");
	struct stream *stream = stream_of(handle);
	uint64_t given = stream->given;

	while (stream->done < given)
		(void)pthread_cond_wait(&fake.changed, &fake.lock);
	if (!code)
		code = stream->failure;
	stream->failure = (gpuError_t)gpuSuccess;
	return fake_leave(code);
}

static void leave_event(struct event *event)
{
	if (--event->users == 0)
		free(event);
}

gpuError_t gpuEventCreate(gpuEvent_t *ret, unsigned flags)
{
	gpuError_t code = fake_enter("gpuEventCreate");
	struct event *event;

	(void)flags;
	if (code)
		return fake_leave(code);
	event = calloc(1, sizeof *event);
	if (!event)
		abort();
	event->users = 1;
	fake.counts.events++;
	*ret = (gpuEvent_t)(void *)event;
	return fake_leave(code);
}

gpuError_t gpuEventDestroy(gpuEvent_t handle)
{
	gpuError_t code = fake_enter("gpuEventDestroy");

	fake.counts.events--;
	leave_event(event_of(handle));
	return fake_leave(code);
}

struct mark {
	struct event *event;
	uint64_t record;
};

/* A mark carries its stream's failure on, and whoever waits for it takes it over. */
static gpuError_t do_mark(void *args)
{
	const struct mark mark = *(struct mark *)args;

	fake_lock();
	mark.event->reached = mark.record;
	mark.event->failure = running_failure;
	leave_event(mark.event);
	fake_unlock();
	return running_failure;
}

static gpuError_t do_wait(void *args)
{
	const struct mark mark = *(struct mark *)args;
	gpuError_t code;

	fake_lock();
	while (mark.event->reached < mark.record)
		(void)pthread_cond_wait(&fake.changed, &fake.lock);
	code = running_failure ? running_failure : mark.event->failure;
	leave_event(mark.event);
	fake_unlock();
	return code;
}

gpuError_t gpuEventRecord(gpuEvent_t handle, gpuStream_t stream)
{
	gpuError_t code = fake_enter("gpuEventRecord");
	struct event *event = event_of(handle);
	struct mark mark = {event, 0};

	if (!code) {
		mark.record = ++event->wanted;
		event->users++;
		code = fake_submit_always(stream, do_mark, &mark, sizeof mark);
	}
	return fake_leave(code);
}

gpuError_t gpuStreamWaitEvent(gpuStream_t stream, gpuEvent_t handle, unsigned flags)
{
	gpuError_t code = fake_enter("gpuStreamWaitEvent");
	struct event *event = event_of(handle);
	const struct mark mark = {event, event->wanted};

	(void)flags;
	if (!code) {
		event->users++;
		code = fake_submit_always(stream, do_wait, &mark, sizeof mark);
	}
	return fake_leave(code);
}

gpuError_t gpuEventQuery(gpuEvent_t handle)
{
	gpuError_t code = fake_enter("gpuEventQuery");
	const struct event *event = event_of(handle);

	if (!code && event->reached < event->wanted)
		code = (gpuError_t)fakeErrorNotReady;
	return fake_leave(code);
}

gpuError_t gpuEventSynchronize(gpuEvent_t handle)
{
	gpuError_t code = fake_enter("gpuEventSynchronize");
	struct event *event = event_of(handle);
	uint64_t wanted = event->wanted;

	while (event->reached < wanted)
		(void)pthread_cond_wait(&fake.changed, &fake.lock);
	return fake_leave(code ? code : event->failure);
}
