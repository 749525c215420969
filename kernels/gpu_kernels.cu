/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers: which kernel and which grid. All kernels of the module are instantiated here. */
#include "kernels/vendor_device.h"

#include "kernels/digest.kernel.h"
#include "kernels/moe_experts.kernel.h"
#include "kernels/moe_group.kernel.h"
#include "kernels/moe_route.kernel.h"
#include "kernels/moe_tokens.kernel.h"

static uint64_t ceil_div(uint64_t value, uint64_t divisor)
{
	return (value + divisor - 1) / divisor;
}

static uint32_t at_most(uint64_t blocks, uint64_t limit)
{
	return (uint32_t)(blocks < limit ? blocks : limit);
}

static int launched()
{
	return (int)gpuClearError();
}

int gsn_gpu_launch_digest(const struct gsn_gpu_leaf_range *ranges, uint32_t range_count,
	uint64_t leaves, void *digests, void *stream)
{
	uint64_t blocks = ceil_div(leaves, GSN_DIGEST_WARPS);

	if (blocks > INT32_MAX)
		return (int)gpuErrorInvalidConfiguration;
	gsn_digest_leaves<<<(uint32_t)blocks, GSN_DIGEST_WARPS * GSN_WARP, 0,
		(gpuStream_t)stream>>>(ranges, range_count, leaves, (ulonglong2 *)digests);
	return launched();
}

/* Whether rows can be read in 16-byte pieces, and a chunk's scale be found by a shift. */
template <typename FORMAT> static bool is_whole(const gsn_matrix &matrix)
{
	if (matrix.scales && (matrix.block_k & (matrix.block_k - 1)))
		return false;
	return matrix.columns % FORMAT::CHUNK == 0 && (uint64_t)matrix.weights % 16 == 0;
}

template <typename FORMAT> static int route_logits(const gsn_logits_args &args, void *stream)
{
	bool whole = is_whole<FORMAT>(args.router) && (uint64_t)args.x % 16 == 0;
	uint32_t rows = GSN_ROUTE_WARPS * GSN_ROWS_AT_ONCE;
	uint32_t tokens = args.tokens == 1 ? 1 : GSN_ROUTE_TOKENS;
	dim3 grid((uint32_t)ceil_div(args.router.rows, rows),
		(uint32_t)ceil_div(args.tokens, tokens));
	uint32_t threads = GSN_ROUTE_WARPS * GSN_WARP;

	if (whole && tokens == 1)
		return gsn_launch(gsn_route_logits<FORMAT, true, 1>, grid, threads, stream, args);
	if (whole)
		return gsn_launch(gsn_route_logits<FORMAT, true, GSN_ROUTE_TOKENS>, grid, threads,
			stream, args);
	if (tokens == 1)
		return gsn_launch(gsn_route_logits<FORMAT, false, 1>, grid, threads, stream, args);
	return gsn_launch(
		gsn_route_logits<FORMAT, false, GSN_ROUTE_TOKENS>, grid, threads, stream, args);
}

int gsn_gpu_launch_route(const struct gsn_moe_route *args, uint32_t multiprocessors, void *stream)
{
	gsn_logits_args logits = {};
	int code;

	(void)multiprocessors;
	logits.router.weights = (const void *)args->router;
	logits.router.rows = args->experts;
	logits.router.columns = args->hidden;
	logits.x = (const float *)args->x;
	logits.logits = (float *)args->logits;
	logits.tokens = args->tokens;
	logits.bias = args->router_bias;
	logits.bias_dtype = args->router_bias_dtype;
	switch (args->router_dtype) {
	case GPUSNAP_BF16:
		code = route_logits<gsn_bf16>(logits, stream);
		break;
	case GPUSNAP_F16:
		code = route_logits<gsn_f16>(logits, stream);
		break;
	default:
		code = route_logits<gsn_f32>(logits, stream);
		break;
	}
	if (code)
		return code;
	return gsn_launch(gsn_route_choose, dim3((uint32_t)ceil_div(args->tokens, GSN_ROUTE_WARPS)),
		GSN_ROUTE_WARPS * GSN_WARP, stream, *args);
}

int gsn_gpu_launch_localise(
	const struct gsn_moe_localise *args, uint32_t multiprocessors, void *stream)
{
	uint32_t blocks = at_most(ceil_div(args->pairs, GSN_TOKEN_THREADS), multiprocessors * 8);

	return gsn_launch(gsn_localise_ids, dim3(blocks), GSN_TOKEN_THREADS, stream, *args);
}

