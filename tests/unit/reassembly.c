/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every checkpoint, put together again from the buffers of all ranks, is what its safetensors files
 * hold, byte for byte. Where an element belongs is said here in the test's own terms; of the loader
 * only the buffers' names, the ranks' widths and scale blocks, and the record of padding are taken.
 * What no element accounts for must be padding by that record, and hold what padding holds.
 */
#include <gpusnap/loader.h>

#include "tests/support/checkpoint_copy.h"
#include "tests/support/random.h"

enum { BUFFERS_MAX = 512, RANKS_MAX = 16 };

struct buffer {
	gpusnap_buffer_info info;
	uint64_t shape[8];
	uint8_t *data;
	uint8_t *seen; /* a flag a byte: some tensor or padding accounts for it */
};

struct rank {
	gpusnap_device *device;
	gpusnap_registry *registry;
	gpusnap_loaded loaded;
	uint32_t tp_rank, ep_rank;
	uint32_t count;
	struct buffer buffers[BUFFERS_MAX];
};

struct world {
	uint32_t tp, ep;
	struct rank *ranks; /* [tp * ep] */
	struct test_checkpoint *checkpoint;
	bool fine_blocks; /* FP8's scales are of 1 x 32 as well */
	uint64_t wrong;	  /* bytes */
};

/* ---- ranks ---- */

static void read_buffers(struct rank *rank)
{
	gpusnap_error err;

	rank->count = gpusnap_buffer_count(rank->registry);
	ck_assert_uint_le(rank->count, BUFFERS_MAX);
	for (uint32_t i = 0; i < rank->count; i++) {
		struct buffer *b = &rank->buffers[i];

		ck_ok(gpusnap_buffer_at(rank->registry, i, &b->info, &err));
		b->data = malloc(b->info.bytes + 1);
		b->seen = calloc(b->info.bytes + 1, 1);
		ck_assert(b->data && b->seen);
		ck_ok(gpusnap_buffer_read(
			rank->registry, b->info.name, 0, b->data, b->info.bytes, &err));
	}
}

static void load_rank(struct rank *rank, const char *directory, const struct world *world)
{
	gpusnap_registry_options ro = GPUSNAP_REGISTRY_OPTIONS_INIT;
	gpusnap_load_options options = GPUSNAP_LOAD_OPTIONS_INIT;
	gpusnap_error err;

	ro.tp_rank = options.tp_rank = rank->tp_rank;
	ro.ep_rank = options.ep_rank = rank->ep_rank;
	ro.tp_size = options.tp_size = world->tp;
	ro.ep_size = options.ep_size = world->ep;
	ck_ok(gpusnap_device_open("host", &rank->device, &err));
	ck_ok(gpusnap_registry_create(rank->device, &ro, &rank->registry, &err));
	ck_ok(gpusnap_load(rank->registry, directory, &options, &rank->loaded, &err));
	read_buffers(rank);
}

static void close_rank(struct rank *rank)
{
	for (uint32_t i = 0; i < rank->count; i++) {
		free(rank->buffers[i].data);
		free(rank->buffers[i].seen);
	}
	gpusnap_loaded_release(&rank->loaded);
	gpusnap_registry_free(rank->registry);
	gpusnap_device_close(rank->device);
}

static struct buffer *find_buffer(struct rank *rank, const char *name)
{
	ck_assert_ptr_nonnull(name);
	for (uint32_t i = 0; i < rank->count; i++)
		if (strcmp(rank->buffers[i].info.name, name) == 0)
			return &rank->buffers[i];
	ck_abort_msg("rank tp %u ep %u has no buffer %s", rank->tp_rank, rank->ep_rank, name);
	return NULL;
}

static const gpusnap_moe_layer *find_layer(const struct rank *rank, uint32_t number)
{
	for (uint32_t i = 0; i < rank->loaded.model->layer_count; i++)
		if (rank->loaded.model->layers[i].layer == number)
			return &rank->loaded.model->layers[i];
	return NULL;
}

