/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpusnap_load() against the checkpoints' own bytes: what all ranks hold, put together again by
 * arithmetic written here, is what the safetensors files hold.
 */
#include <gpusnap/loader.h>
#include <gpusnap/snapshot.h>

#include "tests/support/checkpoint_copy.h"
#include "tests/support/faulty_device.h"

static char scratch[PATH_MAX];

struct names {
	const char *checkpoint;
	const char *block;		       /* what the checkpoint calls the MoE block */
	const char *gate, *up, *down;	       /* NULL: experts are not fused */
	uint32_t experts, first_layer, layers; /* MoE layers */
	const char *shared;		       /* expert; NULL: none */
	bool gated;
};
static const struct names models[] = {
	{"qwen3_moe", "mlp", "gate_proj", "up_proj", "down_proj", 16, 0, 2, NULL, false},
	{"qwen3_moe_fp8", "mlp", "gate_proj", "up_proj", "down_proj", 8, 0, 2, NULL, false},
	{"mixtral", "block_sparse_moe", "w1", "w3", "w2", 8, 0, 2, NULL, false},
	{"qwen2_moe", "mlp", "gate_proj", "up_proj", "down_proj", 16, 0, 2, "shared_expert", true},
	{"glm4_moe", "mlp", "gate_proj", "up_proj", "down_proj", 16, 1, 1, "shared_experts", false},
};
enum { MODELS = sizeof models / sizeof models[0], RANKS_MAX = 8 };

/* One rank's load, with all its buffers in memory. */
struct rank {
	gpusnap_device *device;
	gpusnap_registry *registry;
	gpusnap_loaded loaded;
};

static void model_directory(char path[PATH_MAX], const char *name)
{
	tempdir_join(path, GPUSNAP_TEST_DATA "/checkpoints", name);
}

static gpusnap_load_options ranks(uint32_t tp_rank, uint32_t tp, uint32_t ep_rank, uint32_t ep)
{
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;

	options.tp_rank = tp_rank;
	options.tp_size = tp;
	options.ep_rank = ep_rank;
	options.ep_size = ep;
	return options;
}

static void open_rank(struct rank *rank, const gpusnap_load_options *options)
{
	gpusnap_registry_options ro = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_error err;

	ro.tp_rank = options->tp_rank;
	ro.tp_size = options->tp_size;
	ro.ep_rank = options->ep_rank;
	ro.ep_size = options->ep_size;
	memset(rank, 0, sizeof *rank);
	ck_ok(gpusnap_device_open(test_device(), &rank->device, &err));
	ck_ok(gpusnap_registry_create(rank->device, &ro, &rank->registry, &err));
}

static void load_rank(struct rank *rank, const char *directory, const gpusnap_load_options *options)
{
	gpusnap_error err;

	open_rank(rank, options);
	ck_ok(gpusnap_load(rank->registry, directory, options, &rank->loaded, &err));
}

static void close_rank(struct rank *rank)
{
	gpusnap_loaded_release(&rank->loaded);
	gpusnap_registry_free(rank->registry);
	gpusnap_device_close(rank->device);
}

/* A buffer's bytes, which it must have with this dtype and size; the caller frees them. */
static uint8_t *buffer_bytes(
	const struct rank *rank, const char *name, gpusnap_dtype dtype, uint64_t bytes)
{
	uint8_t *copy = malloc(bytes);
	gpusnap_buffer_info info;
	gpusnap_error err;

	ck_assert_ptr_nonnull(copy);
	ck_ok(gpusnap_buffer_find(rank->registry, name, &info, &err));
	ck_assert_msg(info.dtype == dtype && info.bytes == bytes, "%s is %s of %llu bytes", name,
		gpusnap_dtype_name(info.dtype), (unsigned long long)info.bytes);
	ck_ok(gpusnap_buffer_read(rank->registry, name, 0, copy, bytes, &err));
	return copy;
}

/* ---- weights ---- */

struct layer_view {
	struct test_checkpoint *checkpoint;
	const struct names *names;
	const struct rank *rank;
	const gpusnap_moe_layer *layer;
	uint32_t tp_rank, tp;
};

static struct test_tensor *expert_tensor(
	const struct layer_view *v, uint32_t expert, const char *projection, const char *suffix)
{
	char name[160];

	(void)snprintf(name, sizeof name, "model.layers.%u.%s.experts.%u.%s.%s", v->layer->layer,
		v->names->block, expert, projection, suffix);
	return test_checkpoint_find(v->checkpoint, name);
}

static void check_w13(const struct layer_view *v)
{
	uint64_t share = v->layer->intermediate, hidden = v->layer->hidden;
	struct test_tensor *any = expert_tensor(v, 0, v->names->gate, "weight");
	uint64_t row = hidden * gpusnap_dtype_bits(any->dtype) / 8;
	uint8_t *w13 = buffer_bytes(v->rank, v->layer->buffers[GPUSNAP_MOE_W13], any->dtype,
		2 * share * row * v->layer->mask.local);

	ck_assert_uint_eq(share * v->tp, any->shape[0]);
	for (uint64_t e = 0; e < v->layer->mask.local; e++) {
		uint32_t expert = v->layer->mask.first + (uint32_t)e;
		const uint8_t *gate = expert_tensor(v, expert, v->names->gate, "weight")->data;
		const uint8_t *up = expert_tensor(v, expert, v->names->up, "weight")->data;
		const uint8_t *mine = w13 + e * 2 * share * row;

		ck_assert_mem_eq(mine, gate + v->tp_rank * share * row, share * row);
		ck_assert_mem_eq(mine + share * row, up + v->tp_rank * share * row, share * row);
	}
	free(w13);
}

static void check_w2(const struct layer_view *v)
{
	uint64_t hidden = v->layer->hidden;
	struct test_tensor *any = expert_tensor(v, 0, v->names->down, "weight");
	uint64_t element = gpusnap_dtype_bits(any->dtype) / 8;
	uint64_t run = v->layer->intermediate * element;
	uint8_t *w2 = buffer_bytes(v->rank, v->layer->buffers[GPUSNAP_MOE_W2], any->dtype,
		v->layer->mask.local * hidden * run);
	uint64_t wrong = 0; /* rows */

	for (uint64_t e = 0; e < v->layer->mask.local; e++) {
		uint32_t expert = v->layer->mask.first + (uint32_t)e;
		const uint8_t *down = expert_tensor(v, expert, v->names->down, "weight")->data;

		for (uint64_t r = 0; r < hidden; r++)
			wrong += memcmp(w2 + (e * hidden + r) * run,
					 down + (r * v->tp + v->tp_rank) * run, run) != 0;
	}
	ck_assert_uint_eq(wrong, 0);
	free(w2);
}

/* ---- scales: compared weight by weight, as a kernel would use them ---- */

static float checkpoint_scale(const struct test_tensor *scales, uint64_t row, uint64_t column)
{
	float value;

	memcpy(&value, scales->data + (row / 128 * scales->shape[1] + column / 128) * sizeof value,
		sizeof value);
	return value;
}

static uint64_t blocks(uint64_t size, uint64_t block)
{
	return (size + block - 1) / block;
}

static void check_half(
	const struct layer_view *v, const struct test_tensor *scales, const float *mine)
{
	const gpusnap_moe_layer *l = v->layer;
	uint64_t columns = blocks(l->hidden, l->block_k);
	uint64_t wrong = 0; /* counted: an assertion a weight takes a system call each */

	for (uint64_t r = 0; r < l->intermediate; r++)
		for (uint64_t c = 0; c < l->hidden; c++)
			wrong += mine[r / l->block_n * columns + c / l->block_k] !=
				 checkpoint_scale(
					 scales, (uint64_t)v->tp_rank * l->intermediate + r, c);
	ck_assert_uint_eq(wrong, 0);
}

