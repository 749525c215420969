/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up MoE models for tests, and what is done with models of any origin. */
#include "tests/support/moe_state.h"

#include <stdio.h>
#include <string.h>

#include <gpusnap/expert_map.h>
#include <gpusnap/snapshot.h>

#include "dispatch/probe_input.h"
#include "formats/base/alloc.h"
#include "tests/support/suite.h"

float *moe_inputs(uint64_t seed, size_t count)
{
	float *values = gsn_alloc(count, sizeof *values);

	ck_assert_ptr_nonnull(values);
	gsn_probe_input(seed, 77, values, count);
	return values;
}

static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return (uint16_t)(bits >> 16);
}

/* Seeded elements of magnitude 2^-6 to 0.125; E4M3 codes of magnitude below 2. */
static void fill_elements(void *to, gpusnap_dtype dtype, uint64_t seed, size_t count)
{
	float *values = moe_inputs(seed, count);

	for (size_t i = 0; i < count; i++) {
		float small = values[i] * 0.0625f;
		uint16_t bits = to_bf16(values[i]);

		if (dtype == GPUSNAP_F32)
			((float *)to)[i] = small;
		else if (dtype == GPUSNAP_BF16)
			((uint16_t *)to)[i] = to_bf16(small);
		else
			((uint8_t *)to)[i] = (uint8_t)((bits >> 8 & 0x80) | (bits >> 1 & 0x3f));
	}
	gsn_free(values);
}

static void fill_scales(float *scales, uint64_t seed, size_t count)
{
	float *values = moe_inputs(seed, count);

	for (size_t i = 0; i < count; i++)
		scales[i] = 0.03125f * (values[i] < 0.0f ? -values[i] : values[i]);
	gsn_free(values);
}

static char *named(uint32_t layer, gpusnap_moe_slot slot)
{
	return gsn_printf("layers.%u.%s", layer, gpusnap_moe_slot_name(slot));
}

static bool has_slot(
	const gpusnap_moe_layer *layer, gpusnap_moe_slot slot, const struct moe_shape *shape)
{
	switch (slot) {
	case GPUSNAP_MOE_W13_SCALE:
	case GPUSNAP_MOE_W2_SCALE:
		return shape->dtype == GPUSNAP_F8_E4M3;
	case GPUSNAP_MOE_SELECTION_BIAS:
		return shape->sigmoid;
	case GPUSNAP_MOE_MAP:
		return shape->maps;
	case GPUSNAP_MOE_SHARED_W13:
	case GPUSNAP_MOE_SHARED_W2:
	case GPUSNAP_MOE_SHARED_GATE:
		return layer->shared_intermediate != 0;
	case GPUSNAP_MOE_ROUTER:
	case GPUSNAP_MOE_W13:
	case GPUSNAP_MOE_W2:
	case GPUSNAP_MOE_MASK:
	case GPUSNAP_MOE_NORM:
		return true;
	default:
		return false;
	}
}

static void describe_layer(gpusnap_moe_layer *layer, uint32_t index, const struct moe_shape *shape)
{
	bool scaled = shape->dtype == GPUSNAP_F8_E4M3;

	*layer = (gpusnap_moe_layer){
		.module = gsn_printf("model.layers.%u.mlp", index),
		.layer = index,
		.hidden = shape->hidden,
		.intermediate = shape->intermediate,
		.experts = shape->experts,
		.top_k = shape->top_k,
		.score = shape->sigmoid ? GPUSNAP_SCORE_SIGMOID : GPUSNAP_SCORE_SOFTMAX,
		.routed_scale = shape->sigmoid ? 2.5f : 0.0f,
		.groups = shape->sigmoid ? shape->experts / 4 : 0,
		.top_groups = shape->sigmoid ? 1 : 0,
		.shared_intermediate = shape->sigmoid && shape->ep_rank == 0 ? 56 : 0,
		.renormalise = true,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.block_n = scaled ? shape->block : 0,
		.block_k = scaled ? shape->block : 0,
		.norm_epsilon = 1e-6f,
		.mask = {.kind = shape->mask,
			.experts = shape->experts,
			.rank = shape->ep_rank,
			.world = shape->ep_size},
	};
	gpusnap_expert_block(shape->experts, shape->ep_rank, shape->ep_size, &layer->mask.first,
		&layer->mask.local);
	for (int slot = 0; slot < GPUSNAP_MOE_SLOTS; slot++)
		if (has_slot(layer, (gpusnap_moe_slot)slot, shape))
			layer->buffers[slot] = named(index, (gpusnap_moe_slot)slot);
}

