/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_DECODE_H
#define BENCH_DECODE_H
/*
 * MoE decode of layers of Qwen3-30B-A3B's size: hidden 2048, intermediate 768, 128 experts of which
 * a token takes 8. Every step has experts of its own, of up to 48 layers in half of the free memory
 * (on the host 4 GiB), so that weights are not found in a cache.
 */
#include "tools/bench_session.h"

/* Bytes of weights and scales per second that experts and combine read, `batch` tokens at a time.
 */
gpusnap_status bench_decode(const struct bench_session *session, gpusnap_dtype dtype,
	uint32_t batch, double *ret_rate, gpusnap_error *err);

#endif
