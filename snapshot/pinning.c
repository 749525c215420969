/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/pinning.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/fail.h"
#include "kernels/device_ops.h"

enum { THREADS = 2 }; /* one touches, one registers: both steps take about as long */

struct gsn_pinning {
	gpusnap_device *device;
	void **blocks;
	size_t count;
	gsn_pinning_size_fn size_of;
	const void *owner;
	pthread_t threads[THREADS];
	uint32_t thread_count;
	pthread_mutex_t lock; /* guards what follows, and blocks[] */
	pthread_cond_t progress;
	size_t next;
	bool stopped;
	gpusnap_status status; /* of the first failure, which ends the work */
	gpusnap_error error;
};

/* The next block's number; false: there is none, or no more is wanted. */
static bool begin_block(struct gsn_pinning *pinning, size_t *ret_block)
{
	bool go;

	(void)pthread_mutex_lock(&pinning->lock);
	go = !pinning->stopped && !pinning->status && pinning->next < pinning->count;
	if (go)
		*ret_block = pinning->next++;
	(void)pthread_mutex_unlock(&pinning->lock);
	return go;
}

static void *pin_blocks(void *argument)
{
	struct gsn_pinning *pinning = argument;
	gpusnap_device *device = pinning->device;
	size_t block;

	while (begin_block(pinning, &block)) {
		void *memory = NULL;
		gpusnap_error err;
		gpusnap_status s = device->ops->pinned_alloc(
			device->context, pinning->size_of(pinning->owner, block), &memory, &err);

		(void)pthread_mutex_lock(&pinning->lock);
		pinning->blocks[block] = memory;
		if (s && !pinning->status) {
			pinning->status = s;
			pinning->error = err;
		}
		(void)pthread_cond_broadcast(&pinning->progress);
		(void)pthread_mutex_unlock(&pinning->lock);
	}
	return NULL;
}

/* Signals are for the application's threads. */
static int start_threads(struct gsn_pinning *pinning)
{
	sigset_t all, old;
	int code = 0;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!code && pinning->thread_count < THREADS) {
		code = pthread_create(
			&pinning->threads[pinning->thread_count], NULL, pin_blocks, pinning);
		pinning->thread_count += code == 0;
	}
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return pinning->thread_count ? 0 : code;
}

gpusnap_status gsn_pinning_start(gpusnap_device *device, void **blocks, size_t count,
	gsn_pinning_size_fn size_of, const void *owner, struct gsn_pinning **ret_pinning,
	gpusnap_error *err)
{
	struct gsn_pinning *pinning = gsn_alloc(1, sizeof *pinning);
	int code;

	if (!pinning)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to pin %zu blocks ahead", count);
	pinning->device = device;
	pinning->blocks = blocks;
	pinning->count = count;
	pinning->size_of = size_of;
	pinning->owner = owner;
	(void)pthread_mutex_init(&pinning->lock, NULL);	   /* cannot fail on Linux */
	(void)pthread_cond_init(&pinning->progress, NULL); /* nor can this */
	code = start_threads(pinning);
	if (code) {
		gsn_pinning_stop(pinning);
		return gsn_fail(err, GPUSNAP_E_LIMIT, "no thread to pin memory: %s; %s",
			strerror(code), "raise the limit of processes");
	}
	*ret_pinning = pinning;
	return GPUSNAP_OK;
}

gpusnap_status gsn_pinning_wait(struct gsn_pinning *pinning, size_t block, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	(void)pthread_mutex_lock(&pinning->lock);
	while (!pinning->blocks[block] && !pinning->status)
		(void)pthread_cond_wait(&pinning->progress, &pinning->lock);
	if (!pinning->blocks[block]) {
		status = pinning->status;
		if (err)
			*err = pinning->error;
	}
	(void)pthread_mutex_unlock(&pinning->lock);
	return status;
}

void gsn_pinning_stop(struct gsn_pinning *pinning)
{
	if (!pinning)
		return;
	(void)pthread_mutex_lock(&pinning->lock);
	pinning->stopped = true;
	(void)pthread_mutex_unlock(&pinning->lock);
	for (uint32_t i = 0; i < pinning->thread_count; i++)
		(void)pthread_join(pinning->threads[i], NULL);
	(void)pthread_cond_destroy(&pinning->progress);
	(void)pthread_mutex_destroy(&pinning->lock);
	gsn_free(pinning);
}
