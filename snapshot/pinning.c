/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/pinning.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "kernels/pages.h"

enum { THREADS_MAX = 16 };

struct gsn_pinning {
	struct gsn_pin_job job;
	size_t count;
	pthread_t threads[THREADS_MAX];
	uint32_t thread_count;
	bool *pinned;	      /* the owner's */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t progress;
	bool *touched;
	size_t next; /* to be touched */
	bool stopped;
	gpusnap_status status; /* of the first failure, which ends the work */
	gpusnap_error error;
};

size_t gsn_pin_block_count(const struct gsn_pin_job *job)
{
	return (size_t)gsn_ceil_div(job->bytes, job->block_bytes);
}

uint64_t gsn_pin_block_bytes(const struct gsn_pin_job *job, size_t block)
{
	return gsn_min(job->bytes - block * job->block_bytes, job->block_bytes);
}

static gpusnap_status touch_block(const struct gsn_pin_job *job, size_t block, gpusnap_error *err)
{
	return gsn_pages_touch(job->device->ops->kind, job->memory + block * job->block_bytes,
		gsn_pin_block_bytes(job, block), err);
}

static gpusnap_status lock_block(const struct gsn_pin_job *job, size_t block, gpusnap_error *err)
{
	return job->device->ops->pin(job->device->context, job->memory + block * job->block_bytes,
		gsn_pin_block_bytes(job, block), err);
}

gpusnap_status gsn_pin_block(const struct gsn_pin_job *job, size_t block, gpusnap_error *err)
{
	gpusnap_status s = touch_block(job, block, err);

	return s ? s : lock_block(job, block, err);
}

void gsn_pin_undo(const struct gsn_pin_job *job, bool *pinned)
{
	for (size_t i = 0; i < gsn_pin_block_count(job); i++) {
		if (pinned[i])
			job->device->ops->unpin(job->device->context,
				job->memory + i * job->block_bytes, gsn_pin_block_bytes(job, i));
		pinned[i] = false;
	}
}

/* The next block's number; false: there is none, or no more is wanted. */
static bool begin_block(struct gsn_pinning *p, size_t *ret_block)
{
	bool go;

	(void)pthread_mutex_lock(&p->lock);
	go = !p->stopped && !p->status && p->next < p->count;
	if (go)
		*ret_block = p->next++;
	(void)pthread_mutex_unlock(&p->lock);
	return go;
}

static void *touch_blocks(void *argument)
{
	struct gsn_pinning *p = argument;
	size_t block;

	while (begin_block(p, &block)) {
		gpusnap_error err;
		gpusnap_status s = touch_block(&p->job, block, &err);

		(void)pthread_mutex_lock(&p->lock);
		p->touched[block] = s == GPUSNAP_OK;
		if (s && !p->status) {
			p->status = s;
			p->error = err;
		}
		(void)pthread_cond_broadcast(&p->progress);
		(void)pthread_mutex_unlock(&p->lock);
	}
	return NULL;
}

static uint32_t threads_wanted(const struct gsn_pinning *p)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t most = gsn_min(p->job.threads, THREADS_MAX);

	return (uint32_t)gsn_max(
		1, gsn_min(gsn_min(most, p->count), cpus > 0 ? (uint64_t)cpus : 1));
}

/* Signals are for the application's threads. */
static int start_threads(struct gsn_pinning *p)
{
	uint32_t wanted = threads_wanted(p);
	sigset_t all, old;
	int code = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!code && p->thread_count < wanted) {
		code = pthread_create(&p->threads[p->thread_count], NULL, touch_blocks, p);
		p->thread_count += code == 0;
	}
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return p->thread_count ? 0 : code;
}

gpusnap_status gsn_pinning_start(const struct gsn_pin_job *job, bool *pinned,
	struct gsn_pinning **ret_pinning, gpusnap_error *err)
{
	struct gsn_pinning *p = gsn_alloc(1, sizeof *p);
	int code;

	if (p)
		p->touched = gsn_alloc(gsn_pin_block_count(job), sizeof *p->touched);
	if (!p || !p->touched) {
		gsn_free(p);
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to pin %zu blocks ahead",
			gsn_pin_block_count(job));
	}
	p->job = *job;
	p->count = gsn_pin_block_count(job);
	p->pinned = pinned;
	(void)pthread_mutex_init(&p->lock, NULL);    /* cannot fail on Linux */
	(void)pthread_cond_init(&p->progress, NULL); /* nor can this */
	code = start_threads(p);
	if (code) {
		gsn_pinning_stop(p);
		return gsn_fail(err, GPUSNAP_E_LIMIT, "no thread to pin memory: %s; %s",
			strerror(code), "raise the limit of processes");
	}
	*ret_pinning = p;
	return GPUSNAP_OK;
}

static gpusnap_status wait_for_touch(struct gsn_pinning *p, size_t block, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	(void)pthread_mutex_lock(&p->lock);
	while (!p->touched[block] && !p->status)
		(void)pthread_cond_wait(&p->progress, &p->lock);
	if (!p->touched[block]) {
		status = p->status;
		if (err)
			*err = p->error;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return status;
}

gpusnap_status gsn_pinning_wait(struct gsn_pinning *p, size_t block, gpusnap_error *err)
{
	gpusnap_status status;

	if (p->pinned[block])
		return GPUSNAP_OK;
	status = wait_for_touch(p, block, err);
	if (!status)
		status = lock_block(&p->job, block, err);
	p->pinned[block] = status == GPUSNAP_OK;
	return status;
}

void gsn_pinning_stop(struct gsn_pinning *p)
{
	if (!p)
		return;
	(void)pthread_mutex_lock(&p->lock);
	p->stopped = true;
	(void)pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->thread_count; i++)
		(void)pthread_join(p->threads[i], NULL);
	(void)pthread_cond_destroy(&p->progress);
	(void)pthread_mutex_destroy(&p->lock);
	gsn_free(p->touched);
	gsn_free(p);
}
