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
	uint64_t leaves, void *stream)
{
	uint64_t blocks = ceil_div(leaves, GSN_DIGEST_WARPS);

	if (blocks > INT32_MAX)
		return (int)gpuErrorInvalidConfiguration;
	gsn_digest_leaves<<<(uint32_t)blocks, GSN_DIGEST_WARPS * GSN_WARP, 0,
		(gpuStream_t)stream>>>(ranges, range_count, leaves);
	return launched();
}

/* Whether rows can be read in 16-byte pieces, and a chunk's scale be found by a shift. */
template <typename FORMAT> static bool is_whole(const gsn_matrix &matrix)
{
	if (matrix.scales && (matrix.block_k & (matrix.block_k - 1)))
		return false;
	return matrix.columns % FORMAT::CHUNK == 0 && (uint64_t)matrix.weights % 16 == 0;
}

template <typename FORMAT> static int route_logits(const gsn_logits_args &args, gpuStream_t stream)
{
	bool whole = is_whole<FORMAT>(args.router) && (uint64_t)args.x % 16 == 0;
	uint32_t rows = GSN_ROUTE_WARPS * GSN_ROWS_AT_ONCE;
	uint32_t tokens = args.tokens == 1 ? 1 : GSN_ROUTE_TOKENS;
	dim3 grid((uint32_t)ceil_div(args.router.rows, rows),
		(uint32_t)ceil_div(args.tokens, tokens));
	uint32_t threads = GSN_ROUTE_WARPS * GSN_WARP;

	if (whole && tokens == 1)
		gsn_route_logits<FORMAT, true, 1><<<grid, threads, 0, stream>>>(args);
	else if (whole)
		gsn_route_logits<FORMAT, true, GSN_ROUTE_TOKENS>
			<<<grid, threads, 0, stream>>>(args);
	else if (tokens == 1)
		gsn_route_logits<FORMAT, false, 1><<<grid, threads, 0, stream>>>(args);
	else
		gsn_route_logits<FORMAT, false, GSN_ROUTE_TOKENS>
			<<<grid, threads, 0, stream>>>(args);
	return launched();
}

int gsn_gpu_launch_route(const struct gsn_moe_route *args, uint32_t multiprocessors, void *stream)
{
	gpuStream_t on = (gpuStream_t)stream;
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
		code = route_logits<gsn_bf16>(logits, on);
		break;
	case GPUSNAP_F16:
		code = route_logits<gsn_f16>(logits, on);
		break;
	default:
		code = route_logits<gsn_f32>(logits, on);
		break;
	}
	if (code)
		return code;
	gsn_route_choose<<<(uint32_t)ceil_div(args->tokens, GSN_ROUTE_WARPS),
		GSN_ROUTE_WARPS * GSN_WARP, 0, on>>>(*args);
	return launched();
}

