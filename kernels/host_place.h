/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HOST_PLACE_H
#define GSN_HOST_PLACE_H
/* Copying to memory that the host addresses and digesting what is copied, in one pass. */
#include <stddef.h>

#include <gpusnap/digest.h>

/*
 * Copy `bytes` bytes, which do not overlap, and digest them while they are in this core's cache.
 * Where the source is there already, as after a read(), the digest costs next to nothing.
 */
gpusnap_digest gsn_host_place(void *to, const void *from, size_t bytes);

#endif
