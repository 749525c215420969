/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "tests/support/moe_state.h"
#include "tests/support/suite.h"

enum { TOKENS = 5 };

/* All outputs of one step. */
struct outputs {
	float *out, *slots, *logits, *weights;
	int32_t *ids;
	uint64_t local, remote;
};

static void outputs_alloc(struct outputs *to, const gpusnap_moe_layer *spec, uint32_t tokens)
{
	size_t pairs = (size_t)tokens * spec->top_k;

	to->out = gsn_alloc((size_t)tokens * spec->hidden, sizeof *to->out);
	to->slots = gsn_alloc(pairs * spec->hidden, sizeof *to->slots);
	to->logits = gsn_alloc((size_t)tokens * spec->experts, sizeof *to->logits);
	to->weights = gsn_alloc(pairs, sizeof *to->weights);
	to->ids = gsn_alloc(pairs, sizeof *to->ids);
	ck_assert(to->out && to->slots && to->logits && to->weights && to->ids);
}

static void outputs_free(struct outputs *from)
{
	gsn_free(from->out);
	gsn_free(from->slots);
	gsn_free(from->logits);
	gsn_free(from->weights);
	gsn_free(from->ids);
}

static void decode(const struct moe_state *state, uint32_t layer, const float *x, uint32_t tokens,
	struct outputs *to)
{
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	gpusnap_error err;

	io.tokens = tokens;
	io.x = x;
	io.out = to->out;
	io.slots = to->slots;
	io.logits = to->logits;
	io.ids = to->ids;
	io.weights = to->weights;
	ck_ok(gpusnap_decode_layer(state->dispatch, layer, &io, &err));
	to->local = io.local_assignments;
	to->remote = io.remote_assignments;
}

/* Add the slots of every rank, rank by rank, to `sum`; routing must be the same on each. */
static void add_ranks(
	struct moe_shape shape, const float *x, const struct outputs *whole, float *sum)
{
	size_t pairs = (size_t)TOKENS * shape.top_k;
	uint64_t local = 0;

	for (shape.ep_rank = 0; shape.ep_rank < shape.ep_size; shape.ep_rank++) {
		struct moe_state state;
		struct outputs part;

		moe_state_make(&state, &shape);
		outputs_alloc(&part, &state.model->layers[1], TOKENS);
		decode(&state, 1, x, TOKENS, &part);
		ck_assert_mem_eq(part.ids, whole->ids, pairs * sizeof *part.ids);
		ck_assert_mem_eq(part.weights, whole->weights, pairs * sizeof *part.weights);
		ck_assert_mem_eq(part.logits, whole->logits,
			(size_t)TOKENS * shape.experts * sizeof *part.logits);
		ck_assert_uint_eq(part.local + part.remote, pairs);
		local += part.local;
		for (size_t i = 0; i < pairs * shape.hidden; i++)
			sum[i] += part.slots[i];
		outputs_free(&part);
		moe_state_free(&state);
	}
	ck_assert_uint_eq(local, pairs);
}

static void check_ranks(struct moe_shape shape)
{
	float *x = moe_inputs(shape.mask, (size_t)TOKENS * shape.hidden);
	size_t values = (size_t)TOKENS * shape.top_k * shape.hidden;
	float *sum = gsn_alloc(values, sizeof *sum);
	struct moe_state state;
	struct outputs whole;

	moe_state_make(&state, &shape);
	outputs_alloc(&whole, &state.model->layers[1], TOKENS);
	decode(&state, 1, x, TOKENS, &whole);
	ck_assert_uint_eq(whole.remote, 0);
	for (shape.ep_size = 1; shape.ep_size <= 4; shape.ep_size++) {
		memset(sum, 0, values * sizeof *sum);
		add_ranks(shape, x, &whole, sum);
		ck_assert_mem_eq(sum, whole.slots, values * sizeof *sum);
	}
	outputs_free(&whole);
	moe_state_free(&state);
	gsn_free(sum);
	gsn_free(x);
}

