/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_DISPATCH_H
#define GPUSNAP_DISPATCH_H
/*
 * MoE decode on registered buffers, and the proof that the state is valid.
 *
 * Deterministic by construction: same state, same bits, whatever the batch, the threads or the
 * device; expert-parallel ranks summed slot by slot give the bits of one rank.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/agent.h>
#include <gpusnap/moe.h>
#include <gpusnap/probe.h>
#include <gpusnap/registry.h>
#include <gpusnap/snapshot.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpusnap_dispatch gpusnap_dispatch;

/**
 * Bind a model to the registry's buffers, by the names in the model.
 * Buffers are looked up and their dtype, shape and role checked (E_MISMATCH names what differs).
 * A mask that no buffer names must be bound with gpusnap_dispatch_bind_mask() before it is used.
 * @param model  copied.  @param registry  borrowed; must outlive the dispatch.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_dispatch_create(gpusnap_registry *registry,
	const gpusnap_moe_model *model, gpusnap_dispatch **out, gpusnap_error *err);
/** NULL is a no-op. */
GPUSNAP_API void gpusnap_dispatch_free(gpusnap_dispatch *dispatch);
GPUSNAP_API const gpusnap_moe_model *gpusnap_dispatch_model(const gpusnap_dispatch *dispatch);

/** Use the mask at these bytes of a region, which need no name: how engines hold it. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_dispatch_bind_mask(gpusnap_dispatch *dispatch,
	uint32_t layer, uint32_t region, uint64_t offset, gpusnap_error *err);

/* What a decode step costs besides arithmetic; all but the steps stay put while nothing is
 * remapped. */
typedef struct gpusnap_dispatch_counters {
	uint64_t mask_builds;
	uint64_t allocations;
	uint64_t mask_copies; /* host-to-device copies of masks and maps */
	uint64_t steps;
	uint64_t map_builds;
} gpusnap_dispatch_counters;
GPUSNAP_API gpusnap_dispatch_counters gpusnap_dispatch_get_counters(
	const gpusnap_dispatch *dispatch);
/**
 * Build the layer's mask anew from its type and write it (once; cached until the region's
 * generation changes). For programs that own their masks; the loader fills its own.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_dispatch_build_mask(
	gpusnap_dispatch *dispatch, uint32_t layer, gpusnap_error *err);

/** The same for the layer's index map. E_INVALID: it has none. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_dispatch_build_map(
	gpusnap_dispatch *dispatch, uint32_t layer, gpusnap_error *err);

typedef struct gpusnap_decode_io {
	size_t struct_size;
	uint32_t tokens;
	const float *x;		   /* host, [tokens, hidden] */
	const int32_t *forced_ids; /* host, [tokens, top_k], global, weight 1; NULL: route */
	/* Outputs, host memory; NULL where not wanted. Their contents are lost on failure. */
	/* [tokens, hidden]: sum over slots of this rank's experts, then, when routed, its shared
	 * expert */
	float *out;
	float *slots;	/* [tokens, top_k, hidden]: before the sum, zero for other ranks' experts */
	float *logits;	/* [tokens, experts]; only when routed */
	int32_t *ids;	/* [tokens, top_k] global, best first */
	float *weights; /* [tokens, top_k] */
	uint64_t local_assignments, remote_assignments; /* set on success */
	float *shared; /* out, [tokens, hidden]: of the shared expert alone; zero where it is not */
	const int32_t *token_ids; /* host, [tokens]; needed by layers with a hash table alone */
} gpusnap_decode_io;
#define GPUSNAP_DECODE_IO_INIT                                                                     \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_decode_io)                                           \
	}

/**
 * One MoE block (index in the model, no norm, no residual) on `tokens` inputs. E_INVALID for token
 * ids that a hash table needs and that are missing or outside its vocabulary; E_STATE "not
 * resident" unless every buffer's region is resident; E_NOT_PROVED when a kernel raises a fault
 * (NaN, id out of range), naming layer and buffer.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_decode_layer(
	gpusnap_dispatch *dispatch, uint32_t layer, gpusnap_decode_io *io, gpusnap_error *err);

/* ---- proof ---- */

typedef struct gpusnap_validate_options {
	size_t struct_size;
	uint64_t seed;	 /* default 1 */
	uint32_t tokens; /* batch; default 8 */
	uint32_t steps;	 /* default 4 */
} gpusnap_validate_options;
#define GPUSNAP_VALIDATE_OPTIONS_INIT                                                              \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_validate_options)                                    \
	}

