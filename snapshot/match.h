/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MATCH_H
#define GSN_MATCH_H
/* Does a snapshot fit a registry: the check before anything is overwritten. */
#include "snapshot/registry_state.h"

/*
 * Ranks, regions (id, tag, size, policies) and buffers (place, dtype, shape, mask) must be the
 * same on both sides. Otherwise E_MISMATCH, which lists all differences that the message holds and
 * counts the rest. After OK every kept range of the registry is an entry of the same size.
 */
gpusnap_status gsn_match(
	const gpusnap_registry *registry, const gpusnap_snapshot *snapshot, gpusnap_error *err);

#endif