static void check_w13_scales(const struct layer_view *v)
{
	const gpusnap_moe_layer *l = v->layer;
	uint64_t half = blocks(l->intermediate, l->block_n) * blocks(l->hidden, l->block_k);
	float *scales = (float *)(void *)buffer_bytes(v->rank, l->buffers[GPUSNAP_MOE_W13_SCALE],
		GPUSNAP_F32, 2 * half * l->mask.local * sizeof(float));

	for (uint64_t e = 0; e < l->mask.local; e++) {
		uint32_t expert = l->mask.first + (uint32_t)e;

		check_half(v, expert_tensor(v, expert, v->names->gate, "weight_scale_inv"),
			scales + e * 2 * half);
		check_half(v, expert_tensor(v, expert, v->names->up, "weight_scale_inv"),
			scales + e * 2 * half + half);
	}
	free(scales);
}

static uint64_t wrong_w2_scales(
	const struct layer_view *v, const struct test_tensor *from, const float *mine)
{
	const gpusnap_moe_layer *l = v->layer;
	uint64_t columns = blocks(l->intermediate, l->block_k);
	uint64_t wrong = 0;

	for (uint64_t r = 0; r < l->hidden; r++)
		for (uint64_t c = 0; c < l->intermediate; c++)
			wrong += mine[r / l->block_n * columns + c / l->block_k] !=
				 checkpoint_scale(
					 from, r, (uint64_t)v->tp_rank * l->intermediate + c);
	return wrong;
}

static void check_w2_scales(const struct layer_view *v)
{
	const gpusnap_moe_layer *l = v->layer;
	uint64_t each = blocks(l->hidden, l->block_n) * blocks(l->intermediate, l->block_k);
	float *scales = (float *)(void *)buffer_bytes(v->rank, l->buffers[GPUSNAP_MOE_W2_SCALE],
		GPUSNAP_F32, l->mask.local * each * sizeof(float));

	for (uint64_t e = 0; e < l->mask.local; e++)
		ck_assert_uint_eq(wrong_w2_scales(v,
					  expert_tensor(v, l->mask.first + (uint32_t)e,
						  v->names->down, "weight_scale_inv"),
					  scales + e * each),
			0);
	free(scales);
}

/* ---- the shared expert ---- */

static struct test_tensor *shared_tensor(const struct layer_view *v, const char *projection)
{
	char name[160];

	(void)snprintf(name, sizeof name, "model.layers.%u.mlp.%s.%s.weight", v->layer->layer,
		v->names->shared, projection);
	return test_checkpoint_find(v->checkpoint, name);
}

static void check_shared_w13(const struct layer_view *v)
{
	uint64_t part = (uint64_t)v->layer->shared_intermediate * v->layer->hidden * 2;
	uint8_t *w13 = buffer_bytes(
		v->rank, v->layer->buffers[GPUSNAP_MOE_SHARED_W13], GPUSNAP_BF16, 2 * part);

	ck_assert_mem_eq(w13, shared_tensor(v, v->names->gate)->data + v->tp_rank * part, part);
	ck_assert_mem_eq(
		w13 + part, shared_tensor(v, v->names->up)->data + v->tp_rank * part, part);
	free(w13);
}

static void check_shared_w2(const struct layer_view *v)
{
	uint64_t run = 2ull * v->layer->shared_intermediate;
	uint8_t *w2 = buffer_bytes(v->rank, v->layer->buffers[GPUSNAP_MOE_SHARED_W2], GPUSNAP_BF16,
		v->layer->hidden * run);
	const uint8_t *down = shared_tensor(v, v->names->down)->data;
	uint64_t wrong = 0;

	for (uint64_t r = 0; r < v->layer->hidden; r++)
		wrong += memcmp(w2 + r * run, down + (r * v->tp + v->tp_rank) * run, run) != 0;
	ck_assert_uint_eq(wrong, 0);
	free(w2);
}

static void check_shared_gate(const struct layer_view *v)
{
	char name[160];
	struct test_tensor *gate;
	uint8_t *bytes;

	(void)snprintf(name, sizeof name, "model.layers.%u.mlp.shared_expert_gate.weight",
		v->layer->layer);
	gate = test_checkpoint_find(v->checkpoint, name);
	ck_assert_str_eq(v->layer->buffers[GPUSNAP_MOE_SHARED_GATE], name);
	bytes = buffer_bytes(v->rank, name, gate->dtype, gate->bytes);
	ck_assert_mem_eq(bytes, gate->data, gate->bytes);
	free(bytes);
}

/* It lives on expert-parallel rank 0, cut as experts are. Returns its buffers. */
static uint32_t check_shared(const struct layer_view *v)
{
	bool here = v->names->shared && v->layer->mask.rank == 0;

	ck_assert((v->layer->shared_intermediate != 0) == here);
	ck_assert(
		(v->layer->buffers[GPUSNAP_MOE_SHARED_GATE] != NULL) == (here && v->names->gated));
	if (!here)
		return 0;
	ck_assert_uint_eq(
		v->layer->shared_intermediate * v->tp, shared_tensor(v, v->names->gate)->shape[0]);
	check_shared_w13(v);
	check_shared_w2(v);
	if (v->names->gated)
		check_shared_gate(v);
	return v->names->gated ? 3 : 2;
}

/* ---- everything else ---- */

static void check_mask(const struct layer_view *v)
{
	uint32_t length = gpusnap_mask_length(&v->layer->mask);
	int32_t *values = (int32_t *)(void *)buffer_bytes(v->rank,
		v->layer->buffers[GPUSNAP_MOE_MASK], GPUSNAP_I32, length * sizeof(int32_t));
	gpusnap_buffer_info info;
	gpusnap_error err;

	ck_ok(gpusnap_buffer_find(
		v->rank->registry, v->layer->buffers[GPUSNAP_MOE_MASK], &info, &err));
	ck_assert_int_eq(info.role, GPUSNAP_ROLE_EXPERT_MASK);
	ck_assert_mem_eq(&info.mask, &v->layer->mask, sizeof info.mask);
	ck_ok(gpusnap_mask_check(&v->layer->mask, values, length, &err));
	free(values);
}

/* The name that a tensor's buffer has: its own, but for routers of other spellings. */
static void buffer_name(const struct names *names, const char *tensor, char name[160])
{
	const char *at = strstr(tensor, names->block);
	const char *rest = at ? at + strlen(names->block) : NULL;

	if (rest && strcmp(rest, ".gate.weight") == 0)
		(void)snprintf(name, 160, "%.*smlp%s", (int)(at - tensor), tensor, rest);
	else
		(void)snprintf(name, 160, "%s", tensor);
}

/* Every tensor that is no expert's is whole on every rank. Returns how many there are. */
static uint32_t check_replicated(
	struct test_checkpoint *checkpoint, const struct names *names, const struct rank *rank)
{
	uint32_t count = 0;

	for (size_t i = 0; i < checkpoint->tensor_count; i++) {
		const struct test_tensor *t = &checkpoint->tensors[i];
		char name[160];
		uint8_t *bytes;

		if (names->gate && strstr(t->name, ".experts."))
			continue;
		if (names->shared && strstr(t->name, ".shared_expert"))
			continue;
		buffer_name(names, t->name, name);
		bytes = buffer_bytes(rank, name, t->dtype, t->bytes);
		ck_assert_mem_eq(bytes, t->data, t->bytes);
		free(bytes);
		count++;
	}
	return count;
}

static void check_rank(
	struct test_checkpoint *checkpoint, const struct names *names, const struct rank *rank)
{
	const gpusnap_moe_model *model = rank->loaded.model;
	uint32_t buffers = check_replicated(checkpoint, names, rank);

	ck_assert_uint_eq(model->layer_count, names->layers);
	for (uint32_t i = 0; i < model->layer_count; i++) {
		struct layer_view v = {
			checkpoint, names, rank, &model->layers[i], model->tp_rank, model->tp_size};

		ck_assert_uint_eq(v.layer->layer, names->first_layer + i);
		check_w13(&v);
		check_w2(&v);
		check_mask(&v);
		buffers += 3 + check_shared(&v);
		if (!v.layer->block_n)
			continue;
		check_w13_scales(&v);
		check_w2_scales(&v);
		buffers += 2;
	}
	ck_assert_uint_eq(gpusnap_buffer_count(rank->registry), buffers);
}

static void check_grid(
	struct test_checkpoint *checkpoint, const struct names *names, uint32_t tp, uint32_t ep)
{
	uint32_t experts = 0;

