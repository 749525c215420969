/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_ROUTE_CASE_H
#define GPUSNAP_TEST_ROUTE_CASE_H
/*
 * Arguments of the host's router, drawn over all scores, types, biases, groups and hash tables.
 * Functions assert; nothing to check.
 */
#include <gpusnap/moe.h>

#include "kernels/host_moe.h"

struct route_case {
	/* Chosen by the caller, or drawn. */
	uint32_t tokens, hidden, experts, top_k;
	gpusnap_score score;
	gpusnap_dtype router_dtype;
	gpusnap_dtype selection_bias_dtype, router_bias_dtype;
	gpusnap_dtype hash_dtype;
	uint32_t vocabulary; /* 0: no hash table */
	uint32_t groups, top_groups;
	float scale;
	bool renormalise, selection_biased, router_biased;
	/* Made up; what is not there is NULL. */
	float *x;
	uint8_t *router, *selection_bias, *router_bias, *hash;
	int32_t *token_ids;
	/* Results of a run. */
	float *logits, *weights, *keys;
	int32_t *ids;
	struct gsn_moe_counters counters;
};

/* What the caller has not set, that is 0, of a routing among at most `most_experts`. */
void route_case_draw(struct route_case *test, uint32_t most_experts, uint64_t *random);
void route_case_make(struct route_case *test, uint64_t *random);
void route_case_free(struct route_case *test);
struct gsn_moe_route route_case_args(struct route_case *test);
/* Run on poisoned outputs. */
void route_case_run(
	struct route_case *test, const struct gsn_cpu_path *path, struct gsn_pool *pool);

uint64_t route_case_logit_count(const struct route_case *test);
uint64_t route_case_pair_count(const struct route_case *test);
uint64_t route_case_hash_bytes(const struct route_case *test);

/* Logits, choice and weights are right, each given what the one before it was. */
void route_case_check(const struct route_case *test);

#endif
