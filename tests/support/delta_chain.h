/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_DELTA_CHAIN_H
#define GPUSNAP_TEST_DELTA_CHAIN_H
/*
 * Chains of deltas over a live state, each link with the memory of its time: link 0 is a full
 * snapshot, link k a delta of link k - 1, in files "0.gsnap", "1.gsnap", ... of one folder.
 */
#include <limits.h>

#include <gpusnap/snapshot.h>

#include "tests/support/live_state.h"

enum { CHAIN_LINKS_MAX = GPUSNAP_DELTA_DEPTH_MAX + 1 };

struct delta_chain {
	struct live_state *state; /* borrowed */
	const char *folder;
	uint32_t count;
	char paths[CHAIN_LINKS_MAX][PATH_MAX];
	uint8_t **images[CHAIN_LINKS_MAX]; /* of each region */
	gpusnap_save_report reports[CHAIN_LINKS_MAX];
};

/* Save live state as the next link. */
void chain_add(struct delta_chain *chain);
/* Forget the images; the files stay. */
void chain_close(struct delta_chain *chain);
/* True when `registry` holds what live state was when link `link` was saved. */
bool chain_equals(const struct delta_chain *chain, uint32_t link, const gpusnap_registry *registry);
/* Change bytes of live state at random: nowhere, in some leaves, or all of a region. */
void chain_change(const struct delta_chain *chain, uint64_t *random);
/* Bytes of an entry as they were at `link`. */
const uint8_t *chain_entry(const struct delta_chain *chain, uint32_t link,
	const gpusnap_snapshot *snapshot, const char *name);
/* Load an image into live state. */
void chain_load(const struct delta_chain *chain, uint32_t link);

#endif
