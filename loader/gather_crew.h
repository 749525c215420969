/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GATHER_CREW_H
#define GSN_GATHER_CREW_H
/*
 * Threads that work on what has landed, so that the one which keeps the disk busy does nothing
 * else. Jobs are given and taken back by one thread; they are begun in the order they were given.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/status.h>

struct gsn_crew;

typedef void (*gsn_crew_fn)(void *argument, void *job);

/* At most `room` jobs may be with the crew at a time. E_LIMIT: threads do not start. */
gpusnap_status gsn_crew_open(uint32_t threads, uint32_t room, gsn_crew_fn function, void *argument,
	struct gsn_crew **ret_crew, gpusnap_error *err);
/* Waits for jobs that were begun and drops the others. Takes NULL. */
void gsn_crew_close(struct gsn_crew *crew);
void gsn_crew_give(struct gsn_crew *crew, void *job);
/* A job that is done; NULL when there is none, or with `wait` when the crew has none at all. */
void *gsn_crew_take(struct gsn_crew *crew, bool wait);
/* Jobs given and not taken back. */
uint32_t gsn_crew_jobs(const struct gsn_crew *crew);

#endif