static void compare(struct world *world, struct buffer *buffer, uint64_t offset,
	const uint8_t *bytes, uint64_t count)
{
	if (offset + count > buffer->info.bytes) /* an assertion each would take a system call */
		ck_abort_msg("%s ends before %llu", buffer->info.name,
			(unsigned long long)(offset + count));
	world->wrong += memcmp(buffer->data + offset, bytes, count) != 0;
	memset(buffer->seen + offset, 1, count);
}

/* ---- what a tensor is ---- */

enum kind { PLAIN, TABLE, WEIGHT, SCALE, BIAS };

/* How the tensor's elements lie: one matrix, all experts' with rows in turn, or transposed. */
enum order { ONE, STACKED, TURNED };

struct meaning {
	enum kind kind;
	enum order order;
	gpusnap_moe_slot slot;
	uint32_t layer, expert;
	uint32_t part, parts; /* gate 0 and up 1 of 2, down 0 of 1 */
	bool shared;
};

struct word {
	const char *text;
	uint32_t part, parts;
};
static const struct word projections[] = {{"gate_proj.", 0, 2}, {"w1.", 0, 2}, {"up_proj.", 1, 2},
	{"w3.", 1, 2}, {"down_proj.", 0, 1}, {"w2.", 0, 1}};

static bool is_scale_word(const char *text)
{
	return strcmp(text, "weight_scale_inv") == 0 || strcmp(text, "scale") == 0;
}

static gpusnap_moe_slot fused_slot(const struct meaning *m)
{
	bool up = m->parts == 2;

	if (m->kind == BIAS)
		return up ? GPUSNAP_MOE_W13_BIAS : GPUSNAP_MOE_W2_BIAS;
	if (m->kind == SCALE && m->shared)
		return up ? GPUSNAP_MOE_SHARED_W13_SCALE : GPUSNAP_MOE_SHARED_W2_SCALE;
	if (m->kind == SCALE)
		return up ? GPUSNAP_MOE_W13_SCALE : GPUSNAP_MOE_W2_SCALE;
	if (m->shared)
		return up ? GPUSNAP_MOE_SHARED_W13 : GPUSNAP_MOE_SHARED_W2;
	return up ? GPUSNAP_MOE_W13 : GPUSNAP_MOE_W2;
}

/* "gate_proj.weight" and the like. */
static void take_projection(const char *text, struct meaning *m)
{
	for (size_t i = 0; i < sizeof projections / sizeof projections[0]; i++) {
		size_t length = strlen(projections[i].text);

		if (strncmp(text, projections[i].text, length) != 0)
			continue;
		m->kind = is_scale_word(text + length) ? SCALE : WEIGHT;
		m->part = projections[i].part;
		m->parts = projections[i].parts;
		m->slot = fused_slot(m);
		return;
	}
	ck_abort_msg("no projection is called %s", text);
}

/* GPT-OSS: "gate_up_proj", "down_proj_blocks", ... */
static void take_stack(const char *text, struct meaning *m)
{
	const char *end = strstr(text, "_proj");

	ck_assert_ptr_nonnull(end);
	end += strlen("_proj");
	m->parts = text[0] == 'g' ? 2 : 1;
	m->order = *end ? STACKED : TURNED;
	m->kind = strcmp(end, "_scales") == 0 ? SCALE : strcmp(end, "_bias") == 0 ? BIAS : WEIGHT;
	m->slot = fused_slot(m);
}

