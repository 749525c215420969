/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PAGES_H
#define GSN_PAGES_H
/* Anonymous pages of the host: address ranges, and staging memory with all its pages there. */
#include <stdint.h>

#include <gpusnap/status.h>

#include "kernels/pool.h"

/* A multiple of every page size in use on Linux (4, 16 and 64 KiB). */
#define GSN_PAGES_UNIT 65536u

/*
 * New anonymous pages, aligned for the unit and, from their size on, for huge pages; NULL, with
 * errno, when there are none. `bytes` is a multiple of the unit; give back with munmap().
 */
void *gsn_pages_take(uint64_t bytes, int protection, int flags);

/*
 * Staging memory: `bytes` rounded up to the unit, in huge pages where the system has them, touched
 * by the threads of the pool. `kind` names the device in messages.
 */
gpusnap_status gsn_pages_take_touched(struct gsn_pool *pool, const char *kind, uint64_t bytes,
	void **ret_memory, gpusnap_error *err);
/* The addresses of staging memory, none of its pages touched; NULL, with errno. */
void *gsn_pages_take_staging(uint64_t bytes);
/* Have all pages of anonymous memory there, by this thread. */
gpusnap_status gsn_pages_touch(const char *kind, void *memory, uint64_t bytes, gpusnap_error *err);
/* `bytes` as they were asked for; NULL is a no-op. */
void gsn_pages_give_back(void *memory, uint64_t bytes);

#endif
