/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading device memory from the host, window by window, and searching it for numbers that no
 * healthy weight has.
 */
#include "dispatch/peek.h"

#include <string.h>

#include "dispatch/dispatch_state.h"
#include "formats/base/bytes.h"

gpusnap_status gsn_peek(gpusnap_dispatch *dispatch, gpusnap_address address, uint64_t bytes,
	const void **ret_bytes, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = gsn_dispatch_ops(dispatch);
	gpusnap_status status = GPUSNAP_OK;

	if (ops->caps & GSN_CAP_HOST_ADDRESSABLE) {
		*ret_bytes = (const void *)(uintptr_t)address;
		return GPUSNAP_OK;
	}
	if (!dispatch->peek_staging)
		status = ops->pinned_alloc(gsn_dispatch_context(dispatch), GSN_PEEK_BYTES,
			&dispatch->peek_staging, err);
	if (!status)
		status = ops->copy(dispatch->stream, GSN_DEVICE_TO_HOST,
			(uint64_t)(uintptr_t)dispatch->peek_staging, address, bytes, err);
	if (!status)
		status = ops->stream_sync(dispatch->stream, err);
	if (!status)
		*ret_bytes = dispatch->peek_staging;
	return status;
}

void gsn_peek_release(gpusnap_dispatch *dispatch)
{
	if (dispatch->peek_staging)
		gsn_dispatch_ops(dispatch)->pinned_free(
			gsn_dispatch_context(dispatch), dispatch->peek_staging, GSN_PEEK_BYTES);
	dispatch->peek_staging = NULL;
}

gpusnap_status gsn_peek_copy(gpusnap_dispatch *dispatch, gpusnap_address address, uint64_t bytes,
	void *ret_bytes, gpusnap_error *err)
{
	uint8_t *to = ret_bytes;
	const void *window;

	for (uint64_t done = 0; done < bytes;) {
		uint64_t part = gsn_min(bytes - done, GSN_PEEK_BYTES);
		gpusnap_status status = gsn_peek(dispatch, address + done, part, &window, err);

		if (status)
			return status;
		memcpy(to + done, window, part);
		done += part;
	}
	return GPUSNAP_OK;
}

/*
 * Index of the first element whose bits under `mask` are all set, i.e. whose exponent (for E4M3:
 * exponent and mantissa) says that it is no finite number. The inner loops have no exit, so that
 * compilers turn them into vector code.
 */
#define DEFINE_FIND(type)                                                                          \
	static uint64_t find_##type(const type *values, uint64_t count, type mask)                 \
	{                                                                                          \
		for (uint64_t block = 0; block < count; block += 4096) {                           \
			uint64_t end = gsn_min(block + 4096, count);                               \
			type found = 0;                                                            \
                                                                                                   \
			for (uint64_t i = block; i < end; i++)                                     \
				found |= (type)((values[i] & mask) == mask);                       \
			for (uint64_t i = block; found && i < end; i++)                            \
				if ((values[i] & mask) == mask)                                    \
					return i;                                                  \
		}                                                                                  \
		return GSN_ALL_FINITE;                                                             \
	}
DEFINE_FIND(uint8_t)
DEFINE_FIND(uint16_t)
DEFINE_FIND(uint32_t)
#undef DEFINE_FIND

static uint64_t find_in_window(const void *window, uint64_t bytes, gpusnap_dtype dtype)
{
	switch (dtype) {
	case GPUSNAP_F8_E4M3:
		return find_uint8_t(window, bytes, 0x7f);
	case GPUSNAP_BF16:
		return find_uint16_t(window, bytes / 2, 0x7f80);
	case GPUSNAP_F16:
		return find_uint16_t(window, bytes / 2, 0x7c00);
	default: /* GPUSNAP_F32: bind.c lets no other through */
		return find_uint32_t(window, bytes / 4, 0x7f800000);
	}
}

gpusnap_status gsn_find_nonfinite(gpusnap_dispatch *dispatch, gpusnap_address address,
	uint64_t bytes, gpusnap_dtype dtype, uint64_t *ret_index, gpusnap_error *err)
{
	uint64_t width = gpusnap_dtype_bits(dtype) / 8;
	const void *window;

	for (uint64_t done = 0; done < bytes;) {
		uint64_t part = gsn_min(bytes - done, GSN_PEEK_BYTES);
		gpusnap_status status = gsn_peek(dispatch, address + done, part, &window, err);
		uint64_t index;

		if (status)
			return status;
		index = find_in_window(window, part, dtype);
		if (index != GSN_ALL_FINITE) {
			*ret_index = done / width + index;
			return GPUSNAP_OK;
		}
		done += part;
	}
	*ret_index = GSN_ALL_FINITE;
	return GPUSNAP_OK;
}

gpusnap_status gsn_operand_leaves(gpusnap_dispatch *dispatch, const struct gsn_operand *operand,
	uint64_t first, uint64_t count, gpusnap_digest *ret_leaves, gpusnap_error *err)
{
	const struct gsn_device_ops *ops = gsn_dispatch_ops(dispatch);
	uint64_t begin = first * GPUSNAP_LEAF_BYTES;
	struct gsn_leaf_range range = {
		.address = operand->address + begin,
		.bytes = gsn_min(operand->bytes - begin, count * GPUSNAP_LEAF_BYTES),
		.out = ret_leaves,
	};
	gpusnap_status status = ops->digest(dispatch->stream, &range, 1, err);
	/* Also after a failure: what was begun writes to the caller's memory. */
	gpusnap_status synced = ops->stream_sync(dispatch->stream, status ? NULL : err);

	return status ? status : synced;
}