static void take_table(const char *text, struct meaning *m)
{
	static const struct {
		const char *text;
		gpusnap_moe_slot slot;
	} tables[] = {{"gate.weight", GPUSNAP_MOE_ROUTER}, {"router.weight", GPUSNAP_MOE_ROUTER},
		{"router.bias", GPUSNAP_MOE_ROUTER_BIAS}, {"gate.bias", GPUSNAP_MOE_SELECTION_BIAS},
		{"gate.e_score_correction_bias", GPUSNAP_MOE_SELECTION_BIAS},
		{"gate.tid2eid", GPUSNAP_MOE_HASH},
		{"shared_expert_gate.weight", GPUSNAP_MOE_SHARED_GATE}};

	m->kind = TABLE;
	for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
		if (strcmp(text, tables[i].text) == 0) {
			m->slot = tables[i].slot;
			return;
		}
	ck_abort_msg("no table is called %s", text);
}

static struct meaning meaning_of(const struct rank *rank, const char *name)
{
	struct meaning m = {.kind = PLAIN};
	char block[32] = "", rest[120] = "";
	int used = 0;

	name += strncmp(name, "model.", 6) == 0 ? 6 : 0;
	if (sscanf(name, "layers.%u.%31[a-z0-9_].%119s", &m.layer, block, rest) != 3 ||
		!find_layer(rank, m.layer) ||
		(strcmp(block, "mlp") != 0 && strcmp(block, "ffn") != 0 &&
			strcmp(block, "block_sparse_moe") != 0))
		return m;
	if (sscanf(rest, "experts.%u.%n", &m.expert, &used) == 1 && used) {
		take_projection(rest + used, &m);
	} else if (strncmp(rest, "experts.", 8) == 0) {
		take_stack(rest + 8, &m);
	} else if (strncmp(rest, "shared_expert.", 14) == 0 ||
		   strncmp(rest, "shared_experts.", 15) == 0) {
		m.shared = true;
		take_projection(strchr(rest, '.') + 1, &m);
	} else {
		take_table(rest, &m);
	}
	return m;
}

/* ---- where its elements are ---- */

/* Contiguous blocks; the first E mod w ranks own one expert more. */
static uint32_t owner_of(uint32_t expert, uint32_t experts, uint32_t world, uint32_t *ret_local)
{
	uint32_t first = 0;

	for (uint32_t r = 0;; r++) {
		uint32_t count = experts / world + (r < experts % world ? 1 : 0);

		if (expert < first + count) {
			*ret_local = expert - first;
			return r;
		}
		first += count;
	}
}

/* The tensor seen as [experts][parts][rows][columns] of units. */
struct grid {
	const struct test_tensor *tensor;
	const struct meaning *m;
	uint32_t experts; /* 1 of a tensor that is one expert's */
	uint64_t rows, columns, unit;
};

static struct grid grid_of(const struct test_tensor *t, const struct meaning *m)
{
	bool fp4 = t->dtype == GPUSNAP_F4; /* two in a byte */
	struct grid g = {t, m, 1, 0, 1, fp4 ? 1 : gpusnap_dtype_bits(t->dtype) / 8};

	if (m->order == ONE) {
		g.rows = t->shape[0];
		g.columns = t->shape[1];
		return g;
	}
	g.experts = (uint32_t)t->shape[0];
	if (m->order == TURNED) {
		g.columns = t->shape[1];
		g.rows = t->shape[2] / m->parts;
		return g;
	}
	g.rows = t->shape[1] / m->parts;
	for (uint32_t d = 2; d < t->rank; d++)
		g.columns *= t->shape[d];
	g.columns /= fp4 ? 2 : 1;
	return g;
}

static const uint8_t *element(
	const struct grid *g, uint32_t expert, uint32_t part, uint64_t row, uint64_t column)
{
	uint64_t parts = g->m->order == ONE ? 1 : g->m->parts, at;

	part = g->m->order == ONE ? 0 : part;
	if (g->m->order == TURNED)
		at = (expert * g->columns + column) * g->rows * parts + row * parts + part;
	else
		at = ((expert * g->rows + row) * parts + part) * g->columns + column;
	return g->tensor->data + at * g->unit;
}

