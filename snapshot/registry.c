/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry itself: creation and release, its lock, and the bracket around a job (lock, "a job
 * runs", quiesce ... unquiesce). Regions, buffers, views and records have files of their own.
 */
#include "snapshot/registry_state.h"

#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/arena.h"

static pthread_mutex_t *lock_of(const gpusnap_registry *registry)
{
	/* Readers lock too; the lock is the one part of a const registry that changes. */
	return (pthread_mutex_t *)(uintptr_t)&registry->lock;
}

void gsn_registry_lock(const gpusnap_registry *registry)
{
	(void)pthread_mutex_lock(lock_of(registry));
}

void gsn_registry_unlock(const gpusnap_registry *registry)
{
	(void)pthread_mutex_unlock(lock_of(registry));
}

void gpusnap_registry_hold(gpusnap_registry *registry)
{
	gsn_registry_lock(registry);
}

void gpusnap_registry_release(gpusnap_registry *registry)
{
	gsn_registry_unlock(registry);
}

const gpusnap_registry_options *gpusnap_registry_ranks(const gpusnap_registry *registry)
{
	return &registry->options;
}

gpusnap_device *gpusnap_registry_device(const gpusnap_registry *registry)
{
	return registry->device;
}

gpusnap_status gsn_registry_idle(const gpusnap_registry *registry, gpusnap_error *err)
{
	if (registry->job)
		return gsn_fail(err, GPUSNAP_E_BUSY,
			"a callback of a running %s may not change the registry or start a job",
			registry->job);
	return GPUSNAP_OK;
}

gpusnap_status gsn_job_begin(gpusnap_registry *registry, const char *job, gpusnap_error *err)
{
	gpusnap_status s;

	gsn_registry_lock(registry);
	s = gsn_registry_idle(registry, err);
	if (s) {
		gsn_registry_unlock(registry);
		return s;
	}
	registry->job = job;
	return GPUSNAP_OK;
}

gpusnap_status gsn_job_quiesce(gpusnap_registry *registry, gpusnap_error *err)
{
	gpusnap_error detail = {.message = "try again when the application is at rest"};
	gpusnap_status s;

	if (!registry->options.quiesce)
		return GPUSNAP_OK;
	s = registry->options.quiesce(registry->options.user, &detail);
	if (s)
		return gsn_fail_os(err, s, detail.os_errno, "%s: callback quiesce refused: %s",
			registry->job, detail.message);
	registry->quiesced = true;
	return GPUSNAP_OK;
}

void gsn_job_end(gpusnap_registry *registry)
{
	if (registry->quiesced && registry->options.unquiesce)
		registry->options.unquiesce(registry->options.user);
	registry->quiesced = false;
	registry->job = NULL;
	gsn_registry_unlock(registry);
}

gpusnap_status gsn_registry_settle(
	const gpusnap_registry *registry, gpusnap_status s, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = registry->device->ops;

	if (!s)
		s = ops->stream_sync(registry->stream, err);
	if (s)
		(void)ops->stream_sync(registry->stream, NULL);
	return s;
}

static gpusnap_status check_rank(
	const char *what, uint32_t rank, uint32_t *size, gpusnap_error *err)
{
	if (*size == 0)
		*size = 1;
	if (rank >= *size)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s_rank is %u but %s_size is %u; ranks count from 0", what, rank, what,
			*size);
	return GPUSNAP_OK;
}

static gpusnap_status init_lock(pthread_mutex_t *lock, gpusnap_error *err)
{
	pthread_mutexattr_t attributes;
	int code = pthread_mutexattr_init(&attributes);

	if (code)
		return gsn_fail_os(err, gsn_status_from_errno(code), code, "registry lock: %s",
			strerror(code));
	(void)pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	code = pthread_mutex_init(lock, &attributes);
	(void)pthread_mutexattr_destroy(&attributes);
	if (code)
		return gsn_fail_os(err, gsn_status_from_errno(code), code, "registry lock: %s",
			strerror(code));
	return GPUSNAP_OK;
}

static gpusnap_status init_device(
	gpusnap_registry *registry, gpusnap_device *device, gpusnap_error *err)
{
	gpusnap_device_properties properties;
	gpusnap_status s;

	registry->device = device;
	registry->staging.device = device;
	s = device->ops->query(device->context, &properties, err);
	if (s)
		return s;
	registry->granule_bytes = properties.granule_bytes;
	return device->ops->stream_create(device->context, &registry->stream, err);
}

gpusnap_status gpusnap_registry_create(gpusnap_device *device,
	const gpusnap_registry_options *options, gpusnap_registry **out, gpusnap_error *err)
{
	gpusnap_registry *registry = gsn_alloc(1, sizeof *registry);
	gpusnap_registry_options *o;
	gpusnap_status s;

	if (!registry)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a registry");
	s = init_lock(&registry->lock, err);
	if (s) {
		gsn_free(registry);
		return s;
	}
	registry->next_region = 1;
	o = &registry->options;
	s = gsn_options_copy(o, sizeof *o, options, "registry options", err);
	if (!s)
		s = check_rank("tp", o->tp_rank, &o->tp_size, err);
	if (!s)
		s = check_rank("ep", o->ep_rank, &o->ep_size, err);
	if (!s)
		s = init_device(registry, device, err);
	if (s)
		goto fail;
	*out = registry;
	return GPUSNAP_OK;

fail:
	gpusnap_registry_free(registry);
	return s;
}

void gpusnap_registry_free(gpusnap_registry *registry)
{
	if (!registry)
		return;
	for (uint32_t i = 0; i < registry->region_count; i++)
		gsn_buffers_forget(registry, registry->regions[i].id);
	while (registry->region_count > 0)
		gsn_region_remove(registry, registry->region_count - 1);
	gsn_free(registry->regions);
	gsn_free(registry->buffers);
	gsn_free(registry->views);
	gpusnap_json_free(registry->records);
	gpusnap_registry_set_baseline(registry, NULL);
	gsn_origin_release(&registry->origin);
	gsn_staging_source_release(&registry->staging);
	if (registry->stream)
		registry->device->ops->stream_destroy(registry->stream);
	(void)pthread_mutex_destroy(&registry->lock);
	gsn_free(registry);
}