/** Run the probe and write down what it computed. E_NOT_PROVED when the structure is broken. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_probe_record(gpusnap_dispatch *dispatch,
	const gpusnap_validate_options *options, gpusnap_probe **out, gpusnap_error *err);

/* The checks of a validation, cheapest first; a set of them is an or of 1u << check. */
typedef enum gpusnap_check {
	GPUSNAP_CHECK_STRUCTURE, /* masks, maps, scales, tables and weights are well-formed */
	GPUSNAP_CHECK_CONTROL,	 /* digests of the control tables */
	GPUSNAP_CHECK_SWEEP,	 /* one token for each local expert; foreign and sink ids */
	GPUSNAP_CHECK_DECODE,	 /* decode steps through all layers, naturally routed */
	GPUSNAP_CHECKS
} gpusnap_check;
#define GPUSNAP_CHECKS_ALL ((1u << GPUSNAP_CHECKS) - 1)
/** "structure", "control", "sweep", "decode". Static string. */
GPUSNAP_API const char *gpusnap_check_name(gpusnap_check check);
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_check_parse(
	const char *name, gpusnap_check *ret_check, gpusnap_error *err);

typedef enum gpusnap_failure_kind {
	GPUSNAP_FAILURE_STRUCTURE = 1, /* mask, map or scale is malformed */
	GPUSNAP_FAILURE_CONTROL,       /* a control table's digest differs */
	GPUSNAP_FAILURE_EXPERT,	       /* an expert's probe output differs */
	GPUSNAP_FAILURE_FOREIGN,       /* a foreign or sink id gave an output */
	GPUSNAP_FAILURE_DECODE,	       /* the decode differs and nothing above explains it */
} gpusnap_failure_kind;
GPUSNAP_API const char *gpusnap_failure_kind_name(gpusnap_failure_kind kind);

typedef struct gpusnap_failure {
	gpusnap_failure_kind kind;
	uint32_t layer;	    /* model layer number */
	const char *buffer; /* NULL when it cannot be told; borrowed from the dispatch */
	int32_t expert;	    /* global id; -1: not about one expert */
	int64_t leaf;	    /* first differing leaf of the buffer; -1: unknown */
	char detail[200];
} gpusnap_failure;

typedef struct gpusnap_check_cost {
	uint64_t bytes_read; /* of buffers; a weight counts once a pass, whatever the batch */
	double seconds;
} gpusnap_check_cost;

typedef struct gpusnap_validation {
	bool proved;
	uint32_t checks; /* that were made */
	gpusnap_check_cost costs[GPUSNAP_CHECKS];
	uint32_t layers;
	uint64_t experts_swept;
	uint32_t steps;
	gpusnap_digest digest; /* of what was computed now; zero unless all checks were made */
	bool decode_differs;
	size_t failure_count;
	gpusnap_failure *failures; /* most telling first, one per damaged object */
} gpusnap_validation;

/**
 * The four checks of the design, cheapest first, against `record`: structure, digests of control
 * tables, expert sweep, decode. OK also when not proved: look at ret->proved.
 * @param baseline  leaf digests, to tell which buffer and leaf broke; NULL: the registry's own.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_validate(gpusnap_dispatch *dispatch,
	const gpusnap_probe *record, const gpusnap_baseline *baseline, gpusnap_validation *ret,
	gpusnap_error *err);
/**
 * The same with some of the checks only: `proved` speaks of these alone. E_INVALID for a set that
 * is empty or has a bit that is no check's.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_validate_checks(gpusnap_dispatch *dispatch,
	const gpusnap_probe *record, const gpusnap_baseline *baseline, uint32_t checks,
	gpusnap_validation *ret, gpusnap_error *err);
GPUSNAP_API void gpusnap_validation_release(gpusnap_validation *validation);

/* One MoE block's values from another engine, for comparison. Host memory, borrowed. */
typedef struct gpusnap_reference {
	const char *module; /* "model.layers.0.mlp" */
	uint32_t tokens;
	const float *in;	     /* [tokens, hidden] */
	const float *out;	     /* [tokens, hidden] */
	const float *router_weights; /* [tokens, top_k]; NULL: not compared */
	const int64_t *router_ids;   /* [tokens, top_k], any order; NULL: not compared */
	const int32_t *token_ids;    /* [tokens]; NULL: unknown, so no hash layer is compared */
} gpusnap_reference;

typedef struct gpusnap_reference_result {
	double max_error_over_bound; /* > 1 fails; bound: float64 error analysis, per element */
	bool ids_equal;		     /* near ties aside */
	uint32_t near_ties;	 /* tokens whose k-th and k+1-th score differ by < 1e-6 relative */
	double max_weight_error; /* relative to the reference's */
	bool agrees;
} gpusnap_reference_result;

/** E_INVALID for a module that the model does not have, or on a partial rank. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_reference_compare(gpusnap_dispatch *dispatch,
	const gpusnap_reference *reference, gpusnap_reference_result *ret_result,
	gpusnap_error *err);

/**
 * Add the command "validate" to an agent: args {record: bool, file: PATH, tokens, steps, seed,
 * checks: [NAME..]},
 * result as documented for `gpusnap validate --json`.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_dispatch_serve(
	gpusnap_dispatch *dispatch, gpusnap_agent *agent, gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
