/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_PROBE_H
#define GPUSNAP_PROBE_H
/*
 * The probe record: what a deterministic MoE decode computed when the state was known to be good.
 * dispatch makes and compares it; the snapshot carries it under records.probe.
 */
#include <stdint.h>

#include <gpusnap/digest.h>
#include <gpusnap/json.h>
#include <gpusnap/moe.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSNAP_PROBE_VERSION 1u

typedef struct gpusnap_probe_layer {
	/* Buffer digest of each control table: all but w13 and w2; zero for others. */
	gpusnap_digest control[GPUSNAP_MOE_SLOTS];
	uint32_t expert_count;	     /* local experts swept */
	gpusnap_digest *experts;     /* digest of each one's output bytes for its probe token */
	gpusnap_digest output;	     /* digest of the layer's output over all decode steps */
	uint64_t local_assignments;  /* (token, slot) pairs of the decode served by this rank */
	uint64_t remote_assignments; /* and those that belong to others */
} gpusnap_probe_layer;

typedef struct gpusnap_probe {
	uint32_t version;
	uint64_t seed;
	uint32_t tokens; /* batch of each decode step */
	uint32_t steps;
	gpusnap_digest
		digest; /* XXH3-128 over all of the above and all layers: one line to compare */
	uint32_t layer_count;
	gpusnap_probe_layer *layers;
} gpusnap_probe;

#define GPUSNAP_PROBE_TOKENS_MAX 65536u /* also the most steps */

/** JSON form. NULL: no memory, or a seed or counter of 2^63 or more. */
GPUSNAP_API gpusnap_json *gpusnap_probe_encode(const gpusnap_probe *probe);
/**
 * Parse and check: version, sizes not zero and bounded, and the digest against the rest
 * (E_CORRUPT). Zero digests are accepted only where a control table may be absent.
 * @param out  owned by the caller; gpusnap_probe_free().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_probe_decode(
	gpusnap_json *json, gpusnap_probe **out, gpusnap_error *err);
/**
 * Compute probe->digest from the rest: a chain, d = XXH3-128(u32 version, u64 seed, u32 tokens, u32
 * steps, u32 layer_count), then per layer d = XXH3-128(d, control digests of the slots to norm in
 * order, u32 slot and digest of each later slot that has one, u32 expert_count, XXH3-128(expert
 * digests), output, u64 local, u64 remote); integers little-endian.
 */
GPUSNAP_API gpusnap_digest gpusnap_probe_digest(const gpusnap_probe *probe);
/** Allocate with room for layer_count layers; NULL: no memory. */
GPUSNAP_API gpusnap_probe *gpusnap_probe_new(uint32_t layer_count);
GPUSNAP_API void gpusnap_probe_free(gpusnap_probe *probe);

#ifdef __cplusplus
}
#endif
#endif
