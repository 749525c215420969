/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DOT_H
#define GSN_DOT_H
/* What the files of the CPU paths share: the shape of the canonical dot product (arithmetic.md). */
#include "kernels/cpu_path.h"

enum {
	GSN_DOT_LANES = 8,	  /* chunk c belongs to lane c % 8 */
	GSN_DOT_ACCUMULATORS = 8, /* of each lane */
	GSN_DOT_CHUNK = 8,	  /* consecutive elements that a lane takes */
	GSN_DOT_CHUNK_F8 = 16,
};

extern const struct gsn_cpu_path gsn_cpu_portable;
#if defined(__x86_64__)
extern const struct gsn_cpu_path gsn_cpu_avx2, gsn_cpu_avx512, gsn_cpu_avx512_vbmi;
#endif

#endif
