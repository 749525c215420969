/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_TURNS_H
#define GSN_TURNS_H
/*
 * What the tasks of a pool take turns with: scratch that one task has alone while it runs, as many
 * pieces as there are threads; and the first failure, after which nobody gets a turn, since what is
 * done then is of no use.
 */
#include <pthread.h>
#include <stdint.h>

#include <gpusnap/status.h>

struct gsn_turns {
	void **items;	      /* NULL before it is opened */
	pthread_mutex_t lock; /* guards all below */
	uint32_t free;
	gpusnap_status status; /* of the task that failed first */
	gpusnap_error failure;
};

/* Room for `count` items, none yet; the items themselves are the caller's. */
gpusnap_status gsn_turns_open(struct gsn_turns *turns, uint32_t count, gpusnap_error *err);
/* Takes a zeroed one. */
void gsn_turns_close(struct gsn_turns *turns);
void gsn_turns_add(struct gsn_turns *turns, void *item);
/* NULL once a task has failed. */
void *gsn_turns_take(struct gsn_turns *turns);
/* `status` is the task's, and `err` what it says where that is a failure. */
void gsn_turns_give(
	struct gsn_turns *turns, void *item, gpusnap_status status, const gpusnap_error *err);
/* What the tasks so far came to. */
gpusnap_status gsn_turns_result(const struct gsn_turns *turns, gpusnap_error *err);

#endif