static gpusnap_moe_model *describe(const struct moe_shape *shape)
{
	gpusnap_moe_model *model = gsn_alloc(1, sizeof *model);

	*model = (gpusnap_moe_model){
		.family = gsn_strdup("qwen3_moe"),
		.tp_size = 1,
		.ep_rank = shape->ep_rank,
		.ep_size = shape->ep_size,
		.layer_count = shape->layers,
		.layers = gsn_alloc(shape->layers, sizeof *model->layers),
	};
	for (uint32_t i = 0; i < shape->layers; i++)
		describe_layer(&model->layers[i], i, shape);
	return model;
}

struct tensor {
	gpusnap_role role;
	gpusnap_dtype dtype;
	uint32_t rank;
	uint64_t shape[3];
};

static struct tensor tensor_of(
	const gpusnap_moe_layer *layer, gpusnap_moe_slot slot, const struct moe_shape *shape)
{
	uint64_t local = layer->mask.local;
	uint64_t hidden = layer->hidden;
	uint64_t inner = layer->intermediate;
	uint64_t block = shape->block;
	uint64_t shared = layer->shared_intermediate;

	switch (slot) {
	case GPUSNAP_MOE_ROUTER:
		return (struct tensor){
			GPUSNAP_ROLE_ROUTER, GPUSNAP_BF16, 2, {layer->experts, hidden}};
	case GPUSNAP_MOE_W13:
		return (struct tensor){
			GPUSNAP_ROLE_WEIGHT, shape->dtype, 3, {local, 2 * inner, hidden}};
	case GPUSNAP_MOE_W2:
		return (struct tensor){
			GPUSNAP_ROLE_WEIGHT, shape->dtype, 3, {local, hidden, inner}};
	case GPUSNAP_MOE_W13_SCALE:
		return (struct tensor){GPUSNAP_ROLE_SCALE, GPUSNAP_F32, 3,
			{local, 2 * ((inner + block - 1) / block), (hidden + block - 1) / block}};
	case GPUSNAP_MOE_W2_SCALE:
		return (struct tensor){GPUSNAP_ROLE_SCALE, GPUSNAP_F32, 3,
			{local, (hidden + block - 1) / block, (inner + block - 1) / block}};
	case GPUSNAP_MOE_MASK:
		return (struct tensor){GPUSNAP_ROLE_EXPERT_MASK, GPUSNAP_I32, 1,
			{gpusnap_mask_length(&layer->mask)}};
	case GPUSNAP_MOE_MAP:
		return (struct tensor){GPUSNAP_ROLE_EXPERT_MAP, GPUSNAP_I32, 1, {layer->experts}};
	case GPUSNAP_MOE_SELECTION_BIAS:
		return (struct tensor){GPUSNAP_ROLE_BIAS, GPUSNAP_F32, 1, {layer->experts}};
	case GPUSNAP_MOE_SHARED_W13:
		return (struct tensor){GPUSNAP_ROLE_WEIGHT, GPUSNAP_BF16, 2, {2 * shared, hidden}};
	case GPUSNAP_MOE_SHARED_W2:
		return (struct tensor){GPUSNAP_ROLE_WEIGHT, GPUSNAP_BF16, 2, {hidden, shared}};
	case GPUSNAP_MOE_SHARED_GATE:
		return (struct tensor){GPUSNAP_ROLE_ROUTER, GPUSNAP_BF16, 2, {1, hidden}};
	default:
		return (struct tensor){GPUSNAP_ROLE_WEIGHT, GPUSNAP_BF16, 1, {hidden}};
	}
}

static void fill_tensor(const gpusnap_moe_layer *layer, gpusnap_moe_slot slot,
	const struct tensor *tensor, const struct moe_shape *shape, void *to)
{
	uint64_t seed = (uint64_t)layer->layer << 40 | (uint64_t)slot << 32;
	uint64_t part = tensor->shape[1] * tensor->shape[2];
	uint64_t width = gpusnap_dtype_bits(tensor->dtype) / 8;

	if (slot == GPUSNAP_MOE_MASK) {
		if (!shape->zero_masks)
			gpusnap_mask_fill(&layer->mask, to);
		return;
	}
	if (slot == GPUSNAP_MOE_MAP) {
		if (!shape->zero_masks)
			gpusnap_expert_map_fill(&layer->mask, to);
		return;
	}
	if (tensor->rank < 3) {
		fill_elements(to, tensor->dtype, seed,
			tensor->shape[0] * (tensor->rank == 2 ? tensor->shape[1] : 1));
		return;
	}
	for (uint64_t e = 0; e < tensor->shape[0]; e++) {
		char *expert = (char *)to + e * part * width;

		if (tensor->role == GPUSNAP_ROLE_SCALE)
			fill_scales((float *)(void *)expert, seed + layer->mask.first + e, part);
		else
			fill_elements(expert, tensor->dtype, seed + layer->mask.first + e, part);
	}
}

