/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random MoE layers, split over random ranks: the plan of every rank, carried out in memory, puts
 * each weight and each scale where plain arithmetic says it belongs.
 */
#include "loader/rank_state.h"

#include <stdio.h>

#include "tests/support/plan_run.h"
#include "tests/support/random.h"

enum { TENSORS_MAX = 1 + 6 * 12, ROUNDS = 60 };

/* A checkpoint of one layer in one array. */
struct layer {
	uint32_t experts, hidden, intermediate;
	uint32_t block_n, block_k;
	gpusnap_dtype dtype, scale_dtype;
	struct gsn_config config;
	struct gsn_checkpoint checkpoint;
	gpusnap_tensor tensors[TENSORS_MAX];
	struct gsn_checkpoint_tensor places[TENSORS_MAX];
	uint64_t shapes[TENSORS_MAX][2];
	char names[TENSORS_MAX][80];
	uint8_t *file;
	uint64_t file_bytes;
};

static uint64_t blocks(uint64_t size, uint64_t block)
{
	return (size + block - 1) / block;
}

static void add_tensor(
	struct layer *l, uint64_t *seed, gpusnap_dtype dtype, uint64_t rows, uint64_t columns)
{
	size_t i = l->checkpoint.tensor_count++;
	uint64_t bytes = rows * columns * gpusnap_dtype_bits(dtype) / 8;

	l->shapes[i][0] = rows;
	l->shapes[i][1] = columns;
	l->tensors[i] = (gpusnap_tensor){.name = l->names[i],
		.name_length = strlen(l->names[i]),
		.dtype = dtype,
		.rank = 2,
		.shape = l->shapes[i],
		.begin = l->file_bytes,
		.end = l->file_bytes + bytes};
	l->places[i] = (struct gsn_checkpoint_tensor){&l->tensors[i], 0, l->file_bytes};
	/* Sometimes a neighbour, sometimes pages away. */
	l->file_bytes += bytes + (random_below(seed, 3) ? 0 : random_below(seed, 9000));
}

static void add_projection(
	struct layer *l, uint64_t *seed, uint32_t expert, const char *name, bool down)
{
	uint64_t rows = down ? l->hidden : l->intermediate;
	uint64_t columns = down ? l->intermediate : l->hidden;
	size_t i = l->checkpoint.tensor_count;

	(void)snprintf(l->names[i], sizeof l->names[i], "model.layers.0.mlp.experts.%u.%s.weight",
		expert, name);
	add_tensor(l, seed, l->dtype, rows, columns);
	if (l->dtype != GPUSNAP_F8_E4M3)
		return;
	(void)snprintf(l->names[i + 1], sizeof l->names[i],
		"model.layers.0.mlp.experts.%u.%s.weight_scale_inv", expert, name);
	add_tensor(l, seed, l->scale_dtype, blocks(rows, l->block_n), blocks(columns, l->block_k));
}

static void make_layer(struct layer *l, uint64_t *seed, uint32_t tp)
{
	static const uint32_t sizes[] = {16, 32, 48, 64, 128};

	memset(l, 0, sizeof *l);
	l->dtype = random_below(seed, 3) ? GPUSNAP_F8_E4M3 : GPUSNAP_BF16;
	l->scale_dtype = random_below(seed, 2) ? GPUSNAP_F32 : GPUSNAP_BF16;
	l->experts = 1 + (uint32_t)random_below(seed, 12);
	l->hidden = 1 + (uint32_t)random_below(seed, 150);
	l->intermediate = tp * 16 * (1 + (uint32_t)random_below(seed, 8));
	if (tp == 1 || l->dtype != GPUSNAP_F8_E4M3)
		l->intermediate += tp * (uint32_t)random_below(seed, 16);
	l->block_n = sizes[random_below(seed, 5)];
	l->block_k = sizes[random_below(seed, 5)];
	l->config = (struct gsn_config){.family = gsn_family_find("qwen3_moe"),
		.layers = 1,
		.experts = l->experts,
		.top_k = 1,
		.sparse_step = 1,
		.sparse_every = 1,
		.norm_epsilon = 1e-6f,
		.block_n = l->block_n,
		.block_k = l->block_k};
	l->checkpoint.tensors = l->places;
	(void)snprintf(l->names[0], sizeof l->names[0], "model.layers.0.mlp.gate.weight");
	add_tensor(l, seed, GPUSNAP_F32, l->experts, l->hidden);
	for (uint32_t e = 0; e < l->experts; e++) {
		add_projection(l, seed, e, "down_proj", true);
		add_projection(l, seed, e, "gate_proj", false);
		add_projection(l, seed, e, "up_proj", false);
	}
	l->file = malloc(l->file_bytes);
	ck_assert_ptr_nonnull(l->file);
	random_fill(seed, l->file, l->file_bytes);
}

