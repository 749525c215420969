/* SPDX-License-Identifier: Apache-2.0 */
/* From a checkpoint's tensors to the buffers of one rank, placed in one region. */
#include "loader/rank_state.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"
#include "loader/moe_layer.h"
#include "loader/parallel.h"
#include "loader/plain_tensors.h"

#define NO_LAYER UINT32_MAX
/* Names that a thread matches at a time. */
#define STRETCH 8192u

/* ---- appending ---- */

static gpusnap_status copy_spec(
	struct gsn_buffer_plan *buffer, const struct gsn_buffer_spec *spec, gpusnap_error *err)
{
	buffer->role = spec->role;
	buffer->dtype = spec->dtype;
	buffer->rank = spec->rank;
	buffer->name = gsn_strdup(spec->name);
	buffer->shape = gsn_alloc(spec->rank, sizeof *buffer->shape);
	if (!buffer->name || !buffer->shape)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a buffer");
	if (spec->rank)
		memcpy(buffer->shape, spec->shape, spec->rank * sizeof *spec->shape);
	return gpusnap_dtype_tensor_bytes(
		spec->dtype, spec->rank, spec->shape, &buffer->bytes, err);
}

gpusnap_status gsn_rank_state_add_buffer(
	struct gsn_rank_state *state, const struct gsn_buffer_spec *spec, gpusnap_error *err)
{
	if (state->buffer_count == state->buffer_room) {
		uint32_t room = state->buffer_room ? 2 * state->buffer_room : 64;
		void *grown =
			gsn_grow(state->buffers, state->buffer_room, room, sizeof *state->buffers);

		if (!grown)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u buffers", room);
		state->buffers = grown;
		state->buffer_room = room;
	}
	/* Counted first, so that a half-made one is released too. */
	return copy_spec(&state->buffers[state->buffer_count++], spec, err);
}

gpusnap_status gsn_rank_state_add_view(
	struct gsn_rank_state *state, const struct gsn_view *view, gpusnap_error *err)
{
	if (state->view_count == state->view_room) {
		size_t room = state->view_room ? 2 * state->view_room : 256;
		void *grown = gsn_grow(state->views, state->view_room, room, sizeof *state->views);

		if (!grown)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %zu views", room);
		state->views = grown;
		state->view_room = room;
	}
	state->views[state->view_count] = *view;
	state->views[state->view_count++].buffer = state->buffer_count - 1;
	state->slices += gsn_view_is_read(view);
	return GPUSNAP_OK;
}

gpusnap_status gsn_rank_state_add_padding(
	struct gsn_rank_state *state, uint32_t axis, uint64_t from, uint64_t to, gpusnap_error *err)
{
	if (state->padding_count == state->padding_room) {
		uint32_t room = state->padding_room ? 2 * state->padding_room : 64;
		void *grown = gsn_grow(
			state->paddings, state->padding_room, room, sizeof *state->paddings);

		if (!grown)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u paddings", room);
		state->paddings = grown;
		state->padding_room = room;
	}
	state->paddings[state->padding_count++] =
		(struct gsn_padding){state->buffer_count - 1, axis, from, to};
	return GPUSNAP_OK;
}

gpusnap_status gsn_rank_state_add_whole(struct gsn_rank_state *state,
	const struct gsn_checkpoint_tensor *tensor, const char *name, gpusnap_role role,
	gpusnap_error *err)
{
	const gpusnap_tensor *t = tensor->tensor;
	struct gsn_buffer_spec spec = {name, role, t->dtype, t->rank, t->shape};
	struct gsn_view view = gsn_view_bytes(tensor->shard, tensor->offset, t->end - t->begin);
	gpusnap_status st = gsn_rank_state_add_buffer(state, &spec, err);

	view.storage = t->end - t->begin;
	state->tensors++;
	return st ? st : gsn_rank_state_add_view(state, &view, err);
}

void gsn_rank_state_release(struct gsn_rank_state *state)
{
	for (uint32_t i = 0; i < state->buffer_count; i++) {
		gsn_free(state->buffers[i].name);
		gsn_free(state->buffers[i].shape);
		gsn_free(state->buffers[i].content);
	}
	gsn_free(state->buffers);
	gsn_free(state->views);
	gsn_free(state->paddings);
	gsn_free((void *)state->unexpected);
	gpusnap_moe_model_free(state->model);
	memset(state, 0, sizeof *state);
}