static void place_buffer(struct moe_state *state, const struct moe_shape *shape, uint32_t region,
	uint32_t index, gpusnap_moe_slot slot)
{
	const gpusnap_moe_layer *layer = &state->model->layers[index];
	struct tensor tensor = tensor_of(layer, slot, shape);
	gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;
	gpusnap_region_info info;
	gpusnap_error err;
	uint64_t bytes;

	if (!layer->buffers[slot])
		return;
	options.name = layer->buffers[slot];
	options.role = tensor.role;
	options.dtype = tensor.dtype;
	options.rank = tensor.rank;
	options.shape = tensor.shape;
	options.region = region;
	if (slot == GPUSNAP_MOE_MASK)
		options.mask = layer->mask;
	ck_ok(gpusnap_dtype_tensor_bytes(tensor.dtype, tensor.rank, tensor.shape, &bytes, &err));
	ck_ok(gpusnap_region_alloc(state->registry, region, bytes, 256, &options.offset, &err));
	ck_ok(gpusnap_region_get(state->registry, region, &info, &err));
	fill_tensor(
		layer, slot, &tensor, shape, (void *)(uintptr_t)(info.address + options.offset));
	if (slot == GPUSNAP_MOE_MASK && shape->unregistered_masks)
		state->mask_offsets[index] = options.offset;
	else
		ck_ok(gpusnap_buffer_register(state->registry, &options, &err));
}

void moe_state_open(
	struct moe_state *state, gpusnap_device *device, const gpusnap_registry_options *ranks)
{
	gpusnap_error err;

	if (!device) {
		ck_ok(gpusnap_device_open(test_device(), &state->device, &err));
		device = state->device;
	}
	ck_ok(gpusnap_registry_create(device, ranks, &state->registry, &err));
}

void moe_state_bind_masks(struct moe_state *state)
{
	gpusnap_error err;

	for (uint32_t i = 0; i < state->model->layer_count; i++)
		ck_ok(gpusnap_dispatch_bind_mask(
			state->dispatch, i, state->mask_region, state->mask_offsets[i], &err));
}

void moe_state_make(struct moe_state *state, const struct moe_shape *shape)
{
	gpusnap_registry_options ranks = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	gpusnap_error err;

	memset(state, 0, sizeof *state);
	options.tag = "weights";
	options.unclaimed_set = shape->forget_unclaimed;
	options.unclaimed = GPUSNAP_POLICY_ZERO;
	ranks.ep_rank = shape->ep_rank;
	ranks.ep_size = shape->ep_size;
	moe_state_open(state, shape->device, &ranks);
	state->model = describe(shape);
	ck_ok(gpusnap_region_reserve(
		state->registry, 16u << 20, &options, &state->mask_region, &err));
	for (uint32_t i = 0; i < shape->layers; i++)
		for (int slot = 0; slot < GPUSNAP_MOE_SLOTS; slot++)
			place_buffer(state, shape, state->mask_region, i, (gpusnap_moe_slot)slot);
	ck_ok(gpusnap_dispatch_create(state->registry, state->model, &state->dispatch, &err));
	state->unregistered = shape->unregistered_masks;
	if (state->unregistered)
		moe_state_bind_masks(state);
}

void moe_state_free(struct moe_state *state)
{
	gpusnap_dispatch_free(state->dispatch);
	gpusnap_moe_model_free(state->model);
	gpusnap_registry_free(state->registry);
	gpusnap_device_close(state->device);
}

void *moe_state_bytes(
	const struct moe_state *state, uint32_t layer, gpusnap_moe_slot slot, uint64_t *ret_bytes)
{
	const gpusnap_moe_layer *spec = &state->model->layers[layer];
	gpusnap_region_info region;
	gpusnap_buffer_info info;
	gpusnap_error err;

	if (slot == GPUSNAP_MOE_MASK && state->unregistered) {
		ck_ok(gpusnap_region_get(state->registry, state->mask_region, &region, &err));
		*ret_bytes = gpusnap_mask_length(&spec->mask) * sizeof(int32_t);
		return (void *)(uintptr_t)(region.address + state->mask_offsets[layer]);
	}
	ck_ok(gpusnap_buffer_find(state->registry, spec->buffers[slot], &info, &err));
	*ret_bytes = info.bytes;
	return (void *)(uintptr_t)info.address;
}

void moe_offload(const struct moe_state *state)
{
	gpusnap_offload_options options = GPUSNAP_OFFLOAD_OPTIONS_INIT;
	gpusnap_offload_report report;
	gpusnap_error err;

	options.backing = GPUSNAP_BACKING_ARENA;
	ck_ok(gpusnap_offload(state->registry, &options, &report, &err));
}

void moe_resume(const struct moe_state *state)
{
	gpusnap_resume_report report;
	gpusnap_error err;

	ck_ok(gpusnap_resume(state->registry, NULL, &report, &err));
}
