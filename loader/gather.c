/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/gather.h"

#include <string.h>

static void gather_runs(const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	for (uint64_t i = 0; i < view->count[0]; i++)
		for (uint64_t j = 0; j < view->count[1]; j++)
			for (uint64_t k = 0; k < view->count[2]; k++) {
				memcpy(target,
					source + i * view->stride[0] + j * view->stride[1] +
						k * view->stride[2],
					view->run);
				target += view->run;
			}
}

/* BF16 is the upper half of an F32 with the same value. */
static uint32_t scale_bits(const uint8_t *source, gpusnap_dtype dtype)
{
	uint16_t half;
	uint32_t bits;

	if (dtype == GPUSNAP_BF16) {
		memcpy(&half, source, sizeof half);
		return (uint32_t)half << 16;
	}
	memcpy(&bits, source, sizeof bits);
	return bits;
}

static void gather_scales(const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	const struct gsn_scale_map *map = &view->scale;

	for (uint64_t r = 0; r < view->count[1]; r++) {
		const uint8_t *row = source + (map->phase_n + r) / map->ratio_n * view->stride[1];

		for (uint64_t c = 0; c < view->count[2]; c++) {
			uint64_t column = (map->phase_k + c) / map->ratio_k;
			uint32_t bits = scale_bits(row + column * view->stride[2], map->dtype);

			memcpy(target, &bits, sizeof bits);
			target += sizeof bits;
		}
	}
}

void gsn_gather(const struct gsn_view *view, const uint8_t *source, uint8_t *target)
{
	switch (view->kind) {
	case GSN_VIEW_SCALE:
		gather_scales(view, source, target);
		break;
	case GSN_VIEW_MEMORY:
		memcpy(target, view->memory, view->run);
		break;
	case GSN_VIEW_COPY:
		gather_runs(view, source, target);
		break;
	}
}
