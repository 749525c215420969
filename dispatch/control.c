/* SPDX-License-Identifier: Apache-2.0 */
/* Check (b): digests of the control tables, made on the device. */
#include "dispatch/dispatch_state.h"
#include "dispatch/peek.h"
#include "dispatch/proof.h"
#include "formats/base/alloc.h"
#include "formats/base/fail.h"

static gpusnap_status digest_operand(gpusnap_dispatch *dispatch, const struct gsn_operand *operand,
	gpusnap_digest *ret_digest, gpusnap_error *err)
{
	uint64_t count = gpusnap_leaf_count(operand->bytes);
	gpusnap_digest *leaves = gsn_alloc(count, sizeof *leaves);
	gpusnap_status status;

	if (!leaves)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "digest of '%s': out of memory", operand->name);
	status = gsn_operand_leaves(dispatch, operand, 0, count, leaves, err);
	if (!status)
		*ret_digest = gpusnap_digest_of_buffer(operand->bytes, leaves);
	gsn_free(leaves);
	return status;
}

static gpusnap_status digest_layer(struct gsn_proof *proof, uint32_t index, gpusnap_error *err)
{
	gpusnap_digest *control = proof->now->layers[index].control;
	gpusnap_status status = GPUSNAP_OK;

	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS && !status; slot++) {
		const struct gsn_operand *operand = &proof->dispatch->layers[index].operands[slot];

		if (!operand->name || !gsn_is_control_slot((gpusnap_moe_slot)slot))
			continue;
		proof->bytes_read += operand->bytes;
		status = digest_operand(proof->dispatch, operand, &control[slot], err);
	}
	return status;
}

gpusnap_status gsn_proof_control(struct gsn_proof *proof, gpusnap_error *err)
{
	gpusnap_status status = GPUSNAP_OK;

	for (uint32_t i = 0; i < proof->dispatch->model->layer_count && !status; i++)
		status = digest_layer(proof, i, err);
	return status;
}
