/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PROOF_H
#define GSN_PROOF_H
/*
 * One run of the probe on live state: what it computed, and what it found wrong by itself. Making
 * a record and holding live state against one are both this run; they differ in what follows it.
 *
 *   structure.c  (a) masks, scales, routers and weights are well-formed
 *   control.c    (b) digests of the control tables
 *   sweep.c      (c) one token for each expert, foreign and sink ids
 *   steps.c      (d) decode steps through all layers
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/dispatch.h>

#include "dispatch/findings.h"

struct gsn_layer;

struct gsn_proof {
	gpusnap_dispatch *dispatch;
	gpusnap_probe *now; /* what was computed; its layers are in the model's order */
	struct gsn_findings findings;
	uint32_t *faults; /* [layer_count]: enum gsn_moe_fault, of sweep and decode steps */
	uint64_t experts_swept;
	uint64_t bytes_read; /* of buffers, by the check at hand */
};

/* A run of `steps` steps of `tokens` inputs under `seed`. E_STATE unless every layer is ready. */
gpusnap_status gsn_proof_init(struct gsn_proof *proof, gpusnap_dispatch *dispatch, uint64_t seed,
	uint32_t tokens, uint32_t steps, gpusnap_error *err);
void gsn_proof_release(struct gsn_proof *proof);

gpusnap_status gsn_proof_structure(struct gsn_proof *proof, gpusnap_error *err);
gpusnap_status gsn_proof_control(struct gsn_proof *proof, gpusnap_error *err);
gpusnap_status gsn_proof_sweep(struct gsn_proof *proof, gpusnap_error *err);
gpusnap_status gsn_proof_steps(struct gsn_proof *proof, gpusnap_error *err);

/* Bytes of one routed expert: weights, scales, biases. */
uint64_t gsn_expert_bytes(const struct gsn_layer *layer);

/* Note a failure of a layer. `slot` may be GSN_NO_SLOT; expert and leaf -1 where unknown. */
struct gsn_place {
	gpusnap_failure_kind kind;
	uint32_t index;
	gpusnap_moe_slot slot;
	int32_t expert;
	int64_t leaf;
};
gpusnap_status gsn_proof_found(struct gsn_proof *proof, struct gsn_place place, gpusnap_error *err,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The mask of the layer has been found to be malformed. */
bool gsn_proof_mask_is_bad(const struct gsn_proof *proof, uint32_t index);
/* Slots whose bytes are small and decide where tokens go or how weights are read. */
bool gsn_is_control_slot(gpusnap_moe_slot slot);
/* Slots of which each routed expert of the rank has an equal part. */
bool gsn_is_expert_slot(gpusnap_moe_slot slot);

#endif
