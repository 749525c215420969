/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof on buffers of your own: memory that this program allocated, named with roles, and a
 * layer described by its sizes. A decode step, a probe record, a mask that is lost, and its name.
 *
 *     cc own_buffers.c $(pkg-config --cflags --libs gpusnap) -o own_buffers
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpusnap/dispatch.h>

enum { HIDDEN = 64, INTERMEDIATE = 32, EXPERTS = 8, TOP_K = 2, ARENA = 1 << 18 };

/* Rank 1 of 2: experts 4 to 7. */
static const gpusnap_mask_type mask_type = {
	.kind = GPUSNAP_MASK_STANDARD,
	.experts = EXPERTS,
	.local = EXPERTS / 2,
	.first = EXPERTS / 2,
	.rank = 1,
	.world = 2,
};

struct engine {
	char *arena; /* an engine's weights: one allocation, filled from the start */
	uint64_t used;
	gpusnap_device *device;
	gpusnap_registry *registry;
	gpusnap_dispatch *dispatch;
	gpusnap_probe *probe;
};

/* Name the next bytes of the arena. They stay where they are: nothing is copied. */
static gpusnap_status name_floats(struct engine *e, const char *name, gpusnap_role role,
	uint32_t rank, const uint64_t *shape, gpusnap_error *err)
{
	gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
	float *values = (float *)(void *)(e->arena + e->used);
	uint64_t count = 1;

	for (uint32_t i = 0; i < rank; i++)
		count *= shape[i];
	for (uint64_t i = 0; i < count; i++)
		values[i] = (float)((int)(i * 2654435761u >> 16 & 255) - 128) / 1024.0f;
	buffer.name = name;
	buffer.role = role;
	buffer.dtype = GPUSNAP_F32;
	buffer.rank = rank;
	buffer.shape = shape;
	buffer.region = 1;
	buffer.offset = e->used;
	e->used += count * sizeof *values;
	return gpusnap_buffer_register(e->registry, &buffer, err);
}

static gpusnap_status name_mask(struct engine *e, gpusnap_error *err)
{
	gpusnap_buffer_options buffer = GPUSNAP_BUFFER_OPTIONS_INIT;
	const uint64_t shape[] = {gpusnap_mask_length(&mask_type)};

	buffer.name = "mask";
	buffer.role = GPUSNAP_ROLE_EXPERT_MASK;
	buffer.dtype = GPUSNAP_I32;
	buffer.rank = 1;
	buffer.shape = shape;
	buffer.region = 1;
	buffer.offset = e->used;
	buffer.mask = mask_type;
	return gpusnap_buffer_register(e->registry, &buffer, err);
}

static gpusnap_status name_buffers(struct engine *e, gpusnap_error *err)
{
	static const uint64_t router[] = {EXPERTS, HIDDEN};
	static const uint64_t w13[] = {EXPERTS / 2, 2 * INTERMEDIATE, HIDDEN};
	static const uint64_t w2[] = {EXPERTS / 2, HIDDEN, INTERMEDIATE};
	gpusnap_status s = name_floats(e, "router", GPUSNAP_ROLE_ROUTER, 2, router, err);

	if (!s)
		s = name_floats(e, "w13", GPUSNAP_ROLE_WEIGHT, 3, w13, err);
	if (!s)
		s = name_floats(e, "w2", GPUSNAP_ROLE_WEIGHT, 3, w2, err);
	return s ? s : name_mask(e, err);
}

static gpusnap_status open_registry(struct engine *e, gpusnap_error *err)
{
	gpusnap_registry_options ranks = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_region_options region = GPUSNAP_REGION_OPTIONS_INIT;
	uint32_t id;
	gpusnap_status s = gpusnap_device_open("host", &e->device, err);

	ranks.ep_rank = mask_type.rank;
	ranks.ep_size = mask_type.world;
	region.tag = "weights";
	if (!s)
		s = gpusnap_registry_create(e->device, &ranks, &e->registry, err);
	if (!s)
		s = gpusnap_region_adopt(e->registry, (gpusnap_address)(uintptr_t)e->arena, ARENA,
			&region, &id, err);
	return s ? s : name_buffers(e, err);
}