/* One part of one expert, and the ranks that share it. */
struct place {
	struct world *world;
	const struct grid *g;
	uint32_t expert; /* in the tensor */
	uint32_t part;
	uint32_t ep_rank, local;
};

static struct rank *rank_of(const struct place *p, uint64_t tp_rank)
{
	if (tp_rank >= p->world->tp)
		ck_abort_msg("%s: no rank %llu", p->g->tensor->name, (unsigned long long)tp_rank);
	return &p->world->ranks[(uint64_t)p->ep_rank * p->world->tp + tp_rank];
}

static uint64_t width_of(const struct place *p, const gpusnap_moe_layer *layer)
{
	return p->g->m->shared ? layer->shared_intermediate : layer->intermediate;
}

/* Rows of gate and up are cut, columns of down. Units of weights are bytes of two FP4 each. */
static void check_weight(const struct place *p)
{
	const struct grid *g = p->g;
	bool down = g->m->parts == 1;
	bool pairs = g->tensor->dtype == GPUSNAP_I8 || g->tensor->dtype == GPUSNAP_U8 ||
		     g->tensor->dtype == GPUSNAP_F4;
	uint64_t width = width_of(p, find_layer(rank_of(p, 0), g->m->layer));
	uint64_t share = down && pairs ? width / 2 : width;
	uint64_t run = g->m->order == TURNED ? 1 : down ? share : g->columns;
	struct buffer *buffers[RANKS_MAX];

	for (uint32_t t = 0; t < p->world->tp; t++)
		buffers[t] = find_buffer(
			rank_of(p, t), find_layer(rank_of(p, t), g->m->layer)->buffers[g->m->slot]);
	for (uint64_t r = 0; r < g->rows; r++)
		for (uint64_t c = 0; c < g->columns; c += run) {
			uint64_t left = g->columns - c;
			uint64_t at =
				down ? (p->local * g->rows + r) * share + c % share
				     : ((p->local * 2 + p->part) * share + r % share) * g->columns +
						c;

			compare(p->world, buffers[down ? c / share : r / share], at * g->unit,
				element(g, p->expert, p->part, r, c),
				(left < run ? left : run) * g->unit);
		}
}

/* The bias that is added to the sum over ranks is on the first of them only. */
static void check_bias(const struct place *p)
{
	const struct grid *g = p->g;
	bool down = g->m->parts == 1;
	uint64_t share = down ? g->rows : find_layer(rank_of(p, 0), g->m->layer)->intermediate;

	for (uint32_t t = 1; down && t < p->world->tp; t++)
		ck_assert_ptr_null(find_layer(rank_of(p, t), g->m->layer)->buffers[g->m->slot]);
	for (uint64_t r = 0; r < g->rows; r++) {
		struct rank *rank = rank_of(p, r / share);
		const gpusnap_moe_layer *layer = find_layer(rank, g->m->layer);
		uint64_t at = (p->local * g->m->parts + p->part) * share + r % share;

		compare(p->world, find_buffer(rank, layer->buffers[g->m->slot]), at * g->unit,
			element(g, p->expert, p->part, r, 0), g->unit);
	}
}

/* ---- scales ---- */

struct blocks {
	uint64_t n, k;
};

/* The tensor that a scale tensor of one expert belongs to. */
static const struct test_tensor *weight_of(const struct place *p)
{
	const char *name = p->g->tensor->name;
	const char *end = strstr(name, "weight_scale_inv");
	char text[200];

	end = end ? end : strstr(name, "scale");
	(void)snprintf(text, sizeof text, "%.*sweight", (int)(end - name), name);
	return test_checkpoint_find(p->world->checkpoint, text);
}

/* Of the checkpoint: FP4's scales are of 1 x 32, FP8's of 128 x 128. */
static struct blocks blocks_of(const struct place *p)
{
	bool fp4 = p->g->m->order != ONE || weight_of(p)->dtype == GPUSNAP_I8;

