/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events. Streams do not wait for the legacy default stream, which belongs to the rest
 * of the process.
 */
#include "kernels/gpu_stream.h"

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "kernels/gpu_device.h"

struct gsn_event {
	struct gsn_gpu *gpu;
	gpuEvent_t handle;
};

gpusnap_status gsn_gpu_stream_create(void *context, struct gsn_stream **ret, gpusnap_error *err)
{
	struct gsn_gpu *gpu = context;
	struct gsn_stream *stream = gsn_alloc(1, sizeof *stream);
	gpuError_t code;
	int caller;

	if (!stream)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "%s device: stream: no memory", GSN_GPU_KIND);
	stream->gpu = gpu;
	caller = gsn_gpu_enter(gpu);
	code = gpuStreamCreate(&stream->handle, gpuStreamNonBlocking);
	gsn_gpu_leave(caller);
	if (code) {
		gsn_free(stream);
		return gsn_gpu_fail(gpu, code, err, "making a stream");
	}
	*ret = stream;
	return GPUSNAP_OK;
}

void gsn_gpu_stream_destroy(struct gsn_stream *stream)
{
	int caller;

	if (!stream)
		return;
	caller = gsn_gpu_enter(stream->gpu);
	(void)gpuStreamSynchronize(stream->handle);
	(void)gpuStreamDestroy(stream->handle);
	(void)gpuClearError();
	gsn_gpu_leave(caller);
	gsn_free(stream);
}

gpusnap_status gsn_gpu_stream_sync(struct gsn_stream *stream, gpusnap_error *err)
{
	gpuError_t code = gpuStreamSynchronize(stream->handle);

	return code ? gsn_gpu_fail(stream->gpu, code, err, "waiting for a stream's work")
		    : GPUSNAP_OK;
}

gpusnap_status gsn_gpu_event_create(void *context, struct gsn_event **ret, gpusnap_error *err)
{
	struct gsn_gpu *gpu = context;
	struct gsn_event *event = gsn_alloc(1, sizeof *event);
	gpuError_t code;
	int caller;

	if (!event)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "%s device: event: no memory", GSN_GPU_KIND);
	event->gpu = gpu;
	caller = gsn_gpu_enter(gpu);
	code = gpuEventCreate(&event->handle, gpuEventDisableTiming);
	gsn_gpu_leave(caller);
	if (code) {
		gsn_free(event);
		return gsn_gpu_fail(gpu, code, err, "making an event");
	}
	*ret = event;
	return GPUSNAP_OK;
}

void gsn_gpu_event_destroy(struct gsn_event *event)
{
	if (!event)
		return;
	(void)gpuEventDestroy(event->handle);
	gsn_free(event);
}

gpusnap_status gsn_gpu_event_record(
	struct gsn_event *event, struct gsn_stream *stream, gpusnap_error *err)
{
	gpuError_t code = gpuEventRecord(event->handle, stream->handle);

	return code ? gsn_gpu_fail(event->gpu, code, err, "recording an event") : GPUSNAP_OK;
}

gpusnap_status gsn_gpu_event_sync(struct gsn_event *event, gpusnap_error *err)
{
	gpuError_t code = gpuEventSynchronize(event->handle);

	return code ? gsn_gpu_fail(event->gpu, code, err, "waiting for an event") : GPUSNAP_OK;
}

gpusnap_status gsn_gpu_stream_wait(
	struct gsn_stream *stream, struct gsn_event *event, gpusnap_error *err)
{
	gpuError_t code = gpuStreamWaitEvent(stream->handle, event->handle, 0);

	return code ? gsn_gpu_fail(stream->gpu, code, err, "having a stream wait for an event")
		    : GPUSNAP_OK;
}
