/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_GATHER_H
#define GSN_GATHER_H
/* Making a view contiguous: the compaction itself. */
#include <stdint.h>

#include "loader/tensor_view.h"

/*
 * Write the view's gsn_view_target_bytes() to `target`. `source` is where the file's byte
 * view->source is in memory; not used by views that need no read.
 */
void gsn_gather(const struct gsn_view *view, const uint8_t *source, uint8_t *target);

#endif