	return fp4 || p->world->fine_blocks ? (struct blocks){1, 32} : (struct blocks){128, 128};
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/* Row and column of a weight; its scale is element (row / n, column / k) of the tensor. */
static void check_scale_at(const struct place *p, struct blocks from, uint64_t row, uint64_t column)
{
	const struct grid *g = p->g;
	bool down = g->m->parts == 1;
	uint64_t width = width_of(p, find_layer(rank_of(p, 0), g->m->layer));
	struct rank *rank = rank_of(p, (down ? column : row) / width);
	const gpusnap_moe_layer *layer = find_layer(rank, g->m->layer);
	struct blocks to = {g->m->shared ? layer->shared_block_n : layer->block_n,
		g->m->shared ? layer->shared_block_k : layer->block_k};
	uint64_t r = down ? row : row % width, c = down ? column % width : column;
	uint64_t rows = ceil_div(down ? layer->hidden : width, to.n);
	uint64_t columns = ceil_div(down ? width : layer->hidden, to.k);
	uint64_t at = ((p->local * g->m->parts + p->part) * rows + r / to.n) * columns + c / to.k;

	compare(p->world, find_buffer(rank, layer->buffers[g->m->slot]), at * g->unit,
		element(g, p->expert, p->part, row / from.n, column / from.k), g->unit);
}

/* The whole model's intermediate size, which scales alone do not tell. */
static uint64_t whole_width(const struct place *p)
{
	const struct grid *g = p->g;
	const char *end = strstr(g->tensor->name, "experts.");
	const struct test_tensor *weight;
	char name[200];

	if (g->m->order != ONE) {
		(void)snprintf(name, sizeof name, "%.*sexperts.gate_up_proj_bias",
			(int)(end - g->tensor->name), g->tensor->name);
		return test_checkpoint_find(p->world->checkpoint, name)->shape[1] / 2;
	}
	weight = weight_of(p);
	return g->m->parts == 2 ? weight->shape[0]
				: weight->shape[1] * (weight->dtype == GPUSNAP_I8 ? 2 : 1);
}

/* By sixteenths of rows and columns, which no block is narrower than, but for rows of one. */
static void check_scale(const struct place *p)
{
	const struct grid *g = p->g;
	struct blocks from = blocks_of(p);
	uint64_t hidden = find_layer(rank_of(p, 0), g->m->layer)->hidden;
	uint64_t width = whole_width(p);
	uint64_t rows = g->m->parts == 2 ? width : hidden;
	uint64_t columns = g->m->parts == 2 ? hidden : width;

	ck_assert_uint_eq(g->rows, ceil_div(rows, from.n));
	ck_assert_uint_eq(g->columns, ceil_div(columns, from.k));
	for (uint64_t r = 0; r < rows; r += from.n == 1 ? 1 : 16)
		for (uint64_t c = 0; c < columns; c += from.k == 32 ? 32 : 16)
			check_scale_at(p, from, r, c);
}

/* ---- tensors ---- */

static void check_place(const struct place *p)
{
	if (p->g->m->kind == WEIGHT)
		check_weight(p);
	else if (p->g->m->kind == SCALE)
		check_scale(p);
	else
		check_bias(p);
}

static void check_fused(struct world *world, const struct test_tensor *t, const struct meaning *m)
{
	struct grid g = grid_of(t, m);
	uint32_t experts = find_layer(&world->ranks[0], m->layer)->experts;

	for (uint32_t e = 0; e < g.experts; e++) {
		struct place p = {.world = world, .g = &g, .expert = e};
		uint32_t expert = m->order == ONE ? m->expert : e;

		p.ep_rank = m->shared ? 0 : owner_of(expert, experts, world->ep, &p.local);
		for (uint32_t part = 0; part < (m->order == ONE ? 1 : m->parts); part++) {
			p.part = m->order == ONE ? m->part : part;
			check_place(&p);
		}
	}
}

static void check_whole(struct world *world, const struct test_tensor *t, const struct meaning *m)
{
	for (uint32_t i = 0; i < world->tp * world->ep; i++) {
		struct rank *rank = &world->ranks[i];
		const char *name =
			m->kind == TABLE ? find_layer(rank, m->layer)->buffers[m->slot] : t->name;
		struct buffer *buffer;

		if (m->kind == TABLE && m->slot == GPUSNAP_MOE_SHARED_GATE && rank->ep_rank) {
			ck_assert_ptr_null(name);
			continue;
		}
		buffer = find_buffer(rank, name);
		ck_assert_uint_eq(buffer->info.bytes, t->bytes);
		ck_assert_int_eq(buffer->info.dtype, t->dtype);
		compare(world, buffer, 0, t->data, t->bytes);
	}
}

/* ---- padding and masks: all that is left ---- */

static void check_padding_bytes(struct world *world, struct buffer *b, uint64_t at, uint64_t count)
{
	static const uint8_t one[] = {0, 0, 0x80, 0x3f};

	for (uint64_t i = at; i < at + count; i++) {
		uint8_t expected = b->info.role != GPUSNAP_ROLE_SCALE ? 0
				   : b->info.dtype == GPUSNAP_F8_E8M0 ? 127
								      : one[i % 4];

		world->wrong += b->data[i] != expected;
		if (b->seen[i] == 1)
			ck_abort_msg("%s: padding at %llu holds a tensor's byte", b->info.name,
				(unsigned long long)i);
		b->seen[i] = 2;
	}
}

static void check_padding(struct world *world, struct buffer *b, const gpusnap_json *entry)
{
	uint32_t axis = (uint32_t)gpusnap_json_integer(gpusnap_json_get(entry, "axis"), -1);
	uint64_t from = (uint64_t)gpusnap_json_integer(gpusnap_json_get(entry, "from"), -1);
	uint64_t to = (uint64_t)gpusnap_json_integer(gpusnap_json_get(entry, "to"), -1);
	uint64_t outer = 1, bits = gpusnap_dtype_bits(b->info.dtype);

	ck_assert_uint_lt(axis, b->info.rank);
	ck_assert(from < to && to <= b->info.shape[axis]);
	for (uint32_t d = 0; d < axis; d++)
		outer *= b->info.shape[d];
	for (uint32_t d = axis + 1; d < b->info.rank; d++)
		bits *= b->info.shape[d];
	for (uint64_t o = 0; o < outer; o++)
		check_padding_bytes(world, b, (o * b->info.shape[axis] + from) * bits / 8,
			(to - from) * bits / 8);
}

static void check_rest(struct world *world, struct rank *rank)
{
	gpusnap_json *padding = gpusnap_record_get(rank->registry, "padding");

	for (size_t i = 0; i < gpusnap_json_size(padding); i++) {
		const gpusnap_json *entry = gpusnap_json_at(padding, i);

		check_padding(world,
			find_buffer(rank, gpusnap_json_text(gpusnap_json_get(entry, "buffer"))),
			entry);
	}
	gpusnap_json_free(padding);
	for (uint32_t i = 0; i < rank->count; i++) {
		const struct buffer *b = &rank->buffers[i];

		ck_assert_msg(b->info.role == GPUSNAP_ROLE_EXPERT_MASK ||
				      !memchr(b->seen, 0, b->info.bytes),
			"%s holds bytes of no tensor that are no padding", b->info.name);
	}
}

/* ---- all of it ---- */

static void check_world(const char *directory, struct world *world)
{
	world->ranks = calloc((size_t)world->tp * world->ep, sizeof *world->ranks);
	ck_assert_ptr_nonnull(world->ranks);
	for (uint32_t i = 0; i < world->tp * world->ep; i++) {
		world->ranks[i].tp_rank = i % world->tp;
		world->ranks[i].ep_rank = i / world->tp;
		load_rank(&world->ranks[i], directory, world);
	}
	for (size_t i = 0; i < world->checkpoint->tensor_count; i++) {
		const struct test_tensor *t = &world->checkpoint->tensors[i];
		struct meaning m = meaning_of(&world->ranks[0], t->name);

		world->wrong = 0;
		if (m.kind == PLAIN || m.kind == TABLE)
			check_whole(world, t, &m);
		else
			check_fused(world, t, &m);
		ck_assert_msg(world->wrong == 0, "%s at tp %u ep %u: %llu elements are not its own",
			t->name, world->tp, world->ep, (unsigned long long)world->wrong);
	}
	for (uint32_t i = 0; i < world->tp * world->ep; i++) {
		check_rest(world, &world->ranks[i]);
		ck_assert_msg(world->wrong == 0, "padding is no padding");
		close_rank(&world->ranks[i]);
	}
	free(world->ranks);
}

static const char *const checkpoints[] = {"deepseek_v3", "deepseek_v3_fp8", "deepseek_v4",
	"deepseek_v4_fp4", "glm4_moe", "gpt_oss", "gpt_oss_mxfp4", "mixtral", "qwen2_moe",
	"qwen3_moe", "qwen3_moe_fp8"};
enum { CHECKPOINTS = sizeof checkpoints / sizeof checkpoints[0] };

static void check_grid(const char *directory, uint32_t tp, uint32_t ep, bool fine_blocks)
{
	struct world world = {.tp = tp, .ep = ep, .fine_blocks = fine_blocks};

	world.checkpoint = test_checkpoint_read(directory);
	check_world(directory, &world);
	test_checkpoint_free(world.checkpoint);
}

START_TEST(all_ranks_together_hold_the_checkpoint)
{
	char directory[PATH_MAX];

	tempdir_join(directory, GPUSNAP_TEST_DATA "/checkpoints", checkpoints[_i]);
	for (uint32_t tp = 1; tp <= 4; tp *= 2)
		for (uint32_t ep = 1; ep <= 4; ep *= 2)
			check_grid(directory, tp, ep, false);
}
END_TEST

/* Remainders of experts, and slices that only padding makes equal. */
START_TEST(ranks_that_do_not_divide_hold_it_too)
{
	char directory[PATH_MAX];

	tempdir_join(directory, GPUSNAP_TEST_DATA "/checkpoints", checkpoints[_i]);
	check_grid(directory, 3, 3, false);
	check_grid(directory, 5, 1, false);
	if (getenv("GPUSNAP_LONG"))
		check_grid(directory, 7, 5, false);
}
END_TEST

/* ---- the same models as others write them ---- */

enum { POOL_BYTES = 1 << 20 };
static uint8_t pool[POOL_BYTES]; /* contents of tensors that are made anew */

static void remake(struct test_tensor *t, gpusnap_dtype dtype, uint64_t rows, uint64_t columns)
{
	t->dtype = dtype;
	t->rank = 2;
	t->shape[0] = rows;
	t->shape[1] = columns;
	t->bytes = rows * columns * gpusnap_dtype_bits(dtype) / 8;
	assert(t->bytes < POOL_BYTES / 2);
	t->data = pool + strlen(t->name) * 64 % (POOL_BYTES / 2);
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);

