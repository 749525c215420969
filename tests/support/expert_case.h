/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_EXPERT_CASE_H
#define GPUSNAP_TEST_EXPERT_CASE_H
/*
 * Arguments of the host's expert kernel, made up from a seed, and their result in float64 with the
 * error that float32 may have. Functions assert; nothing to check.
 */
#include <gpusnap/moe.h>

#include "kernels/host_moe.h"

struct expert_case {
	/* Chosen by the caller. */
	uint32_t tokens, hidden, intermediate, top_k;
	uint32_t mask_length, local_experts;
	gpusnap_dtype dtype;
	uint32_t block_n, block_k; /* 0: no scales */
	bool e8m0;		   /* scales are, not F32 */
	bool biased;		   /* w13 and w2, by bias_dtype */
	gpusnap_dtype bias_dtype;
	gpusnap_activation activation; /* 0: silu */
	float limit;
	bool weight_before_w2;
	/* Made up; the caller may change what it likes before a run. */
	float *x, *weights;
	int32_t *ids, *mask; /* ids differ within a token; the mask has ones only */
	uint8_t *w13, *w2;
	uint8_t *w13_scale, *w2_scale; /* by expert_case_scale_width() */
	uint8_t *w13_bias, *w2_bias;
	/* Results of a run. */
	float *y;
	struct gsn_moe_counters counters;
	uint8_t *scratch;
	uint64_t scratch_bytes;
};

/* Elements of at most 2 in size, or of any size of F4, none of them NaN; free with gsn_free(). */
uint8_t *expert_case_elements(uint64_t count, gpusnap_dtype dtype, uint64_t *random);
/* One of them, or of scales, exactly. */
double expert_case_element(gpusnap_dtype dtype, const uint8_t *values, uint64_t index);

/* Sizes are set in `test`; fill in the rest. */
void expert_case_make(struct expert_case *test, uint64_t seed);
void expert_case_free(struct expert_case *test);
struct gsn_moe_experts expert_case_args(struct expert_case *test);
/* Run on poisoned scratch and output. */
void expert_case_run(
	struct expert_case *test, const struct gsn_cpu_path *path, struct gsn_pool *pool);

uint64_t expert_case_y_count(const struct expert_case *test);
/* Bytes that an element's address is a multiple of; of one scale, of one element of a bias. */
uint32_t expert_case_width(const struct expert_case *test);
uint32_t expert_case_scale_width(const struct expert_case *test);
uint32_t expert_case_bias_width(const struct expert_case *test);
/* Bytes of one expert's w13 and w2. */
uint64_t expert_case_w13_bytes(const struct expert_case *test);
uint64_t expert_case_w2_bytes(const struct expert_case *test);
/* Scales of one expert's w13 and w2. */
uint64_t expert_case_w13_scales(const struct expert_case *test);
uint64_t expert_case_w2_scales(const struct expert_case *test);

/*
 * y and bound of one pair as computed by local expert `expert`, [hidden] each. A dot product of
 * length K may be off by 4 sqrt(K) 2^-24 sum|w x|, which is carried through the activation.
 */
void expert_case_reference(
	const struct expert_case *test, uint32_t pair, uint32_t expert, double *y, double *bound);

#endif