	for (uint32_t i = 0; i < tp * ep; i++) {
		gpusnap_load_options options = ranks(i % tp, tp, i / tp, ep);
		struct rank rank;

		load_rank(&rank, checkpoint->directory, &options);
		check_rank(checkpoint, names, &rank);
		/* Blocks are contiguous and follow each other, so together they are all experts. */
		ck_assert_uint_eq(rank.loaded.model->layers[0].mask.first, experts);
		if (i % tp == tp - 1)
			experts += rank.loaded.model->layers[0].mask.local;
		close_rank(&rank);
	}
	ck_assert_uint_eq(experts, names->experts);
}

static void check_all_ranks(const char *directory, const struct names *names)
{
	struct test_checkpoint *checkpoint = test_checkpoint_read(directory);

	for (uint32_t tp = 1; tp <= 2; tp++)
		for (uint32_t ep = 1; ep <= 4; ep *= 2)
			check_grid(checkpoint, names, tp, ep);
	check_grid(checkpoint, names, 1, 3); /* blocks of different sizes */
	test_checkpoint_free(checkpoint);
}

START_TEST(all_ranks_together_hold_the_checkpoint)
{
	char directory[PATH_MAX];

	for (size_t m = 0; m < MODELS; m++) {
		model_directory(directory, models[m].checkpoint);
		check_all_ranks(directory, &models[m]);
	}
}
END_TEST

/* Load a damaged or rewritten checkpoint as rank 0 of 1. */
static gpusnap_status try_load(const char *directory, gpusnap_error *err)
{
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	struct rank rank;
	gpusnap_status st;

	open_rank(&rank, &options);
	st = gpusnap_load(rank.registry, directory, &options, &rank.loaded, err);
	if (st) {
		ck_assert_uint_eq(gpusnap_region_count(rank.registry), 0);
		ck_assert_uint_eq(gpusnap_buffer_count(rank.registry), 0);
		ck_assert_ptr_null(gpusnap_record_get(rank.registry, "model"));
		ck_assert_ptr_null(rank.loaded.model);
	}
	close_rank(&rank);
	return st;
}

/* The tensors of a test checkpoint, to be changed and written to `folder` as one file. */
static struct test_checkpoint *rewrite(const char *name, char folder[PATH_MAX])
{
	char source[PATH_MAX], config[PATH_MAX], copy[PATH_MAX];

	model_directory(source, name);
	tempdir_make(folder, scratch);
	tempdir_join(config, source, "config.json");
	tempdir_join(copy, folder, "config.json");
	copy_file(config, copy);
	return test_checkpoint_read(source);
}

static gpusnap_status load_rewritten(
	struct test_checkpoint *checkpoint, const char *folder, gpusnap_error *err)
{
	gpusnap_status st;

	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	st = try_load(folder, err);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
	return st;
}

START_TEST(single_file_loads_with_and_without_the_model_prefix)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen3_moe", folder);
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	struct rank rank;

	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	load_rank(&rank, folder, &options);
	check_rank(checkpoint, &models[0], &rank);
	close_rank(&rank);

	for (size_t i = 0; i < checkpoint->tensor_count; i++) {
		char *name = checkpoint->tensors[i].name;

		if (strncmp(name, "model.", 6) == 0)
			memmove(name, name + 6, strlen(name + 6) + 1);
	}
	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	load_rank(&rank, folder, &options);
	ck_assert_str_eq(rank.loaded.model->layers[1].module, "model.layers.1.mlp");
	ck_assert_str_eq(rank.loaded.model->layers[1].buffers[GPUSNAP_MOE_ROUTER],
		"model.layers.1.mlp.gate.weight");
	ck_assert_str_eq(rank.loaded.model->layers[1].buffers[GPUSNAP_MOE_NORM],
		"layers.1.post_attention_layernorm.weight");
	close_rank(&rank);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
}
END_TEST

START_TEST(bf16_scales_are_widened_to_f32)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen3_moe_fp8", folder);
	gpusnap_load_options options = ranks(1, 2, 0, 1);
	uint16_t *narrow = calloc(checkpoint->tensor_count, 4 * sizeof *narrow);
	struct rank rank;

	ck_assert_ptr_nonnull(narrow);
	for (size_t i = 0; i < checkpoint->tensor_count; i++) {
		struct test_tensor *t = &checkpoint->tensors[i];

		if (!strstr(t->name, "weight_scale_inv"))
			continue;
		ck_assert_uint_eq(t->bytes, 16);
		for (size_t k = 0; k < 4; k++)
			memcpy(&narrow[4 * i + k], t->data + 4 * k + 2, 2);
		t->dtype = GPUSNAP_BF16;
		t->bytes = 8;
		t->data = (const uint8_t *)&narrow[4 * i];
	}
	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	load_rank(&rank, folder, &options);
	/* What a rank must hold: the same values, cut to 16 bits, as F32. */
	for (size_t i = 0; i < checkpoint->tensor_count; i++) {
		struct test_tensor *t = &checkpoint->tensors[i];
		uint8_t *wide = calloc(4, 4);

		ck_assert_ptr_nonnull(wide);
		if (strstr(t->name, "weight_scale_inv")) {
			for (size_t k = 0; k < 4; k++)
				memcpy(wide + 4 * k + 2, t->data + 2 * k, 2);
			t->dtype = GPUSNAP_F32;
			t->bytes = 16;
			t->data = wide;
		} else {
			free(wide);
		}
	}
	check_rank(checkpoint, &models[1], &rank);
	for (size_t i = 0; i < checkpoint->tensor_count; i++)
		if (strstr(checkpoint->tensors[i].name, "weight_scale_inv"))
			free((void *)(uintptr_t)checkpoint->tensors[i].data);
	free(narrow);
	close_rank(&rank);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
}
END_TEST

START_TEST(model_description_is_complete_and_recorded)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(1, 2, 1, 2);
	gpusnap_moe_model *recorded;
	const gpusnap_moe_layer *layer;
	gpusnap_json *json;
	struct rank rank;
	gpusnap_error err;

	model_directory(directory, "qwen3_moe_fp8");
	load_rank(&rank, directory, &options);
	json = gpusnap_record_get(rank.registry, "model");
	ck_assert_ptr_nonnull(json);
	ck_ok(gpusnap_moe_model_decode(json, &recorded, &err));
	gpusnap_json_free(json);
	ck_assert_str_eq(recorded->family, "qwen3_moe");
	ck_assert_uint_eq(recorded->tp_rank, 1);
	ck_assert_uint_eq(recorded->tp_size, 2);
	ck_assert_uint_eq(recorded->ep_rank, 1);
	ck_assert_uint_eq(recorded->ep_size, 2);
	ck_assert_uint_eq(recorded->layer_count, 2);
	layer = &recorded->layers[1];
	ck_assert_str_eq(layer->module, "model.layers.1.mlp");
	ck_assert_uint_eq(layer->hidden, 256);
	ck_assert_uint_eq(layer->intermediate, 96);
	ck_assert_uint_eq(layer->experts, 8);
	ck_assert_uint_eq(layer->top_k, 2);
	ck_assert(layer->renormalise);
	ck_assert_uint_eq(layer->block_n, 32); /* 96 rows begin inside a block of 128 */
	ck_assert_uint_eq(layer->block_k, 32);
	ck_assert_float_eq(layer->norm_epsilon, 1e-6f);
	ck_assert_uint_eq(layer->mask.first, 4);
	ck_assert_uint_eq(layer->mask.local, 4);
	ck_assert_int_eq(layer->mask.kind, GPUSNAP_MASK_STANDARD);
	ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_W2_SCALE],
		"model.layers.1.mlp.experts.w2_weight_scale_inv");
	ck_assert_str_eq(
		layer->buffers[GPUSNAP_MOE_NORM], "model.layers.1.post_attention_layernorm.weight");
	gpusnap_moe_model_free(recorded);
	close_rank(&rank);
}
END_TEST

