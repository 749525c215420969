/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PLAIN_TENSORS_H
#define GSN_PLAIN_TENSORS_H
/*
 * The tensors of a model that are no MoE parameters: which are known, and which are missing. A
 * checkpoint that has any of those that every model of the family has must have all of them; one of
 * MoE layers alone has none.
 */
#include <stdbool.h>
#include <stdint.h>

#include "loader/config.h"

struct gsn_plain_tensors {
	const struct gsn_config *config;
	bool any;
	bool *seen; /* [names][layers], of the family's needed and dense names and its head */
};

gpusnap_status gsn_plain_tensors_open(
	struct gsn_plain_tensors *plain, const struct gsn_config *config, gpusnap_error *err);
/* Is it known; it then counts as seen, and may ask for all others. */
bool gsn_plain_tensors_take(struct gsn_plain_tensors *plain, const char *name);
/* One that MoE layers have as well: it asks for no others. */
bool gsn_plain_tensors_see(struct gsn_plain_tensors *plain, const char *name);
/*
 * E_FORMAT with the names of those that are not there. `moe` says of each layer whether it is one
 * of experts; `prefixed`, how names begin.
 */
gpusnap_status gsn_plain_tensors_complete(
	const struct gsn_plain_tensors *plain, const bool *moe, bool prefixed, gpusnap_error *err);
void gsn_plain_tensors_close(struct gsn_plain_tensors *plain); /* takes a zeroed one */

#endif
