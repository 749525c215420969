/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/moe_args.h"

#include <assert.h>
#include <stdbool.h>

#include <gpusnap/moe.h>

#include "formats/base/fail.h"
#include "kernels/moe_math.h"

static_assert(GSN_MOE_GROUPS_MAX == GPUSNAP_MOE_GROUPS_MAX, "records hold what kernels compute");

struct named_address {
	const char *name;
	gpusnap_address address;
	uint32_t alignment;
};

struct named_size {
	const char *name;
	uint32_t size;
};

static gpusnap_status check_addresses(
	const char *what, const struct named_address *list, size_t count, gpusnap_error *err)
{
	for (size_t i = 0; i < count; i++) {
		if (list[i].address == 0)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"%s: address of '%s' is 0; give the memory it is to use", what,
				list[i].name);
		if (list[i].address % list[i].alignment)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"%s: address of '%s', 0x%llx, is no multiple of its element's %u "
				"bytes",
				what, list[i].name, (unsigned long long)list[i].address,
				list[i].alignment);
	}
	return GPUSNAP_OK;
}

/* Sizes are numbers of 31 bits, so that ids, pairs and row positions fit into theirs. */
static gpusnap_status check_sizes(
	const char *what, const struct named_size *list, size_t count, gpusnap_error *err)
{
	for (size_t i = 0; i < count; i++) {
		if (list[i].size == 0)
			return gsn_fail(err, GPUSNAP_E_INVALID,
				"%s: '%s' is 0; it must be at least 1", what, list[i].name);
		if (list[i].size > INT32_MAX)
			return gsn_fail(err, GPUSNAP_E_LIMIT,
				"%s: '%s' is %u, at most %d is possible", what, list[i].name,
				list[i].size, INT32_MAX);
	}
	return GPUSNAP_OK;
}

#define CHECK_ADDRESSES(what, list, err)                                                           \
	check_addresses((what), (list), sizeof(list) / sizeof((list)[0]), (err))
#define CHECK_SIZES(what, list, err)                                                               \
	check_sizes((what), (list), sizeof(list) / sizeof((list)[0]), (err))

/* An array that may be absent: address 0. */
static gpusnap_status check_optional(
	const char *what, struct named_address array, gpusnap_error *err)
{
	return array.address ? check_addresses(what, &array, 1, err) : GPUSNAP_OK;
}

static bool is_wide_float(gpusnap_dtype dtype)
{
	return dtype == GPUSNAP_BF16 || dtype == GPUSNAP_F16 || dtype == GPUSNAP_F32;
}

static gpusnap_status check_dtype(
	const char *what, const char *name, gpusnap_dtype dtype, gpusnap_error *err)
{
	if (is_wide_float(dtype))
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
		"%s: '%s' is of type %s; BF16, F16, F32 can be used", what, name,
		gpusnap_dtype_name(dtype));
}

static uint32_t element_bytes(gpusnap_dtype dtype)
{
	return dtype == GPUSNAP_F4 ? 1 : gpusnap_dtype_bits(dtype) / 8;
}

/* A vector of BF16, F16 or F32 that may be absent. */
static gpusnap_status check_vector(const char *what, const char *name, gpusnap_address address,
	gpusnap_dtype dtype, gpusnap_error *err)
{
	gpusnap_status status;

	if (!address)
		return GPUSNAP_OK;
	status = check_dtype(what, name, dtype, err);
	if (status)
		return status;
	return check_optional(
		what, (struct named_address){name, address, element_bytes(dtype)}, err);
}

/* (token, slot) pairs are numbered in 32 bits. */
static gpusnap_status check_pairs(
	const char *what, uint32_t tokens, uint32_t top_k, gpusnap_error *err)
{
	if ((uint64_t)tokens * top_k <= INT32_MAX)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_LIMIT,
		"%s: %u tokens of %u experts are more than %d pairs; use a smaller batch", what,
		tokens, top_k, INT32_MAX);
}