START_TEST(slots_of_all_ranks_add_up_to_one_rank_bit_for_bit)
{
	const gpusnap_dtype dtypes[] = {GPUSNAP_BF16, GPUSNAP_F32, GPUSNAP_F8_E4M3};
	struct moe_shape shape = MOE_SHAPE_INIT;

	for (int kind = GPUSNAP_MASK_STANDARD; kind <= GPUSNAP_MASK_VLLM_AITER; kind++)
		for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
			shape.mask = (gpusnap_mask_kind)kind;
			shape.dtype = dtypes[i];
			check_ranks(shape);
		}
}
END_TEST

START_TEST(the_output_is_the_sum_of_slots_in_order)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	float *x = moe_inputs(9, (size_t)TOKENS * shape.hidden);
	struct moe_state state;
	struct outputs got;

	moe_state_make(&state, &shape);
	outputs_alloc(&got, &state.model->layers[0], TOKENS);
	decode(&state, 0, x, TOKENS, &got);
	for (size_t i = 0; i < (size_t)TOKENS * shape.hidden; i++) {
		const float *slots = got.slots + i / shape.hidden * shape.top_k * shape.hidden +
				     i % shape.hidden;
		float sum = 0.0f;

		for (uint32_t s = 0; s < shape.top_k; s++)
			sum += slots[(size_t)s * shape.hidden];
		ck_assert(sum == got.out[i] && sum != 0.0f);
	}
	outputs_free(&got);
	moe_state_free(&state);
	gsn_free(x);
}
END_TEST

START_TEST(a_batch_gives_the_bits_of_its_tokens_one_by_one)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	float *x = moe_inputs(4, (size_t)TOKENS * shape.hidden);
	struct moe_state state;
	struct outputs batch, one;

	moe_state_make(&state, &shape);
	outputs_alloc(&batch, &state.model->layers[0], TOKENS);
	outputs_alloc(&one, &state.model->layers[0], 1);
	decode(&state, 0, x, TOKENS, &batch);
	for (uint32_t t = 0; t < TOKENS; t++) {
		size_t row = (size_t)t * shape.hidden;

		decode(&state, 0, x + row, 1, &one);
		ck_assert_mem_eq(one.out, batch.out + row, shape.hidden * sizeof *one.out);
		ck_assert_mem_eq(one.ids, batch.ids + (size_t)t * shape.top_k,
			shape.top_k * sizeof *one.ids);
	}
	outputs_free(&batch);
	outputs_free(&one);
	moe_state_free(&state);
	gsn_free(x);
}
END_TEST

/* One token with these ids. */
static void force(const struct moe_state *state, const float *x, const int32_t *ids, float *slots,
	uint64_t expect_local)
{
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	int32_t ids_back[3];
	float weights[3];
	gpusnap_error err;

	io.tokens = 1;
	io.x = x;
	io.forced_ids = ids;
	io.slots = slots;
	io.ids = ids_back;
	io.weights = weights;
	ck_ok(gpusnap_decode_layer(state->dispatch, 0, &io, &err));
	for (int s = 0; s < 3; s++)
		ck_assert(ids_back[s] == ids[s] && weights[s] == 1.0f);
	ck_assert_uint_eq(io.local_assignments, expect_local);
	ck_assert_uint_eq(io.remote_assignments, 3 - expect_local);
}

START_TEST(forced_ids_have_weight_one_and_foreign_ones_give_zero)
{
	const int32_t ids[] = {3, 0, 7};
	struct moe_shape shape = MOE_SHAPE_INIT;
	float *x = moe_inputs(5, shape.hidden);
	float *slots = gsn_alloc(3 * (size_t)shape.hidden, sizeof *slots);

	shape.ep_size = 2; /* experts 0..3 */
	for (int kind = GPUSNAP_MASK_STANDARD; kind <= GPUSNAP_MASK_VLLM_AITER; kind++) {
		struct moe_state state;

		shape.mask = (gpusnap_mask_kind)kind;
		moe_state_make(&state, &shape);
		force(&state, x, ids, slots, 2);
		for (uint32_t i = 0; i < shape.hidden; i++) {
			ck_assert(slots[i] != 0.0f && slots[shape.hidden + i] != 0.0f);
			ck_assert(slots[2 * shape.hidden + i] == 0.0f);
		}
		moe_state_free(&state);
	}
	gsn_free(slots);
	gsn_free(x);
}
END_TEST

