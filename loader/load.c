/* SPDX-License-Identifier: Apache-2.0 */
/* gpusnap_load(): from a checkpoint to registered, filled buffers, or to nothing. */
#include <string.h>

#include <gpusnap/loader.h>

#include "formats/base/alloc.h"
#include "formats/base/clock.h"
#include "formats/base/fail.h"
#include "loader/load_input.h"
#include "loader/load_records.h"
#include "loader/load_run.h"
#include "snapshot/registry_state.h"

#define REGION_TAG "weights"

struct load {
	gpusnap_registry *registry;
	struct gsn_load_input input;
	bool reserved; /* `region` is ours to free on failure */
	uint32_t region;
	uint64_t base; /* of the buffers in the region */
	gpusnap_loaded loaded;
};

/* ---- options ---- */

/* Snapshots carry the registry's ranks, so both must say the same. */
static gpusnap_status check_registry_ranks(
	const gpusnap_registry *registry, const struct gsn_rank *rank, gpusnap_error *err)
{
	const gpusnap_registry_options *has = gpusnap_registry_ranks(registry);

	if (has->tp_rank == rank->tp_rank && has->tp_size == rank->tp_size &&
		has->ep_rank == rank->ep_rank && has->ep_size == rank->ep_size)
		return GPUSNAP_OK;
	return gsn_fail(err, GPUSNAP_E_INVALID,
		"the registry is of rank tp %u/%u ep %u/%u, the load of tp %u/%u ep %u/%u; create "
		"the registry with the ranks that are loaded",
		has->tp_rank, has->tp_size, has->ep_rank, has->ep_size, rank->tp_rank,
		rank->tp_size, rank->ep_rank, rank->ep_size);
}

/* ---- region and buffers ---- */

static gpusnap_status reserve_region(struct load *load, gpusnap_error *err)
{
	gpusnap_region_options options = GPUSNAP_REGION_OPTIONS_INIT;
	uint64_t bytes = load->input.state.bytes;
	gpusnap_status st;

	options.tag = REGION_TAG;
	options.policy = GPUSNAP_POLICY_KEEP;
	options.unclaimed_set = load->input.options.forget_unclaimed;
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
	return load->input.options.unregistered_masks && buffer->role == GPUSNAP_ROLE_EXPERT_MASK;
}

static gpusnap_status register_buffers(struct load *load, gpusnap_error *err)
{
	gpusnap_status st = GPUSNAP_OK;

	for (uint32_t i = 0; !st && i < load->input.state.buffer_count; i++) {
		const struct gsn_buffer_plan *buffer = &load->input.state.buffers[i];
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
		.checkpoint = &load->input.checkpoint,
		.views = load->input.state.views,
		.view_count = load->input.state.view_count,
		.bytes = load->input.state.bytes,
		.device = gpusnap_registry_device(load->registry),
		.compact = load->input.options.compact,
		.io = &load->input.options.io,
	};
	gpusnap_status st = gpusnap_region_get(load->registry, load->region, &info, err);

	if (st)
		return st;
	job.address = info.address + load->base;
	gsn_load_input_report(&load->input, report);
	st = gsn_load_run(&job, report, err);
	if (!st)
		st = gsn_checkpoint_unchanged(&load->input.checkpoint, err);
	return st;
}

/* ---- what the caller gets ---- */

static gpusnap_status list_masks(struct load *load, gpusnap_error *err)
{
	const struct gsn_rank_state *state = &load->input.state;
	gpusnap_loaded *loaded = &load->loaded;

	if (!load->input.options.unregistered_masks)
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
	const struct gsn_rank_state *state = &load->input.state;
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
		st = gsn_load_records_set(load->registry, &load->input.state, err);
	/* Freeing a resident region that no job works on cannot fail. */
	if (st && load->reserved)
		(void)!gpusnap_region_free(load->registry, load->region, NULL);
	gpusnap_registry_release(load->registry);
	return st;
}

gpusnap_status gpusnap_load(gpusnap_registry *registry, const char *path,
	const gpusnap_load_options *options, gpusnap_loaded *ret_loaded, gpusnap_error *err)
{
	struct load load = {.registry = registry};
	double start = gsn_clock_seconds();
	gpusnap_status st = gsn_load_input_resolve(&load.input, options, err);

	if (!st)
		st = check_registry_ranks(registry, &load.input.rank, err);
	if (!st)
		st = gsn_load_input_open(&load.input, path, err);
	if (!st)
		st = carry_out(&load, err);
	if (!st) {
		load.loaded.model = load.input.state.model;
		load.input.state.model = NULL;
		load.loaded.report.seconds = gsn_clock_seconds() - start;
		*ret_loaded = load.loaded;
	} else {
		gpusnap_loaded_release(&load.loaded);
	}
	gsn_load_input_close(&load.input);
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
