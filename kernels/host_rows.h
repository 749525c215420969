/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_ROWS_H
#define GSN_HOST_ROWS_H
/* The inner loops of host copies: rows of bytes, by row length. */
#include "kernels/device_ops.h"

/* How the bytes reach memory: through the caches, or past them because they would not stay. */
enum gsn_host_store { GSN_HOST_STORE_CACHED, GSN_HOST_STORE_STREAMED };

/* On the calling thread. Streamed stores are finished (fenced) on return. */
void gsn_host_rows_copy(const struct gsn_strided_copy *copy, enum gsn_host_store store);

#endif
