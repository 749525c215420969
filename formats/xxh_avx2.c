/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-128 for AVX2: the build gives this file alone -mavx2. */
#define GSN_XXH_TABLE gsn_xxh_avx2
#define GSN_XXH_COPY  gsn_xxh_copy_avx2
#include "formats/xxh_body.h"
