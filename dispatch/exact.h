/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_EXACT_H
#define GSN_EXACT_H
/*
 * A layer's arithmetic in double precision from the live, dequantised weights, with a bound for
 * the error of any float32 evaluation of the same formula, whatever its order of summation.
 *
 * A float32 dot product of length K is within 4 sqrt(K) 2^-24 sum|w_i x_i| of the exact one:
 * rounding errors add up like a random walk, worst seen far below four standard deviations (the
 * certain bound has K for 4 sqrt(K)). Bounds go through activation and product by the usual
 * first-order rules plus the product of both errors; into the next dot product they go as the root
 * of the sum of their squares, because rows of w13 are rounded independently of each other. Limits
 * do not widen a bound; a bias is one term more of its dot product.
 */
#include <stdint.h>

#include <gpusnap/status.h>

struct gpusnap_dispatch;
struct gsn_layer;

#define GSN_UNIT_ROUNDOFF 0x1p-24

/* Bound of a float32 dot product whose terms have absolute sum `sum`. */
double gsn_dot_bound(uint64_t length, double sum);

struct gsn_exact {
	struct gpusnap_dispatch *dispatch; /* borrowed, like the layer */
	const struct gsn_layer *layer;
	uint32_t hidden, intermediate; /* of the expert that is loaded */
	double *router;		       /* [experts, hidden] */
	double *bias;		       /* [experts]: selection bias; zeros where there is none */
	double *router_bias;	       /* [experts]; likewise */
	double *gate;		       /* [hidden]: shared gate; NULL: none */
	double *w13;		       /* [2*intermediate, hidden], of the expert that is loaded */
	double *w2;		       /* [hidden, intermediate] */
	double *w13_bias;	       /* [2*intermediate]; zeros where there is none */
	double *w2_bias;	       /* [hidden]; likewise */
	double *h;		       /* [intermediate]: what w2 takes, and its bound */
	double *h_bound;
	void *raw; /* one matrix as it is stored */
};

/* Allocate for a layer and read its router. */
gpusnap_status gsn_exact_init(struct gsn_exact *exact, struct gpusnap_dispatch *dispatch,
	const struct gsn_layer *layer, gpusnap_error *err);
void gsn_exact_release(struct gsn_exact *exact);

/* Read local expert `local`. */
gpusnap_status gsn_exact_load(struct gsn_exact *exact, uint32_t local, gpusnap_error *err);
/* Read the shared expert, which the layer has. */
gpusnap_status gsn_exact_load_shared(struct gsn_exact *exact, gpusnap_error *err);
/* Weight of the shared expert's output for one token, and its relative bound. */
double gsn_exact_shared_weight(const struct gsn_exact *exact, const float *x, double *ret_bound);
/* y[hidden] = E(x[hidden]) of the expert that is loaded, and its bounds. */
void gsn_exact_apply(struct gsn_exact *exact, const float *x, double *ret_y, double *ret_bound);
/* Router logits of one token, and the largest of their bounds. */
double gsn_exact_logits(const struct gsn_exact *exact, const float *x, double *ret_logits);

#endif