	return length >= tail && strcmp(text + length - tail, end) == 0;
}

static void drop_prefix(struct test_tensor *t)
{
	if (strncmp(t->name, "model.", 6) == 0)
		memmove(t->name, t->name + 6, strlen(t->name + 6) + 1);
}

static void respell_scales(struct test_tensor *t)
{
	char *end = strstr(t->name, "weight_scale_inv");

	if (end && strstr(t->name, "experts"))
		memcpy(end, "scale", sizeof "scale");
}

static void make_exponents(struct test_tensor *t)
{
	if (ends_with(t->name, "weight_scale_inv"))
		remake(t, GPUSNAP_F8_E8M0, t->shape[0], t->shape[1]);
}

/* Scales of 1 x 32 for Qwen3's sizes: intermediate 192, hidden 256. */
static void make_fine_scales(struct test_tensor *t)
{
	bool down = strstr(t->name, "down_proj");

	if (ends_with(t->name, "weight_scale_inv"))
		remake(t, GPUSNAP_F8_E8M0, down ? 256 : 192, (down ? 192 : 256) / 32);
}

/* DeepSeek-V4-Flash-Base: routed experts in FP8 with numbers for scales, while config.json says
 * fp4. */
static void make_fp8_routed(struct test_tensor *t)
{
	if (!strstr(t->name, ".ffn.experts."))
		return;
	if (ends_with(t->name, ".weight"))
		remake(t, GPUSNAP_F8_E4M3, t->shape[0], t->shape[1] * 2);
	else
		remake(t, GPUSNAP_F32, 1, 1);
}