START_TEST(routing_of_a_sigmoid_family_is_described)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(1, 2, 0, 2);
	const gpusnap_moe_layer *layer;
	struct rank rank;

	model_directory(directory, "glm4_moe");
	load_rank(&rank, directory, &options);
	layer = &rank.loaded.model->layers[0];
	ck_assert_str_eq(layer->module, "model.layers.1.mlp");
	ck_assert_int_eq(layer->score, GPUSNAP_SCORE_SIGMOID);
	ck_assert(layer->renormalise);
	ck_assert_float_eq(layer->routed_scale, 1.0f);
	ck_assert_uint_eq(layer->groups, 0); /* n_group 1: nothing to choose */
	ck_assert_uint_eq(layer->shared_intermediate, 48);
	ck_assert_str_eq(layer->buffers[GPUSNAP_MOE_SELECTION_BIAS],
		"model.layers.1.mlp.gate.e_score_correction_bias");
	close_rank(&rank);
}
END_TEST

START_TEST(routing_of_deepseek_and_gpt_oss_is_described)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(1, 2, 0, 2);
	const gpusnap_moe_layer *layer;
	struct rank rank;

	model_directory(directory, "deepseek_v4_fp4");
	load_rank(&rank, directory, &options);
	layer = &rank.loaded.model->layers[0];
	ck_assert_int_eq(layer->score, GPUSNAP_SCORE_SQRT_SOFTPLUS);
	ck_assert_uint_eq(layer->vocabulary, 256);
	ck_assert_ptr_null(layer->buffers[GPUSNAP_MOE_SELECTION_BIAS]);
	ck_assert_float_eq(layer->activation_limit, 10.0f);
	ck_assert_float_eq(layer->routed_scale, 1.5f);
	ck_assert(!layer->weight_before_w2);
	ck_assert_uint_eq(layer->block_n, 1);
	ck_assert_uint_eq(layer->block_k, 32);
	ck_assert_uint_eq(layer->intermediate, 64); /* 96 in slices of whole blocks */
	ck_assert_uint_eq(layer->shared_block_n, 16);
	ck_assert_uint_eq(layer->shared_intermediate, 48);
	layer = &rank.loaded.model->layers[1];
	ck_assert_uint_eq(layer->vocabulary, 0);
	ck_assert_ptr_nonnull(layer->buffers[GPUSNAP_MOE_SELECTION_BIAS]);
	close_rank(&rank);
	model_directory(directory, "gpt_oss");
	load_rank(&rank, directory, &options);
	layer = &rank.loaded.model->layers[0];
	ck_assert_int_eq(layer->score, GPUSNAP_SCORE_SOFTMAX_CHOSEN);
	ck_assert_int_eq(layer->activation, GPUSNAP_ACTIVATION_SWIGLU_OAI);
	ck_assert_float_eq(layer->activation_limit, 7.0f); /* not in config.json */
	ck_assert_ptr_nonnull(layer->buffers[GPUSNAP_MOE_W13_BIAS]);
	ck_assert_ptr_null(layer->buffers[GPUSNAP_MOE_W2_BIAS]); /* of tp_rank 0 */
	close_rank(&rank);
	model_directory(directory, "deepseek_v3");
	load_rank(&rank, directory, &options);
	layer = &rank.loaded.model->layers[0];
	ck_assert_uint_eq(layer->layer, 1); /* the first one is dense */
	ck_assert_int_eq(layer->score, GPUSNAP_SCORE_SIGMOID);
	ck_assert_uint_eq(layer->groups, 4);
	ck_assert_uint_eq(layer->top_groups, 2);
	ck_assert_float_eq(layer->activation_limit, 0.0f);
	close_rank(&rank);
}
END_TEST

START_TEST(shared_experts_that_are_missing_or_misshapen_are_named)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen2_moe", folder);
	struct test_tensor *t;
	gpusnap_error err;

	t = test_checkpoint_find(checkpoint, "model.layers.1.mlp.shared_expert.up_proj.weight");
	*t = checkpoint->tensors[--checkpoint->tensor_count];
	t = test_checkpoint_find(checkpoint, "model.layers.1.mlp.shared_expert_gate.weight");
	*t = checkpoint->tensors[--checkpoint->tensor_count];
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"layer 1 lacks 2 tensors: model.layers.1.mlp.shared_expert_gate.weight, "
		"model.layers.1.mlp.shared_expert.up_proj.weight");
	checkpoint = rewrite("qwen2_moe", folder);
	t = test_checkpoint_find(checkpoint, "model.layers.0.mlp.shared_expert_gate.weight");
	t->shape[0] = 2;
	t->shape[1] = 64;
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"shared_expert_gate.weight is BF16 [2, 64]; expected BF16, F16 or F32 [1, 128]");
	checkpoint = rewrite("glm4_moe", folder);
	t = test_checkpoint_find(checkpoint, "model.layers.1.mlp.gate.e_score_correction_bias");
	t->dtype = GPUSNAP_I16;
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"gate.e_score_correction_bias is I16 [16]; expected BF16, F16 or F32 [16]");
	checkpoint = rewrite("glm4_moe", folder);
	t = test_checkpoint_find(checkpoint, "model.layers.1.mlp.shared_experts.gate_proj.weight");
	t->dtype = GPUSNAP_I16;
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_UNSUPPORTED,
		"shared_experts.gate_proj.weight is I16");
}
END_TEST

START_TEST(buffers_are_aligned_and_leave_no_hole)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	gpusnap_region_info region;
	uint64_t bytes = 0, end = 0;
	struct rank rank;
	gpusnap_error err;

	model_directory(directory, "qwen3_moe");
	load_rank(&rank, directory, &options);
	ck_ok(gpusnap_region_at(rank.registry, 0, &region, &err));
	ck_assert_str_eq(region.tag, "weights");
	for (uint32_t i = 0; i < gpusnap_buffer_count(rank.registry); i++) {
		gpusnap_buffer_info info;
		uint64_t alignment;

		ck_ok(gpusnap_buffer_at(rank.registry, i, &info, &err));
		alignment = info.bytes & (~info.bytes + 1);
		ck_assert_uint_eq(info.address % (alignment < 4096 ? alignment : 4096), 0);
		bytes += info.bytes;
		if (info.offset + info.bytes > end)
			end = info.offset + info.bytes;
	}
	ck_assert_uint_eq(bytes, end);
	ck_assert_uint_eq(bytes, rank.loaded.report.bytes);
	close_rank(&rank);
}
END_TEST

/* ---- compaction ---- */

static void check_same_buffers(const struct rank *a, const struct rank *b)
{
	gpusnap_error err;

	ck_assert_uint_eq(gpusnap_buffer_count(a->registry), gpusnap_buffer_count(b->registry));
	for (uint32_t i = 0; i < gpusnap_buffer_count(a->registry); i++) {
		gpusnap_buffer_info info;
		uint8_t *x, *y;

		ck_ok(gpusnap_buffer_at(a->registry, i, &info, &err));
		x = buffer_bytes(a, info.name, info.dtype, info.bytes);
		y = buffer_bytes(b, info.name, info.dtype, info.bytes);
		ck_assert_mem_eq(x, y, info.bytes);
		free(x);
		free(y);
	}
}

START_TEST(compaction_changes_the_copies_and_not_the_bytes)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(1, 2, 0, 2);
	struct rank automatic, always, never;

	model_directory(directory, "qwen3_moe_fp8");
	load_rank(&automatic, directory, &options);
	options.compact = GPUSNAP_COMPACT_ALWAYS;
	load_rank(&always, directory, &options);
	options.compact = GPUSNAP_COMPACT_NEVER;
	load_rank(&never, directory, &options);
	check_same_buffers(&automatic, &always);
	check_same_buffers(&automatic, &never);
	/* One copy a view, and one a mask; everything at once otherwise: it fits one slot. */
	ck_assert_uint_eq(never.loaded.report.copies, never.loaded.report.views + 2);
	ck_assert_uint_eq(automatic.loaded.report.copies, 1);
	ck_assert_uint_eq(always.loaded.report.copies, 1);
	ck_assert_uint_eq(automatic.loaded.report.views, never.loaded.report.views);
	ck_assert_uint_le(automatic.loaded.report.bytes_read, 2 * automatic.loaded.report.bytes);
	close_rank(&automatic);
	close_rank(&always);
	close_rank(&never);
}
END_TEST