static gpusnap_status check_groups(
	const char *what, const struct gsn_moe_route *args, gpusnap_error *err)
{
	uint32_t size;

	if (!args->groups && !args->top_groups)
		return GPUSNAP_OK;
	if (args->groups == 0 || args->groups > GSN_MOE_GROUPS_MAX || args->experts % args->groups)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: %u groups of %u experts; 1 to %u equal ones are possible", what,
			args->groups, args->experts, GSN_MOE_GROUPS_MAX);
	size = args->experts / args->groups;
	if (args->top_groups == 0 || args->top_groups > args->groups ||
		(uint64_t)args->top_groups * size < args->top_k)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: top_k %u from the best %u of %u groups of %u experts", what,
			args->top_k, args->top_groups, args->groups, size);
	return GPUSNAP_OK;
}

static gpusnap_status check_score(
	const char *what, const struct gsn_moe_route *args, gpusnap_error *err)
{
	const struct named_address keys[] = {{"keys", args->keys, 4}};

	if (!(args->scale >= 0.0f && args->scale <= 1e6f))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: weights scaled by %g; it must be from 0 to 1e6", what,
			(double)args->scale);
	if (args->score < GPUSNAP_SCORE_SOFTMAX || args->score > GPUSNAP_SCORE_SQRT_SOFTPLUS)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"%s: score %u is not known, %d (softmax) to %d (sqrt softplus) are", what,
			args->score, GPUSNAP_SCORE_SOFTMAX, GPUSNAP_SCORE_SQRT_SOFTPLUS);
	if (gsn_score_is_single(args->score))
		return args->hash ? GPUSNAP_OK : CHECK_ADDRESSES(what, keys, err);
	if (args->selection_bias || args->groups || args->top_groups || args->hash)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"%s: selection bias, groups or a hash table with a softmax; sigmoid and "
			"sqrt softplus can have them",
			what);
	return GPUSNAP_OK;
}

static gpusnap_status check_hash(
	const char *what, const struct gsn_moe_route *args, gpusnap_error *err)
{
	const struct named_size sizes[] = {{"vocabulary", args->vocabulary}};
	const struct named_address addresses[] = {
		{"hash", args->hash, element_bytes(args->hash_dtype)},
		{"token_ids", args->token_ids, 4}};
	gpusnap_status status;

	if (!args->hash && args->vocabulary)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: a vocabulary of %u without a hash table; give its address, or 0", what,
			args->vocabulary);
	if (!args->hash)
		return GPUSNAP_OK;
	if (args->hash_dtype != GPUSNAP_I32 && args->hash_dtype != GPUSNAP_I64)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"%s: 'hash' is of type %s; I32, I64 can be used", what,
			gpusnap_dtype_name(args->hash_dtype));
	if (args->selection_bias || args->groups || args->top_groups)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: selection bias or groups with a hash table, which leaves no choice",
			what);
	status = CHECK_SIZES(what, sizes, err);
	return status ? status : CHECK_ADDRESSES(what, addresses, err);
}

gpusnap_status gsn_moe_route_check(const struct gsn_moe_route *args, gpusnap_error *err)
{
	const char *what = "MoE route";
	const struct named_size sizes[] = {{"tokens", args->tokens}, {"hidden", args->hidden},
		{"experts", args->experts}, {"top_k", args->top_k}};
	gpusnap_status status = CHECK_SIZES(what, sizes, err);

	if (!status)
		status = check_dtype(what, "router", args->router_dtype, err);
	if (!status)
		status = check_pairs(what, args->tokens, args->top_k, err);
	if (status)
		return status;
	if (args->top_k > args->experts)
		return gsn_fail(err, GPUSNAP_E_INVALID, "%s: top_k %u is more than the %u experts",
			what, args->top_k, args->experts);
	status = check_score(what, args, err);
	if (!status)
		status = check_hash(what, args, err);
	if (!status)
		status = check_groups(what, args, err);
	if (!status)
		status = check_vector(what, "selection bias", args->selection_bias,
			args->selection_bias_dtype, err);
	if (!status)
		status = check_vector(
			what, "router bias", args->router_bias, args->router_bias_dtype, err);
	if (status)
		return status;
	{
		const struct named_address addresses[] = {{"x", args->x, 4},
			{"router", args->router, element_bytes(args->router_dtype)},
			{"logits", args->logits, 4}, {"ids", args->ids, 4},
			{"weights", args->weights, 4}, {"counters", args->counters, 8}};

		return CHECK_ADDRESSES(what, addresses, err);
	}
}

