/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_LOADER_H
#define GPUSNAP_LOADER_H
/*
 * Loading a Hugging Face checkpoint directory (config.json, safetensors shards, index) into the
 * buffers of one tensor- and expert-parallel rank, fused as serving engines do.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/io.h>
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
	bool unregistered_masks; /* leave masks unnamed, as engines do: unclaimed bytes */
	bool forget_unclaimed;	 /* policy zero for unclaimed bytes: shows failure 1 */
	gpusnap_compact compact;
	gpusnap_io_options io;
} gpusnap_load_options;
#define GPUSNAP_LOAD_OPTIONS_INIT                                                                  \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_load_options)                                        \
	}

typedef struct gpusnap_load_report {
	uint64_t tensors;    /* of the checkpoint that this rank uses */
	uint64_t views;	     /* slices of tensors that make up the buffers */
	uint64_t copies;     /* host-to-device copies issued */
	uint64_t bytes;	     /* of the buffers */
	uint64_t bytes_read; /* from the files */
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
	gpusnap_load_report report;
} gpusnap_loaded;

/**
 * Load `directory` into a new region tagged "weights" of the registry.
 *
 * qwen2_moe, qwen3_moe, mixtral and glm4_moe are fused and described; a shared expert, whose output
 * is to be added once, lives on expert-parallel rank 0, cut as experts are. The other known
 * families are kept tensor by tensor, whole (tp_size and ep_size 1), with a model of no layers and
 * a note in the report.
 *
 * E_IO: a file is missing, truncated, or changes during the load; E_FORMAT: config, index or shard
 * malformed, a tensor missing, of the wrong dtype or shape; E_UNSUPPORTED: an unknown family;
 * E_INVALID: sizes that tp_size or ep_size do not divide, ranks that are not the registry's. On
 * failure the registry is as before.
 * @param ret_loaded  filled on success; gpusnap_loaded_release().
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_load(gpusnap_registry *registry,
	const char *directory, const gpusnap_load_options *options, gpusnap_loaded *ret_loaded,
	gpusnap_error *err);
GPUSNAP_API void gpusnap_loaded_release(gpusnap_loaded *loaded);

#ifdef __cplusplus
}
#endif
#endif
