/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap_load(): from a checkpoint to registered, filled buffers, or to nothing. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <gpusnap/loader.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "formats/base/text.h"
#include "loader/checkpoint.h"
#include "loader/config.h"
#include "loader/load_records.h"
#include "loader/load_run.h"
#include "loader/rank_state.h"
#include "loader/source_path.h"
#include "snapshot/registry_state.h"

#define REGION_TAG "weights"

static const char unknown_note[] =
	"the model's family is unknown: its tensors are kept as they are, with no decode to prove "
	"them";

struct load {
	gpusnap_registry *registry;
	gpusnap_load_options options; /* resolved */
	struct gsn_source_path source;
	struct gsn_rank rank;
	struct gsn_config config;
	struct gsn_checkpoint checkpoint;
	struct gsn_rank_state state;
	bool reserved; /* `region` is ours to free on failure */
	uint32_t region;
	uint64_t base; /* of the buffers in the region */
	gpusnap_loaded loaded;
};

/* ---- options ---- */

static gpusnap_status check_rank(const char *name, uint32_t rank, uint32_t size, gpusnap_error *err)
{
	if (rank < size)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_INVALID, "%s_rank %u is outside 0..%u (%s_size %u)", name,
		rank, size - 1, name, size);
}

/* Snapshots carry the registry's ranks, so both must say the same. */
static gpusnap_status check_registry_ranks(
	const gpusnap_registry *registry, const struct gsn_rank *rank, gpusnap_error *err)
{
	const gpusnap_registry_options *has = &registry->options;
	uint32_t tp_size = has->tp_size ? has->tp_size : 1;
	uint32_t ep_size = has->ep_size ? has->ep_size : 1;

	if (has->tp_rank == rank->tp_rank && tp_size == rank->tp_size &&
		has->ep_rank == rank->ep_rank && ep_size == rank->ep_size)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"the registry is of rank tp %u/%u ep %u/%u, the load of tp %u/%u ep %u/%u; create "
		"the registry with the ranks that are loaded",
		has->tp_rank, tp_size, has->ep_rank, ep_size, rank->tp_rank, rank->tp_size,
		rank->ep_rank, rank->ep_size);
}

static gpusnap_status resolve_options(
	struct load *load, const gpusnap_load_options *caller, gpusnap_error *err)
{
	gpusnap_load_options *o = &load->options;
	gpusnap_status st;

	st = gsn_options_copy(o, sizeof *o, caller, "gpusnap_load_options", err);
	if (st)
		return st;
	load->rank = (struct gsn_rank){
		.tp_rank = o->tp_rank,
		.tp_size = o->tp_size ? o->tp_size : 1,
		.ep_rank = o->ep_rank,
		.ep_size = o->ep_size ? o->ep_size : 1,
		.mask = o->mask ? o->mask : GPUSNAP_MASK_STANDARD,
	};
	if ((unsigned)o->compact > GPUSNAP_COMPACT_NEVER)
		return gsn_fail(err, GPUSNAP_E_INVALID, "compact %d is none of auto, always, never",
			(int)o->compact);
	if ((unsigned)load->rank.mask > GPUSNAP_MASK_VLLM_AITER)
		return gsn_fail(
			err, GPUSNAP_E_INVALID, "mask kind %d is unknown", (int)load->rank.mask);
	st = check_rank("tp", load->rank.tp_rank, load->rank.tp_size, err);
	if (!st)
		st = check_rank("ep", load->rank.ep_rank, load->rank.ep_size, err);
	if (!st)
		st = check_registry_ranks(load->registry, &load->rank, err);
	return st;
}

/* ---- region and buffers ---- */

