/* SPDX-License-Identifier: Apache-2.0 */
/* Copying while hashing for any processor of the kind. */
#define GSN_XXH_COPY gsn_xxh_copy_baseline
#include "formats/xxh_copy_body.h"
