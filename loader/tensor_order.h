/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_TENSOR_ORDER_H
#define GSN_TENSOR_ORDER_H
/* The order of a checkpoint's tensors: by name, numbers inside names by value. */
#include "loader/checkpoint.h"

/*
 * By bytes, but the longer of two numbers is the larger one. A total order: it compares names as
 * sequences of characters and numbers, and numbers by length, then digits. No name holds NUL.
 */
int gsn_tensor_order(const gpusnap_tensor *a, const gpusnap_tensor *b);
/*
 * Sort tensors that lie shard by shard: part i is [first[i], first[i + 1]). Parts are sorted by
 * several threads, then merged; neighbours that do not overlap are not looked at again.
 */
gpusnap_status gsn_tensor_order_sort(struct gsn_checkpoint_tensor *tensors, const size_t *first,
	size_t parts, gpusnap_error *err);

#endif
