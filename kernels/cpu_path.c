/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu_path.h"

#include <string.h>

#include "kernels/dot.h"

void gsn_dot_order(const uint8_t *order, const float *x, uint32_t k, float *ordered)
{
	uint32_t whole = k - k % GSN_DOT_GROUP;

	if (whole < k)
		memset(ordered + whole, 0, GSN_DOT_GROUP * sizeof *ordered);
	for (uint32_t i = 0; i < k; i++)
		ordered[gsn_dot_position(order, i)] = x[i];
}

/* Slowest first. */
static const struct gsn_cpu_path *const built_paths[] = {
	&gsn_cpu_portable,
#if defined(__x86_64__)
	&gsn_cpu_avx2,
	&gsn_cpu_avx512,
	&gsn_cpu_avx512_vbmi,
#endif
};

const struct gsn_cpu_path *gsn_cpu_path_at(size_t index)
{
	for (size_t i = 0; i < sizeof built_paths / sizeof built_paths[0]; i++)
		if (built_paths[i]->supported() && index-- == 0)
			return built_paths[i];
	return NULL;
}

const struct gsn_cpu_path *gsn_cpu_path_best(void)
{
	const struct gsn_cpu_path *best = NULL;
	const struct gsn_cpu_path *path;

	for (size_t i = 0; (path = gsn_cpu_path_at(i)); i++)
		best = path;
	return best;
}

const struct gsn_cpu_path *gsn_cpu_path_find(const char *name)
{
	const struct gsn_cpu_path *path;

	for (size_t i = 0; (path = gsn_cpu_path_at(i)); i++)
		if (strcmp(path->name, name) == 0)
			return path;
	return NULL;
}
