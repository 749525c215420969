/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_CHECK_H
#define GSN_MOE_CHECK_H
/* What of a layer goes with what, once each member is in its range. */
#include <gpusnap/moe.h>

/* Slots that the layer must name, and those that it must not: see gpusnap_moe_model_decode(). */
gpusnap_status gsn_moe_layer_check(const gpusnap_moe_layer *layer, gpusnap_error *err);

#endif
