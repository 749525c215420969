/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PEEK_H
#define GSN_PEEK_H
/* Looking at device memory from the host: leaf digests on the device, bytes through a window. */
#include <stdint.h>

#include <gpusnap/device.h>
#include <gpusnap/digest.h>
#include <gpusnap/dtype.h>
#include <gpusnap/status.h>

struct gpusnap_dispatch;
struct gsn_operand;

#define GSN_PEEK_BYTES (4u << 20)

/*
 * At most GSN_PEEK_BYTES bytes, readable until the next peek: the memory itself where the host can
 * address it, else a copy in pinned memory.
 */
gpusnap_status gsn_peek(struct gpusnap_dispatch *dispatch, gpusnap_address address, uint64_t bytes,
	const void **ret_bytes, gpusnap_error *err);
void gsn_peek_release(struct gpusnap_dispatch *dispatch);

/* Copy any number of bytes to host memory. */
gpusnap_status gsn_peek_copy(struct gpusnap_dispatch *dispatch, gpusnap_address address,
	uint64_t bytes, void *ret_bytes, gpusnap_error *err);

#define GSN_ALL_FINITE UINT64_MAX
/*
 * First element of [address, address + bytes) that is NaN or infinite; GSN_ALL_FINITE for none.
 * Dtypes: BF16, F16, F32 and F8_E4M3, which has NaN only.
 */
gpusnap_status gsn_find_nonfinite(struct gpusnap_dispatch *dispatch, gpusnap_address address,
	uint64_t bytes, gpusnap_dtype dtype, uint64_t *ret_index, gpusnap_error *err);

/* Digests of leaves [first, first + count) of a buffer. */
gpusnap_status gsn_operand_leaves(struct gpusnap_dispatch *dispatch,
	const struct gsn_operand *operand, uint64_t first, uint64_t count,
	gpusnap_digest *ret_leaves, gpusnap_error *err);

#endif
