/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_BLAME_H
#define GSN_BLAME_H
/* Which buffer, and which leaf of it, is to blame when an output differs from the record. */
#include <gpusnap/snapshot.h>

#include "dispatch/proof.h"

/*
 * Name what broke local expert `local` of a layer: first call convict for every expert whose output
 * differs, which goes by leaves that are its alone, then suspect, which weighs the rest unless a
 * failure that is known by then explains it. `baseline` may be NULL. `what` says how the outputs
 * differ.
 */
gpusnap_status gsn_blame_convict(struct gsn_proof *proof, const gpusnap_baseline *baseline,
	uint32_t index, uint32_t local, const char *what, gpusnap_error *err);
gpusnap_status gsn_blame_suspect(struct gsn_proof *proof, const gpusnap_baseline *baseline,
	uint32_t index, uint32_t local, const char *what, gpusnap_error *err);

/* First leaf of the slot's buffer that differs from the baseline; -1: none, or not known. */
gpusnap_status gsn_blame_leaf(struct gsn_proof *proof, const gpusnap_baseline *baseline,
	uint32_t index, gpusnap_moe_slot slot, int64_t *ret_leaf, gpusnap_error *err);

#endif