static gpusnap_status reserve_region(struct load *load, gpusnap_error *err)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	uint64_t bytes = load->state.bytes;
	gpusnap_status st;

	options.tag = REGION_TAG;
	options.policy = GPUSNAP_POLICY_KEEP;
	options.unclaimed_set = load->options.forget_unclaimed;
	options.unclaimed = GPUSNAP_POLICY_ZERO;
	st = gpusnap_region_reserve(load->registry, bytes, &options, &load->region, err);
	if (st)
		return st;
	load->reserved = true;
	return gpusnap_region_alloc(
		load->registry, load->region, bytes, GSN_ALIGNMENT_MAX, &load->base, err);
}

static bool is_left_unnamed(const struct load *load, const struct gsn_buffer_plan *buffer)
{
	return load->options.unregistered_masks && buffer->role == GPUSNAP_ROLE_EXPERT_MASK;
}

static gpusnap_status register_buffers(struct load *load, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; !st && i < load->state.buffer_count; i++) {
		const struct gsn_buffer_plan *buffer = &load->state.buffers[i];
		gpusnap_buffer_options options = GPUSNAP_BUFFER_OPTIONS_INIT;

		if (is_left_unnamed(load, buffer))
			continue;
		options.name = buffer->name;
		options.role = buffer->role;
		options.dtype = buffer->dtype;
		options.rank = buffer->rank;
		options.shape = buffer->shape;
		options.region = load->region;
		options.offset = load->base + buffer->offset;
		options.mask = buffer->mask;
		st = gpusnap_buffer_register(load->registry, &options, err);
	}
	return st;
}

/* ---- filling ---- */

static gpusnap_status fill_region(struct load *load, gpusnap_error *err)
{
	gpusnap_load_report *report = &load->loaded.report;
	gpusnap_region_info info;
	struct gsn_load_job job = {
		.checkpoint = &load->checkpoint,
		.views = load->state.views,
		.view_count = load->state.view_count,
		.bytes = load->state.bytes,
		.device = gpusnap_registry_device(load->registry),
		.compact = load->options.compact,
		.io = &load->options.io,
	};
	gpusnap_status st = gpusnap_region_get(load->registry, load->region, &info, err);

	if (st)
		return st;
	job.address = info.address + load->base;
	report->tensors = load->state.tensors;
	report->views = load->state.slices;
	report->predictions = load->state.predictions;
	report->padding = load->state.padding_bytes;
	report->bytes = load->state.bytes;
	if (!load->config.family->model_type)
		report->note = unknown_note;
	st = gsn_load_run(&job, report, err);
	if (!st)
		st = gsn_checkpoint_unchanged(&load->checkpoint, err);
	return st;
}

/* ---- what the caller gets ---- */

static gpusnap_status list_masks(struct load *load, gpusnap_error *err)
{
	const struct gsn_rank_state *state = &load->state;
	gpusnap_loaded *loaded = &load->loaded;

	if (!load->options.unregistered_masks)
		return GPUSNAP_OK;
	loaded->masks = gsn_alloc(state->model->layer_count, sizeof *loaded->masks);
	if (!loaded->masks)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the list of masks");
	for (uint32_t i = 0; i < state->buffer_count; i++)
		if (is_left_unnamed(load, &state->buffers[i])) {
			loaded->masks[loaded->mask_count] = (gpusnap_load_mask){
				.layer = loaded->mask_count,
				.region = load->region,
				.offset = load->base + state->buffers[i].offset,
			};
			loaded->mask_count++;
		}
	return GPUSNAP_OK;
}

static gpusnap_status list_unexpected(struct load *load, gpusnap_error *err)
{
	const struct gsn_rank_state *state = &load->state;
	gpusnap_loaded *loaded = &load->loaded;

	loaded->unexpected = gsn_alloc(state->unexpected_count, sizeof(char *));
	if (!loaded->unexpected)
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for the list of tensors");
	for (uint32_t i = 0; i < state->unexpected_count; i++) {
		loaded->unexpected[i] = gsn_strdup(state->unexpected[i]);
		if (!loaded->unexpected[i])
			return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for a tensor's name");
		loaded->unexpected_count++;
	}
	return GPUSNAP_OK;
}