START_TEST(decode_is_refused_while_offloaded_and_the_same_bits_come_back)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	float *x = moe_inputs(6, (size_t)TOKENS * shape.hidden);
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	struct moe_state state;
	struct outputs before, after;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	outputs_alloc(&before, &state.model->layers[0], TOKENS);
	outputs_alloc(&after, &state.model->layers[0], TOKENS);
	decode(&state, 0, x, TOKENS, &before);
	moe_offload(&state);
	io.tokens = TOKENS;
	io.x = x;
	ck_fails(gpusnap_decode_layer(state.dispatch, 0, &io, &err), GPUSNAP_E_STATE,
		"buffer 'layers.0.router' is not resident: region 1 (weights) is offloaded");
	moe_resume(&state);
	decode(&state, 0, x, TOKENS, &after);
	ck_assert_mem_eq(before.out, after.out, (size_t)TOKENS * shape.hidden * sizeof *before.out);
	outputs_free(&before);
	outputs_free(&after);
	moe_state_free(&state);
	gsn_free(x);
}
END_TEST

START_TEST(memory_grows_only_with_the_batch)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	float *x = moe_inputs(7, (size_t)512 * shape.hidden);
	struct moe_state state;
	struct outputs got;
	uint64_t small, large;

	moe_state_make(&state, &shape);
	outputs_alloc(&got, &state.model->layers[0], 512);
	decode(&state, 0, x, 1, &got);
	small = gpusnap_dispatch_get_counters(state.dispatch).allocations;
	decode(&state, 1, x, 1, &got);
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).allocations, small);
	decode(&state, 0, x, 512, &got);
	large = gpusnap_dispatch_get_counters(state.dispatch).allocations;
	ck_assert_uint_gt(large, small);
	decode(&state, 1, x, 512, &got);
	decode(&state, 0, x, 3, &got);
	ck_assert_uint_eq(gpusnap_dispatch_get_counters(state.dispatch).allocations, large);
	outputs_free(&got);
	moe_state_free(&state);
	gsn_free(x);
}
END_TEST

START_TEST(bad_arguments_are_named)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	float *x = moe_inputs(8, 3 * (size_t)shape.hidden);
	const int32_t outside[] = {0, 8, 1};
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	struct moe_state state;
	float logits[8];
	gpusnap_error err;

	moe_state_make(&state, &shape);
	ck_fails(gpusnap_decode_layer(state.dispatch, 0, &io, &err), GPUSNAP_E_INVALID,
		"decode of 0 tokens without x");
	io.tokens = 1;
	io.x = x;
	ck_fails(gpusnap_decode_layer(state.dispatch, 2, &io, &err), GPUSNAP_E_INVALID,
		"layer index 2: the model has 2 layers");
	io.forced_ids = outside;
	ck_fails(gpusnap_decode_layer(state.dispatch, 0, &io, &err), GPUSNAP_E_INVALID,
		"forced id 8 is not one of 8 experts");
	io.logits = logits;
	ck_fails(gpusnap_decode_layer(state.dispatch, 0, &io, &err), GPUSNAP_E_INVALID, "logits");
	io = (gpusnap_decode_io)GPUSNAP_DECODE_IO_INIT;
	io.tokens = 1;
	io.x = x;
	x[3] = NAN;
	ck_fails(gpusnap_decode_layer(state.dispatch, 0, &io, &err), GPUSNAP_E_INVALID, "x[0][3]");
	moe_state_free(&state);
	gsn_free(x);
}
END_TEST

