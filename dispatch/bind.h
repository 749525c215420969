/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_BIND_H
#define GSN_BIND_H
/* Finding a layer's buffers in the registry and holding them against the layer's sizes. */
#include <gpusnap/moe.h>
#include <gpusnap/registry.h>

struct gsn_operand;

/*
 * Fill operands[GPUSNAP_MOE_SLOTS] from the names in `spec`. E_INVALID: a buffer is missing;
 * E_MISMATCH: its role, dtype, shape or mask type is not what the layer needs. A mask without a
 * buffer is left unbound. Names are borrowed from `spec`.
 */
gpusnap_status gsn_bind_layer(const gpusnap_registry *registry, const gpusnap_moe_layer *spec,
	struct gsn_operand *operands, gpusnap_error *err);
/* Bind the mask to bytes of a region, named or not. */
gpusnap_status gsn_bind_mask(const gpusnap_registry *registry, const gpusnap_moe_layer *spec,
	uint32_t region, uint64_t offset, struct gsn_operand *mask, gpusnap_error *err);

#endif