/* FP4 under its own name: shapes count elements, not bytes. */
static void name_fp4(struct test_tensor *t)
{
	if (t->dtype != GPUSNAP_U8)
		return;
	if (ends_with(t->name, "_blocks")) {
		t->dtype = GPUSNAP_F4;
		t->rank = 3;
		t->shape[2] *= 32;
	} else {
		t->dtype = GPUSNAP_F8_E8M0;
	}
}

static const struct variant {
	const char *checkpoint;
	void (*change)(struct test_tensor *tensor);
	bool fine_blocks;
} variants[] = {
	{"qwen3_moe_fp8", respell_scales, false},
	{"deepseek_v3_fp8", respell_scales, false},
	{"qwen3_moe_fp8", make_exponents, false},
	{"deepseek_v3_fp8", make_exponents, false},
	{"qwen3_moe_fp8", make_fine_scales, true},
	{"deepseek_v4_fp4", make_fp8_routed, false},
	{"gpt_oss_mxfp4", name_fp4, false},
};

static void check_changed(const struct variant *variant)
{
	char source[PATH_MAX], folder[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
	struct test_checkpoint *checkpoint;

	tempdir_join(source, GPUSNAP_TEST_DATA "/checkpoints", variant->checkpoint);
	tempdir_make(folder, NULL);
	tempdir_join(from, source, "config.json");
	tempdir_join(to, folder, "config.json");
	copy_file(from, to);
	checkpoint = test_checkpoint_read(source);
	for (size_t i = 0; i < checkpoint->tensor_count; i++)
		variant->change(&checkpoint->tensors[i]);
	test_checkpoint_write(checkpoint, folder, "model.safetensors");
	test_checkpoint_free(checkpoint);
	check_grid(folder, 2, 3, variant->fine_blocks);
	check_grid(folder, 3, 1, variant->fine_blocks);
	tempdir_remove(folder);
}

START_TEST(other_spellings_and_formats_are_taken)
{
	uint64_t seed = 4;

	random_fill(&seed, pool, sizeof pool);
	check_changed(&variants[_i]);
}
END_TEST

START_TEST(names_without_the_model_prefix_are_taken)
{
	check_changed(&(struct variant){checkpoints[_i], drop_prefix, false});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reassembly");
	TCase *cases = tcase_create("checkpoints");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(cases, all_ranks_together_hold_the_checkpoint, 0, CHECKPOINTS);
	tcase_add_loop_test(cases, ranks_that_do_not_divide_hold_it_too, 0, CHECKPOINTS);
	tcase_add_loop_test(cases, names_without_the_model_prefix_are_taken, 0, CHECKPOINTS);
	tcase_add_loop_test(cases, other_spellings_and_formats_are_taken, 0,
		sizeof variants / sizeof variants[0]);
	tcase_set_timeout(cases, 240);
	suite_add_tcase(suite, cases);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_run(runner) == 0 || srunner_ntests_failed(runner) > 0;
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