/* Plant a value, decode all experts by force, and look at what is blamed. */
static void check_fault(gpusnap_moe_slot slot, size_t offset, const void *bytes, size_t length,
	bool routed, const char *blamed)
{
	const int32_t ids[] = {0, 1, 2, 3, 4, 5};
	struct moe_shape shape = MOE_SHAPE_INIT;
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	float *x;
	struct moe_state state;
	uint64_t size;
	char *live;
	gpusnap_error err;

	shape.ep_size = 2;
	x = moe_inputs(10, 2 * (size_t)shape.hidden);
	moe_state_make(&state, &shape);
	live = moe_state_bytes(&state, 0, slot, &size);
	ck_assert_uint_le(offset + length, size);
	memcpy(live + offset, bytes, length);
	io.tokens = 2;
	io.x = x;
	io.forced_ids = routed ? NULL : ids;
	ck_fails(gpusnap_decode_layer(state.dispatch, 0, &io, &err), GPUSNAP_E_NOT_PROVED, blamed);
	ck_assert_msg(strstr(err.message, "layer 0") != NULL, "%s", err.message);
	moe_state_free(&state);
	gsn_free(x);
}

START_TEST(faults_of_kernels_name_layer_and_buffer)
{
	const uint16_t nan16 = 0x7fc0;
	const int32_t one = 1;

	check_fault(GPUSNAP_MOE_ROUTER, 2, &nan16, sizeof nan16, true, "'layers.0.router'");
	check_fault(GPUSNAP_MOE_W13, 2, &nan16, sizeof nan16, false, "'layers.0.w13'");
	check_fault(GPUSNAP_MOE_W2, 0, &nan16, sizeof nan16, false, "'layers.0.w2'");
	check_fault(GPUSNAP_MOE_MASK, 5 * sizeof one, &one, sizeof one, false, "'layers.0.mask'");
}
END_TEST

/* Register a buffer again with one thing changed, and see what creating a dispatcher says. */
static void check_mismatch(struct moe_state *state, gpusnap_moe_slot slot,
	void (*change)(gpusnap_buffer_options *options), const char *text)
{
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
	const char *name = state->model->layers[1].buffers[slot];
	gpusnap_buffer_options good;
	gpusnap_dispatch *dispatch;
	gpusnap_buffer_info info;
	uint64_t shape[3], good_shape[3];
	gpusnap_error err;

	ck_ok(gpusnap_buffer_find(state->registry, name, &info, &err));
	memcpy(shape, info.shape, info.rank * sizeof shape[0]);
	memcpy(good_shape, info.shape, info.rank * sizeof shape[0]);
	options.name = name;
	options.role = info.role;
	options.dtype = info.dtype;
	options.rank = info.rank;
	options.region = info.region;
	options.offset = info.offset;
	options.mask = info.mask;
	good = options;
	options.shape = shape;
	good.shape = good_shape;
	change(&options);
	ck_ok(gpusnap_buffer_unregister(state->registry, name, &err));
	ck_ok(gpusnap_buffer_register(state->registry, &options, &err));
	ck_fails(gpusnap_dispatch_create(state->registry, state->model, &dispatch, &err),
		GPUSNAP_E_MISMATCH, text);
	ck_assert_msg(strstr(err.message, name) != NULL, "%s", err.message);
	ck_ok(gpusnap_buffer_unregister(state->registry, name, &err));
	ck_ok(gpusnap_buffer_register(state->registry, &good, &err));
}

static void change_role(gpusnap_buffer_options *options)
{
	options->role = GPUSNAP_ROLE_KV;
}

static void change_dtype(gpusnap_buffer_options *options)
{
	options->dtype = GPUSNAP_I16;
}

static void change_one_dtype(gpusnap_buffer_options *options)
{
	options->dtype = GPUSNAP_F16;
}

static void swap_dimensions(gpusnap_buffer_options *options)
{
	uint64_t *shape = (uint64_t *)(uintptr_t)options->shape;
	uint64_t first = shape[1];

	shape[1] = shape[2];
	shape[2] = first;
}

static void change_kind(gpusnap_buffer_options *options)
{
	options->mask.kind = GPUSNAP_MASK_MORI;
}

static void change_rank(gpusnap_buffer_options *options)
{
	options->mask.first = 4;
	options->mask.rank = 1;
}