static void load_with_engine(
	const struct rank *plain, const char *directory, gpusnap_load_options *options)
{
	struct rank rank;
	gpusnap_error err;
	gpusnap_status st;

	open_rank(&rank, options);
	st = gpusnap_load(rank.registry, directory, options, &rank.loaded, &err);
	if (!st) {
		check_same_buffers(plain, &rank);
		ck_assert_str_eq(
			rank.loaded.report.io.engine, gpusnap_io_engine_name(options->io.engine));
		ck_assert(
			rank.loaded.report.io.direct == (options->io.direct == GPUSNAP_DIRECT_ON));
	} else { /* this machine lacks the engine, or its file system O_DIRECT */
		ck_assert_int_eq(st, GPUSNAP_E_UNSUPPORTED);
	}
	close_rank(&rank);
}

START_TEST(every_engine_and_block_size_gives_the_same_bytes)
{
	static const struct {
		gpusnap_io_engine engine;
		gpusnap_io_direct direct;
	} ways[] = {
		{GPUSNAP_IO_THREADS, GPUSNAP_DIRECT_OFF},
		{GPUSNAP_IO_URING, GPUSNAP_DIRECT_OFF},
		{GPUSNAP_IO_THREADS, GPUSNAP_DIRECT_ON},
		{GPUSNAP_IO_URING, GPUSNAP_DIRECT_ON},
		{GPUSNAP_IO_AIO, GPUSNAP_DIRECT_ON},
		{GPUSNAP_IO_MMAP, GPUSNAP_DIRECT_OFF},
	};
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(1, 2, 0, 1);
	struct rank plain;

	model_directory(directory, "qwen3_moe_fp8");
	load_rank(&plain, directory, &options);
	options.io.struct_size = sizeof options.io;
	options.io.block_bytes = 65536;
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		for (uint32_t depth = 0; depth < 4; depth++) {
			options.io.engine = ways[i].engine;
			options.io.direct = ways[i].direct;
			options.io.depth = depth;
			load_with_engine(&plain, directory, &options);
		}
	close_rank(&plain);
}
END_TEST

/* The host's memory is filled in place; that of another device through staging slots. */
START_TEST(staging_gives_the_bytes_that_are_read_in_place)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(1, 2, 0, 1);
	struct rank plain, staged = {0};
	struct faulty_device faulty;
	gpusnap_error err;

	model_directory(directory, "qwen3_moe_fp8");
	load_rank(&plain, directory, &options);
	for (int compact = GPUSNAP_COMPACT_AUTO; compact <= GPUSNAP_COMPACT_NEVER; compact++) {
		gpusnap_registry_options ro = *gpusnap_registry_ranks(plain.registry);

		faulty_open(&faulty, test_device());
		faulty.ops.caps &= ~(uint32_t)GSN_CAP_HOST_ADDRESSABLE;
		ck_ok(gpusnap_registry_create(&faulty.device, &ro, &staged.registry, &err));
		options.compact = (gpusnap_compact)compact;
		ck_ok(gpusnap_load(staged.registry, directory, &options, &staged.loaded, &err));
		ck_assert_uint_eq(
			faulty.copied_bytes[GSN_HOST_TO_DEVICE], staged.loaded.report.bytes);
		ck_assert_uint_eq(faulty.calls[FAULTY_COPY], staged.loaded.report.copies);
		check_same_buffers(&plain, &staged);
		gpusnap_loaded_release(&staged.loaded);
		gpusnap_registry_free(staged.registry);
		faulty_close(&faulty);
	}
	close_rank(&plain);
}
END_TEST

/* ---- masks ---- */

START_TEST(every_mask_kind_is_built_and_typed)
{
	char directory[PATH_MAX];
	const struct names *names = &models[0];
	struct test_checkpoint *checkpoint;

	model_directory(directory, names->checkpoint);
	checkpoint = test_checkpoint_read(directory);
	for (int kind = GPUSNAP_MASK_STANDARD; kind <= GPUSNAP_MASK_VLLM_AITER; kind++) {
		gpusnap_load_options options = ranks(0, 1, 2, 3);
		struct rank rank;

		options.mask = (gpusnap_mask_kind)kind;
		load_rank(&rank, directory, &options);
		ck_assert_int_eq(rank.loaded.model->layers[0].mask.kind, kind);
		check_rank(checkpoint, names, &rank);
		close_rank(&rank);
	}
	test_checkpoint_free(checkpoint);
}
END_TEST

START_TEST(unregistered_masks_are_there_without_a_name)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(0, 1, 1, 2);
	gpusnap_region_info region;
	gpusnap_buffer_info info;
	struct rank rank;
	gpusnap_error err;

	model_directory(directory, "mixtral");
	options.unregistered_masks = true;
	options.forget_unclaimed = true;
	load_rank(&rank, directory, &options);
	ck_ok(gpusnap_region_at(rank.registry, 0, &region, &err));
	ck_assert_int_eq(region.policy, GPUSNAP_POLICY_KEEP);
	ck_assert_int_eq(region.unclaimed, GPUSNAP_POLICY_ZERO);
	ck_assert_uint_eq(rank.loaded.mask_count, 2);
	for (uint32_t i = 0; i < 2; i++) {
		const gpusnap_load_mask *mask = &rank.loaded.masks[i];
		const gpusnap_moe_layer *layer = &rank.loaded.model->layers[mask->layer];
		const int32_t *values = (const int32_t *)(uintptr_t)(region.address + mask->offset);

		ck_assert_uint_eq(mask->layer, i);
		ck_assert_uint_eq(mask->region, region.id);
		ck_fails(gpusnap_buffer_find(
				 rank.registry, layer->buffers[GPUSNAP_MOE_MASK], &info, &err),
			GPUSNAP_E_INVALID, "expert_mask");
		ck_ok(gpusnap_mask_check(&layer->mask, values, 8, &err));
	}
	close_rank(&rank);
}
END_TEST

/* ---- refusals ---- */

static void refuse_ranks(const char *name, const gpusnap_load_options *options,
	gpusnap_status expected, const char *text)
{
	char directory[PATH_MAX];
	struct rank rank;
	gpusnap_error err;

	model_directory(directory, name);
	open_rank(&rank, options);
	ck_fails(gpusnap_load(rank.registry, directory, options, &rank.loaded, &err), expected,
		text);
	ck_assert_uint_eq(gpusnap_region_count(rank.registry), 0);
	close_rank(&rank);
}

START_TEST(more_ranks_than_experts_are_refused)
{
	gpusnap_load_options options = ranks(0, 1, 16, 17);

	refuse_ranks("qwen3_moe", &options, GPUSNAP_E_INVALID, "17 exceeds the model's 16 experts");
}
END_TEST

START_TEST(options_out_of_range_are_refused)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	struct rank rank;
	gpusnap_error err;

	model_directory(directory, "mixtral");
	open_rank(&rank, &options);
	options.tp_rank = 2;
	options.tp_size = 2;
	ck_fails(gpusnap_load(rank.registry, directory, &options, &rank.loaded, &err),
		GPUSNAP_E_INVALID, "tp_rank 2 is outside 0..1");
	options = ranks(0, 1, 1, 1);
	ck_fails(gpusnap_load(rank.registry, directory, &options, &rank.loaded, &err),
		GPUSNAP_E_INVALID, "ep_rank 1 is outside 0..0");
	options = ranks(0, 2, 0, 1);
	ck_fails(gpusnap_load(rank.registry, directory, &options, &rank.loaded, &err),
		GPUSNAP_E_INVALID, "the registry is of rank tp 0/1 ep 0/1, the load of tp 0/2");
	options = ranks(0, 1, 0, 1);
	options.mask = (gpusnap_mask_kind)9;
	ck_fails(gpusnap_load(rank.registry, directory, &options, &rank.loaded, &err),
		GPUSNAP_E_INVALID, "mask kind 9");
	options = ranks(0, 1, 0, 1);
	options.compact = (gpusnap_compact)3;
	ck_fails(gpusnap_load(rank.registry, directory, &options, &rank.loaded, &err),
		GPUSNAP_E_INVALID, "compact 3");
	close_rank(&rank);
}
END_TEST