/* ---- sorting tensors into layers ---- */

struct assembly {
	const struct gsn_checkpoint *checkpoint;
	const struct gsn_config *config;
	const struct gsn_rank *rank;
	struct gsn_rank_state *state;
	struct gsn_moe_tensors *layers; /* [config->layers] */
	struct gsn_plain_tensors plain;
	struct gsn_tensor_match *matches; /* of each tensor; rule NULL: none */
	bool *moe;			  /* [config->layers]: has experts */
	bool *built;			  /* [config->layers] */
	uint32_t *layer_of;		  /* of each tensor; NO_LAYER: a buffer of its own */
};

/* How the checkpoint spells its names: for the names of tensors that are not there. */
static bool has_model_prefix(const struct gsn_checkpoint *checkpoint)
{
	for (size_t i = 0; i < checkpoint->tensor_count; i++)
		if (strncmp(checkpoint->tensors[i].tensor->name, "model.", 6) == 0)
			return true;
	return false;
}

static gpusnap_status open_assembly(struct assembly *a, gpusnap_error *err)
{
	const struct gsn_checkpoint *checkpoint = a->checkpoint;
	bool prefixed = has_model_prefix(checkpoint);

	a->layers = gsn_alloc(a->config->layers, sizeof *a->layers);
	a->moe = gsn_alloc(a->config->layers, sizeof *a->moe);
	a->built = gsn_alloc(a->config->layers, sizeof *a->built);
	a->layer_of = gsn_alloc(checkpoint->tensor_count, sizeof *a->layer_of);
	a->matches = gsn_alloc(checkpoint->tensor_count, sizeof *a->matches);
	if (!a->matches || !a->layers || !a->moe || !a->built || !a->layer_of)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u layers, %zu tensors",
			a->config->layers, checkpoint->tensor_count);
	for (uint32_t l = 0; l < a->config->layers; l++) {
		a->layers[l].layer = l;
		a->layers[l].prefixed = prefixed;
	}
	return gsn_plain_tensors_open(&a->plain, a->config, err);
}

static void close_assembly(struct assembly *a)
{
	for (uint32_t l = 0; a->layers && l < a->config->layers; l++)
		gsn_moe_tensors_release(&a->layers[l]);
	gsn_free(a->layers);
	gsn_free(a->moe);
	gsn_free(a->built);
	gsn_plain_tensors_close(&a->plain);
	gsn_free(a->layer_of);
	gsn_free(a->matches);
}

static gpusnap_status note_unexpected(
	struct gsn_rank_state *state, const char *name, gpusnap_error *err)
{
	if (state->unexpected_count == state->unexpected_room) {
		uint32_t room = state->unexpected_room ? 2 * state->unexpected_room : 16;
		void *grown = gsn_grow((void *)state->unexpected, state->unexpected_room, room,
			sizeof(const char *));

		if (!grown)
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u names", room);
		state->unexpected = grown;
		state->unexpected_room = room;
	}
	state->unexpected[state->unexpected_count++] = name;
	return GPUSNAP_OK;
}

/* One that is no MoE parameter of the model's layers. */
static gpusnap_status look_at_plain(struct assembly *a, const char *name, gpusnap_error *err)
{
	const struct gsn_config *config = a->config;

	if (!config->family->model_type)
		return GPUSNAP_OK;
	if (gsn_is_prediction(name, config->layers)) {
		a->state->predictions++;
		return GPUSNAP_OK;
	}
	return gsn_plain_tensors_take(&a->plain, name) ? GPUSNAP_OK
						       : note_unexpected(a->state, name, err);
}

static void match_stretch(void *argument, uint64_t task)
{
	const struct assembly *a = argument;
	size_t first = task * STRETCH;
	size_t end = (size_t)gsn_min(first + STRETCH, a->checkpoint->tensor_count);

	for (size_t i = first; i < end; i++)
		(void)gsn_family_match(
			a->config->family, a->checkpoint->tensors[i].tensor->name, &a->matches[i]);
}

