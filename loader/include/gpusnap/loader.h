/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_LOADER_H
#define GPUSNAP_LOADER_H
/*
 * Loading a Hugging Face checkpoint (config.json, safetensors shards, index) into the buffers of
 * one tensor- and expert-parallel rank, fused as serving engines do.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/io.h>
#include <gpusnap/json.h>
#include <gpusnap/mask.h>
#include <gpusnap/moe.h>
#include <gpusnap/registry.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gpusnap_compact {
	GPUSNAP_COMPACT_AUTO, /* views that need it */
	GPUSNAP_COMPACT_ALWAYS,
	GPUSNAP_COMPACT_NEVER, /* one copy per view: the honest baseline */
} gpusnap_compact;

GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_compact_parse(
	const char *name, gpusnap_compact *ret_compact, gpusnap_error *err);

typedef struct gpusnap_load_options {
	size_t struct_size;
	uint32_t tp_rank, tp_size, ep_rank, ep_size; /* sizes 0 mean 1 */
	gpusnap_mask_kind mask;			     /* default standard */
	bool expert_maps;			     /* an index map beside each mask */
	bool unregistered_masks; /* leave masks unnamed, as engines do: unclaimed bytes */
	bool forget_unclaimed;	 /* policy zero for unclaimed bytes: shows failure 1 */
	gpusnap_compact compact;
	gpusnap_io_options io;
	bool strict; /* refuse tensors that the family has no name for */
} gpusnap_load_options;
#define GPUSNAP_LOAD_OPTIONS_INIT                                                                  \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_load_options)                                        \
	}

typedef struct gpusnap_load_report {
	uint64_t tensors;      /* of the checkpoint that this rank uses */
	uint64_t views;	       /* slices of tensors that make up the buffers: copies, one by one */
	uint64_t compacted;    /* views that were made contiguous on the way */
	uint64_t runs;	       /* of neighbouring file bytes, each read at once */
	uint64_t copies;       /* host-to-device copies issued */
	uint64_t bytes;	       /* of the buffers: what is copied to the device */
	uint64_t bytes_needed; /* of the files, by the views */
	uint64_t bytes_read;   /* from the files */
	uint64_t predictions;  /* tensors of layers for multi-token prediction: kept as they are */
	uint64_t padding;      /* bytes of the buffers that no tensor fills: record "padding" */
	double seconds;
	gpusnap_io_report io;
	/* Why the model has no MoE layers: experts are kept tensor by tensor. NULL: it has. Static.
	 */
	const char *note;
} gpusnap_load_report;

/* Where an unregistered mask was put. */
typedef struct gpusnap_load_mask {
	uint32_t layer; /* index in model->layers */
	uint32_t region;
	uint64_t offset;
} gpusnap_load_mask;

typedef struct gpusnap_loaded {
	gpusnap_moe_model *model; /* owned; with layers also the registry's record "model" */
	uint32_t mask_count;	  /* with unregistered_masks: one per MoE layer */
	gpusnap_load_mask *masks;
	/* Tensors that the family has no name for, kept as they are. Not of an unknown family. */
	uint32_t unexpected_count;
	char **unexpected;
	gpusnap_load_report report;
} gpusnap_loaded;

/**
 * Load the checkpoint at `path` into a new region tagged "weights" of the registry: a directory, a
 * model's folder in a Hugging Face cache, or one safetensors file, which is of an unknown family
 * when no config.json lies beside it (see loader/loading.md).
 *
 * Of qwen2_moe, qwen3_moe, mixtral, glm4_moe, deepseek_v3, deepseek_v4 and gpt_oss the experts are
 * fused and the layers described. What is to be added once lives on one rank: a shared expert on
 * expert-parallel rank 0, cut as experts are, the bias of w2 on tensor-parallel rank 0. Where
 * tp_size does not divide the experts' width, or would cut a scale block into pieces that kernels
 * cannot take, all ranks are as wide as the widest: zeros, with scales of 1, follow what the
 * checkpoint has, and the record "padding" says where. Layers for multi-token prediction are kept
 * tensor by tensor, on every rank. So is a whole model of an unknown family (tp_size and ep_size
 * 1), with a model of no layers and a note in the report.
 *
 * E_IO: a file is missing, truncated, or changes during the load; E_FORMAT: config, index or shard
 * malformed, a tensor missing, of the wrong dtype or shape, or unexpected and strict;
 * E_UNSUPPORTED: a dtype, activation or score that is not known; E_INVALID: more ranks than
 * experts, scale blocks that no slice can keep, ranks that are not the registry's, a snapshot.
 * On failure the registry is as before.
 * @param ret_loaded  filled on success; gpusnap_loaded_release().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_load(gpusnap_registry *registry,
	const char *path, const gpusnap_load_options *options, gpusnap_loaded *ret_loaded,
	gpusnap_error *err);
GPUSNAP_API void gpusnap_loaded_release(gpusnap_loaded *loaded);

/**
 * What gpusnap_load() would do with the same arguments: buffers, views, runs, copies and bytes, as
 * JSON described in loader/loading.md. Reads headers only, and needs no device.
 * @param details   list each view and each run as well: about 500 bytes of JSON a view.
 * @param ret_json  owned by the caller; gpusnap_json_free().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_load_describe(const char *path,
	const gpusnap_load_options *options, bool details, gpusnap_json **ret_json,
	gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