START_TEST(a_second_load_is_refused_and_leaves_the_first_alone)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	struct test_checkpoint *checkpoint;
	gpusnap_loaded again;
	struct rank rank;
	gpusnap_error err;

	model_directory(directory, "mixtral");
	checkpoint = test_checkpoint_read(directory);
	load_rank(&rank, directory, &options);
	ck_fails(gpusnap_load(rank.registry, directory, &options, &again, &err), GPUSNAP_E_INVALID,
		"lm_head.weight");
	ck_assert_uint_eq(gpusnap_region_count(rank.registry), 1);
	check_rank(checkpoint, &models[2], &rank);
	close_rank(&rank);
	test_checkpoint_free(checkpoint);
}
END_TEST

START_TEST(missing_tensors_are_listed)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen3_moe", folder);
	gpusnap_error err;

	*test_checkpoint_find(checkpoint, "model.layers.1.mlp.experts.3.up_proj.weight")->name = 0;
	*test_checkpoint_find(checkpoint, "model.layers.1.mlp.experts.12.down_proj.weight")->name =
		0;
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"layer 1 lacks 2 tensors: model.layers.1.mlp.experts.3.up_proj.weight, "
		"model.layers.1.mlp.experts.12.down_proj.weight");

	checkpoint = rewrite("qwen3_moe", folder);
	for (size_t i = 0; i < checkpoint->tensor_count; i++)
		if (strstr(checkpoint->tensors[i].name, "layers.0.mlp"))
			*checkpoint->tensors[i].name = 0;
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"layer 0 lacks 49 tensors: model.layers.0.mlp.gate.weight, ");
	ck_assert_ptr_nonnull(strstr(err.message, ", ..."));

	checkpoint = rewrite("qwen3_moe_fp8", folder);
	*test_checkpoint_find(checkpoint, "model.layers.0.mlp.experts.7.down_proj.weight_scale_inv")
		 ->name = 0;
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"layer 0 lacks 1 tensors: model.layers.0.mlp.experts.7.down_proj.weight_scale_inv");
}
END_TEST

START_TEST(tensors_missing_from_every_kind_of_layer_are_listed)
{
	static const struct {
		const char *checkpoint, *tensor;
	} cases[] = {
		{"deepseek_v4", "model.layers.0.ffn.gate.tid2eid"},
		{"deepseek_v4", "model.layers.1.ffn.gate.bias"},
		{"deepseek_v4_fp4", "model.layers.1.ffn.shared_experts.w2.weight"},
		{"deepseek_v3_fp8", "model.layers.1.mlp.shared_experts.down_proj.weight_scale_inv"},
		{"deepseek_v3", "model.layers.2.mlp.gate.e_score_correction_bias"},
		{"gpt_oss", "model.layers.1.mlp.router.bias"},
		{"gpt_oss", "model.layers.1.mlp.experts.down_proj_bias"},
		{"gpt_oss", "model.layers.1.mlp.experts.down_proj"},
		{"gpt_oss_mxfp4", "model.layers.1.mlp.experts.gate_up_proj_scales"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char folder[PATH_MAX], text[200];
		struct test_checkpoint *checkpoint = rewrite(cases[i].checkpoint, folder);
		gpusnap_error err;

		*test_checkpoint_find(checkpoint, cases[i].tensor)->name = 0;
		(void)snprintf(text, sizeof text, "lacks 1 tensors: %s", cases[i].tensor);
		ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT, text);
	}
}
END_TEST

/* Of a model that holds more than MoE layers nothing may be missing. */
START_TEST(tensors_missing_from_the_rest_of_the_model_are_listed)
{
	static const struct {
		const char *checkpoint, *tensor;
	} cases[] = {
		{"qwen3_moe", "model.embed_tokens.weight"},
		{"qwen3_moe", "lm_head.weight"},
		{"mixtral", "model.layers.1.self_attn.k_proj.weight"},
		{"deepseek_v3", "model.layers.0.mlp.down_proj.weight"},
		{"glm4_moe", "model.layers.0.post_attention_layernorm.weight"},
		{"gpt_oss", "model.layers.1.post_attention_layernorm.weight"},
		{"deepseek_v4", "model.layers.2.ffn_norm.weight"},
		{"deepseek_v4_fp4", "head.weight"},
		{"qwen2_moe", "model.norm.weight"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char folder[PATH_MAX], text[200];
		struct test_checkpoint *checkpoint = rewrite(cases[i].checkpoint, folder);
		gpusnap_error err;

		*test_checkpoint_find(checkpoint, cases[i].tensor)->name = 0;
		(void)snprintf(text, sizeof text, "the model lacks 1 tensors: %s", cases[i].tensor);
		ck_assert_msg(load_rewritten(checkpoint, folder, &err) == GPUSNAP_E_FORMAT,
			"%s is not missed", cases[i].tensor);
		ck_assert_ptr_nonnull(strstr(err.message, text));
	}
}
END_TEST

START_TEST(moe_layers_alone_are_a_checkpoint)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("deepseek_v3", folder);
	gpusnap_error err;

	for (size_t i = 0; i < checkpoint->tensor_count; i++) {
		char *name = checkpoint->tensors[i].name;

		if (!strstr(name, "layers.1.mlp.") && !strstr(name, "layers.2.mlp.") &&
			!strstr(name, "post_attention_layernorm"))
			*name = 0;
	}
	ck_ok(load_rewritten(checkpoint, folder, &err));
}
END_TEST

START_TEST(a_layer_is_routed_by_hash_or_by_scores)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("deepseek_v4", folder);
	struct test_tensor *extra = &checkpoint->tensors[checkpoint->tensor_count++];
	gpusnap_error err;

	*extra = *test_checkpoint_find(checkpoint, "model.layers.1.ffn.gate.bias");
	(void)snprintf(extra->name, sizeof extra->name, "model.layers.0.ffn.gate.bias");
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"experts are chosen by a table or by scores, not both");
}
END_TEST

START_TEST(one_parameter_in_two_forms_is_refused)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("gpt_oss_mxfp4", folder);
	struct test_tensor *extra = &checkpoint->tensors[checkpoint->tensor_count++];
	gpusnap_error err;

	*extra = *test_checkpoint_find(checkpoint, "model.layers.1.mlp.experts.down_proj_blocks");
	(void)snprintf(extra->name, sizeof extra->name, "model.layers.1.mlp.experts.down_proj");
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"are the same parameter");
}
END_TEST

struct damage {
	const char *checkpoint, *tensor;
	uint64_t rows, columns; /* to give it; 0: leave them */
	gpusnap_dtype dtype;	/* to give it; BOOL: leave it */
	gpusnap_status status;
	const char *text;
};

static void check_damage(const struct damage *damage)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite(damage->checkpoint, folder);
	struct test_tensor *tensor = test_checkpoint_find(checkpoint, damage->tensor);
	gpusnap_error err;

	if (damage->dtype != GPUSNAP_BOOL)
		tensor->dtype = damage->dtype;
	if (damage->rows) {
		tensor->rank = 2;
		tensor->shape[0] = damage->rows;
		tensor->shape[1] = damage->columns;
	}
	ck_fails(load_rewritten(checkpoint, folder, &err), damage->status, damage->text);
}

