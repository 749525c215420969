/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/gather.h"

#include <string.h>

#include "formats/base/bytes.h"

/* Rows and columns of a tile: its elements, gathered in the cache, leave it in whole lines. */
#define TILE	      32u
#define ELEMENT_BYTES 8u /* at most */

static void fill(uint8_t *target, uint64_t bytes, uint32_t pattern)
{
	uint32_t byte = pattern & 0xff;

	if (pattern == byte * 0x01010101u)
		memset(target, (int)byte, bytes);
	else
		for (uint64_t i = 0; i < bytes; i++)
			target[i] = (uint8_t)(pattern >> 8 * (i % 4));
}

/* ---- runs ---- */

/* `bytes` is the length of a run, as a constant that the compiler makes loads and stores of. */
static inline uint8_t *gather_row(
	const struct gsn_view *view, const uint8_t *source, uint8_t *target, size_t bytes)
{
	for (uint64_t k = 0; k < view->count[2]; k++, target += bytes)
		memcpy(target, source + k * view->stride[2], bytes);
	return target;
}

static uint8_t *gather_any_row(const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	for (uint64_t k = 0; k < view->count[2]; k++) {
		memcpy(target, source + k * view->stride[2], view->run);
		fill(target + view->run, view->pad, view->fill);
		target += view->run + view->pad;
	}
	return target;
}

/* Runs of the lengths that slices of scales and of small experts have, one by one otherwise. */
static uint8_t *gather_dimension(
	const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	switch (view->pad ? 0 : view->run) {
	case 4:
		return gather_row(view, source, target, 4);
	case 8:
		return gather_row(view, source, target, 8);
	case 16:
		return gather_row(view, source, target, 16);
	case 32:
		return gather_row(view, source, target, 32);
	case 64:
		return gather_row(view, source, target, 64);
	case 128:
		return gather_row(view, source, target, 128);
	default:
		return gather_any_row(view, source, target);
	}
}

static void gather_runs(const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	for (uint64_t i = 0; i < view->count[0]; i++)
		for (uint64_t j = 0; j < view->count[1]; j++)
			target = gather_dimension(
				view, source + i * view->stride[0] + j * view->stride[1], target);
}

/* ---- scales ---- */

/* BF16 is the upper half of an F32 with the same value. */
static void put_scale(uint8_t *target, const uint8_t *source, gpusnap_dtype dtype)
{
	switch (dtype) {
	case GPUSNAP_BF16:
		memset(target, 0, 2);
		memcpy(target + 2, source, 2);
		break;
	case GPUSNAP_F8_E8M0:
		*target = *source;
		break;
	default:
		memcpy(target, source, 4);
		break;
	}
}

static void gather_scales(const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	const struct gsn_scale_map *map = &view->scale;

	for (uint64_t r = 0; r < view->count[1]; r++) {
		const uint8_t *row = source + (map->phase_n + r) / map->ratio_n * view->stride[1];

		for (uint64_t c = 0; c < view->count[2]; c++) {
			uint64_t column = (map->phase_k + c) / map->ratio_k;

			put_scale(target, row + column * view->stride[2], map->dtype);
			target += view->run;
		}
		fill(target, view->pad, view->fill);
		target += view->pad;
	}
}

/* ---- transposed matrices ---- */

/*
 * Elements [r, r + rows) x [c, c + columns). `bytes` is view->run, as a constant that the compiler
 * makes a load and a store of.
 */
static inline void gather_tile(const struct gsn_view *view, const uint8_t *source, uint8_t *target,
	uint64_t rows, uint64_t columns, size_t bytes)
{
	uint8_t tile[TILE * TILE * ELEMENT_BYTES];

	for (uint64_t c = 0; c < columns; c++)
		for (uint64_t r = 0; r < rows; r++)
			memcpy(tile + (r * TILE + c) * bytes,
				source + c * view->stride[2] + r * view->stride[1], bytes);
	for (uint64_t r = 0; r < rows; r++)
		memcpy(target + r * view->pitch, tile + r * TILE * bytes, columns * bytes);
}

static inline void gather_tiles(
	const struct gsn_view *view, const uint8_t *source, uint8_t *target, size_t bytes)
{
	for (uint64_t c = 0; c < view->count[2]; c += TILE)
		for (uint64_t r = 0; r < view->count[1]; r += TILE)
			gather_tile(view, source + c * view->stride[2] + r * view->stride[1],
				target + r * view->pitch + c * bytes,
				gsn_min(TILE, view->count[1] - r),
				gsn_min(TILE, view->count[2] - c), bytes);
}

static void gather_transposed(const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	switch (view->run) {
	case 1:
		gather_tiles(view, source, target, 1);
		break;
	case 2:
		gather_tiles(view, source, target, 2);
		break;
	case 4:
		gather_tiles(view, source, target, 4);
		break;
	default:
		gather_tiles(view, source, target, ELEMENT_BYTES);
		break;
	}
	for (uint64_t r = 0; view->pad && r < view->count[1]; r++)
		fill(target + r * view->pitch + view->count[2] * view->run, view->pad, view->fill);
}

void gsn_gather(const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	switch (view->kind) {
	case GSN_VIEW_SCALE:
		gather_scales(view, source, target);
		break;
	case GSN_VIEW_TRANSPOSE:
		gather_transposed(view, source, target);
		break;
	case GSN_VIEW_MEMORY:
		memcpy(target, view->memory, view->run);
		break;
	case GSN_VIEW_FILL:
		fill(target, view->run, view->fill);
		break;
	case GSN_VIEW_COPY:
		gather_runs(view, source, target);
		break;
	}
}
