/* SPDX-License-Identifier: Apache-2.0 */
/* Copying while hashing, for AVX2: the build gives this file -mavx2. */
#define GSN_XXH_COPY gsn_xxh_copy_avx2
#include "formats/xxh_copy_body.h"
