/* SPDX-License-Identifier: Apache-2.0 */
/* Views: further names for parts of buffers, possibly strided. They are recorded, never copied. */
#include <search.h>
#include <string.h>

#include <gpusnap/registry.h>

#include "formats/base/alloc.h"
#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/options.h"
#include "snapshot/registry_state.h"

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

bool gsn_registry_has_view(const gpusnap_registry *registry, const char *name)
{
	return tfind(name, &registry->view_names, compare_names) != NULL;
}

/*
 * Elements between the view's first and its lowest and highest element. Strides may be negative;
 * an empty view reaches nothing.
 */
static bool reach(const gpusnap_view_options *options, uint64_t *ret_below, uint64_t *ret_above)
{
	uint64_t below = 0;
	uint64_t above = 0;
	bool overflow = false;
	bool empty = false;

	for (uint32_t i = 0; i < options->rank; i++) {
		int64_t stride = options->strides[i];
		uint64_t step = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
		uint64_t *side = stride < 0 ? &below : &above;
		uint64_t far;

		if (options->shape[i] == 0) {
			empty = true;
			continue;
		}
		overflow |= gsn_mul_overflow(options->shape[i] - 1, step, &far);
		overflow |= gsn_add_overflow(*side, far, side);
	}
	*ret_below = empty ? 0 : below;
	*ret_above = empty ? 0 : above + 1;
	return empty || (!overflow && above < UINT64_MAX);
}

static bool is_inside(const gpusnap_view_options *options, uint64_t buffer_bytes)
{
	uint64_t bits = gpusnap_dtype_bits(options->dtype);
	uint64_t below, above, buffer_bits, start;

	if (!reach(options, &below, &above) || gsn_mul_overflow(below, bits, &below) ||
		gsn_mul_overflow(above, bits, &above) ||
		gsn_mul_overflow(buffer_bytes, 8, &buffer_bits) ||
		gsn_mul_overflow(options->offset, 8, &start))
		return false;
	return start <= buffer_bits && below <= start && above <= buffer_bits - start;
}

static gpusnap_status check_options(
	const gpusnap_registry *registry, const gpusnap_view_options *options, gpusnap_error *err)
{
	const struct gsn_buffer *buffer;
	gpusnap_status s = gsn_name_check("view", options->name, err);

	if (s)
		return s;
	if (!options->buffer)
		return gsn_fail(err, GPUSNAP_E_INVALID, "view '%s' names no buffer", options->name);
	if ((unsigned)options->dtype >= GPUSNAP_DTYPE_COUNT)
		return gsn_fail(err, GPUSNAP_E_INVALID, "view '%s': dtype %d is none",
			options->name, (int)options->dtype);
	if (options->rank > GPUSNAP_RANK_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID, "view '%s': rank %u, at most %u",
			options->name, options->rank, GPUSNAP_RANK_MAX);
	if (options->rank > 0 && (!options->shape || !options->strides))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"view '%s': rank %u, but no shape or no strides", options->name,
			options->rank);
	if (gsn_registry_has_view(registry, options->name) ||
		gsn_registry_buffer(registry, options->name))
		return gsn_fail(err, GPUSNAP_E_INVALID, "a buffer or view is named '%s' already",
			options->name);
	buffer = gsn_registry_buffer(registry, options->buffer);
	if (!buffer)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"view '%s': no buffer is named '%s'; views are of buffers", options->name,
			options->buffer);
	if (!is_inside(options, buffer->bytes))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"view '%s' at offset %llu leaves buffer '%s' of %llu bytes", options->name,
			(unsigned long long)options->offset, buffer->name,
			(unsigned long long)buffer->bytes);
	return GPUSNAP_OK;
}

static void release_view(gpusnap_plan_view *view)
{
	gsn_free(view->name);
	gsn_free(view->buffer);
	gsn_free(view->shape);
	gsn_free(view->strides);
}

static gpusnap_status make_room(gpusnap_registry *registry, gpusnap_error *err)
{
	uint32_t capacity = registry->view_capacity ? 2 * registry->view_capacity : 64;
	gpusnap_plan_view *grown;

	if (registry->view_count == GPUSNAP_PLAN_VIEWS_MAX)
		return gsn_fail(err, GPUSNAP_E_LIMIT, "%u views, no snapshot holds more",
			registry->view_count);
	if (registry->view_count < registry->view_capacity)
		return GPUSNAP_OK;
	grown = gsn_grow(
		registry->views, registry->view_capacity, capacity, sizeof *registry->views);
	if (!grown)
		return gsn_fail(
			err, GPUSNAP_E_NOMEM, "no memory for a table of %u views", capacity);
	registry->views = grown;
	registry->view_capacity = capacity;
	return GPUSNAP_OK;
}

static gpusnap_status add_view(
	gpusnap_registry *registry, const gpusnap_view_options *options, gpusnap_error *err)
{
	gpusnap_plan_view view = {
		.name = gsn_strdup(options->name),
		.buffer = gsn_strdup(options->buffer),
		.dtype = options->dtype,
		.offset = options->offset,
		.rank = options->rank,
		.shape = gsn_alloc(options->rank, sizeof *view.shape),
		.strides = gsn_alloc(options->rank, sizeof *view.strides),
	};
	bool whole = view.name && view.buffer && view.shape && view.strides;

	if (!whole || !tsearch(view.name, &registry->view_names, compare_names)) {
		release_view(&view);
		return gsn_fail(err, GPUSNAP_E_NOMEM, "no memory for view '%s'", options->name);
	}
	if (options->rank > 0) {
		memcpy(view.shape, options->shape, options->rank * sizeof *view.shape);
		memcpy(view.strides, options->strides, options->rank * sizeof *view.strides);
	}
	registry->views[registry->view_count++] = view;
	return GPUSNAP_OK;
}

gpusnap_status gpusnap_view_register(
	gpusnap_registry *registry, const gpusnap_view_options *options, gpusnap_error *err)
{
	gpusnap_view_options known;
	gpusnap_status s = gsn_options_copy(&known, sizeof known, options, "view options", err);

	if (s)
		return s;
	gsn_registry_lock(registry);
	s = gsn_registry_idle(registry, err);
	if (!s)
		s = check_options(registry, &known, err);
	if (!s)
		s = make_room(registry, err);
	if (!s)
		s = add_view(registry, &known, err);
	gsn_registry_unlock(registry);
	return s;
}

void gsn_views_prune(gpusnap_registry *registry)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < registry->view_count; i++) {
		gpusnap_plan_view *view = &registry->views[i];

		if (gsn_registry_buffer(registry, view->buffer)) {
			registry->views[kept++] = *view;
			continue;
		}
		(void)tdelete(view->name, &registry->view_names, compare_names);
		release_view(view);
	}
	registry->view_count = kept;
}