static const uint8_t *tensor_bytes(
	const struct layer *l, uint32_t expert, const char *projection, const char *suffix)
{
	char name[80];

	(void)snprintf(name, sizeof name, "model.layers.0.mlp.experts.%u.%s.%s", expert, projection,
		suffix);
	for (size_t i = 0; i < l->checkpoint.tensor_count; i++)
		if (strcmp(l->names[i], name) == 0)
			return l->file + l->places[i].offset;
	ck_abort_msg("no tensor %s", name);
	return NULL;
}

static uint32_t scale_bits(const struct layer *l, const uint8_t *scales, uint64_t index)
{
	uint32_t bits = 0;

	if (l->scale_dtype == GPUSNAP_F32)
		memcpy(&bits, scales + 4 * index, 4);
	else
		memcpy((uint8_t *)&bits + 2, scales + 2 * index, 2);
	return bits;
}

/* One rank's share, with the plan's buffers in memory. */
struct share {
	const struct layer *l;
	const struct gsn_rank *rank;
	const struct gsn_rank_state *state;
	const gpusnap_moe_layer *moe;
	const uint8_t *targets;
};

static const struct gsn_buffer_plan *find_buffer(const struct share *s, gpusnap_moe_slot slot)
{
	for (uint32_t i = 0; i < s->state->buffer_count; i++)
		if (strcmp(s->state->buffers[i].name, s->moe->buffers[slot]) == 0)
			return &s->state->buffers[i];
	ck_abort_msg("no buffer %s", s->moe->buffers[slot]);
	return NULL;
}

/* Where the weight (row, column) of the whole tensor is in a buffer [local, parts * rows, columns].
 */
struct grid {
	uint64_t rows, columns; /* of this rank, of one part */
	uint64_t first_row, first_column;
	uint32_t parts, part;
};

static uint64_t wrong_weights(const struct share *s, gpusnap_moe_slot slot, uint32_t local,
	const char *projection, const struct grid *g)
{
	uint64_t element = gpusnap_dtype_bits(s->l->dtype) / 8;
	uint64_t pitch = (slot == GPUSNAP_MOE_W2 ? s->l->intermediate : s->l->hidden) * element;
	const uint8_t *from = tensor_bytes(s->l, s->moe->mask.first + local, projection, "weight");
	const uint8_t *mine =
		s->targets + find_buffer(s, slot)->offset +
		((uint64_t)local * g->parts + g->part) * g->rows * g->columns * element;
	uint64_t wrong = 0;

	for (uint64_t r = 0; r < g->rows; r++)
		wrong += memcmp(mine + r * g->columns * element,
				 from + (g->first_row + r) * pitch + g->first_column * element,
				 g->columns * element) != 0;
	return wrong;
}

