/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GPU_STREAM_H
#define GSN_GPU_STREAM_H
/* Streams and events of a GPU: slots of the device table. */
#include "kernels/device_ops.h"

gpusnap_status gsn_gpu_stream_create(void *context, struct gsn_stream **ret, gpusnap_error *err);
void gsn_gpu_stream_destroy(struct gsn_stream *stream);
gpusnap_status gsn_gpu_stream_sync(struct gsn_stream *stream, gpusnap_error *err);
gpusnap_status gsn_gpu_event_create(void *context, struct gsn_event **ret, gpusnap_error *err);
void gsn_gpu_event_destroy(struct gsn_event *event);
gpusnap_status gsn_gpu_event_record(
	struct gsn_event *event, struct gsn_stream *stream, gpusnap_error *err);
gpusnap_status gsn_gpu_event_sync(struct gsn_event *event, gpusnap_error *err);
gpusnap_status gsn_gpu_stream_wait(
	struct gsn_stream *stream, struct gsn_event *event, gpusnap_error *err);

#endif
