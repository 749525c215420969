/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_COMPACT_H
#define GSN_COMPACT_H
/* Which views need a contiguous copy of their own before they go to the device. */
#include <gpusnap/loader.h>

#include "loader/tensor_view.h"

/*
 * The two-part test: not contiguous, or contiguous but a part of a larger storage. The second part
 * is the one that is forgotten: a row slice is contiguous, and still drags its whole tensor along.
 */
bool gsn_view_needs_compaction(const struct gsn_view *view);
/* Is the view gathered through a read buffer (true) or read to where it is copied from (false). */
bool gsn_compact_applies(gpusnap_compact compact, const struct gsn_view *view);

#endif
