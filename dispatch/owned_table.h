/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_OWNED_TABLE_H
#define GSN_OWNED_TABLE_H
/*
 * Masks and index maps that the dispatcher writes itself: built once, kept on the device, valid as
 * long as their region has not been remapped. What the loader or the engine fills is only read.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/status.h>

struct gpusnap_dispatch;
struct gsn_layer;

struct gsn_owned_table {
	bool owned;	     /* built by the dispatcher, which writes it again after a remap */
	uint64_t generation; /* of the region when it was written */
	int32_t *values;     /* what was written; kept so that writing again allocates nothing */
};

/* Write owned tables again whose region was remapped since; nothing to do otherwise. */
gpusnap_status gsn_tables_refresh(
	struct gpusnap_dispatch *dispatch, struct gsn_layer *layer, gpusnap_error *err);

#endif
