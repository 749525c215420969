/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/turns.h"

#include "formats/base/alloc.h"
#include "formats/base/fail.h"

gpusnap_status gsn_turns_open(struct gsn_turns *turns, uint32_t count, gpusnap_error *err)
{
	*turns = (struct gsn_turns){.items = gsn_alloc(count, sizeof(void *))};
	if (!turns->items)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u threads", count);
	(void)pthread_mutex_init(&turns->lock, NULL); /* cannot fail on Linux */
	return GPUSNAP_OK;
}

void gsn_turns_close(struct gsn_turns *turns)
{
	if (!turns->items)
		return;
	(void)pthread_mutex_destroy(&turns->lock);
	gsn_free((void *)turns->items);
	turns->items = NULL;
}

void gsn_turns_add(struct gsn_turns *turns, void *item)
{
	gsn_turns_give(turns, item, GPUSNAP_OK, NULL);
}

void *gsn_turns_take(struct gsn_turns *turns)
{
	void *item = NULL;

	(void)pthread_mutex_lock(&turns->lock);
	if (!turns->status)
		item = turns->items[--turns->free];
	(void)pthread_mutex_unlock(&turns->lock);
	return item;
}

void gsn_turns_give(
	struct gsn_turns *turns, void *item, gpusnap_status status, const gpusnap_error *err)
{
	(void)pthread_mutex_lock(&turns->lock);
	turns->items[turns->free++] = item;
	if (status && !turns->status) {
		turns->status = status;
		turns->failure = *err;
	}
	(void)pthread_mutex_unlock(&turns->lock);
}

gpusnap_status gsn_turns_result(const struct gsn_turns *turns, gpusnap_error *err)
{
	if (turns->status && err)
		*err = turns->failure;
	return turns->status;
}