gpusnap_status gsn_moe_localise_check(const struct gsn_moe_localise *args, gpusnap_error *err)
{
	const char *what = "MoE localise";
	const struct named_size sizes[] = {{"pairs", args->pairs}};
	const struct named_address addresses[] = {{"ids", args->ids, 4}, {"out", args->out, 4}};
	gpusnap_status status = CHECK_SIZES(what, sizes, err);

	if (!status)
		status = CHECK_ADDRESSES(what, addresses, err);
	if (status)
		return status;
	if ((uint64_t)args->first + args->local > INT32_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT,
			"%s: block of %u experts from %u on, ids are 32 bits signed", what,
			args->local, args->first);
	return GPUSNAP_OK;
}

static bool is_scaled_dtype(gpusnap_dtype dtype)
{
	return dtype == GPUSNAP_F8_E4M3 || dtype == GPUSNAP_F4;
}

static gpusnap_status check_weights(
	const char *what, const struct gsn_moe_experts *args, gpusnap_error *err)
{
	if (!is_wide_float(args->weight_dtype) && !is_scaled_dtype(args->weight_dtype))
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"%s: 'w13 and w2' are of type %s; BF16, F16, F32, F8_E4M3, F4 can be used",
			what, gpusnap_dtype_name(args->weight_dtype));
	if (args->weight_dtype == GPUSNAP_F4 && (args->hidden % 2 || args->intermediate % 2))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: rows of %u and %u F4 elements; they must be whole bytes", what,
			args->hidden, args->intermediate);
	return GPUSNAP_OK;
}

static gpusnap_status check_scale_blocks(
	const char *what, const struct gsn_moe_experts *args, gpusnap_error *err)
{
	uint32_t chunk = args->weight_dtype == GPUSNAP_F4 ? 32 : 16;

	if (!args->block_n || !args->block_k)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: scale blocks of %u x %u; both must be given with scales", what,
			args->block_n, args->block_k);
	if (args->block_k % chunk)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"%s: scale blocks of %u columns of %s; a multiple of %u is needed", what,
			args->block_k, gpusnap_dtype_name(args->weight_dtype), chunk);
	if (args->scale_dtype != GPUSNAP_F32 && args->scale_dtype != GPUSNAP_F8_E8M0)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"%s: scales are of type %s; F32, F8_E8M0 can be used", what,
			gpusnap_dtype_name(args->scale_dtype));
	return GPUSNAP_OK;
}

static gpusnap_status check_scales(
	const char *what, const struct gsn_moe_experts *args, gpusnap_error *err)
{
	bool blocks = args->block_n || args->block_k;
	uint32_t width = element_bytes(args->scale_dtype);
	const struct named_address scales[] = {
		{"w13_scale", args->w13_scale, width}, {"w2_scale", args->w2_scale, width}};
	gpusnap_status status;

	if (!blocks && !args->w13_scale && !args->w2_scale)
		return GPUSNAP_OK;
	if (!is_scaled_dtype(args->weight_dtype))
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"%s: scales are given but the weights are %s; only F8_E4M3 and F4 are "
			"scaled",
			what, gpusnap_dtype_name(args->weight_dtype));
	status = check_scale_blocks(what, args, err);
	return status ? status : CHECK_ADDRESSES(what, scales, err);
}