/* Arguments of the experts' kernels: the scratch memory shared out, matrices described. */
static gsn_matrix matrix_of(const struct gsn_moe_experts *args, uint64_t weights, uint64_t scales,
	uint32_t rows, uint32_t columns)
{
	gsn_matrix matrix = {};

	matrix.weights = (const void *)weights;
	matrix.rows = rows;
	matrix.columns = columns;
	if (scales) {
		matrix.scales = (const void *)scales;
		matrix.block_n = args->block_n;
		matrix.block_k = args->block_k;
		matrix.scale_rows = (uint32_t)ceil_div(rows, args->block_n);
		matrix.scale_columns = (uint32_t)ceil_div(columns, args->block_k);
	}
	return matrix;
}

/* How the experts' matrices are read, and how the inputs are laid out for that. */
struct experts_plan {
	bool whole;
	uint32_t chunk_bits;
};

static int group_pairs(const struct gsn_moe_experts *args, char *scratch,
	const struct gsn_gpu_moe_layout &layout, const experts_plan &plan, uint32_t multiprocessors,
	void *stream)
{
	gsn_group_args group = {};
	uint64_t inputs = (uint64_t)args->tokens * args->hidden;
	uint32_t tilers =
		plan.whole ? at_most(ceil_div(inputs, GSN_GROUP_THREADS), multiprocessors) : 0;

	group.mask = (const int32_t *)args->mask;
	group.ids = (const int32_t *)args->ids;
	group.mask_locals = (int32_t *)(scratch + layout.mask_locals);
	group.pair_locals = (int32_t *)(scratch + layout.pair_locals);
	group.begin = (uint32_t *)(scratch + layout.begin);
	group.active = (uint32_t *)(scratch + layout.active);
	group.pairs = (uint32_t *)(scratch + layout.pairs);
	group.active_count = (uint32_t *)(scratch + layout.active_count);
	group.counters = (gsn_moe_counters *)args->counters;
	group.mask_length = args->mask_length;
	group.local_experts = args->local_experts;
	group.pair_count = args->tokens * args->top_k;
	group.x = (const float *)args->x;
	group.tiled = (float *)(scratch + layout.x);
	group.tokens = args->tokens;
	group.hidden = args->hidden;
	group.x_stride = layout.x_stride;
	group.chunk_bits = plan.chunk_bits;
	return gsn_launch(gsn_group_pairs, dim3(1 + tilers), GSN_GROUP_THREADS, stream, group);
}

static gsn_experts_args experts_args(
	const struct gsn_moe_experts *args, char *scratch, const struct gsn_gpu_moe_layout &layout)
{
	gsn_experts_args experts = {};

	experts.w13 = matrix_of(args, args->w13, args->w13_scale, args->intermediate, args->hidden);
	experts.w2 = matrix_of(args, args->w2, args->w2_scale, args->hidden, args->intermediate);
	experts.x = (const float *)args->x;
	experts.weights = (const float *)args->weights;
	experts.h = (float *)(scratch + layout.h);
	experts.y = (float *)args->y;
	experts.pair_locals = (const int32_t *)(scratch + layout.pair_locals);
	experts.begin = (const uint32_t *)(scratch + layout.begin);
	experts.active = (const uint32_t *)(scratch + layout.active);
	experts.pairs = (const uint32_t *)(scratch + layout.pairs);
	experts.active_count = (const uint32_t *)(scratch + layout.active_count);
	experts.counters = (gsn_moe_counters *)args->counters;
	experts.top_k = args->top_k;
	experts.x_stride = args->hidden;
	experts.h_stride = layout.h_stride;
	experts.pair_count = args->tokens * args->top_k;
	experts.w13_bias = args->w13_bias;
	experts.w2_bias = args->w2_bias;
	experts.bias_dtype = args->bias_dtype;
	experts.activation = args->activation;
	experts.limit = args->limit > 0.0f ? args->limit : INFINITY;
	experts.weight_before_w2 = args->weight_before_w2;
	return experts;
}