static gpusnap_status sort_tensors(struct assembly *a, gpusnap_error *err)
{
	uint64_t stretches = gsn_ceil_div(a->checkpoint->tensor_count, STRETCH);
	gpusnap_status st = gsn_parallel_run(match_stretch, a, stretches, err);

	for (size_t i = 0; !st && i < a->checkpoint->tensor_count; i++) {
		const struct gsn_checkpoint_tensor *tensor = &a->checkpoint->tensors[i];
		const struct gsn_tensor_match *match = &a->matches[i];

		a->layer_of[i] = NO_LAYER;
		if (!match->rule || match->layer >= a->config->layers) {
			st = look_at_plain(a, tensor->tensor->name, err);
			continue;
		}
		a->layer_of[i] = match->layer;
		if (match->rule->slot == GPUSNAP_MOE_NORM)
			(void)gsn_plain_tensors_see(&a->plain, tensor->tensor->name);
		st = gsn_moe_tensors_add(&a->layers[match->layer], a->config, match, tensor, err);
	}
	return st;
}

/* ---- building ---- */

static uint32_t find_moe_layers(struct assembly *a)
{
	uint32_t count = 0;

	for (uint32_t l = 0; l < a->config->layers; l++) {
		a->moe[l] =
			gsn_config_is_sparse(a->config, l) || gsn_moe_tensors_any(&a->layers[l]);
		count += a->moe[l];
	}
	return count;
}

static gpusnap_status open_model(struct assembly *a, gpusnap_error *err)
{
	gpusnap_moe_model *model = gsn_alloc(1, sizeof *model);
	const char *known = a->config->family->model_type;
	uint32_t count = find_moe_layers(a);

	if (!model)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the model's description");
	a->state->model = model;
	model->family = gsn_strdup(known ? known : a->config->model_type);
	model->layers = gsn_alloc(count, sizeof *model->layers);
	if (!model->family || !model->layers)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for %u layers", count);
	model->tp_rank = a->rank->tp_rank;
	model->tp_size = a->rank->tp_size;
	model->ep_rank = a->rank->ep_rank;
	model->ep_size = a->rank->ep_size;
	return GPUSNAP_OK;
}

static gpusnap_role role_of(const char *name)
{
	static const char suffix[] = "bias";
	size_t length = strlen(name);

	if (length > sizeof suffix && strcmp(name + length - (sizeof suffix - 1), suffix) == 0 &&
		strchr("._", name[length - sizeof suffix]))
		return GPUSNAP_ROLE_BIAS;
	return GPUSNAP_ROLE_OTHER;
}

static gpusnap_status build_layer(struct assembly *a, uint32_t layer, gpusnap_error *err)
{
	gpusnap_moe_model *model = a->state->model;

	if (a->built[layer])
		return GPUSNAP_OK;
	a->built[layer] = true;
	return gsn_moe_layer_build(a->state, &a->layers[layer], a->config, a->rank,
		&model->layers[model->layer_count++], err);
}

static gpusnap_status build_buffers(struct assembly *a, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (size_t i = 0; !st && i < a->checkpoint->tensor_count; i++) {
		const struct gsn_checkpoint_tensor *tensor = &a->checkpoint->tensors[i];
		uint32_t layer = a->layer_of[i];

		if (layer != NO_LAYER && a->moe[layer])
			st = build_layer(a, layer, err);
		else
			st = gsn_rank_state_add_whole(a->state, tensor, tensor->tensor->name,
				role_of(tensor->tensor->name), err);
	}
	/* A layer of which nothing is there comes last, to be refused. */
	for (uint32_t l = 0; !st && l < a->config->layers; l++)
		if (a->moe[l])
			st = build_layer(a, l, err);
	return st;
}

/* ---- placing ---- */

static uint64_t natural_alignment(uint64_t bytes)
{
	return bytes ? gsn_min(bytes & (~bytes + 1), GSN_ALIGNMENT_MAX) : 1;
}

static int compare_alignment(const void *a, const void *b)
{
	const struct gsn_buffer_plan *x = *(const struct gsn_buffer_plan *const *)a;
	const struct gsn_buffer_plan *y = *(const struct gsn_buffer_plan *const *)b;
	uint64_t ax = natural_alignment(x->bytes), ay = natural_alignment(y->bytes);

	if (ax != ay)
		return ax > ay ? -1 : 1;
	return x < y ? -1 : x > y; /* stable */
}

/*
 * Descending by the power of two that divides the size: every buffer then begins at a multiple of
 * its own alignment, because all that lies before it is a multiple of it. No hole is needed.
 */