START_TEST(buffers_that_do_not_fit_the_model_are_named)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	struct moe_state state;

	shape.ep_size = 2;
	moe_state_make(&state, &shape);
	check_mismatch(&state, GPUSNAP_MOE_ROUTER, change_role, "role is kv");
	check_mismatch(&state, GPUSNAP_MOE_W2, change_dtype, "dtype I16");
	check_mismatch(&state, GPUSNAP_MOE_W2, change_one_dtype, "both must have one dtype");
	check_mismatch(&state, GPUSNAP_MOE_W13, swap_dimensions, "[4, 96, 80]");
	check_mismatch(&state, GPUSNAP_MOE_MASK, change_kind, "mask kind is mori");
	check_mismatch(&state, GPUSNAP_MOE_MASK, change_rank, "experts 4..+4 of 8");
	moe_state_free(&state);
}
END_TEST

START_TEST(a_missing_buffer_and_an_unbound_mask_are_named)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	struct moe_state state;
	gpusnap_dispatch *dispatch;
	float *x = moe_inputs(11, shape.hidden);
	gpusnap_error err;

	moe_state_make(&state, &shape);
	ck_ok(gpusnap_buffer_unregister(state.registry, "layers.1.mask", &err));
	ck_ok(gpusnap_dispatch_create(state.registry, state.model, &dispatch, &err));
	io.tokens = 1;
	io.x = x;
	ck_ok(gpusnap_decode_layer(dispatch, 0, &io, &err));
	ck_fails(gpusnap_decode_layer(dispatch, 1, &io, &err), GPUSNAP_E_STATE,
		"no buffer is named 'layers.1.mask'");
	ck_fails(gpusnap_dispatch_bind_mask(dispatch, 1, 1, (16u << 20) - 28, &err),
		GPUSNAP_E_INVALID, "leave region 1");
	ck_fails(gpusnap_dispatch_bind_mask(dispatch, 1, 1, 2, &err), GPUSNAP_E_INVALID, "aligned");
	ck_fails(gpusnap_dispatch_bind_mask(dispatch, 1, 99, 0, &err), GPUSNAP_E_INVALID, "99");
	gpusnap_dispatch_free(dispatch);
	ck_ok(gpusnap_buffer_unregister(state.registry, "layers.1.w2", &err));
	ck_fails(gpusnap_dispatch_create(state.registry, state.model, &dispatch, &err),
		GPUSNAP_E_MISMATCH, "w2 buffer 'layers.1.w2': is not among the 8 buffers");
	moe_state_free(&state);
	gsn_free(x);
}
END_TEST

/* Names, dtypes and shapes of another tensor-parallel rank's weights are the same. */
START_TEST(a_model_of_another_rank_than_the_state_is_refused)
{
	struct moe_shape shape = MOE_SHAPE_INIT;
	gpusnap_dispatch *dispatch = NULL;
	struct moe_state state;
	gpusnap_error err;

	moe_state_make(&state, &shape);
	state.model->tp_rank = 1;
	state.model->tp_size = 2;
	ck_fails(gpusnap_dispatch_create(state.registry, state.model, &dispatch, &err),
		GPUSNAP_E_MISMATCH,
		"is of tensor-parallel rank 1 of 2, expert-parallel 0 of 1; the state is of 0 of "
		"1, 0 of 1");
	ck_assert_ptr_null(dispatch);
	moe_state_free(&state);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		slots_of_all_ranks_add_up_to_one_rank_bit_for_bit,
		the_output_is_the_sum_of_slots_in_order,
		a_batch_gives_the_bits_of_its_tokens_one_by_one,
		forced_ids_have_weight_one_and_foreign_ones_give_zero,
		decode_is_refused_while_offloaded_and_the_same_bits_come_back,
		memory_grows_only_with_the_batch,
		bad_arguments_are_named,
		faults_of_kernels_name_layer_and_buffer,
		buffers_that_do_not_fit_the_model_are_named,
		a_missing_buffer_and_an_unbound_mask_are_named,
		a_model_of_another_rank_than_the_state_is_refused,
	};

	return RUN_SUITE("decode_layers", tests);
}
