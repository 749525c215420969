/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_RANK_STATE_H
#define GSN_RANK_STATE_H
/*
 * What one tensor- and expert-parallel rank holds of a checkpoint: its buffers, placed in one
 * region, the views that fill them, and the description of the MoE layers. Pure: nothing is read
 * from the files beyond their headers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/moe.h>
#include <gpusnap/plan.h>

#include "loader/checkpoint.h"
#include "loader/config.h"
#include "loader/tensor_view.h"

/* Which part of the model, in range: rank < size. */
struct gsn_rank {
	uint32_t tp_rank, tp_size;
	uint32_t ep_rank, ep_size;
	gpusnap_mask_kind mask;
	bool expert_maps;
};

struct gsn_buffer_plan {
	char *name;
	gpusnap_role role;
	gpusnap_dtype dtype;
	uint32_t rank;
	uint64_t *shape;
	uint64_t bytes;
	uint64_t offset; /* in the region */
	gpusnap_mask_type mask;
	uint8_t *content; /* of a buffer that no tensor fills; else NULL */
};

/* Indices [from, to) of a dimension of a buffer that no tensor fills. */
struct gsn_padding {
	uint32_t buffer; /* index */
	uint32_t axis;
	uint64_t from, to;
};

struct gsn_rank_state {
	uint32_t buffer_count, buffer_room;
	struct gsn_buffer_plan *buffers;
	size_t view_count, view_room;
	struct gsn_view *views;
	uint32_t padding_count, padding_room;
	struct gsn_padding *paddings;
	uint64_t padding_bytes;
	uint64_t predictions; /* tensors of layers for multi-token prediction */
	uint32_t unexpected_count, unexpected_room;
	const char **unexpected; /* names that the family does not know; borrowed */
	uint64_t tensors;	 /* of the checkpoint that the rank uses */
	uint64_t slices;	 /* views that slice a tensor */
	uint64_t bytes;		 /* of the region that holds all buffers */
	gpusnap_moe_model *model;
};

/*
 * The largest power of two that divides a buffer's size is its alignment, up to this, which the
 * region must have.
 */
#define GSN_ALIGNMENT_MAX 4096u

/*
 * E_FORMAT: tensors missing, of the wrong dtype or shape; E_INVALID: more ranks than experts, scale
 * blocks that tp_size cannot split; E_UNSUPPORTED: weights of a dtype that no kernel takes, a rank
 * of a model whose family is unknown.
 */
gpusnap_status gsn_rank_state_build(const struct gsn_checkpoint *checkpoint,
	const struct gsn_config *config, const struct gsn_rank *rank,
	struct gsn_rank_state *ret_state, gpusnap_error *err);
void gsn_rank_state_release(struct gsn_rank_state *state); /* takes a zeroed one */

/* ---- for the builders of buffers ---- */

struct gsn_buffer_spec {
	const char *name; /* copied */
	gpusnap_role role;
	gpusnap_dtype dtype;
	uint32_t rank;
	const uint64_t *shape; /* copied */
};

/* Append a buffer; its index is buffer_count - 1 afterwards. */
gpusnap_status gsn_rank_state_add_buffer(
	struct gsn_rank_state *state, const struct gsn_buffer_spec *spec, gpusnap_error *err);
/* Append a view of the last buffer. */
gpusnap_status gsn_rank_state_add_view(
	struct gsn_rank_state *state, const struct gsn_view *view, gpusnap_error *err);
/* Note indices of the last buffer that are padding. */
gpusnap_status gsn_rank_state_add_padding(struct gsn_rank_state *state, uint32_t axis,
	uint64_t from, uint64_t to, gpusnap_error *err);
/* A buffer that holds a whole tensor, under the given name. */
gpusnap_status gsn_rank_state_add_whole(struct gsn_rank_state *state,
	const struct gsn_checkpoint_tensor *tensor, const char *name, gpusnap_role role,
	gpusnap_error *err);

#endif