static gpusnap_status check_activation(
	const char *what, const struct gsn_moe_experts *args, gpusnap_error *err)
{
	if (args->activation != GPUSNAP_ACTIVATION_SILU &&
		args->activation != GPUSNAP_ACTIVATION_SWIGLU_OAI)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"%s: activation %u is not known, %d (silu) and %d (swiglu of gpt-oss) are",
			what, args->activation, GPUSNAP_ACTIVATION_SILU,
			GPUSNAP_ACTIVATION_SWIGLU_OAI);
	if (!(args->limit >= 0.0f) || !gsn_is_finite(args->limit))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: gate and up are limited to %g; it must be above 0, or 0 for none",
			what, (double)args->limit);
	if (args->weight_before_w2 > 1)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: 'weight_before_w2' is %u; it must be 0 or 1", what,
			args->weight_before_w2);
	return GPUSNAP_OK;
}

gpusnap_status gsn_moe_experts_check(const struct gsn_moe_experts *args, gpusnap_error *err)
{
	const char *what = "MoE experts";
	const struct named_size sizes[] = {{"tokens", args->tokens}, {"hidden", args->hidden},
		{"intermediate", args->intermediate}, {"top_k", args->top_k},
		{"local_experts", args->local_experts}, {"mask_length", args->mask_length}};
	gpusnap_status status = CHECK_SIZES(what, sizes, err);

	if (!status)
		status = check_weights(what, args, err);
	if (!status)
		status = check_scales(what, args, err);
	if (!status)
		status = check_pairs(what, args->tokens, args->top_k, err);
	if (!status)
		status = check_activation(what, args, err);
	if (!status)
		status = check_vector(what, "w13 bias", args->w13_bias, args->bias_dtype, err);
	if (!status)
		status = check_vector(what, "w2 bias", args->w2_bias, args->bias_dtype, err);
	if (status)
		return status;
	{
		uint32_t width = element_bytes(args->weight_dtype);
		const struct named_address addresses[] = {{"x", args->x, 4}, {"ids", args->ids, 4},
			{"weights", args->weights, 4}, {"mask", args->mask, 4},
			{"w13", args->w13, width}, {"w2", args->w2, width},
			{"scratch", args->scratch, 4}, {"y", args->y, 4},
			{"counters", args->counters, 8}};

		return CHECK_ADDRESSES(what, addresses, err);
	}
}

gpusnap_status gsn_moe_combine_check(const struct gsn_moe_combine *args, gpusnap_error *err)
{
	const char *what = "MoE combine";
	const struct named_size sizes[] = {
		{"tokens", args->tokens}, {"hidden", args->hidden}, {"top_k", args->top_k}};
	const struct named_address addresses[] = {
		{"y", args->y, 4}, {"out", args->out, 4}, {"counters", args->counters, 8}};
	gpusnap_status status = CHECK_SIZES(what, sizes, err);

	if (!status && args->shared % sizeof(float))
		status = gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: address of 'shared', 0x%llx, is no multiple of its element's 4 bytes",
			what, (unsigned long long)args->shared);
	return status ? status : CHECK_ADDRESSES(what, addresses, err);
}

gpusnap_status gsn_rms_norm_check(const struct gsn_rms_norm *args, gpusnap_error *err)
{
	const char *what = "RMS norm";
	const struct named_size sizes[] = {{"tokens", args->tokens}, {"hidden", args->hidden}};
	gpusnap_status status = CHECK_SIZES(what, sizes, err);

	if (!status)
		status = check_dtype(what, "weight", args->weight_dtype, err);
	if (status)
		return status;
	{
		const struct named_address addresses[] = {{"x", args->x, 4},
			{"weight", args->weight, element_bytes(args->weight_dtype)},
			{"out", args->out, 4}};

		return CHECK_ADDRESSES(what, addresses, err);
	}
}
