/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LOAD_RECORDS_H
#define GSN_LOAD_RECORDS_H
/* The records of a load (gsnap.md, section 6): the model's description, and its padding. */
#include <gpusnap/registry.h>

#include "loader/rank_state.h"

/* Both, or as before. A record that the load has nothing for is removed. */
gpusnap_status gsn_load_records_set(
	gpusnap_registry *registry, const struct gsn_rank_state *state, gpusnap_error *err);

#endif