/* The layer by its sizes, and which buffer is which. */
static gpusnap_status open_dispatch(struct engine *e, gpusnap_error *err)
{
	char family[] = "example", module[] = "layers.0.moe";
	char router[] = "router", w13[] = "w13", w2[] = "w2", mask[] = "mask";
	gpusnap_moe_layer layer = {
		.module = module,
		.hidden = HIDDEN,
		.intermediate = INTERMEDIATE,
		.experts = EXPERTS,
		.top_k = TOP_K,
		.score = GPUSNAP_SCORE_SOFTMAX,
		.renormalise = true,
		.activation = GPUSNAP_ACTIVATION_SILU,
		.mask = mask_type,
	};
	gpusnap_moe_model model = {
		.family = family,
		.tp_size = 1,
		.ep_rank = mask_type.rank,
		.ep_size = mask_type.world,
		.layer_count = 1,
		.layers = &layer,
	};
	gpusnap_status s;

	layer.buffers[GPUSNAP_MOE_ROUTER] = router;
	layer.buffers[GPUSNAP_MOE_W13] = w13;
	layer.buffers[GPUSNAP_MOE_W2] = w2;
	layer.buffers[GPUSNAP_MOE_MASK] = mask;
	s = gpusnap_dispatch_create(e->registry, &model, &e->dispatch, err);
	/* Written once, and again only when its region was remapped. */
	return s ? s : gpusnap_dispatch_build_mask(e->dispatch, 0, err);
}

static gpusnap_status decode(struct engine *e, gpusnap_error *err)
{
	static float x[2 * HIDDEN], out[2 * HIDDEN];
	gpusnap_decode_io io = GPUSNAP_DECODE_IO_INIT;
	gpusnap_status s;

	for (int i = 0; i < 2 * HIDDEN; i++)
		x[i] = (float)(i % 7) - 3.0f;
	io.tokens = 2;
	io.x = x;
	io.out = out;
	s = gpusnap_decode_layer(e->dispatch, 0, &io, err);
	if (!s)
		printf("decoded 2 tokens: %d pairs here, %d elsewhere\n", (int)io.local_assignments,
			(int)io.remote_assignments);
	return s;
}

static gpusnap_status validate(struct engine *e, gpusnap_error *err)
{
	gpusnap_validation got;
	gpusnap_status s = gpusnap_validate(e->dispatch, e->probe, NULL, &got, err);

	if (s)
		return s;
	for (size_t i = 0; i < got.failure_count; i++)
		printf("broken: layer %u, %s: %s\n", got.failures[i].layer,
			got.failures[i].buffer ? got.failures[i].buffer : "no single buffer",
			got.failures[i].detail);
	printf("%s\n", got.proved ? "proved" : "NOT proved");
	gpusnap_validation_release(&got);
	return GPUSNAP_OK;
}

static gpusnap_status run(struct engine *e, gpusnap_error *err)
{
	gpusnap_status s = open_registry(e, err);

	if (!s)
		s = open_dispatch(e, err);
	if (!s)
		s = decode(e, err);
	if (!s)
		s = gpusnap_probe_record(e->dispatch, NULL, &e->probe, err);
	if (!s)
		s = validate(e, err);
	if (s)
		return s;
	/* What a memory saver does to a mask that nobody registered. */
	memset(e->arena + e->used, 0, gpusnap_mask_length(&mask_type) * sizeof(int32_t));
	return validate(e, err);
}

int main(void)
{
	struct engine e = {0};
	gpusnap_error err = {0};
	gpusnap_status s = GPUSNAP_E_NOMEM;

	e.arena = aligned_alloc(4096, ARENA);
	if (e.arena) {
		memset(e.arena, 0, ARENA);
		s = run(&e, &err);
	}
	if (s)
		(void)fprintf(stderr, "own_buffers: %s\n", err.message);
	gpusnap_probe_free(e.probe);
	gpusnap_dispatch_free(e.dispatch);
	gpusnap_registry_free(e.registry);
	gpusnap_device_close(e.device);
	free(e.arena);
	return s ? 1 : 0;
}
