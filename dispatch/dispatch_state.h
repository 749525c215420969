/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DISPATCH_STATE_H
#define GSN_DISPATCH_STATE_H
/*
 * The dispatcher's insides. Everything below is used only while the registry is held, which is
 * what makes decode and validate of several threads exclude each other.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/dispatch.h>

#include "dispatch/owned_table.h"
#include "dispatch/workspace.h"
#include "kernels/device_ops.h"

/* One buffer of a layer, found once: decode steps look no name up. */
struct gsn_operand {
	const char *name; /* the model's; NULL where the layer has no such buffer */
	bool bound;	  /* false with a name: a mask that no buffer names and nobody bound yet */
	uint32_t region;
	uint64_t offset; /* in the region */
	uint64_t bytes;
	gpusnap_dtype dtype;
	gpusnap_address address;
};

struct gsn_layer {
	const gpusnap_moe_layer *spec; /* in the dispatcher's model */
	struct gsn_operand operands[GPUSNAP_MOE_SLOTS];
	struct gsn_owned_table mask, map;
};

struct gpusnap_dispatch {
	gpusnap_registry *registry;
	gpusnap_moe_model *model;
	struct gsn_layer *layers;
	struct gsn_stream *stream;
	struct gsn_workspace workspace;
	void *peek_staging; /* peek.c: pinned, only on devices that the host cannot address */
	gpusnap_dispatch_counters counters;
};

const struct gsn_device_ops *gsn_dispatch_ops(const gpusnap_dispatch *dispatch);
void *gsn_dispatch_context(const gpusnap_dispatch *dispatch);

/* Layer by position in the model; E_INVALID past the end. */
gpusnap_status gsn_dispatch_layer(gpusnap_dispatch *dispatch, uint32_t index,
	struct gsn_layer **ret_layer, gpusnap_error *err);
/*
 * Every buffer of the layer is bound, its region resident, and what the dispatcher owns
 * of mask and map written since the last remap. E_STATE otherwise, naming region and buffer.
 */
gpusnap_status gsn_layer_ready(
	gpusnap_dispatch *dispatch, struct gsn_layer *layer, gpusnap_error *err);

#endif