/* ---- the whole ---- */

static gpusnap_status refuse_unexpected(const struct load *load, gpusnap_error *err)
{
	const struct gsn_rank_state *state = &load->state;
	char names[300] = "";
	size_t used = 0;
	uint32_t i;

	for (i = 0; i < state->unexpected_count; i++) {
		char quoted[GSN_QUOTE_BYTES];
		const char *name = state->unexpected[i];
		int length = snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
			gsn_quote(name, strlen(name), quoted));

		if ((size_t)length >= sizeof names - used)
			break;
		used += (size_t)length;
	}
	names[used] = '\0';
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"%u tensors are none of %s's: %s%s; without strict they are kept as they are",
		state->unexpected_count, load->config.model_type, names,
		i < state->unexpected_count ? ", ..." : "");
}

static gpusnap_status read_config(struct load *load, gpusnap_error *err)
{
	if (load->source.configured)
		return gsn_config_read(load->source.directory, &load->config, err);
	return gsn_config_none(&load->config, err);
}

static gpusnap_status plan_load(struct load *load, const char *path, gpusnap_error *err)
{
	gpusnap_status st = gsn_source_path_resolve(path, &load->source, err);

	if (!st)
		st = read_config(load, err);
	if (!st)
		st = gsn_checkpoint_open(
			load->source.directory, load->source.file, &load->checkpoint, err);
	if (!st)
		st = gsn_rank_state_build(
			&load->checkpoint, &load->config, &load->rank, &load->state, err);
	if (!st && load->state.bytes == 0)
		st = gsn_fail(err, GPUSNAP_E_FORMAT, "%s holds no tensor", path);
	if (!st && load->options.strict && load->state.unexpected_count)
		st = refuse_unexpected(load, err);
	return st;
}

/* Held throughout, so that no snapshot is taken of a region that is half filled. */
static gpusnap_status carry_out(struct load *load, gpusnap_error *err)
{
	gpusnap_status st;

	gpusnap_registry_hold(load->registry);
	st = reserve_region(load, err);
	if (!st)
		st = register_buffers(load, err);
	if (!st)
		st = fill_region(load, err);
	if (!st)
		st = list_masks(load, err);
	if (!st)
		st = list_unexpected(load, err);
	/* Last, because what it replaces is not put back when a later step fails. */
	if (!st)
		st = gsn_load_records_set(load->registry, &load->state, err);
	/* Freeing a resident region that no job works on cannot fail. */
	if (st && load->reserved)
		(void)!gpusnap_region_free(load->registry, load->region, NULL);
	gpusnap_registry_release(load->registry);
	return st;
}

static double now(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

gpusnap_status gpusnap_load(gpusnap_registry *registry, const char *path,
	const gpusnap_load_options *options, gpusnap_loaded *ret_loaded, gpusnap_error *err)
{
	struct load load = {.registry = registry};
	double start = now();
	gpusnap_status st = resolve_options(&load, options, err);

	if (!st)
		st = plan_load(&load, path, err);
	if (!st)
		st = carry_out(&load, err);
	if (!st) {
		load.loaded.model = load.state.model;
		load.state.model = NULL;
		load.loaded.report.seconds = now() - start;
		*ret_loaded = load.loaded;
	} else {
		gpusnap_loaded_release(&load.loaded);
	}
	gsn_rank_state_release(&load.state);
	gsn_checkpoint_close(&load.checkpoint);
	gsn_config_release(&load.config);
	gsn_source_path_release(&load.source);
	return st;
}

void gpusnap_loaded_release(gpusnap_loaded *loaded)
{
	gpusnap_moe_model_free(loaded->model);
	gsn_free(loaded->masks);
	for (uint32_t i = 0; i < loaded->unexpected_count; i++)
		gsn_free(loaded->unexpected[i]);
	gsn_free((void *)loaded->unexpected);
	memset(loaded, 0, sizeof *loaded);
}
