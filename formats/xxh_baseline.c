/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-128 with what every processor of the architecture has (SSE2, NEON). */
#define GSN_XXH_TABLE gsn_xxh_baseline
#define GSN_XXH_COPY  gsn_xxh_copy_baseline
#include "formats/xxh_body.h"
