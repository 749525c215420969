/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/xxh.h"

const struct gsn_xxh *gsn_xxh(void)
{
#ifdef __x86_64__
	/* The compiler's run-time support also asks whether the system saves the AVX state. */
	if (__builtin_cpu_supports("avx2"))
		return &gsn_xxh_avx2;
#endif
	return &gsn_xxh_baseline;
}
