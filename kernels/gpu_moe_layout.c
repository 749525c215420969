/* SPDX-License-Identifier: Apache-2.0 */
/* How the scratch memory of the experts' kernels is shared out. */
#include "formats/base/bytes.h"
#include "kernels/gpu_kernels.h"

/* Take count elements of 4 bytes, up to the next 16-byte boundary. */
static uint64_t take(struct gsn_gpu_moe_layout *layout, uint64_t count)
{
	uint64_t offset = layout->bytes;

	layout->bytes += gsn_align_up(count, 4) * 4;
	return offset;
}

/* Only h can be too large: the other sizes are numbers of 31 bits. */
struct gsn_gpu_moe_layout gsn_gpu_moe_layout_of(const struct gsn_moe_experts *args)
{
	struct gsn_gpu_moe_layout layout = {.bytes = 0};
	uint64_t pairs = (uint64_t)args->tokens * args->top_k;
	uint64_t h_count;

	layout.h_stride = (uint32_t)gsn_align_up(args->intermediate, 4);
	if (gsn_mul_overflow(pairs, layout.h_stride, &h_count) || h_count > UINT64_MAX / 16) {
		layout.bytes = UINT64_MAX;
		return layout;
	}
	layout.h = take(&layout, h_count);
	layout.mask_locals = take(&layout, args->mask_length);
	layout.pair_locals = take(&layout, pairs);
	layout.numbers = take(&layout, pairs);
	layout.counts = take(&layout, args->local_experts);
	layout.active = take(&layout, (uint64_t)args->local_experts * 4);
	layout.pairs = take(&layout, pairs);
	layout.active_count = take(&layout, 1);
	layout.bytes += 16; /* the memory given may begin at any multiple of 4 */
	return layout;
}