/* Warps enough for every item there can be, or to fill the device. */
template <typename KERNEL>
static int launch_experts(KERNEL kernel, const gsn_experts_args &args, uint64_t items,
	uint32_t multiprocessors, void *stream)
{
	int resident = 0;
	int code = gpuResidentBlocks(&resident, kernel, GSN_EXPERT_WARPS * GSN_WARP);

	if (code)
		return code;
	return gsn_launch(kernel,
		dim3(at_most(ceil_div(items, GSN_EXPERT_WARPS),
			(uint64_t)multiprocessors * (uint32_t)resident)),
		GSN_EXPERT_WARPS * GSN_WARP, stream, args);
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
static int run_experts(
	const gsn_experts_args &args, uint32_t experts, uint32_t multiprocessors, void *stream)
{
	uint64_t gate_up = experts * ceil_div(args.w13.rows, GSN_GATE_UP_ROWS);
	uint64_t down = experts * ceil_div(args.w2.rows, GSN_DOWN_ROWS);
	int code = launch_experts(
		gsn_experts_gate_up<FORMAT, SHAPE, TOKENS>, args, gate_up, multiprocessors, stream);

	return code ? code
		    : launch_experts(gsn_experts_down<FORMAT, SHAPE, TOKENS>, args, down,
			      multiprocessors, stream);
}

template <typename FORMAT>
static int launch_format(const struct gsn_moe_experts *args, uint32_t multiprocessors, void *stream)
{
	const struct gsn_gpu_moe_layout layout = gsn_gpu_moe_layout_of(args);
	char *scratch = (char *)((args->scratch + 15) & ~UINT64_C(15));
	gsn_experts_args experts = experts_args(args, scratch, layout);
	uint32_t active =
		args->local_experts < experts.pair_count ? args->local_experts : experts.pair_count;
	experts_plan plan = {};
	int code;

	plan.whole = is_whole<FORMAT>(experts.w13) && is_whole<FORMAT>(experts.w2);
	plan.chunk_bits = FORMAT::CHUNK_BITS;
	code = group_pairs(args, scratch, layout, plan, multiprocessors, stream);
	if (code)
		return code;
	if (!plan.whole)
		return run_experts<FORMAT, GSN_DOT_ANY, 1>(
			experts, active, multiprocessors, stream);
	experts.x = (const float *)(scratch + layout.x);
	experts.x_stride = layout.x_stride;
	experts.chunk_bits = plan.chunk_bits;
	if (args->tokens == 1)
		return run_experts<FORMAT, GSN_DOT_TILED, 1>(
			experts, active, multiprocessors, stream);
	return run_experts<FORMAT, GSN_DOT_TILED, GSN_EXPERT_TOKENS>(
		experts, active, multiprocessors, stream);
}

template <typename SCALE>
static int launch_scaled(const struct gsn_moe_experts *args, uint32_t multiprocessors, void *stream)
{
	if (args->weight_dtype == GPUSNAP_F4)
		return launch_format<gsn_f4<SCALE>>(args, multiprocessors, stream);
	return launch_format<gsn_f8_e4m3<SCALE>>(args, multiprocessors, stream);
}

int gsn_gpu_launch_experts(
	const struct gsn_moe_experts *args, uint32_t multiprocessors, void *stream)
{
	switch (args->weight_dtype) {
	case GPUSNAP_BF16:
		return launch_format<gsn_bf16>(args, multiprocessors, stream);
	case GPUSNAP_F16:
		return launch_format<gsn_f16>(args, multiprocessors, stream);
	case GPUSNAP_F32:
		return launch_format<gsn_f32>(args, multiprocessors, stream);
	default:
		break;
	}
	if (args->w13_scale && args->scale_dtype == GPUSNAP_F8_E8M0)
		return launch_scaled<uint8_t>(args, multiprocessors, stream);
	return launch_scaled<float>(args, multiprocessors, stream);
}

int gsn_gpu_launch_combine(
	const struct gsn_moe_combine *args, uint32_t multiprocessors, void *stream)
{
	uint64_t count = (uint64_t)args->tokens * args->hidden;
	uint32_t blocks = at_most(ceil_div(count, GSN_TOKEN_THREADS), multiprocessors * 16);

	return gsn_launch(gsn_combine_slots, dim3(blocks), GSN_TOKEN_THREADS, stream, *args);
}

template <typename FORMAT> static int norm_tokens(const struct gsn_rms_norm *args, void *stream)
{
	bool whole = args->hidden % gsn_f32::CHUNK == 0 && args->x % 16 == 0;
	uint32_t blocks = (uint32_t)ceil_div((uint64_t)args->tokens * GSN_WARP, GSN_TOKEN_THREADS);

	return gsn_launch(whole ? gsn_norm_tokens<FORMAT, true> : gsn_norm_tokens<FORMAT, false>,
		dim3(blocks), GSN_TOKEN_THREADS, stream, *args);
}

int gsn_gpu_launch_rms_norm(const struct gsn_rms_norm *args, uint32_t multiprocessors, void *stream)
{
	(void)multiprocessors;
	switch (args->weight_dtype) {
	case GPUSNAP_BF16:
		return norm_tokens<gsn_bf16>(args, stream);
	case GPUSNAP_F16:
		return norm_tokens<gsn_f16>(args, stream);
	default:
		return norm_tokens<gsn_f32>(args, stream);
	}
}
