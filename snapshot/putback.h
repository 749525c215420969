/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PUTBACK_H
#define GSN_PUTBACK_H
/*
 * Mapping regions that have no snapshot behind them, and putting arenas' bytes back into them, each
 * leaf proved on the device.
 */
#include "snapshot/selection.h"

/*
 * Copy what arenas hold of the selected regions; regions with a backing snapshot are left alone.
 * Leaves that differ from their digest are copied once more; then E_CORRUPT names buffer and leaf.
 */
gpusnap_status gsn_put_back(
	gpusnap_registry *registry, const struct gsn_selection *selection, gpusnap_error *err);

#endif
