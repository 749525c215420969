/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_CONFIG_H
#define GSN_CONFIG_H
/*
 * What config.json says that the tensors cannot: family, number of layers and experts, routing,
 * norm epsilon, scale blocks. Sizes and dtypes are taken from the tensors.
 */
#include <stdbool.h>
#include <stdint.h>

#include <gpusnap/json.h>
#include <gpusnap/status.h>

#include "loader/family.h"

/* Of an unknown family only the first two are set; it has 0 layers to look at. */
struct gsn_config {
	const struct gsn_family *family;
	char *model_type;
	uint32_t layers;
	uint32_t experts;
	uint32_t top_k;
	uint32_t sparse_step;  /* 1: every layer */
	uint32_t sparse_every; /* 1: every layer */
	uint32_t first_dense;  /* layers below are not sparse */
	uint32_t first_hash;   /* layers below are routed by hash */
	bool *hashed;	       /* [layers] those that are; NULL: as first_hash says */
	bool renormalise;
	bool shared;		     /* says that there are shared experts */
	float routed_scale;	     /* 0: none */
	uint32_t groups, top_groups; /* 0: none */
	float limit;		     /* of the activation; 0: none */
	bool untied;		     /* says that the output head is not the embedding */
	float norm_epsilon;
	uint32_t block_n, block_k; /* rows and columns a scale; 128 where not said */
	uint32_t dense_count;
	uint32_t *dense_layers;
};

/*
 * E_UNSUPPORTED: an activation, score or kind of layer that is unknown; E_FORMAT: a key that the
 * family needs is missing, of the wrong type or out of range.
 */
gpusnap_status gsn_config_parse(
	gpusnap_json *json, struct gsn_config *ret_config, gpusnap_error *err);
/* The config.json of a directory. E_IO when it is missing. */
gpusnap_status gsn_config_read(
	const char *directory, struct gsn_config *ret_config, gpusnap_error *err);
/* Of tensors that come without a config.json: an unknown family. */
gpusnap_status gsn_config_none(struct gsn_config *ret_config, gpusnap_error *err);
void gsn_config_release(struct gsn_config *config); /* takes a zeroed one */
/* Does config.json say that the layer is a MoE layer. */
bool gsn_config_is_sparse(const struct gsn_config *config, uint32_t layer);
/* And that its experts are chosen by token. */
bool gsn_config_is_hashed(const struct gsn_config *config, uint32_t layer);

#endif