static void place_buffers(struct gsn_rank_state *state, struct gsn_buffer_plan **order)
{
	for (uint32_t i = 0; i < state->buffer_count; i++)
		order[i] = &state->buffers[i];
	if (state->buffer_count)
		qsort(order, state->buffer_count, sizeof(struct gsn_buffer_plan *),
			compare_alignment);
	for (uint32_t i = 0; i < state->buffer_count; i++) {
		order[i]->offset = state->bytes;
		state->bytes += order[i]->bytes;
	}
}

/* Where each buffer's views begin, and where the last one's end. */
static void find_views(const struct gsn_rank_state *state, size_t *first)
{
	size_t v = 0;

	for (uint32_t i = 0; i <= state->buffer_count; i++) {
		while (v < state->view_count && state->views[v].buffer < i)
			v++;
		first[i] = v;
	}
}

/*
 * Views come buffer by buffer, in the order of their targets in each. So they are in order when
 * the runs of the buffers are put in the order of the buffers.
 */
static void place_views(const struct gsn_rank_state *state, struct gsn_buffer_plan *const *order,
	const size_t *first, struct gsn_view *placed)
{
	size_t count = 0;

	for (uint32_t i = 0; i < state->buffer_count; i++) {
		size_t buffer = (size_t)(order[i] - state->buffers);

		for (size_t v = first[buffer]; v < first[buffer + 1]; v++) {
			placed[count] = state->views[v];
			placed[count++].target += order[i]->offset;
		}
	}
}

static gpusnap_status place(struct gsn_rank_state *state, gpusnap_error *err)
{
	struct gsn_buffer_plan **order =
		gsn_alloc(state->buffer_count, sizeof(struct gsn_buffer_plan *));
	size_t *first = gsn_alloc((size_t)state->buffer_count + 1, sizeof *first);
	struct gsn_view *placed = gsn_alloc(state->view_count, sizeof *placed);
	bool room = order && first && placed;

	if (room) {
		place_buffers(state, order);
		find_views(state, first);
		place_views(state, order, first, placed);
		gsn_free(state->views);
		state->views = placed;
		state->view_room = state->view_count;
	} else {
		gsn_free(placed);
	}
	gsn_free(order);
	gsn_free(first);
	return room ? GPUSNAP_OK
		    : gsn_fail(err, GPUSNAP_E_NOMEM, "no memory to place %u buffers, %zu views",
			      state->buffer_count, state->view_count);
}

/* ---- the whole ---- */

static gpusnap_status check_ranks(
	const struct gsn_config *config, const struct gsn_rank *rank, gpusnap_error *err)
{
	bool known = config->family->model_type;
	char quoted[GSN_QUOTE_BYTES];

	if (!known && (rank->tp_size > 1 || rank->ep_size > 1))
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"tp_size %u, ep_size %u: model_type '%s' is unknown, and loaded whole only",
			rank->tp_size, rank->ep_size,
			gsn_quote(config->model_type, strlen(config->model_type), quoted));
	if (known && rank->ep_size > config->experts)
		return gsn_fail(err, GPUSNAP_E_INVALID, "ep_size %u exceeds the model's %u experts",
			rank->ep_size, config->experts);
	return GPUSNAP_OK;
}

gpusnap_status gsn_rank_state_build(const struct gsn_checkpoint *checkpoint,
	const struct gsn_config *config, const struct gsn_rank *rank,
	struct gsn_rank_state *ret_state, gpusnap_error *err)
{
	struct gsn_rank_state state = {0};
	struct assembly a = {
		.checkpoint = checkpoint, .config = config, .rank = rank, .state = &state};
	gpusnap_status st = check_ranks(config, rank, err);

	if (!st)
		st = open_assembly(&a, err);
	if (!st)
		st = sort_tensors(&a, err);
	if (!st)
		st = open_model(&a, err);
	if (!st)
		st = build_buffers(&a, err);
	if (!st)
		st = gsn_plain_tensors_complete(&a.plain, a.moe, has_model_prefix(checkpoint), err);
	if (!st)
		st = place(&state, err);
	close_assembly(&a);
	if (st) {
		gsn_rank_state_release(&state);
		return st;
	}
	*ret_state = state;
	return GPUSNAP_OK;
}