START_TEST(wrong_dtypes_and_shapes_are_named_with_both_values)
{
	static const struct damage damages[] = {
		{"qwen3_moe", "model.layers.0.mlp.experts.3.up_proj.weight", 128, 96, GPUSNAP_BOOL,
			GPUSNAP_E_FORMAT,
			"experts.3.up_proj.weight has shape [128, 96], expected [96, 128]"},
		{"qwen3_moe", "model.layers.0.mlp.experts.3.down_proj.weight", 96, 128,
			GPUSNAP_BOOL, GPUSNAP_E_FORMAT, "has shape [96, 128], expected [128, 96]"},
		{"qwen3_moe", "model.layers.1.mlp.experts.5.down_proj.weight", 0, 0, GPUSNAP_F16,
			GPUSNAP_E_FORMAT,
			"experts.5.down_proj.weight is F16, the layer's other experts are BF16"},
		{"qwen3_moe", "model.layers.1.mlp.gate.weight", 8, 256, GPUSNAP_BOOL,
			GPUSNAP_E_FORMAT, "has 8 rows; config.json says 16 experts"},
		{"qwen3_moe", "model.layers.1.mlp.gate.weight", 0, 0, GPUSNAP_I16, GPUSNAP_E_FORMAT,
			"is I16; expected BF16, F16 or F32"},
		{"qwen3_moe", "model.layers.1.post_attention_layernorm.weight", 1, 128,
			GPUSNAP_BOOL, GPUSNAP_E_FORMAT, "post_attention_layernorm.weight"},
		{"qwen3_moe", "model.layers.0.mlp.experts.0.gate_proj.weight", 0, 0, GPUSNAP_I16,
			GPUSNAP_E_UNSUPPORTED, "is I16; weights may be"},
		{"qwen3_moe_fp8", "model.layers.0.mlp.experts.0.up_proj.weight_scale_inv", 1, 4,
			GPUSNAP_BOOL, GPUSNAP_E_FORMAT, "has shape [1, 4], expected [2, 2]"},
		{"qwen3_moe_fp8", "model.layers.0.mlp.experts.1.up_proj.weight_scale_inv", 0, 0,
			GPUSNAP_I32, GPUSNAP_E_FORMAT, "block scales are F32, BF16 or F8_E8M0"},
		{"qwen3_moe_fp8", "model.layers.0.mlp.experts.1.up_proj.weight", 0, 0,
			GPUSNAP_F8_E5M2, GPUSNAP_E_FORMAT,
			"is F8_E5M2, the layer's other experts are F8_E4M3"},
		{"deepseek_v3_fp8", "model.layers.1.mlp.shared_experts.up_proj.weight_scale_inv", 0,
			0, GPUSNAP_I32, GPUSNAP_E_FORMAT, "block scales are F32, BF16 or F8_E8M0"},
		{"deepseek_v3_fp8", "model.layers.1.mlp.shared_experts.up_proj.weight", 0, 0,
			GPUSNAP_F8_E5M2, GPUSNAP_E_FORMAT,
			"is F8_E5M2, the layer's other experts are F8_E4M3"},
		{"deepseek_v4", "model.layers.0.ffn.gate.tid2eid", 0, 0, GPUSNAP_U64,
			GPUSNAP_E_FORMAT, "tid2eid is U64; expected I64 or I32"},
		{"deepseek_v4", "model.layers.0.ffn.gate.tid2eid", 512, 2, GPUSNAP_BOOL,
			GPUSNAP_E_FORMAT, "is no matrix [vocabulary, 4 experts of a token]"},
		{"deepseek_v4_fp4", "model.layers.1.ffn.experts.2.w1.scale", 0, 0, GPUSNAP_F8_E4M3,
			GPUSNAP_E_FORMAT, "is F8_E4M3; scales of FP4 are F8_E8M0 or U8"},
		{"deepseek_v4_fp4", "model.layers.1.ffn.experts.2.w1.scale", 4, 96, GPUSNAP_BOOL,
			GPUSNAP_E_FORMAT,
			"blocks of 1 x 32: tensor model.layers.1.ffn.experts.2.w1.scale has shape "
			"[4, 96], expected [96, 4]"},
		{"deepseek_v4_fp4", "model.layers.1.ffn.experts.2.w1.weight", 0, 0, GPUSNAP_U8,
			GPUSNAP_E_FORMAT, "is U8, the layer's other experts are I8"},
		{"gpt_oss", "model.layers.0.mlp.router.bias", 2, 4, GPUSNAP_BOOL, GPUSNAP_E_FORMAT,
			"router.bias is BF16 [2, 4]; expected BF16, F16 or F32 [8]"},
		{"gpt_oss", "model.layers.0.mlp.experts.gate_up_proj_bias", 16, 128, GPUSNAP_BOOL,
			GPUSNAP_E_FORMAT, "is BF16 [16, 128]; expected BF16, F16 or F32 [8, 256]"},
		{"gpt_oss", "model.layers.0.mlp.experts.gate_up_proj", 1024, 256, GPUSNAP_BOOL,
			GPUSNAP_E_FORMAT, "gate_up_proj is no matrix [intermediate, hidden]"},
		{"gpt_oss_mxfp4", "model.layers.0.mlp.experts.down_proj_blocks", 1024, 80,
			GPUSNAP_BOOL, GPUSNAP_E_FORMAT,
			"has shape [1024, 80], expected [8, 128, 80]"},
	};

	for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++)
		check_damage(&damages[i]);
}
END_TEST

START_TEST(the_file_decides_sizes_and_dtypes)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen3_moe", folder);
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	struct rank rank;

	replace_in_file(folder, "config.json", "\"moe_intermediate_size\": 96",
		"\"moe_intermediate_size\": 768");
	for (size_t i = 0; i < checkpoint->tensor_count; i++)
		if (strstr(checkpoint->tensors[i].name, ".mlp."))
			checkpoint->tensors[i].dtype = GPUSNAP_F16;
	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	load_rank(&rank, folder, &options);
	ck_assert_uint_eq(rank.loaded.model->layers[0].intermediate, 96);
	check_rank(checkpoint, &models[0], &rank);
	close_rank(&rank);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
}
END_TEST

START_TEST(experts_and_parameters_too_many_are_refused)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen3_moe", folder);
	struct test_tensor *extra = &checkpoint->tensors[checkpoint->tensor_count];
	gpusnap_error err;

	*extra = *test_checkpoint_find(checkpoint, "model.layers.0.mlp.experts.0.up_proj.weight");
	(void)snprintf(
		extra->name, sizeof extra->name, "model.layers.0.mlp.experts.16.up_proj.weight");
	checkpoint->tensor_count++;
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"is of expert 16; config.json says 16 experts, 0 to 15");

	checkpoint = rewrite("qwen3_moe", folder);
	extra = &checkpoint->tensors[checkpoint->tensor_count];
	*extra = *test_checkpoint_find(checkpoint, "model.layers.0.mlp.gate.weight");
	(void)snprintf(extra->name, sizeof extra->name, "layers.0.mlp.gate.weight");
	checkpoint->tensor_count++;
	ck_fails(load_rewritten(checkpoint, folder, &err), GPUSNAP_E_FORMAT,
		"are the same parameter");
}
END_TEST

START_TEST(tensors_of_later_layers_and_unknown_names_stay_plain_buffers)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen3_moe", folder);
	struct test_tensor *extra = &checkpoint->tensors[checkpoint->tensor_count];
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	gpusnap_buffer_info info;
	struct rank rank;
	gpusnap_error err;

	extra[0] = *test_checkpoint_find(checkpoint, "model.layers.0.mlp.experts.0.up_proj.weight");
	extra[1] = extra[2] = extra[0];
	(void)snprintf(
		extra[0].name, sizeof extra->name, "model.layers.2.mlp.experts.0.up_proj.weight");
	(void)snprintf(extra[1].name, sizeof extra->name, "mtp.0.head");
	(void)snprintf(extra[2].name, sizeof extra->name, "odd.bias");
	checkpoint->tensor_count += 3;
	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	load_rank(&rank, folder, &options);
	ck_assert_uint_eq(rank.loaded.model->layer_count, 2);
	ck_assert_uint_eq(rank.loaded.report.predictions, 2);
	ck_assert_uint_eq(rank.loaded.unexpected_count, 1);
	ck_assert_str_eq(rank.loaded.unexpected[0], "odd.bias");
	for (size_t i = 0; i < 3; i++) {
		uint8_t *bytes = buffer_bytes(&rank, extra[i].name, extra[i].dtype, extra[i].bytes);

		ck_assert_mem_eq(bytes, extra[i].data, extra[i].bytes);
		free(bytes);
	}
	ck_ok(gpusnap_buffer_find(rank.registry, "odd.bias", &info, &err));
	ck_assert_int_eq(info.role, GPUSNAP_ROLE_BIAS);
	close_rank(&rank);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
}
END_TEST