int gsn_gpu_launch_localise(
	const struct gsn_moe_localise *args, uint32_t multiprocessors, void *stream)
{
	uint32_t blocks = at_most(ceil_div(args->pairs, GSN_TOKEN_THREADS), multiprocessors * 8);

	gsn_localise_ids<<<blocks, GSN_TOKEN_THREADS, 0, (gpuStream_t)stream>>>(*args);
	return launched();
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

static int group_pairs(const struct gsn_moe_experts *args, char *scratch,
	const struct gsn_gpu_moe_layout &layout, gpuStream_t stream)
{
	gsn_group_args group = {};

	group.mask = (const int32_t *)args->mask;
	group.ids = (const int32_t *)args->ids;
	group.mask_locals = (int32_t *)(scratch + layout.mask_locals);
	group.pair_locals = (int32_t *)(scratch + layout.pair_locals);
	group.numbers = (uint32_t *)(scratch + layout.numbers);
	group.counts = (uint32_t *)(scratch + layout.counts);
	group.active = (uint4 *)(scratch + layout.active);
	group.pairs = (uint32_t *)(scratch + layout.pairs);
	group.active_count = (uint32_t *)(scratch + layout.active_count);
	group.counters = (gsn_moe_counters *)args->counters;
	group.mask_length = args->mask_length;
	group.local_experts = args->local_experts;
	group.pair_count = args->tokens * args->top_k;
	gsn_group_pairs<<<1, GSN_GROUP_THREADS, 0, stream>>>(group);
	return launched();
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
	experts.active = (const uint4 *)(scratch + layout.active);
	experts.pairs = (const uint32_t *)(scratch + layout.pairs);
	experts.active_count = (const uint32_t *)(scratch + layout.active_count);
	experts.counters = (gsn_moe_counters *)args->counters;
	experts.top_k = args->top_k;
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

/* A block for every piece of work that there can be: those without any end at once. */
template <typename KERNEL>
static int launch_experts(KERNEL kernel, const gsn_experts_args &args, uint64_t items,
	uint32_t shared_bytes, gpuStream_t stream)
{
	int code = gpuAllowShared(kernel, shared_bytes);

	if (code)
		return code;
	kernel<<<at_most(items, INT32_MAX), GSN_EXPERT_THREADS, shared_bytes, stream>>>(args);
	return launched();
}

/* Shared memory of a block that takes so many tokens at once through a matrix. */
template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
static uint64_t shared_bytes(const gsn_matrix &matrix)
{
	uint64_t turn = GSN_ROW_LANES * FORMAT::CHUNK;
	uint64_t inputs = TOKENS * ceil_div(matrix.columns, turn) * turn * sizeof(float);

	if constexpr (SHAPE == GSN_DOT_FED)
		inputs += gsn_feed<FORMAT, FORMAT::FED_ROWS, FORMAT::FED_STEPS>::bytes(
			matrix.scale_columns);
	return SHAPE == GSN_DOT_ANY ? 0 : inputs;
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
static bool has_room(const gsn_experts_args &args)
{
	return shared_bytes<FORMAT, SHAPE, TOKENS>(args.w13) <= GSN_STAGED_BYTES &&
	       shared_bytes<FORMAT, SHAPE, TOKENS>(args.w2) <= GSN_STAGED_BYTES;
}

template <typename FORMAT, gsn_dot_shape SHAPE, int TOKENS>
static int run_experts(const gsn_experts_args &args, uint32_t experts, gpuStream_t stream)
{
	const int rows = gsn_lane_rows<FORMAT>(SHAPE);
	const uint32_t rounds = gsn_expert_rounds(SHAPE, TOKENS);
	uint32_t gate_up = gsn_expert_chunk<gsn_gate_up<FORMAT, rows>>(rounds);
	uint32_t down = gsn_expert_chunk<gsn_down<FORMAT, rows>>(rounds);
	int code = launch_experts(gsn_experts_gate_up<FORMAT, SHAPE, TOKENS>, args,
		experts * ceil_div(args.w13.rows, gate_up),
		(uint32_t)shared_bytes<FORMAT, SHAPE, TOKENS>(args.w13), stream);

	if (code)
		return code;
	return launch_experts(gsn_experts_down<FORMAT, SHAPE, TOKENS>, args,
		experts * ceil_div(args.w2.rows, down),
		(uint32_t)shared_bytes<FORMAT, SHAPE, TOKENS>(args.w2), stream);
}

template <typename FORMAT>
static int choose_experts(const gsn_experts_args &args, uint32_t local_experts, gpuStream_t stream)
{
	uint32_t experts = local_experts < args.pair_count ? local_experts : args.pair_count;
	uint32_t tokens = args.pair_count / args.top_k;
	bool whole = is_whole<FORMAT>(args.w13) && is_whole<FORMAT>(args.w2) &&
		     (uint64_t)args.x % 16 == 0;

	if (!whole || !has_room<FORMAT, GSN_DOT_TILED, 1>(args))
		return run_experts<FORMAT, GSN_DOT_ANY, 1>(args, experts, stream);
	if (tokens > 1 && has_room<FORMAT, GSN_EXPERT_SHAPE, FORMAT::TOKENS>(args))
		return run_experts<FORMAT, GSN_EXPERT_SHAPE, FORMAT::TOKENS>(args, experts, stream);
	return run_experts<FORMAT, GSN_DOT_TILED, 1>(args, experts, stream);
}

template <typename SCALE>
static int choose_scaled(
	const struct gsn_moe_experts *args, const gsn_experts_args &experts, gpuStream_t stream)
{
	if (args->weight_dtype == GPUSNAP_F4)
		return choose_experts<gsn_f4<SCALE>>(experts, args->local_experts, stream);
	return choose_experts<gsn_f8_e4m3<SCALE>>(experts, args->local_experts, stream);
}

static int choose_format(
	const struct gsn_moe_experts *args, const gsn_experts_args &experts, gpuStream_t stream)
{
	switch (args->weight_dtype) {
	case GPUSNAP_BF16:
		return choose_experts<gsn_bf16>(experts, args->local_experts, stream);
	case GPUSNAP_F16:
		return choose_experts<gsn_f16>(experts, args->local_experts, stream);
	case GPUSNAP_F32:
		return choose_experts<gsn_f32>(experts, args->local_experts, stream);
	default:
		break;
	}
	if (args->w13_scale && args->scale_dtype == GPUSNAP_F8_E8M0)
		return choose_scaled<uint8_t>(args, experts, stream);
	return choose_scaled<float>(args, experts, stream);
}

int gsn_gpu_launch_experts(
	const struct gsn_moe_experts *args, uint32_t multiprocessors, void *stream)
{
	const struct gsn_gpu_moe_layout layout = gsn_gpu_moe_layout_of(args);
	char *scratch = (char *)((args->scratch + 15) & ~UINT64_C(15));
	gpuStream_t on = (gpuStream_t)stream;
	int code = group_pairs(args, scratch, layout, on);

	(void)multiprocessors;
	return code ? code : choose_format(args, experts_args(args, scratch, layout), on);
}

int gsn_gpu_launch_combine(
	const struct gsn_moe_combine *args, uint32_t multiprocessors, void *stream)
{
	uint64_t count = (uint64_t)args->tokens * args->hidden;
	uint32_t blocks = at_most(ceil_div(count, GSN_TOKEN_THREADS), multiprocessors * 16);

	gsn_combine_slots<<<blocks, GSN_TOKEN_THREADS, 0, (gpuStream_t)stream>>>(*args);
	return launched();
}

template <typename FORMAT>
static int norm_tokens(const struct gsn_rms_norm *args, gpuStream_t stream)
{
	bool whole = args->hidden % gsn_f32::CHUNK == 0 && args->x % 16 == 0;
	uint32_t blocks = (uint32_t)ceil_div((uint64_t)args->tokens * GSN_WARP, GSN_TOKEN_THREADS);

	if (whole)
		gsn_norm_tokens<FORMAT, true><<<blocks, GSN_TOKEN_THREADS, 0, stream>>>(*args);
	else
		gsn_norm_tokens<FORMAT, false><<<blocks, GSN_TOKEN_THREADS, 0, stream>>>(*args);
	return launched();
}

int gsn_gpu_launch_rms_norm(const struct gsn_rms_norm *args, uint32_t multiprocessors, void *stream)
{
	(void)multiprocessors;
	switch (args->weight_dtype) {
	case GPUSNAP_BF16:
		return norm_tokens<gsn_bf16>(args, (gpuStream_t)stream);
	case GPUSNAP_F16:
		return norm_tokens<gsn_f16>(args, (gpuStream_t)stream);
	default:
		return norm_tokens<gsn_f32>(args, (gpuStream_t)stream);
	}
}
