/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DECODE_H
#define GSN_DECODE_H
/* One MoE block on the device, with the freedom that probes need and decode steps do not. */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/status.h>

#include "kernels/device_ops.h"

struct gpusnap_dispatch;
struct gsn_layer;

/* Most tokens of one step: bounds device memory, far above what decoding batches. */
#define GSN_DECODE_TOKENS 65536u

enum gsn_id_space {
	GSN_IDS_GLOBAL, /* experts of the whole model, as a router gives them */
	GSN_IDS_MASK,	/* as the layer's mask is indexed: may name a sink */
	GSN_IDS_LOCAL,	/* experts of this rank, past the layer's mask: through one of all ones */
};

struct gsn_pass {
	uint32_t tokens;
	uint32_t top_k;		  /* the layer's own when routed */
	const float *x;		  /* host, [tokens, hidden] */
	bool normalise;		  /* RMS norm first, where the layer has one */
	const int32_t *token_ids; /* host, [tokens]; used by routing through a hash table */
	const int32_t *ids;	  /* host, [tokens, top_k], each with weight 1; NULL: route */
	enum gsn_id_space space;
	const int32_t *ones; /* host, [local] ones: the mask of GSN_IDS_LOCAL */
	/* Outputs in host memory, as in gpusnap_decode_io; NULL where not wanted. */
	float *out, *slots, *logits, *weights, *shared;
	int32_t *routed;
	struct gsn_moe_counters counters; /* of this pass; faults are the caller's to judge */
};

/* Run a pass on a layer that is ready. The host arrays may be reused when it returns. */
gpusnap_status gsn_decode_pass(struct gpusnap_dispatch *dispatch, const struct gsn_layer *layer,
	struct gsn_pass *pass, gpusnap_error *err);
/* The failure that kernel faults are: E_NOT_PROVED, naming layer and buffer. OK for none. */
gpusnap_status gsn_fault_status(const struct gsn_layer *layer, uint32_t faults, gpusnap_error *err);

#endif
