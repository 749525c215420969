/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_STREAM_H
#define GSN_HOST_STREAM_H
/*
 * Streams and events of the host device. A stream is one thread that runs tasks in the order in
 * which they were submitted. The first task that fails makes the stream skip what is behind it,
 * until stream_sync has answered the failure; a stream that waits for a failed one fails too.
 */
#include <stddef.h>

#include "kernels/host_device.h"

enum {
	GSN_HOST_TASK_BYTES = 192, /* arguments of one task */
	GSN_HOST_QUEUE_TASKS = 256 /* in flight per stream; a submit beyond waits */
};

/* A task: runs on the stream's thread; `args` is the stream's copy of what was submitted. */
typedef gpusnap_status (*gsn_host_task_fn)(
	struct gsn_host *host, const void *args, gpusnap_error *err);

/* `owned` is heap memory that the task uses, or NULL; gsn_free()d after it. */
void gsn_host_stream_submit(struct gsn_stream *stream, gsn_host_task_fn run, const void *args,
	size_t args_bytes, void *owned);

/* Slots of the device table. */
gpusnap_status gsn_host_stream_create(void *context, struct gsn_stream **ret, gpusnap_error *err);
void gsn_host_stream_destroy(struct gsn_stream *stream);
gpusnap_status gsn_host_stream_sync(struct gsn_stream *stream, gpusnap_error *err);
gpusnap_status gsn_host_event_create(void *context, struct gsn_event **ret, gpusnap_error *err);
void gsn_host_event_destroy(struct gsn_event *event);
gpusnap_status gsn_host_event_record(
	struct gsn_event *event, struct gsn_stream *stream, gpusnap_error *err);
/* Answers the failure of a task in front of the record as long as stream_sync has not. */
gpusnap_status gsn_host_event_sync(struct gsn_event *event, gpusnap_error *err);
gpusnap_status gsn_host_stream_wait(
	struct gsn_stream *stream, struct gsn_event *event, gpusnap_error *err);

#endif
