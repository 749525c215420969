/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_CPU_PATH_H
#define GSN_CPU_PATH_H
/*
 * The inner loops of the host's MoE kernels, once per instruction set. Every path gives the same
 * bits (arithmetic.md), so the choice is about speed only. Made once, held by the device context.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens that one call of a dot kernel multiplies a weight row with. */
#define GSN_DOT_TOKENS 4u

/* Inputs whose order a path may change: within groups of this many. */
#define GSN_DOT_GROUP 128u

enum gsn_dot_format {
	GSN_DOT_F32,
	GSN_DOT_F16,
	GSN_DOT_BF16,
	GSN_DOT_F8_E4M3,
	GSN_DOT_F4, /* E2M1, two a byte, the lower half first; k is even */
	GSN_DOT_FORMATS
};

/* How scales are kept. */
enum gsn_dot_scale { GSN_DOT_SCALE_F32, GSN_DOT_SCALE_E8M0 };

/* Rows of a weight matrix, one behind the other. */
struct gsn_dot_rows {
	const void *weights; /* [count, k] */
	/* F8_E4M3 and F4 only: one per block_k elements; NULL: 1 */
	const void *scales;
	uint64_t scale_stride; /* scales from one row's to the next row's; 0: all rows share them */
	enum gsn_dot_scale scale_type;
	uint32_t k;
	uint32_t block_k; /* multiple of 16, of 32 for F4; read only when there are scales */
	uint32_t count;
};

/*
 * out[r * GSN_DOT_TOKENS + t] = row r . x[t] for t < tokens <= GSN_DOT_TOKENS; x[t] holds k values,
 * or where the path has an order for the format, gsn_dot_ordered_length(k) of them as it wants
 * them.
 */
typedef void (*gsn_dot_fn)(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out);

/* gpusnap_activation, and the limit of gate and up: infinite where there is none. */
struct gsn_activation {
	uint32_t kind;
	float limit;
};

/* h[i] of gate[i] and up[i]. */
typedef void (*gsn_activate_fn)(struct gsn_activation activation, const float *gate,
	const float *up, uint32_t count, float *h);

struct gsn_cpu_path {
	const char *name; /* "portable", "avx2", ... */
	bool (*supported)(void);
	gsn_dot_fn dot[GSN_DOT_FORMATS];
	/* Inputs of dot[format] are ordered: x[i] at gsn_dot_position(); NULL: as is. */
	const uint8_t *order[GSN_DOT_FORMATS];
	gsn_activate_fn activate;
};

/* Values of an ordered input: whole groups, zeros where x has none. */
static inline uint64_t gsn_dot_ordered_length(uint32_t k)
{
	return ((uint64_t)k + GSN_DOT_GROUP - 1) / GSN_DOT_GROUP * GSN_DOT_GROUP;
}

static inline uint32_t gsn_dot_position(const uint8_t *order, uint32_t i)
{
	return i - i % GSN_DOT_GROUP + order[i % GSN_DOT_GROUP];
}

/* Fill gsn_dot_ordered_length(k) values of `ordered` from k values of x. */
void gsn_dot_order(const uint8_t *order, const float *x, uint32_t k, float *ordered);

/* Paths of this build that this machine can run, slowest first, NULL past the end; 0 is portable.
 */
const struct gsn_cpu_path *gsn_cpu_path_at(size_t index);
/* The last of them. */
const struct gsn_cpu_path *gsn_cpu_path_best(void);
/* By name; NULL when this build or this machine does not have it. */
const struct gsn_cpu_path *gsn_cpu_path_find(const char *name);

#endif
