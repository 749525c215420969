/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_XXH_H
#define GSN_XXH_H
/*
 * XXH3-128 at the speed of the machine: xxhash.h compiled into the module once for the baseline
 * and once for AVX2, chosen at run time. The installed libxxhash is not called, because
 * distributions build its plain names for SSE2 only (a third of the AVX2 speed), and its
 * *_dispatch names are no way out: static libraries lack them, and in 0.8.1 the one-shot ones
 * return with the upper AVX halves dirty, which slows all SSE code that follows (3.7 times,
 * measured) until somebody clears them. Compiled here, the compiler clears them.
 */
#include <stddef.h>
#include <stdint.h>

enum { GSN_XXH_STATE_ALIGN = 64, GSN_XXH_STATE_BYTES = 640 };

struct gsn_xxh {
	/* `state` is GSN_XXH_STATE_BYTES at a multiple of GSN_XXH_STATE_ALIGN; `ret` gets the
	 * canonical (big-endian) bytes. data may be NULL when length is 0. */
	void (*hash)(const void *data, size_t length, uint8_t ret[16]);
	/*
	 * The hash of what is copied, with stores that go past the caches and are fenced in the
	 * end. Source and destination do not overlap; length is more than 0.
	 */
	void (*copy)(void *to, const void *from, size_t length, uint8_t ret[16]);
	void (*reset)(void *state);
	void (*update)(void *state, const void *data, size_t length);
	void (*finish)(const void *state, uint8_t ret[16]);
};

extern const struct gsn_xxh gsn_xxh_baseline;
void gsn_xxh_copy_baseline(void *to, const void *from, size_t length, uint8_t ret[16]);
#ifdef __x86_64__
extern const struct gsn_xxh gsn_xxh_avx2;
void gsn_xxh_copy_avx2(void *to, const void *from, size_t length, uint8_t ret[16]);
#endif

/* The fastest that this processor runs. */
const struct gsn_xxh *gsn_xxh(void);

#endif