static uint64_t wrong_scales(const struct share *s, gpusnap_moe_slot slot, uint32_t local,
	const char *projection, const struct grid *g)
{
	const struct layer *l = s->l;
	uint64_t width = slot == GPUSNAP_MOE_W2_SCALE ? l->intermediate : l->hidden;
	const uint8_t *from =
		tensor_bytes(l, s->moe->mask.first + local, projection, "weight_scale_inv");
	uint64_t columns = blocks(g->columns, s->moe->block_k);
	const uint8_t *mine = s->targets + find_buffer(s, slot)->offset +
			      ((uint64_t)local * g->parts + g->part) *
				      blocks(g->rows, s->moe->block_n) * columns * 4;
	uint64_t wrong = 0;

	for (uint64_t r = 0; r < g->rows; r++)
		for (uint64_t c = 0; c < g->columns; c++) {
			uint64_t at = r / s->moe->block_n * columns + c / s->moe->block_k;
			uint32_t bits = scale_bits(l, from,
				(g->first_row + r) / l->block_n * blocks(width, l->block_k) +
					(g->first_column + c) / l->block_k);

			wrong += memcmp(mine + 4 * at, &bits, 4) != 0;
		}
	return wrong;
}

static void check_share(const struct share *s)
{
	uint64_t share = s->moe->intermediate, first = share * s->rank->tp_rank;
	const struct grid gate = {share, s->l->hidden, first, 0, 2, 0};
	const struct grid up = {share, s->l->hidden, first, 0, 2, 1};
	const struct grid down = {s->l->hidden, share, 0, first, 1, 0};
	uint64_t wrong = 0;

	for (uint32_t e = 0; e < s->moe->mask.local; e++) {
		wrong += wrong_weights(s, GPUSNAP_MOE_W13, e, "gate_proj", &gate);
		wrong += wrong_weights(s, GPUSNAP_MOE_W13, e, "up_proj", &up);
		wrong += wrong_weights(s, GPUSNAP_MOE_W2, e, "down_proj", &down);
		if (s->l->dtype != GPUSNAP_F8_E4M3)
			continue;
		wrong += wrong_scales(s, GPUSNAP_MOE_W13_SCALE, e, "gate_proj", &gate);
		wrong += wrong_scales(s, GPUSNAP_MOE_W13_SCALE, e, "up_proj", &up);
		wrong += wrong_scales(s, GPUSNAP_MOE_W2_SCALE, e, "down_proj", &down);
	}
	ck_assert_uint_eq(wrong, 0);
}

static void check_rank(const struct layer *l, uint64_t *seed, const struct gsn_rank *rank)
{
	struct gsn_plan_limits limits = {
		64 << random_below(seed, 12), 64 << random_below(seed, 12), 0};
	const uint8_t *const shards[] = {l->file};
	struct gsn_rank_state state;
	uint8_t *targets;
	gpusnap_error err;

	limits.compact = (gpusnap_compact)random_below(seed, 3);
	ck_ok(gsn_rank_state_build(&l->checkpoint, &l->config, rank, &state, &err));
	targets = malloc(state.bytes);
	ck_assert_ptr_nonnull(targets);
	(void)plan_run(state.views, state.view_count, &limits, shards, targets, state.bytes);
	check_share(&(struct share){l, rank, &state, &state.model->layers[0], targets});
	free(targets);
	gsn_rank_state_release(&state);
}

START_TEST(every_rank_of_random_layers_holds_its_share)
{
	uint64_t start = random_seed(20240607);
	struct layer l;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		uint64_t seed = start + round;
		uint32_t tp = 1 + (uint32_t)random_below(&seed, 4), ep, owned = 0;

		make_layer(&l, &seed, tp);
		ep = 1 + (uint32_t)random_below(&seed, l.experts);
		for (uint32_t i = 0; i < tp * ep; i++) {
			struct gsn_rank rank = {.tp_rank = i % tp,
				.tp_size = tp,
				.ep_rank = i / tp,
				.ep_size = ep,
				.mask = GPUSNAP_MASK_DEEPEP};
			uint32_t first, local;

			gpusnap_expert_block(l.experts, rank.ep_rank, ep, &first, &local);
			ck_assert_msg(first == owned, "round %llu: GPUSNAP_SEED=%llu",
				(unsigned long long)round, (unsigned long long)(start + round));
			owned += rank.tp_rank == tp - 1 ? local : 0;
			check_rank(&l, &seed, &rank);
		}
		ck_assert_uint_eq(owned, l.experts);
		free(l.file);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_rank_of_random_layers_holds_its_share,
	};

	return RUN_SUITE("rank_split", tests);
}