/* Every tensor of the checkpoints has a name that its family knows. */
START_TEST(real_checkpoints_hold_nothing_unexpected)
{
	static const char *const names[] = {"deepseek_v3", "deepseek_v3_fp8", "deepseek_v4",
		"deepseek_v4_fp4", "glm4_moe", "gpt_oss", "gpt_oss_mxfp4", "mixtral", "qwen2_moe",
		"qwen3_moe", "qwen3_moe_fp8"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		gpusnap_load_options options = ranks(0, 1, 0, 1);
		char directory[PATH_MAX];
		struct rank rank;

		options.strict = true;
		model_directory(directory, names[i]);
		load_rank(&rank, directory, &options);
		ck_assert_uint_eq(rank.loaded.unexpected_count, 0);
		ck_assert_uint_eq(rank.loaded.report.predictions, 0);
		ck_assert_uint_eq(rank.loaded.report.padding, 0);
		ck_assert_ptr_null(rank.loaded.report.note);
		close_rank(&rank);
	}
}
END_TEST

START_TEST(strict_refuses_what_nobody_expected)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen3_moe", folder);
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	struct rank rank;
	gpusnap_error err;

	for (size_t i = 0; i < 30; i++) {
		struct test_tensor *extra = &checkpoint->tensors[checkpoint->tensor_count++];

		*extra = *test_checkpoint_find(checkpoint, "model.layers.0.mlp.gate.weight");
		(void)snprintf(extra->name, sizeof extra->name,
			"model.layers.1.mlp.experts.%zu.gate_proj.input_scale", i);
	}
	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	options.strict = true;
	open_rank(&rank, &options);
	ck_fails(gpusnap_load(rank.registry, folder, &options, &rank.loaded, &err),
		GPUSNAP_E_FORMAT,
		"30 tensors are none of qwen3_moe's: "
		"model.layers.1.mlp.experts.0.gate_proj.input_scale, "
		"model.layers.1.mlp.experts.1.gate_proj.input_scale, ");
	ck_assert_ptr_nonnull(strstr(err.message, ", ...; without strict they are kept"));
	ck_assert_uint_eq(gpusnap_region_count(rank.registry), 0);
	options.strict = false;
	ck_ok(gpusnap_load(rank.registry, folder, &options, &rank.loaded, &err));
	ck_assert_uint_eq(rank.loaded.unexpected_count, 30);
	close_rank(&rank);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
}
END_TEST

/* Tied embeddings have one tensor; one of no elements has a name and no bytes. */
START_TEST(tied_and_empty_tensors_are_taken)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("qwen3_moe", folder);
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	struct test_tensor *extra = &checkpoint->tensors[checkpoint->tensor_count++];
	gpusnap_buffer_info info;
	struct rank rank;
	gpusnap_error err;

	*extra = *test_checkpoint_find(checkpoint, "model.norm.weight");
	(void)snprintf(extra->name, sizeof extra->name, "model.layers.0.self_attn.empty");
	extra->rank = 2;
	extra->shape[0] = 0;
	extra->shape[1] = 5;
	extra->bytes = 0;
	*test_checkpoint_find(checkpoint, "lm_head.weight")->name = 0;
	replace_in_file(folder, "config.json", "\"tie_word_embeddings\": false",
		"\"tie_word_embeddings\": true");
	options.strict = true;
	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	load_rank(&rank, folder, &options);
	ck_ok(gpusnap_buffer_find(rank.registry, "model.layers.0.self_attn.empty", &info, &err));
	ck_assert_uint_eq(info.bytes, 0);
	ck_assert_uint_eq(info.shape[1], 5);
	close_rank(&rank);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
}
END_TEST

/* ---- padding ---- */

START_TEST(padding_is_recorded)
{
	char directory[PATH_MAX];
	gpusnap_load_options options = ranks(4, 5, 0, 1);
	gpusnap_json *padding;
	gpusnap_error err;
	struct rank rank;

	model_directory(directory, "qwen3_moe"); /* 96 rows in slices of 20: the last has 16 */
	load_rank(&rank, directory, &options);
	ck_assert_uint_eq(rank.loaded.model->layers[0].intermediate, 20);
	/* Two layers of 16 experts, gate, up and down: 4 of H BF16 each. */
	ck_assert_uint_eq(rank.loaded.report.padding, 2ull * 16 * 3 * 4 * 128 * 2);
	padding = gpusnap_record_get(rank.registry, "padding");
	ck_assert_uint_eq(gpusnap_json_size(padding), 6);
	ck_assert_int_eq(
		gpusnap_json_integer(gpusnap_json_get(gpusnap_json_at(padding, 1), "from"), -1),
		36);
	gpusnap_json_free(padding);
	/* A load that fails leaves the record. */
	ck_fails(gpusnap_load(rank.registry, "/nowhere", &options, &rank.loaded, &err),
		GPUSNAP_E_IO, "/nowhere");
	padding = gpusnap_record_get(rank.registry, "padding");
	ck_assert_ptr_nonnull(padding);
	gpusnap_json_free(padding);
	close_rank(&rank);
}
END_TEST

START_TEST(unknown_families_are_kept_tensor_by_tensor)
{
	char folder[PATH_MAX];
	struct test_checkpoint *checkpoint = rewrite("mixtral", folder);
	const struct names as_they_are = {.block = "no such block"};
	gpusnap_load_options options = ranks(0, 1, 0, 1);
	struct rank rank;
	gpusnap_error err;

	replace_in_file(
		folder, "config.json", "\"model_type\": \"mixtral\"", "\"model_type\": \"dbrx\"");
	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	load_rank(&rank, folder, &options);
	ck_assert_uint_eq(rank.loaded.model->layer_count, 0);
	ck_assert_ptr_null(gpusnap_record_get(rank.registry, "model"));
	ck_assert_ptr_nonnull(strstr(rank.loaded.report.note, "family is unknown"));
	ck_assert_uint_eq(check_replicated(checkpoint, &as_they_are, &rank),
		gpusnap_buffer_count(rank.registry));
	close_rank(&rank);
	options = ranks(0, 1, 0, 2);
	open_rank(&rank, &options);
	ck_fails(gpusnap_load(rank.registry, folder, &options, &rank.loaded, &err),
		GPUSNAP_E_UNSUPPORTED,
		"ep_size 2: model_type 'dbrx' is unknown, and loaded whole only");
	close_rank(&rank);
	test_checkpoint_free(checkpoint);
	tempdir_remove(folder);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		all_ranks_together_hold_the_checkpoint,
		single_file_loads_with_and_without_the_model_prefix,
		bf16_scales_are_widened_to_f32,
		model_description_is_complete_and_recorded,
		routing_of_a_sigmoid_family_is_described,
		routing_of_deepseek_and_gpt_oss_is_described,
		shared_experts_that_are_missing_or_misshapen_are_named,
		buffers_are_aligned_and_leave_no_hole,
		compaction_changes_the_copies_and_not_the_bytes,
		every_engine_and_block_size_gives_the_same_bytes,
		staging_gives_the_bytes_that_are_read_in_place,
		every_mask_kind_is_built_and_typed,
		unregistered_masks_are_there_without_a_name,
		more_ranks_than_experts_are_refused,
		options_out_of_range_are_refused,
		a_second_load_is_refused_and_leaves_the_first_alone,
		missing_tensors_are_listed,
		tensors_missing_from_every_kind_of_layer_are_listed,
		tensors_missing_from_the_rest_of_the_model_are_listed,
		moe_layers_alone_are_a_checkpoint,
		a_layer_is_routed_by_hash_or_by_scores,
		one_parameter_in_two_forms_is_refused,
		wrong_dtypes_and_shapes_are_named_with_both_values,
		the_file_decides_sizes_and_dtypes,
		experts_and_parameters_too_many_are_refused,
		tensors_of_later_layers_and_unknown_names_stay_plain_buffers,
		real_checkpoints_hold_nothing_unexpected,
		strict_refuses_what_nobody_expected,
		tied_and_empty_tensors_are_taken,
		padding_is_recorded,
		unknown_families_are_kept_tensor_by_tensor,
	};
	int result;

	tempdir_make(scratch, NULL);
	result = RUN_SUITE("load_ranks", tests);
	tempdir_remove(scratch);
	return result;
}
